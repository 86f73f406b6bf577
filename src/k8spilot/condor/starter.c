/* starter: runs condor_starter, confined by Landlock (landlock(7)).
 *
 * Without root, HTCondor reads a job's inputs and outputs as the user that owns the pool's token, and follows links: a
 * job could have the token transferred, or shown by condor_tail. So the program that the startd runs for each job
 * (condor/scripts/starter.sh) runs this program, which confines itself and then runs condor_starter. The starter and its
 * children cannot read the pool's credentials, the daemons' logs or the environment of a process. They can change
 * sandboxes and temporary files only, and in a pod with several slots only those of their own slot, which
 * K8SPILOT_FOLDERS lists. They cannot trace other processes, nor signal them where Landlock has scopes (6).
 *
 * The program fails closed. `k8spilot run` has checked before that the kernel has Landlock.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define STARTER "/usr/sbin/condor_starter"

/* From linux/landlock.h, which musl lacks. */
#define CREATE_RULESET 444
#define ADD_RULE 445
#define RESTRICT_SELF 446
#define EXECUTE 1ULL
#define WRITE_FILE 2ULL
#define READ_FILE 4ULL
#define READ_DIR 8ULL
#define TRUNCATE (1ULL << 14)
#define IOCTL_DEV (1ULL << 15)
struct ruleset {
    uint64_t files, network, scoped;
};
struct beneath {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed));

#define LOOK (EXECUTE | READ_FILE | READ_DIR)
#define OF_FILES (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV)
#define DEEPER 0 /* the entries of the folder have their own rules, or LOOK */
#define NOTHING (1ULL << 63)
#define CLOSED (1ULL << 62) /* as DEEPER, but an entry without a rule gets nothing */
#define ALL (~(NOTHING | CLOSED))
#define BLINDLY (ALL & ~(READ_FILE | READ_DIR))

/* A path without a rule gets LOOK. */
static const struct {
    const char *path;
    uint64_t allowed;
} rules[] = {
    {"/etc", DEEPER},
    {"/etc/condor", DEEPER},
    {"/etc/condor/passwords-orig.d", NOTHING},
    {"/etc/condor/tokens-orig.d", NOTHING},
    {"/run", DEEPER},
    {"/run/condor", ALL},
    {"/run/k8spilot", DEEPER},
    {"/run/k8spilot/condor", DEEPER},
    {"/run/k8spilot/condor/passwords.d", NOTHING},
    {"/run/k8spilot/condor/tokens.d", NOTHING},
    {"/run/lock", ALL},
    {"/dev", DEEPER},
    {"/dev/full", ALL},
    {"/dev/mqueue", NOTHING},
    {"/dev/null", ALL},
    {"/dev/ptmx", ALL},
    {"/dev/pts", ALL},
    {"/dev/random", ALL},
    {"/dev/shm", NOTHING},
    {"/dev/tty", ALL},
    {"/dev/urandom", ALL},
    {"/dev/zero", ALL},
    /* The starter may read the files of /proc, and list the folders of processes (for example to close its open
     * descriptors), but not read the files there: a starter's environment has the key of a session with the other
     * daemons. */
    {"/proc", DEEPER},
    /* For docker_config.PID (docker_proc.cpp), which no starter needs to read (docker-client.c). */
    {"/tmp", BLINDLY},
    {"/var", DEEPER},
    {"/var/lib", DEEPER},
    {"/var/lib/condor", DEEPER},
    {"/var/lib/condor/execute", CLOSED},
    {"/var/log", DEEPER},
    {"/var/log/condor", CLOSED},
    {"/var/log/condor/starter", BLINDLY},
    {"/var/tmp", CLOSED},
};
/* The slot's own folders, absolute paths; they may be changed in every way. */
static char *own[8];
static size_t owned;

static uint64_t handled;
static int ruleset;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "k8spilot: the starter cannot be confined: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void read_own(void) {
    char *text = getenv("K8SPILOT_FOLDERS");
    for (char *word = text ? strtok(text, " ") : NULL; word; word = strtok(NULL, " ")) {
        if (owned == sizeof own / sizeof *own) {
            errno = E2BIG;
            die("K8SPILOT_FOLDERS");
        }
        own[owned++] = word;
    }
}

static uint64_t rule_of(const char *path, uint64_t otherwise) {
    for (size_t i = 0; i < owned; i++)
        if (strcmp(own[i], path) == 0)
            return ALL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].path, path) == 0)
            return rules[i].allowed;
    return otherwise;
}

static void allow(const char *path, uint64_t wanted) {
    struct stat status;
    struct beneath rule = {.allowed = wanted & handled, .folder = open(path, O_PATH | O_CLOEXEC)};
    if (rule.folder < 0 || fstat(rule.folder, &status) < 0) {
        if (errno == ENOENT)
            return;
        die(path);
    }
    if (!S_ISDIR(status.st_mode))
        rule.allowed &= OF_FILES;
    if (syscall(ADD_RULE, ruleset, 1, &rule, 0) < 0)
        die(path);
    close(rule.folder);
}

static void allow_in(const char *folder, uint64_t otherwise) {
    DIR *entries = opendir(folder);
    struct dirent *entry;
    struct stat status;
    char path[512];
    if (!entries)
        die(folder);
    if (strcmp(folder, "/proc") == 0)
        allow(folder, READ_DIR);
    while ((entry = readdir(entries))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (strcmp(folder, "/proc") == 0 && isdigit((unsigned char)*entry->d_name))
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", strcmp(folder, "/") ? folder : "", entry->d_name) >= sizeof path)
            continue;
        uint64_t wanted = rule_of(path, otherwise);
        /* Skip a link: its target has its own rule. */
        if (wanted == NOTHING || lstat(path, &status) < 0 || S_ISLNK(status.st_mode))
            continue;
        if ((wanted == DEEPER || wanted == CLOSED) && S_ISDIR(status.st_mode)) {
            allow_in(path, wanted == CLOSED ? NOTHING : LOOK);
        } else {
            allow(path, wanted);
        }
    }
    closedir(entries);
}

int main(int argc, char **argv) {
    long version = syscall(CREATE_RULESET, NULL, 0, 1);
    if (argc == 2 && strcmp(argv[1], "--kernel-version") == 0) {
        printf("%ld\n", version);
        return version < 2;
    }
    if (version < 2) /* version 1 forbids every rename between folders */
        die("the kernel has no Landlock, or an early one");
    /* Rights by version: 3 added TRUNCATE, 5 IOCTL_DEV; 6 added the scopes. */
    handled = (1ULL << (version < 3 ? 14 : version < 5 ? 15 : 16)) - 1;
    struct ruleset asked = {.files = handled, .scoped = version < 6 ? 0 : 3};
    ruleset = syscall(CREATE_RULESET, &asked, version < 4 ? 8 : version < 6 ? 16 : sizeof asked, 0);
    if (ruleset < 0)
        die("landlock_create_ruleset");
    read_own();
    allow_in("/", LOOK);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(RESTRICT_SELF, ruleset, 0) < 0)
        die("landlock_restrict_self");
    close(ruleset);
    unsetenv("K8SPILOT_FOLDERS");
    execv(STARTER, argv);
    die(STARTER);
}
