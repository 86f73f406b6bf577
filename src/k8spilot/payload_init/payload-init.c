/* payload-init: the first process of every payload container, with any image.
 *
 * It connects to the pilot's socket, sends a hello, and then follows the pilot's messages: it runs the job, sends signals
 * to it, runs other commands beside it, and kills the remaining processes. It reports starts and ends at once. The
 * socket is a SOCK_SEQPACKET, one message per packet, in ASCII (channel.py is the other end). Commands have numbers: 0 is
 * the job, which runs once; others run beside it (docker exec).
 *
 *   to the pilot    hello 4 fresh|used scoped|open BIND NAME...   with one open cgroup file for each NAME; `root` is the
 *                                                                 container's root folder (O_PATH)
 *                   terminal NUMBER              with the master side of the command's new terminal
 *                   started NUMBER PID           the command runs
 *                   failed NUMBER ERRNO STAGE    the command could not run; an exit follows
 *                   exit NUMBER STATUS           as from waitpid(2)
 *                   swept                        this is the only process left in the container
 *                   leash ERRNO                  0: the end of the terminal kills this process
 *                   cleared                      this is the only process of this user left in the pod
 *                   renewed                      the container can run another job
 *                   worn WHAT                    it cannot, because of what its job has left or changed
 *   from the pilot  run NUMBER                   with command, stdin, stdout, stderr as descriptors
 *                   run NUMBER terminal          with command only: its streams are a terminal of the container
 *                   signal SIGNAL                to the job's own process
 *                   pause, resume                stop all processes, and continue them
 *                   sweep                        kill all remaining processes
 *                   leash                        with a terminal, whose end should kill this process
 *                   clear                        kill all processes of this user, in other containers, too
 *                   end                          kill all processes of this user, in other containers, too, and end
 *                   renew                        the next job of the same claim is to run here
 *
 * "scoped" means that the kernel isolates the container's processes from abstract sockets of the pod's other containers
 * (scope.c). BIND is the pilot's id of the change of image for which this container was created, from the variable
 * K8SPILOT_BIND; "-" without one. The kubelet takes it from the same version of the pod as the image.
 *
 * The job runs under the same uid and may kill this process (SIGKILL; SIGHUP once it has a leash). The pilot then sees the
 * socket close, and the job is lost, without further effect. The job cannot trace this process or reach its descriptors, because it is not dumpable.
 * The pilot identifies the client of the socket by its process id, so that no other process can speak for it.
 *
 * The program is statically linked: an image needs no libc, no shell and no /proc for it.
 */
#define _GNU_SOURCE
#include "command.h"
#include "keyrings.h"
#include "packet.h"
#include "scope.h"
#include "wear.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_SIZE 1024
#define COMMANDS 32 /* at a time, including the job */
#define LOOK_AGAIN_MS 200
#define PAUSE_AGAIN_MS 50
#define BIND "K8SPILOT_BIND"
#define BIND_SIZE 33
#define JOIN_SESSION_KEYRING 1 /* KEYCTL_JOIN_SESSION_KEYRING of linux/keyctl.h */

static sigset_t all_signals, original_mask;
static int pilot = -1;            /* the socket; -1 without a pilot */
static pid_t processes[COMMANDS]; /* of the running commands, by place; 0 for a free place */
static int numbers[COMMANDS];     /* their numbers; the job has place 0 */
static char bind_name[BIND_SIZE] = "-";
static int scoped = 0;
static int used = 0;              /* a job has run here: the container runs no other unless it is renewed */
static int sweeping = 0;
static int paused = 0;            /* a job can continue itself (a timer's SIGCONT), so it is stopped repeatedly */

static void die(const char *what) {
    fprintf(stderr, "payload-init: %s: %s\n", what, strerror(errno));
    exit(70);
}

/* --- messages ------------------------------------------------------------------------------------- */

static void send_message(const char *text, const int *descriptors, int count) {
    if (pilot >= 0)
        send_packet(pilot, text, descriptors, count);
}

static void say(const char *word, int number, long value) {
    char text[64];
    snprintf(text, sizeof text, "%s %d %ld", word, number, value);
    send_message(text, NULL, 0);
}

static void say_failed(int number, int error, const char *stage) {
    char text[128];
    snprintf(text, sizeof text, "failed %d %d %s", number, error, stage);
    send_message(text, NULL, 0);
}

/* Opens the container's accounting files for the pilot: the kernel's figures, which the job cannot change. The list has
 * the files of both cgroup versions; missing files are left out. */
static void say_hello(void) {
    static const char *const files[] = {
        "/sys/fs/cgroup/cpu.stat",      "/sys/fs/cgroup/memory.stat",
        "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/cpuacct/cpuacct.usage_user",    "/sys/fs/cgroup/cpuacct/cpuacct.usage_sys",
        "/sys/fs/cgroup/memory/memory.stat", "/sys/fs/cgroup/memory/memory.oom_control",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    };
    int descriptors[sizeof files / sizeof *files + 1], count = 0;
    char text[MESSAGE_SIZE];
    size_t length = snprintf(text, sizeof text, "hello 4 %s %s %s", used ? "used" : "fresh", scoped ? "scoped" : "open", bind_name);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int descriptor = open(files[i], O_RDONLY | O_CLOEXEC);
        if (descriptor < 0)
            continue;
        descriptors[count++] = descriptor;
        length += snprintf(text + length, sizeof text - length, " %s", strrchr(files[i], '/') + 1);
    }
    /* The pilot measures there what the job writes to its image (measure.c). */
    descriptors[count] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptors[count] >= 0) {
        count++;
        length += snprintf(text + length, sizeof text - length, " root");
    }
    send_message(text, descriptors, count);
    while (count > 0)
        close(descriptors[--count]);
}

/* --- commands ------------------------------------------------------------------------------------- */

/* Opens a terminal of the container, so that its programs find its name. Sends the master side to the pilot. */
static int open_terminal(int number) {
    char text[64];
    int unlocked = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0)
        return -1;
    int terminal = ioctl(master, TIOCSPTLCK, &unlocked) < 0 ? -1 : ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal >= 0) {
        snprintf(text, sizeof text, "terminal %d", number);
        send_message(text, &master, 1);
    }
    close(master);
    return terminal;
}

static void fail(int number, const char *stage) {
    say_failed(number, errno, stage);
    say("exit", number, 126 << 8);
}

/* Starts a command in a free place. `stdio` as for become(). */
static void start(int number, int place, struct command *command, const int *stdio) {
    int report[2];
    char text[128] = {0};
    if (pipe2(report, O_CLOEXEC) < 0) {
        fail(number, "pipe");
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(command, stdio, report[1], &original_mask);
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        fail(number, "fork");
        return;
    }
    processes[place] = pid;
    numbers[place] = number;
    /* The read ends when the command runs, which closes the pipe, or has failed. */
    ssize_t length = read(report[0], text, sizeof text - 1);
    close(report[0]);
    if (length > 0)
        say_failed(number, strtol(text, NULL, 10), strchr(text, ' ') ? strchr(text, ' ') + 1 : "run");
    else
        say("started", number, pid);
}

static int free_place(int number) {
    if (number == 0)
        return used ? -1 : 0;
    for (int place = 1; place < COMMANDS; place++)
        if (!processes[place])
            return place;
    return -1;
}

/* `count` descriptors came with the message. The kernel drops them if a job has lowered this process's RLIMIT_NOFILE. */
static void run(int number, const int *descriptors, int count, int has_terminal) {
    struct command command = {.mask = 022};
    int place = free_place(number), terminal = -1, is_complete = count == (has_terminal ? 1 : PACKET_DESCRIPTORS);
    if (place < 0 || !is_complete) {
        errno = is_complete ? EAGAIN : EMFILE;
        fail(number, is_complete ? "start" : "receive");
        return;
    }
    used |= number == 0;
    if (read_command(descriptors[0], &command) < 0) {
        fail(number, "read");
    } else if (has_terminal && (terminal = open_terminal(number)) < 0) {
        fail(number, "open");
    } else {
        int same[] = {terminal, terminal, terminal};
        start(number, place, &command, has_terminal ? same : descriptors + 1);
    }
    free_command(&command);
    if (terminal >= 0)
        close(terminal);
}

/* A pilot without root may not signal this process, and a job may stop it. When the other side of a terminal closes, the
 * kernel sends SIGHUP and SIGCONT to its session, and SIGHUP then kills this process. The pilot has created the terminal
 * and holds that side, which also closes when the pilot dies. No job can reach the terminal: the job has its own sessions,
 * and the descriptor is closed. */
static void take_leash(int terminal) {
    char text[32];
    sigset_t hangup;
    setsid(); /* most runtimes have made it a session leader already */
    int taken = ioctl(terminal, TIOCSCTTY, 0) == 0;
    snprintf(text, sizeof text, "leash %d", taken ? 0 : errno);
    if (taken) {
        sigemptyset(&hangup);
        sigaddset(&hangup, SIGHUP);
        signal(SIGHUP, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &hangup, NULL);
    }
    send_message(text, NULL, 0);
}

/* Leaves the session keyring, which a job's processes share with this one. It fails where the filter works (keyrings.c): the
 * job could put no key there, then. */
static int leave_keyring(void) {
    return syscall(SYS_keyctl, JOIN_SESSION_KEYRING, NULL) >= 0 || errno == EPERM || errno == ENOSYS;
}

/* Makes the container ready for another job, if its job has left no process, and nothing of this process is changed. A
 * process that somebody started in the container from outside is not a child. HTCondor has transferred the next job's
 * files by now, so that it needs no helper of this uid either. */
static void renew(void) {
    char text[64];
    siginfo_t info;
    const char *what = changed_state();
    if (sweeping || paused || waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        what = "processes";
    else if (!what && !leave_keyring())
        what = "keys";
    if (!what) {
        kill(-1, SIGKILL);
        used = 0;
    }
    snprintf(text, sizeof text, what ? "worn %s" : "renewed", what);
    send_message(text, NULL, 0);
}

/* --- events --------------------------------------------------------------------------------------- */

/* Signals all processes of this uid but this one, if this process has children. Orphans become children of this process
 * (it is their subreaper), so that the container is empty without children. Then nothing is signalled: HTCondor's helpers
 * in the pilot container have the same uid, and transfer files when no job runs. */
static void signal_all(int signal) {
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        kill(-1, signal);
}

static void reap(void) {
    int status;
    pid_t pid;
    if (sweeping)
        signal_all(SIGKILL);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int place = 0; place < COMMANDS; place++)
            if (pid == processes[place]) {
                processes[place] = 0;
                say("exit", numbers[place], status);
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
    /* The kubelet stops this container: its image changes, or the pod ends. The signal is the image's own STOPSIGNAL. The
     * runtime is outside of the pod's PID namespace and has the number 0 here; signals of the job are ignored. The exit
     * status is never 0: with the pod's restartPolicy OnFailure the kubelet takes 0 for the container's final end, and its
     * status never shows that the next image cannot be pulled. */
    if (info.ssi_signo != SIGCHLD && info.ssi_code == SI_USER && (info.ssi_pid == 0 || info.ssi_uid == 0)) {
        signal_all(SIGKILL);
        exit(128 + SIGTERM);
    }
}

/* The pilot renames its listening socket into place, so that a refused connection means that the pilot has ended. */
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

/* Kills the running commands: HTCondor returns such a job to the queue, so it must not continue. A pause and a sweep end
 * with the pilot that asked for them: they would stop or kill the commands of the next one. The next pilot may exist
 * already: its event may have been read while the last one was still connected. */
static void lose_pilot(const char *path) {
    close(pilot);
    pilot = -1;
    paused = 0;
    sweeping = 0;
    signal_all(SIGKILL);
    find_pilot(path);
}

static void handle_pilot(const char *path) {
    char text[MESSAGE_SIZE];
    int descriptors[PACKET_DESCRIPTORS], number, last = 0;
    int count = receive_packet(pilot, text, sizeof text, descriptors);
    if (count < 0) {
        lose_pilot(path);
    } else if (sscanf(text, "run %d%n", &number, &last) == 1) {
        run(number, descriptors, count, strcmp(text + last, " terminal") == 0);
    } else if (sscanf(text, "signal %d", &number) == 1) {
        if (processes[0])
            kill(processes[0], number);
    } else if (strcmp(text, "pause") == 0) {
        paused = 1;
        signal_all(SIGSTOP);
    } else if (strcmp(text, "resume") == 0) {
        paused = 0;
        signal_all(SIGCONT);
    } else if (strcmp(text, "leash") == 0) {
        take_leash(count == 1 ? descriptors[0] : -1);
    } else if (strcmp(text, "sweep") == 0) {
        sweeping = 1;
        paused = 0; /* what the pilot starts from now on, tidy, is not stopped */
        reap();
    } else if (strcmp(text, "clear") == 0) {
        kill(-1, SIGKILL); /* the kernel does this at once: no fork can escape */
        send_message("cleared", NULL, 0);
    } else if (strcmp(text, "end") == 0) {
        kill(-1, SIGKILL); /* not every runtime ends the other processes of a container with this one (CRI-O) */
        kill(getpid(), SIGKILL);
    } else if (strcmp(text, "renew") == 0) {
        renew();
    }
    while (count > 0)
        close(descriptors[--count]);
}

/* Waits until one of the descriptors is readable. Not by poll(2), which fails once a job has set this process's
 * RLIMIT_NOFILE to 0 (prlimit(2) requires only the same uid); nor by epoll(7), because other containers of this uid could
 * use up its watches (fs.epoll.max_user_watches counts for the whole node). */
static int wait_for(fd_set *readable, const int *descriptors, int count, int milliseconds) {
    struct timeval limit = {.tv_usec = milliseconds * 1000L};
    FD_ZERO(readable);
    while (count-- > 0)
        if (descriptors[count] >= 0)
            FD_SET(descriptors[count], readable);
    return select(FD_SETSIZE, readable, NULL, NULL, milliseconds < 0 ? NULL : &limit);
}

/* Reads and removes the variable: jobs inherit the image's variables, and this is not one of them. */
static void take_bind(void) {
    const char *name = getenv(BIND);
    if (name && *name && strlen(name) < BIND_SIZE && strspn(name, "0123456789abcdef") == strlen(name))
        strcpy(bind_name, name);
    unsetenv(BIND);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "payload-init: started by hand? It takes one argument, the path of the pilot's socket.\n");
        return 64;
    }
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int error = forbid_keyrings();
    if (error)
        fprintf(stderr, "payload-init: %s: %s.\n", KEYRINGS_OPEN, strerror(error));
    scoped = enter_scope();
    take_bind();
    note_state();
    sigfillset(&all_signals);
    sigprocmask(SIG_SETMASK, &all_signals, &original_mask);
    int signals = signalfd(-1, &all_signals, SFD_CLOEXEC);
    int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char *folder = strdup(argv[1]);
    if (signals < 0 || !folder)
        die(argv[1]);
    /* Other containers of this uid may have used up inotify (fs.inotify.max_user_instances counts for the whole node).
     * Only then this process polls for a pilot. */
    int patience = -1;
    if (changes < 0 || inotify_add_watch(changes, dirname(folder), IN_CREATE | IN_MOVED_TO) < 0)
        patience = LOOK_AGAIN_MS;
    for (find_pilot(argv[1]);;) {
        int descriptors[] = {signals, changes, pilot}, peer = pilot;
        char ignored[4096];
        fd_set readable;
        int happened = wait_for(&readable, descriptors, 3, paused ? PAUSE_AGAIN_MS : pilot < 0 ? patience : -1);
        if (happened < 0 && errno == EINTR)
            continue;
        if (happened < 0)
            die("select");
        if (paused)
            signal_all(SIGSTOP);
        int is_changed = changes >= 0 && FD_ISSET(changes, &readable) && read(changes, ignored, sizeof ignored) > 0;
        if ((happened == 0 || is_changed) && pilot < 0)
            find_pilot(argv[1]);
        if (FD_ISSET(signals, &readable))
            handle_signal(signals);
        if (peer >= 0 && pilot == peer && FD_ISSET(peer, &readable))
            handle_pilot(argv[1]);
    }
}
