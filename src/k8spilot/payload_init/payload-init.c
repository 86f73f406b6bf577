/* payload-init: the first process of every payload container, whatever its image.
 *
 * It connects to the pilot's socket, says hello, and then does as it is told: run one command, deliver
 * signals to it, sweep away what it left behind. It tells of the start and of the end at once. The socket
 * is a SOCK_SEQPACKET, one message a packet, in ASCII (channel.py holds the other end):
 *
 *   to the pilot    hello 1 fresh|used NAME...   with one open cgroup file for each NAME
 *                   started PID                  the command has been executed
 *                   failed ERRNO STAGE           it could not be; an exit follows
 *                   exit STATUS                  as from waitpid(2)
 *                   swept                        no process of the container is left but this one
 *   from the pilot  run                          with command, stdin, stdout, stderr as descriptors
 *                   signal N                     to the command's own process
 *                   sweep                        kill all that is left
 *
 * The job runs under the same uid and may kill this process; the pilot then sees the socket close and
 * the job is lost, nothing else. It cannot trace it or reach its descriptors: it is not dumpable.
 * The pilot knows the peer of the socket by its process id, so no other process can speak for it.
 *
 * Statically linked, so that an image needs nothing for it: no libc, no shell, not even /proc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_SIZE 1024
#define RUN_DESCRIPTORS 4
#define LOOK_AGAIN_MS 200

extern char **environ;

static sigset_t all_signals, original_mask;
static int pilot = -1;      /* the socket, -1 while there is no pilot */
static pid_t job = 0;       /* the command's process, 0 when there is none */
static int used = 0;        /* a command has run here: this container is good for no other */
static int sweeping = 0;

static void die(const char *what) {
    fprintf(stderr, "payload-init: %s: %s\n", what, strerror(errno));
    exit(70);
}

/* --- messages ------------------------------------------------------------------------------------- */

static void send_message(const char *text, const int *descriptors, int count) {
    char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec data = {.iov_base = (void *)text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (pilot < 0)
        return;
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    /* A pilot that is gone is noticed by its end of the socket, in the main loop. */
    while (sendmsg(pilot, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) { }
}

static void say(const char *word, long first, const char *second) {
    char text[128];
    snprintf(text, sizeof text, "%s %ld%s%s", word, first, *second ? " " : "", second);
    send_message(text, NULL, 0);
}

/* The container's own accounting, opened here and read by the pilot: the kernel's figures, which the job
 * cannot change. Both layouts of cgroups; what is not there is left out. */
static void say_hello(void) {
    static const char *const files[] = {
        "/sys/fs/cgroup/cpu.stat",      "/sys/fs/cgroup/memory.stat",
        "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory.peak",
        "/sys/fs/cgroup/cpuacct/cpuacct.usage_user",    "/sys/fs/cgroup/cpuacct/cpuacct.usage_sys",
        "/sys/fs/cgroup/memory/memory.stat", "/sys/fs/cgroup/memory/memory.oom_control",
    };
    int descriptors[8], count = 0;
    char text[MESSAGE_SIZE];
    size_t length = snprintf(text, sizeof text, "hello 1 %s", used ? "used" : "fresh");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int descriptor = open(files[i], O_RDONLY | O_CLOEXEC);
        if (descriptor < 0)
            continue;
        descriptors[count++] = descriptor;
        length += snprintf(text + length, sizeof text - length, " %s", strrchr(files[i], '/') + 1);
    }
    send_message(text, descriptors, count);
    while (count > 0)
        close(descriptors[--count]);
}

/* --- the command ---------------------------------------------------------------------------------- */

/* A command is a sequence of records, each a letter, its value and a NUL (command.py writes it):
 * a argument, e NAME=VALUE, u NAME or PREFIX* to take out of the image's environment, d directory, m umask in octal. */
struct command {
    char **arguments, **environment;
    const char *directory;
    mode_t mask;
};

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

static int read_command(int descriptor, struct command *command) {
    struct stat status;
    if (fstat(descriptor, &status) < 0 || status.st_size < 1)
        return -1;
    size_t size = status.st_size, records = 0, inherited = 0;
    char *text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    if (text == MAP_FAILED || text[size - 1] != '\0')
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
        case 'm': command->mask = strtoul(value, NULL, 8); break;
        default: errno = EINVAL; return -1;
        }
    }
    return arguments > 0 ? 0 : -1;
}

/* Tells the pilot and the job's own stderr, then ends as a shell would: 127 not found, 126 cannot be run. */
static void fail_to_run(int report, const char *stage, const char *what) {
    char text[MESSAGE_SIZE];
    int error = errno;
    snprintf(text, sizeof text, "%d %s", error, stage);
    if (write(report, text, strlen(text)) < 0) { /* the exit code tells it too */ }
    dprintf(STDERR_FILENO, "k8spilot: cannot %s '%s': %s\n", stage, what, strerror(error));
    _exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

/* As execvp(3), which Docker's own init uses: a file that is no program the kernel knows is given to the shell. */
static void execute(struct command *command) {
    environ = command->environment;
    execvp(command->arguments[0], command->arguments);
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

static void become(struct command *command, const int *stdio, int report) {
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* whoever started the container may have had some ignored, and that is inherited */
    sigprocmask(SIG_SETMASK, &original_mask, NULL);
    setsid();
    for (int i = 0; i < 3; i++)
        if (dup2(stdio[i], i) < 0)
            _exit(126);
    umask(command->mask);
    if (command->directory && chdir(command->directory) < 0)
        fail_to_run(report, "enter", command->directory);
    execute(command);
    fail_to_run(report, "run", command->arguments[0]);
}

static void run(const int *descriptors) {
    struct command command = {.mask = 022};
    int report[2];
    char text[128] = {0};
    used = 1;
    if (read_command(descriptors[0], &command) < 0) {
        say("failed", errno, "read");
        say("exit", 126 << 8, "");
        return;
    }
    if (pipe2(report, O_CLOEXEC) < 0)
        die("pipe");
    job = fork();
    if (job == 0)
        become(&command, descriptors + 1, report[1]);
    if (job < 0) {
        job = 0;
        say("failed", errno, "fork");
        say("exit", 126 << 8, "");
        return;
    }
    close(report[1]);
    /* Ends when the command has been executed, which closes the pipe, or could not be. */
    ssize_t length = read(report[0], text, sizeof text - 1);
    close(report[0]);
    if (length > 0)
        say("failed", strtol(text, NULL, 10), strchr(text, ' ') ? strchr(text, ' ') + 1 : "run");
    else
        say("started", job, "");
}

/* --- events --------------------------------------------------------------------------------------- */

/* Everything of this uid but this process; orphans become children of this process (it is their subreaper),
 * so that "no child is left" proves that the container is empty. */
static void reap(void) {
    int status;
    pid_t pid;
    if (sweeping)
        kill(-1, SIGKILL);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == job) {
            job = 0;
            say("exit", status, "");
        }
    if (pid < 0 && errno == ECHILD && sweeping) {
        sweeping = 0;
        send_message("swept", NULL, 0);
    }
}

static void handle_signal(int signals) {
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGCHLD)
        reap();
    /* The kubelet stops this container: its image is changed, or the pod ends. Never with 0: with the pod's
     * restartPolicy OnFailure the kubelet takes that for the end of it, and its status never tells that the next
     * image cannot be pulled. */
    if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
        kill(-1, SIGKILL);
        exit(128 + SIGTERM);
    }
}

/* The pilot renames its listening socket into place, so a connection that is refused is one to a pilot that has ended. */
static void find_pilot(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        die(path);
    }
    strcpy(address.sun_path, path);
    int candidate = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (candidate < 0)
        die("socket");
    if (connect(candidate, (struct sockaddr *)&address, sizeof address) < 0) {
        close(candidate);
        return;
    }
    pilot = candidate;
    say_hello();
}

static int receive(char *text, size_t size, int *descriptors) {
    char control[CMSG_SPACE(RUN_DESCRIPTORS * sizeof(int))];
    struct iovec data = {.iov_base = text, .iov_len = size - 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t length = recvmsg(pilot, &message, MSG_CMSG_CLOEXEC);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return 0;
    int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
    return count;
}

/* What still runs has nobody to report to: HTCondor gives such a job back to the queue, so it must not go on.
 * The next pilot may be there already, its event read while this one still was. */
static void lose_pilot(const char *path) {
    close(pilot);
    pilot = -1;
    kill(-1, SIGKILL);
    find_pilot(path);
}

static void handle_pilot(const char *path) {
    char text[MESSAGE_SIZE];
    int descriptors[RUN_DESCRIPTORS];
    int count = receive(text, sizeof text, descriptors);
    if (count < 0) {
        lose_pilot(path);
    } else if (strcmp(text, "run") == 0 && count == RUN_DESCRIPTORS && !used) {
        run(descriptors);
    } else if (strncmp(text, "signal ", 7) == 0) {
        if (job)
            kill(job, atoi(text + 7));
    } else if (strcmp(text, "sweep") == 0) {
        sweeping = 1;
        reap();
    }
    while (count > 0)
        close(descriptors[--count]);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "payload-init: started by hand? It takes one argument, the path of the pilot's socket.\n");
        return 64;
    }
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigfillset(&all_signals);
    sigprocmask(SIG_SETMASK, &all_signals, &original_mask);
    int signals = signalfd(-1, &all_signals, SFD_CLOEXEC);
    int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char *folder = strdup(argv[1]);
    if (signals < 0 || !folder)
        die(argv[1]);
    /* inotify is short where other containers of this uid use it up (fs.inotify.max_user_instances is one for the
     * node): then, and only then, this looks for a pilot now and then. */
    int patience = -1;
    if (changes < 0 || inotify_add_watch(changes, dirname(folder), IN_CREATE | IN_MOVED_TO) < 0)
        patience = LOOK_AGAIN_MS;
    for (find_pilot(argv[1]);;) {
        struct pollfd events[] = {{.fd = signals, .events = POLLIN}, {.fd = changes, .events = POLLIN}, {.fd = pilot, .events = POLLIN}};
        char ignored[4096];
        int happened = poll(events, 3, pilot < 0 ? patience : -1);
        if (happened < 0)
            die("poll");
        if ((happened == 0 || (events[1].revents && read(changes, ignored, sizeof ignored) > 0)) && pilot < 0)
            find_pilot(argv[1]);
        if (events[0].revents)
            handle_signal(signals);
        if (events[2].revents && pilot == events[2].fd)
            handle_pilot(argv[1]);
    }
}
