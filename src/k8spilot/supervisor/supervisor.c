/* supervisor: the first process of the pilot container. It starts the engine and HTCondor, and restarts the engine.
 *
 * `k8spilot run` becomes the supervisor (cli/run.py) after its preparations. HTCondor sends its requests to the engine through
 * the Docker sockets. An engine that dies restarts at once, while HTCondor continues: the job returns to the queue, and the
 * slot stays. The sockets stay open here, so that docker's clients wait for the next engine instead of getting an error. When
 * HTCondor ends, the pilot ends. In HTCondor's own container the agent is in the place of the engine.
 *
 * The supervisor's death ends the whole container, so that it does nothing but wait for signals. It is in C because Python would
 * add 10 MiB to each pilot.
 *
 * Descriptor 3 has the plan (supervisor/plan.py): words that each end with a NUL. The descriptors from 4 on are the engine's
 * sockets.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keyrings.h"

enum { PLAN = 3, SOCKETS = 4 };
enum { GONE = 3, NO_RESTART = 99, TOLD = 128 + SIGTERM, DONE = SIGHUP }; /* as in plan.py, which explains them */

#define DEATHS "K8SPILOT_ENGINE_DEATHS"
#define DEATHS_SECONDS 600.0 /* the plan limits the deaths within this time */
#define CALM_SECONDS 60.0    /* lifetime after which a dead engine restarts with the shortest delay again */
#define SHORTEST_WAIT 0.1
#define LONGEST_WAIT 10.0
#define REMEMBERED 256 /* deaths whose times are kept; most_deaths must be smaller */
#define NEVER 1e300

struct child {
    const char *name;
    char **argv, **env; /* env[0] is DEATHS, which only the engine gets */
    int sockets;        /* number of sockets that it inherits, from SOCKETS on */
    pid_t pid;          /* 0 while it does not run */
};

static struct {
    int sockets;
    const char *reason_file; /* condor/daemons/end_reason.py; empty where HTCondor does not run */
    double reason_seconds;
    const char *termination_log;
    int most_deaths;
    double end_seconds;
} plan;

static struct child engine, condor; /* a child without a name is not part of this container */
static int status;                  /* of the container */
static int ending;
static char why[512];               /* reason of the end that the supervisor itself knows */
static double deaths[REMEMBERED];
static int died;
static double restart_at = NEVER, kill_at = NEVER;
static sigset_t signals;

/* --- words ------------------------------------------------------------------------------------------ */

static char log_buffer[64 * 1024]; /* a line is written at once: other processes log to the same pipe */

static int logs_json(void) {
    const char *format = getenv("K8SPILOT_LOG_FORMAT");
    return format && strcmp(format, "json") == 0;
}

static void print_escaped(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ')
            fprintf(stderr, "\\u%04x", *text);
        else
            fprintf(stderr, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

/* Logs a line in the engine's format (common/logs.py). */
static void log_line(const char *level, const char *sentence) {
    char when[64];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t used = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", gmtime(&now.tv_sec));
    snprintf(when + used, sizeof when - used, ".%03ldZ", now.tv_nsec / 1000000);
    if (logs_json()) {
        fprintf(stderr, "{\"time\": \"%s\", \"level\": \"%s\", \"logger\": \"k8spilot.supervisor\", \"message\": \"", when, level);
        print_escaped(sentence);
        fputs("\"}\n", stderr);
    } else {
        fprintf(stderr, "%s %s k8spilot.supervisor: %s\n", when, level, sentence);
    }
    fflush(stderr);
}

static void say(const char *format, ...) {
    char sentence[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    log_line("INFO", sentence);
}

/* Logs the last line, and writes it for the kubelet, which mounts the file. */
static void tell_end(const char *reason) {
    char sentence[8192];
    snprintf(sentence, sizeof sentence, "The pilot ends: %s.", reason);
    log_line(status == 0 || status == TOLD ? "INFO" : "ERROR", sentence);
    int file = open(plan.termination_log, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (file >= 0 && write(file, sentence, strlen(sentence)) < 0)
        log_line("WARNING", "The termination message cannot be written.");
    if (file >= 0)
        close(file);
}

static const char *how(int ended) {
    static const char *const names[] = {
        [SIGHUP] = "SIGHUP", [SIGINT] = "SIGINT", [SIGQUIT] = "SIGQUIT", [SIGILL] = "SIGILL", [SIGTRAP] = "SIGTRAP",
        [SIGABRT] = "SIGABRT", [SIGBUS] = "SIGBUS", [SIGFPE] = "SIGFPE", [SIGKILL] = "SIGKILL", [SIGUSR1] = "SIGUSR1",
        [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2", [SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM", [SIGTERM] = "SIGTERM",
        [SIGXCPU] = "SIGXCPU", [SIGXFSZ] = "SIGXFSZ", [SIGSYS] = "SIGSYS",
    };
    static char other[64];
    int number = -ended;
    if (ended < 0 && (size_t)number < sizeof names / sizeof *names && names[number])
        return names[number];
    snprintf(other, sizeof other, ended < 0 ? "signal %d" : "exit status %d", abs(ended));
    return other;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double earlier(double one, double other) { return one < other ? one : other; }

/* --- children --------------------------------------------------------------------------------------- */

static int runs(const struct child *child) { return child->name && child->pid; }

static void send(const struct child *child, int number) {
    if (runs(child))
        kill(child->pid, number);
}

/* Starts the program in a session of its own, so that signals from the container's terminal do not reach it. Returns an errno. */
static int start(struct child *child) {
    static char count[64];
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ); /* which Python ignores */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawn_file_actions_init(&actions);
    for (int end = SOCKETS; end < SOCKETS + child->sockets; end++)
        posix_spawn_file_actions_adddup2(&actions, end, end); /* which makes it inheritable */
    snprintf(count, sizeof count, DEATHS "=%d", died);
    child->env[0] = count;
    char **env = child == &engine ? child->env : child->env + 1;
    int error = posix_spawnp(&child->pid, child->argv[0], &actions, &attributes, child->argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error)
        child->pid = 0;
    return error;
}

/* --- the end ---------------------------------------------------------------------------------------- */

static void end_engine(void) {
    ending = 1;
    restart_at = NEVER;
    if (runs(&engine)) {
        send(&engine, SIGTERM);
        kill_at = earlier(kill_at, now() + plan.end_seconds);
    }
}

/* Ends HTCondor first: it vacates its jobs (SIGTERM) or kills them (SIGQUIT), and needs the engine for that. */
static void end(int fast) {
    ending = 1;
    if (!runs(&condor)) {
        end_engine();
        return;
    }
    say(fast ? "Ending: HTCondor kills its jobs." : "Ending: HTCondor vacates its jobs.");
    send(&condor, fast ? SIGQUIT : SIGTERM);
}

/* Reads the reason file, `STATUS CERTAIN WORDS`, into `text`. Returns the words, or "" if no reason counts. */
static const char *read_reason(char *text, size_t size, int *code, int *certain) {
    struct stat facts;
    int place = 0, file = *plan.reason_file ? open(plan.reason_file, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
    int known = length > 0 && fstat(file, &facts) == 0;
    if (file >= 0)
        close(file);
    *code = *certain = 0;
    if (!known)
        return "";
    text[length] = 0;
    if (sscanf(text, "%d %d%n", code, certain, &place) == 2 && text[place] == ' ' &&
        (*certain || difftime(time(NULL), facts.st_mtime) < plan.reason_seconds))
        return text + place + 1;
    *code = *certain = 0;
    return "";
}

/* Makes the reason of the end the last line of the log and the container's termination message. */
static void tell_reason(void) {
    char text[8000];
    int code, certain;
    const char *found = read_reason(text, sizeof text, &code, &certain);
    if (status == TOLD && !certain)
        found = "the kubelet told it to end: the pod was deleted or evicted, or failed its liveness probe";
    status = status ? status : code;
    if (*why)
        found = why;
    else if (!*found && condor.name)
        found = "HTCondor has ended";
    if (*found)
        tell_end(found);
}

/* --- what happens ----------------------------------------------------------------------------------- */

/* Counts the deaths within some seconds. */
static int recent(double seconds) {
    int found = 0;
    for (int i = died > REMEMBERED ? died - REMEMBERED : 0; i < died; i++)
        found += deaths[i % REMEMBERED] > now() - seconds;
    return found;
}

static void engine_died(const char *reason) {
    deaths[died++ % REMEMBERED] = now();
    int often = recent(DEATHS_SECONDS);
    if (often > plan.most_deaths) {
        snprintf(why, sizeof why, "the %s has died %d times in %.0f minutes; read its log for the reason", engine.name, often,
            DEATHS_SECONDS / 60);
        status = 1;
        end(0);
        return;
    }
    double pause = SHORTEST_WAIT;
    for (int i = recent(CALM_SECONDS); i > 1 && pause < LONGEST_WAIT; i--)
        pause = earlier(2 * pause, LONGEST_WAIT);
    say("The %s has died (%s); the next one starts in %.1f s.", engine.name, reason, pause);
    restart_at = now() + pause;
}

static void engine_ended(int ended) {
    if (ended == GONE || (ending && !runs(&condor))) {
        kill_at = NEVER;
        if (!ending)
            end(0);
    } else if (!condor.name && ended == 0) {
        ending = 1;
    } else {
        engine_died(how(ended)); /* also while ending: HTCondor needs an engine to end its job */
    }
}

static void condor_ended(int ended) {
    say("HTCondor has ended with status %d.", ended);
    if (!ending) {
        status = ended == NO_RESTART ? 0 : abs(ended);
        if (status)
            snprintf(why, sizeof why, "HTCondor has ended with status %d; its last log lines have the reason", ended);
    }
    end_engine();
}

/* Reaps all children that have ended, including orphans of the container. */
static void reap(void) {
    int raw;
    pid_t pid;
    while ((pid = waitpid(-1, &raw, WNOHANG)) > 0) {
        int ended = WIFSIGNALED(raw) ? -WTERMSIG(raw) : WEXITSTATUS(raw);
        if (pid == engine.pid) {
            engine.pid = 0;
            engine_ended(ended);
        } else if (pid == condor.pid) {
            condor.pid = 0;
            condor_ended(ended);
        }
    }
}

/* Does what is due. */
static void act_in_time(void) {
    if (now() >= kill_at) {
        kill_at = NEVER;
        send(&engine, SIGKILL);
    } else if (now() >= restart_at) {
        restart_at = NEVER;
        int error = start(&engine);
        if (error) { /* no memory, or a job's fork bomb */
            char reason[128];
            snprintf(reason, sizeof reason, "it cannot be started: %s", strerror(error));
            engine_died(reason);
        }
    }
}

/* Waits for a signal, but not longer than until something is due. Returns its number, or 0. It is the kernel's own call because
 * musl's begins a wait anew that SIGCONT has interrupted. */
static int next_signal(siginfo_t *info) {
    double due = earlier(restart_at, kill_at), left = due - now();
    struct timespec limit = {0};
    if (due != NEVER && left > 0)
        limit = (struct timespec){.tv_sec = left, .tv_nsec = (left - (long)left) * 1e9};
    long number = syscall(SYS_rt_sigtimedwait, &signals, info, due == NEVER ? NULL : &limit, _NSIG / 8);
    return number > 0 ? number : 0;
}

static void run(void) {
    while (runs(&engine) || runs(&condor) || restart_at != NEVER) {
        siginfo_t info;
        int number = next_signal(&info);
        /* A sender outside of the pod's PID namespace has process ID 0 here (sigaction(2), si_pid). */
        if (number == SIGTERM && info.si_pid == 0 && !ending)
            status = TOLD;
        if (number == SIGCHLD)
            reap();
        else if (number == DONE && !ending)
            end(0);
        else if (number && number != DONE)
            end(ending);
        act_in_time();
    }
}

/* --- the plan --------------------------------------------------------------------------------------- */

static char *words, *words_end;
static int whole = 1;

/* Returns the next word of the plan. */
static char *word(void) {
    static char none[] = "";
    if (words >= words_end) {
        whole = 0;
        return none;
    }
    char *found = words;
    words += strlen(found) + 1;
    return found;
}

static double number(void) {
    char *rest, *text = word();
    double found = strtod(text, &rest);
    if (rest == text || *rest || !(found >= 0 && found < 1e6)) {
        whole = 0;
        return 0;
    }
    return found;
}

/* Reads a list: its length, and its words. The first `before` entries stay empty. */
static char **list(int before) {
    int length = number();
    char **found = calloc(before + length + 1, sizeof *found);
    for (int i = 0; found && i < length; i++)
        found[before + i] = word();
    return found;
}

static void read_child(void) {
    char *name = word();
    struct child *child = strcmp(name, "condor") == 0 ? &condor : &engine;
    whole &= !child->name;
    child->name = name;
    child->sockets = number();
    child->argv = list(0);
    child->env = list(1);
    whole &= child->argv && child->argv[0] && child->env;
}

/* Reads the plan; returns whether it is complete. */
static int read_plan(void) {
    struct stat facts;
    if (fstat(PLAN, &facts) < 0 || !(words = malloc(facts.st_size + 1)))
        return 0;
    ssize_t length = read(PLAN, words, facts.st_size);
    close(PLAN);
    if (length <= 0 || length != facts.st_size || words[length - 1])
        return 0;
    words_end = words + length;
    int children = number();
    plan.sockets = number();
    plan.reason_file = word();
    plan.reason_seconds = number();
    plan.termination_log = word();
    plan.most_deaths = number();
    plan.end_seconds = number();
    while (whole && children-- > 0)
        read_child();
    return whole && words == words_end && plan.most_deaths < REMEMBERED && (engine.name || condor.name);
}

static int begin(struct child *child) {
    int error = child->name ? start(child) : 0;
    if (error) {
        snprintf(why, sizeof why, "%s cannot be started: %s", child->argv[0], strerror(error));
        status = 1;
        end(0);
    } else if (child->name) {
        say("%s has been started, pid %d.", child->name, child->pid);
    }
    return error;
}

int main(void) {
    sigemptyset(&signals);
    for (const int *one = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGQUIT, DONE, 0}; *one; one++)
        sigaddset(&signals, *one);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stderr, log_buffer, _IOFBF, sizeof log_buffer);
    if (!read_plan()) {
        log_line("ERROR", "The supervisor has no plan; start the container with the command `k8spilot run`.");
        return 1;
    }
    int error = forbid_keyrings(); /* also for HTCondor's transfer plugins, which can be a user's own */
    if (error) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s: %s.", KEYRINGS_OPEN, strerror(error));
        log_line("WARNING", sentence);
    }
    for (int end = SOCKETS; end < SOCKETS + plan.sockets; end++)
        fcntl(end, F_SETFD, FD_CLOEXEC); /* neither HTCondor nor its children may inherit it */
    if (begin(&engine) == 0)
        begin(&condor);
    run();
    tell_reason();
    return status;
}
