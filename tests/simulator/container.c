/* container.c: what the simulated kubelet's runtime starts for a container.
 *
 *   container UID[:GROUP] ROOT MOUNT... -- COMMAND...        MOUNT is SOURCE:TARGET or SOURCE:TARGET:ro
 *
 * A process tree as in a pod: the first process of a new PID namespace stands for the runtime and stays root's,
 * the command is its child under UID, in a root file system of its own at ROOT (a tmpfs that ends with it) with
 * the given mounts. When the command ends, the first process ends with its status, and the kernel kills all that
 * is left. SIGTERM goes to the command.
 *
 * Why it is this strict: payload-init kills with kill(-1), "every process that I may signal". As root that is the
 * whole machine, as a person's own uid all that he runs. So a command never starts here unless both walls
 * are up: a uid from a range that nobody has, and a PID namespace, beyond which kill(-1) does not see.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_UID 47000
#define LAST_UID 58000

static sigset_t waited, before;

static void die(const char *what) {
    fprintf(stderr, "container: %s: %s\n", what, strerror(errno));
    exit(70);
}

/* Make the parents of a path, and the path itself, as what it is to be mounted over. */
static void make_target(char *path, int folder) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    if (folder) {
        mkdir(path, 0755);
    } else {
        int made = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (made >= 0)
            close(made);
    }
}

static void mount_at(const char *root, char *text) {
    char target[4096];
    struct stat source;
    char *middle = strchr(text, ':'), *last = middle ? strchr(middle + 1, ':') : NULL;
    if (!middle) {
        errno = EINVAL;
        die(text);
    }
    *middle = '\0';
    if (last)
        *last = '\0';
    snprintf(target, sizeof target, "%s%s", root, middle + 1);
    if (stat(text, &source) < 0)
        die(text);
    make_target(target, S_ISDIR(source.st_mode));
    if (mount(text, target, NULL, MS_BIND | MS_REC, NULL) < 0)
        die(target);
    if (last && mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
        die(target);
}

static void enter_root(const char *root, char **mounts, int count) {
    char proc[4096], writable[4096];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("tmpfs", root, "tmpfs", 0, "mode=0755") < 0)
        die(root);
    for (int i = 0; i < count; i++)
        mount_at(root, mounts[i]);
    snprintf(writable, sizeof writable, "%s/srv", root); /* images have a folder or two in which everybody may write */
    if (mkdir(writable, 0755) < 0 || chmod(writable, 01777) < 0)
        die(writable);
    snprintf(proc, sizeof proc, "%s/proc", root);
    mkdir(proc, 0555);
    if (mount("proc", proc, "proc", 0, NULL) < 0 || chroot(root) < 0 || chdir("/") < 0)
        die(proc);
}

static void become(uid_t uid, const gid_t *group, char **command) {
    setpriority(PRIO_PROCESS, 0, 0); /* a runtime's containers have the usual priority, however the tests run */
    if (setgroups(group != NULL, group) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        die("give up root");
    if (getuid() != uid || geteuid() != uid || setuid(0) == 0 || getppid() != 1)
        die("root was not given up");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    execv(command[0], command);
    die(command[0]);
}

/* Hand SIGTERM on to `child` until it ends; the exit code that stands for how. */
static int accompany(pid_t child) {
    for (;;) {
        int status, signal = sigwaitinfo(&waited, NULL);
        if (signal == SIGTERM)
            kill(child, SIGTERM);
        for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
            if (ended == child)
                return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

int main(int argc, char **argv) {
    int separator = 3;
    while (separator < argc && strcmp(argv[separator], "--") != 0)
        separator++;
    if (separator + 1 >= argc) {
        fprintf(stderr, "container: takes UID[:GROUP] ROOT MOUNT... -- COMMAND...\n");
        return 64;
    }
    char *end;
    unsigned long uid = strtoul(argv[1], &end, 10);
    gid_t group = 0;
    int has_group = *end == ':';
    if (has_group)
        group = strtoul(end + 1, &end, 10);
    if (*end || uid < FIRST_UID || uid > LAST_UID) {
        fprintf(stderr, "container: uid %s is not one of those that nobody has\n", argv[1]);
        return 64;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&waited);
    sigaddset(&waited, SIGTERM);
    sigaddset(&waited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &waited, &before);
    int parent[2];
    if (pipe2(parent, O_CLOEXEC) < 0)
        die("pipe");
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
        die("unshare");
    pid_t first = fork();
    if (first < 0)
        die("fork");
    if (first > 0)
        return accompany(first);
    if (getpid() != 1)
        die("no PID namespace of its own");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A parent that was killed before this line sends nothing; its end of the pipe tells. */
    close(parent[1]);
    if (poll(&(struct pollfd){.fd = parent[0]}, 1, 0) != 0)
        return 70;
    enter_root(argv[2], argv + 3, separator - 3);
    pid_t command = fork();
    if (command < 0)
        die("fork");
    if (command == 0)
        become(uid, has_group ? &group : NULL, argv + separator + 1);
    return accompany(command);
}
