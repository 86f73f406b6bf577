/* docker-client: HTCondor's DOCKER, the program that HTCondor runs as docker's command line client.
 *
 * HTCondor runs it a dozen times for a job, and each run of docker's own client takes 40 ms of processor time. This program
 * sends its words to the engine, over the slot's socket in DOCKER_HOST, and ends with the engine's answer
 * (docker/command_lines/handler.py, which has the protocol). The engine knows HTCondor's lines word by word, and answers
 * all others with an error. So this program has no grammar, and starts in a millisecond.
 *
 * Differences from docker's client:
 * - A pull never fails. After a failed pull HTCondor holds the job and keeps the slot for half a minute. The `create` that
 *   follows fails with the same message, and frees the slot at once.
 * - Standard input is delivered. HTCondor opens it for `docker start`, which reads it only with --interactive.
 * - A dead engine restarts within a second. `create` and `info` are repeated with the next engine: otherwise HTCondor would
 *   hold the job, or mark docker as gone from the machine. The next engine does not know the job's container, so that `start`
 *   fails and the job goes back to the queue. HTCondor requests the image's architecture before that, and gets none.
 * - Requests with a constant answer are answered here: the list of images (empty), tagging, the id of an image (none).
 * - A job has at most eight sessions (`exec`), for each of which this program becomes docker's own client: the job itself
 *   can request sessions from the starter, through a socket in its sandbox, and each client is in the pilot's memory.
 * - The end of `pull` or `create` by a signal holds the job, with the content of this program's standard error as the reason.
 *   condor_master can send that signal when a daemon has died. So the file has such a reason from the beginning on.
 * - The job's environment is on the line of `create`, and every process of the pod can read command lines. So this program
 *   overwrites its own as soon as it has copied it.
 *
 * Beside the link by which HTCondor runs it, the file docker-client.settings has words that each end with a NUL (programs.py):
 * `yes` if HTCondor runs without root, docker's own client, and DOCKER_EXTRA_ARGUMENTS.
 */
#define _GNU_SOURCE
#include "docker-client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PAUSE_MS
#define PAUSE_MS 3000 /* before a command is repeated */
#endif
#define TRIES 10
#define SESSIONS 8
#define NO_STATUS 125 /* of `start`, as of docker's client, when the connection breaks */

static char *folder;   /* of the settings */
static char **words;   /* the line, from the command on, and NULL */
static int count;
static char *line;     /* the same, each word with its NUL */
static size_t size;
static const char *docker = "/usr/bin/docker";
static const char *extra; /* DOCKER_EXTRA_ARGUMENTS, each word with its NUL */
static size_t extra_size;
static int extra_words;
static int rootless;
static int has_note;

/* Writes the reason for the hold of a job whose `pull` or `create` is killed. HTCondor's file is empty at this time. */
static void write_note(void) {
    static const char text[] = "k8spilot: HTCondor's daemons ended while they prepared the job, and the job is not at fault; "
                               "release it (condor_release)\n";
    struct stat found;
    if (fstat(STDERR_FILENO, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0)
        has_note = write(STDERR_FILENO, text, sizeof text - 1) > 0;
}

void remove_note(void) {
    if (has_note && ftruncate(STDERR_FILENO, 0) == 0)
        lseek(STDERR_FILENO, 0, SEEK_SET);
    has_note = 0;
}

_Noreturn void refuse(const char *format, ...) {
    va_list values;
    va_start(values, format);
    remove_note();
    fputs("k8spilot: ", stderr);
    vfprintf(stderr, format, values);
    fputs("\n", stderr);
    exit(1);
}

static void *have(void *memory) {
    if (!memory)
        refuse("docker's client has no memory");
    return memory;
}

static char *beside(const char *name) {
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        refuse("docker's client has no memory");
    return path;
}

/* Compares a word of the line. */
static int is(int place, const char *word) { return place < count && strcmp(words[place], word) == 0; }

/* --- the line --------------------------------------------------------------------------------------- */

/* Copies the line, and overwrites its own memory. */
static void copy_line(char **argv) {
    for (int i = 0; i < count; i++)
        size += strlen(argv[i]) + 1;
    char *next = line = have(malloc(size));
    words = have(calloc(count + 1, sizeof *words));
    for (int i = 0; i < count; i++) {
        size_t length = strlen(argv[i]);
        words[i] = memcpy(next, argv[i], length + 1);
        next += length + 1;
        if (i > 0 && (is(0, "create") || is(0, "exec")))
            explicit_bzero(argv[i], length);
    }
}

static void read_settings(void) {
    static char settings[64 * 1024];
    char *path = beside("docker-client.settings");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, settings, sizeof settings);
    if (length <= 0 || length == sizeof settings || settings[length - 1])
        refuse("%s is not readable; restart the pilot", path);
    close(file);
    free(path);
    rootless = strcmp(settings, "yes") == 0;
    extra = settings + strlen(settings) + 1;
    if (extra < settings + length) {
        docker = extra;
        extra += strlen(docker) + 1;
    }
    extra_size = settings + length - extra;
    for (const char *one = extra; one < extra + extra_size; one += strlen(one) + 1)
        extra_words++;
}

/* Puts the operator's words before the line, for the engine. */
static void add_extra(void) {
    char *both = have(malloc(extra_size + size));
    memcpy(both, extra, extra_size);
    memcpy(both + extra_size, line, size);
    line = both;
    size += extra_size;
}

/* --- docker's own client ---------------------------------------------------------------------------- */

_Noreturn static void become_docker(void) {
    char **arguments = have(calloc(count + 2, sizeof *arguments));
    arguments[0] = (char *)docker;
    memcpy(arguments + 1, words, count * sizeof *words);
    setenv("DOCKER_CONFIG", beside("docker"), 1); /* and no configuration of a user's */
    execv(docker, arguments);
    refuse("%s does not run: %s", docker, strerror(errno));
}

/* The lock lasts until docker's client ends. */
_Noreturn static void begin_session(void) {
    const char *execute = getenv("_CONDOR_EXECUTE"), *slot = execute ? strrchr(execute, '/') : NULL;
    char name[300];
    for (int number = 1; number <= SESSIONS; number++) {
        snprintf(name, sizeof name, "sessions/%s-%d", slot ? slot + 1 : "", number);
        int file = open(beside(name), O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
        if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
            become_docker();
    }
    refuse("this job has %d sessions already; end one of them first", SESSIONS);
}

/* --- commands --------------------------------------------------------------------------------------- */

static int has_constant_answer(void) {
    return (count == 3 && (is(0, "tag") || (is(0, "images") && (is(1, "--format") || is(1, "-q"))))) ||
           (count == 3 && is(0, "inspect") && is(1, "--format") && is(2, "{{.Id}} {{.Metadata.LastTagTime}}"));
}

/* For a job that sends credentials HTCondor names a folder with a file that the user wrote. The kubelet cannot use them. */
static int sends_credentials(void) {
    const char *chosen = getenv("DOCKER_CONFIG");
    return chosen && *chosen && strcmp(chosen, beside("docker")) != 0;
}

static int run(void) {
    char headers[300];
    int creates = is(0, "create"), is_repeated = creates || (is(0, "info") && count == 1), status = UNANSWERED;
    if (is(0, "start"))
        return start(line, size, words[count - 1]);
    int used = snprintf(headers, sizeof headers, "Connection: close\r\nK8spilot-Extra-Words: %d\r\n%s",
        creates ? extra_words : 0, sends_credentials() ? "X-K8spilot-Sends-Credentials: true\r\n" : "");
    if (creates && rootless)
        add_requests(words, headers + used, sizeof headers - used);
    if (creates)
        add_extra();
    for (int i = 0; i < (is_repeated ? TRIES : 1) && status == UNANSWERED; i++) {
        if (i > 0)
            usleep(PAUSE_MS * 1000);
        status = ask(headers, line, size);
    }
    return status;
}

int main(int argc, char **argv) {
    char *end = argc > 1 ? strrchr(argv[0], '/') : NULL;
    if (!end)
        refuse("docker's client needs a command, and a path of its own");
    folder = have(strndup(argv[0], end - argv[0]));
    count = argc - 1;
    copy_line(argv + 1);
    read_settings();
    if (has_constant_answer())
        return 0;
    if (count == 1 && is(0, "-v"))
        become_docker();
    if (is(0, "pull") || is(0, "create"))
        write_note();
    int status = run();
    remove_note();
    if (status == BECOMES_DOCKER)
        begin_session();
    if (status == UNANSWERED) {
        fputs("k8spilot: the engine has ended, or does not answer; it restarts within a second\n", stderr);
        status = is(0, "start") ? NO_STATUS : 1;
    }
    if (status == 0 && is(0, "create") && rootless)
        open_sandboxes(getenv("_CONDOR_EXECUTE"));
    return is(0, "pull") ? 0 : status;
}
