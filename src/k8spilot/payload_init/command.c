/* Commands: read from the socket, executed in a child of payload-init. */
#define _GNU_SOURCE
#include "command.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static int is_taken_out(const char *variable, const char *pattern) {
    size_t length = strlen(pattern);
    if (length > 0 && pattern[length - 1] == '*')
        return strncmp(variable, pattern, length - 1) == 0;
    return strncmp(variable, pattern, length) == 0 && variable[length] == '=';
}

static void take_out(char **environment, const char *pattern) {
    char **kept = environment;
    for (; *environment; environment++)
        if (!is_taken_out(*environment, pattern))
            *kept++ = *environment;
    *kept = NULL;
}

static void put_in(char **environment, char *variable) {
    size_t name = strcspn(variable, "=") + 1;
    for (; *environment; environment++)
        if (strncmp(*environment, variable, name) == 0) {
            *environment = variable;
            return;
        }
    environment[0] = variable;
    environment[1] = NULL;
}

int read_command(int descriptor, struct command *command) {
    struct stat status;
    if (fstat(descriptor, &status) < 0 || status.st_size < 1)
        return -1;
    size_t size = status.st_size, records = 0, inherited = 0;
    char *text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    if (text == MAP_FAILED)
        return -1;
    command->text = text;
    command->size = size;
    if (text[size - 1] != '\0')
        return -1;
    for (size_t i = 0; i < size; i++)
        records += text[i] == '\0';
    while (environ[inherited])
        inherited++;
    command->arguments = calloc(records + 1, sizeof(char *));
    command->environment = calloc(inherited + records + 1, sizeof(char *));
    if (!command->arguments || !command->environment)
        return -1;
    memcpy(command->environment, environ, inherited * sizeof(char *));
    int arguments = 0;
    for (char *record = text; record < text + size; record += strlen(record) + 1) {
        char *value = record + 1;
        switch (*record) {
        case 'a': command->arguments[arguments++] = value; break;
        case 'u': take_out(command->environment, value); break;
        case 'e': put_in(command->environment, value); break;
        case 'd': command->directory = value; break;
        case 'f': command->otherwise = value; break;
        case 'm': command->mask = strtoul(value, NULL, 8); break;
        default: errno = EINVAL; return -1;
        }
    }
    return arguments > 0 ? 0 : -1;
}

void free_command(struct command *command) {
    free(command->arguments);
    free(command->environment);
    if (command->text)
        munmap(command->text, command->size);
}

/* Opens the file of a program, which execvp(3) looks up in PATH. */
static int open_program(const char *name) {
    char path[4096];
    const char *folders = strchr(name, '/') ? NULL : getenv("PATH");
    int file = folders ? -1 : open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    while (folders && *folders && file < 0) {
        int length = strcspn(folders, ":");
        snprintf(path, sizeof path, "%.*s/%s", length, folders, name);
        file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        folders += length + (folders[length] == ':');
    }
    return file;
}

/* Returns the interpreter that a program names: that of a script (#!), or the loader of an ELF file; NULL without one. */
static char *interpreter_of(int file, char *start, size_t size) {
    Elf64_Ehdr header;
    Elf64_Phdr part = {.p_type = PT_NULL};
    ssize_t length = pread(file, start, size - 1, 0);
    start[length < 0 ? 0 : length] = '\0';
    if (strncmp(start, "#!", 2) == 0) {
        start += 2 + strspn(start + 2, " \t");
        start[strcspn(start, " \t\n")] = '\0';
        return start;
    }
    if (length < (ssize_t)sizeof header || memcmp(start, ELFMAG, SELFMAG) != 0 || start[EI_CLASS] != ELFCLASS64)
        return NULL;
    memcpy(&header, start, sizeof header);
    for (int i = 0; i < header.e_phnum && part.p_type != PT_INTERP; i++)
        if (pread(file, &part, sizeof part, header.e_phoff + (Elf64_Off)i * sizeof part) != sizeof part)
            return NULL;
    length = part.p_type == PT_INTERP ? pread(file, start, size - 1, part.p_offset) : 0;
    start[length < 0 ? 0 : length] = '\0';
    return length > 0 ? start : NULL;
}

/* Says why a program cannot run. The kernel's error is the same for a missing program and for a missing interpreter. */
static void say_why(const char *stage, const char *what, int error) {
    char start[256], *interpreter = NULL;
    int file = error == ENOENT && strcmp(stage, "run") == 0 ? open_program(what) : -1;
    if (file >= 0)
        interpreter = interpreter_of(file, start, sizeof start);
    size_t length = interpreter ? strlen(interpreter) : 0;
    if (length > 1 && interpreter[length - 1] == '\r')
        dprintf(STDERR_FILENO, "k8spilot: cannot run '%s': its lines end with CR LF, as on Windows, so that its interpreter is "
                "'%.*s\\r', which does not exist; convert it, for example with dos2unix\n", what, (int)length - 1, interpreter);
    else if (length > 0 && access(interpreter, F_OK) < 0)
        dprintf(STDERR_FILENO, "k8spilot: cannot run '%s': its interpreter '%s' is not in the image\n", what, interpreter);
    else
        dprintf(STDERR_FILENO, "k8spilot: cannot %s '%s': %s\n", stage, what, strerror(error));
}

static _Noreturn void fail_to_run(int report, const char *stage, const char *what) {
    char text[256];
    int error = errno;
    snprintf(text, sizeof text, "%d %s", error, stage);
    if (write(report, text, strlen(text)) < 0) { /* the exit code shows the failure, too */ }
    say_why(stage, what, error);
    _exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

/* As execvp(3), which Docker's own init uses: the shell runs a file that the kernel cannot execute. */
static void execute(struct command *command) {
    environ = command->environment;
    execvp(command->arguments[0], command->arguments);
    if (errno == ENOENT && command->otherwise) {
        command->arguments[0] = command->otherwise;
        execvp(command->arguments[0], command->arguments);
    }
    if (errno != ENOEXEC)
        return;
    size_t count = 0;
    while (command->arguments[count])
        count++;
    char **shell = calloc(count + 2, sizeof(char *));
    if (!shell)
        return;
    shell[0] = "/bin/sh";
    memcpy(shell + 1, command->arguments, count * sizeof(char *));
    execv(shell[0], shell);
    errno = ENOEXEC;
}

void become(struct command *command, const int *stdio, int report, const sigset_t *mask) {
    /* The container's runtime may have ignored some signals, which is inherited. Use the system call, because libc reserves
     * some signals: a kernel_sigaction of zeros is SIG_DFL without flags. */
    static const unsigned char as_usual[64];
    for (int number = 1; number < NSIG; number++)
        syscall(SYS_rt_sigaction, number, as_usual, NULL, 8);
    sigprocmask(SIG_SETMASK, mask, NULL);
    setsid();
    if (stdio[0] == stdio[1] && ioctl(stdio[0], TIOCSCTTY, 0) < 0)
        fail_to_run(report, "open", "terminal");
    for (int i = 0; i < 3; i++)
        if (dup2(stdio[i], i) < 0)
            _exit(126);
    umask(command->mask);
    if (command->directory && chdir(command->directory) < 0)
        fail_to_run(report, "enter", command->directory);
    execute(command);
    fail_to_run(report, "run", command->arguments[0]);
}
