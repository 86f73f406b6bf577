/* tidy: removes or unlocks what jobs leave.
 *
 * It runs when no process of a job is left: before a job starts, and after its end. Root runs it in the pilot container
 * (payload/scrub/from_pilot.py). Without root, payload-init runs it as the jobs' own user in a fresh payload container
 * (payload/scrub/from_payload.py), and HTCondor's starter program runs it for the files that HTCondor has left
 * (condor/scripts/starter.sh). Jobs created all files that it meets. So it follows no link, enters no mount, needs no more
 * memory for a deep tree than for a wide one, and does not depend on the length of a path. It does not assume that a name
 * still means the same file as before. After it is killed, another run continues its work.
 *
 *   tidy clean UID FOLDER... -- SHARED...   remove the content of each FOLDER, the files of the user UID in each SHARED,
 *                                           where others have files, too, and the user's System V memory, semaphores, queues
 *   tidy remove FOLDER...                   remove the content of the folders
 *   tidy delete PATH...                     remove these files and folders
 *   tidy unlock UID FOLDER                  let that user read and remove its own files in the folder
 *   tidy open FOLDER                        let the folder's group read and remove the caller's files
 *   tidy fence FOLDER                       and then remove links that lead out of it, if nothing else prevents the
 *                                           collector of outputs, which has more rights than the job, from following them
 *   tidy measure SINCE SECONDS FOLDER...    print the space that the content of each folder occupies (measure.c); this
 *                                           command changes nothing, and runs beside the job
 */
#define _GNU_SOURCE
#include "tidy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Exit status if the image has a link or a file in place of a folder that is to be emptied; the output is its path alone. */
#define NO_FOLDER 3

uid_t job_user;
static int failures = 0;

void complain(const char *what) {
    if (failures++ < 5)
        fprintf(stderr, "tidy: %s: %s\n", what, strerror(errno));
}

/* --- access ----------------------------------------------------------------------------------------- */

int enter(int folder, const char *name) {
    struct open_how how = {.flags = DIRECTORY, .resolve = RESOLVE_NO_XDEV};
    struct stat outer, inner;
    int found = syscall(OPENAT2, folder, name, &how, sizeof how);
    if (found >= 0 || (errno != ENOSYS && errno != EPERM)) /* a runtime's filter returns EPERM for unknown calls */
        return found;
    found = openat(folder, name, DIRECTORY);
    if (found >= 0 && (fstatat(folder, "", &outer, AT_EMPTY_PATH) < 0 || fstat(found, &inner) < 0 || outer.st_dev != inner.st_dev)) {
        close(found);
        errno = EXDEV;
        return -1;
    }
    return found;
}

/* Uses the descriptor's name in /proc: fchmodat2(2) is younger than many kernels and runtimes' filters. */
int change_mode(int folder, const char *name, uid_t owner, mode_t mode) {
    struct stat status;
    char self[32];
    int found = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), result = -1;
    if (found < 0)
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", found);
    if (fstat(found, &status) == 0 && status.st_uid == owner && (S_ISDIR(status.st_mode) || S_ISREG(status.st_mode)))
        result = chmod(self, mode);
    close(found);
    return result;
}

/* Becomes the jobs' user, if that is another one, so that the files of other users are safe. */
static void become_job_user(void) {
    if (getuid() != job_user && setresuid(job_user, job_user, job_user) < 0) {
        complain("the jobs' user");
        exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* again: a change of the user resets it */
}

/* --- remove ----------------------------------------------------------------------------------------- */

/* Moves a folder to the top, so that no path is deeper than one level below it. */
static int lift(int from, const char *name, int top) {
    static unsigned long number = 0;
    char aside[32];
    for (;;) {
        snprintf(aside, sizeof aside, ".tidy-%lu", number++);
        if (renameat(from, name, top, aside) == 0)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
            return -1;
    }
}

static void remove_all(int folder, int top, int only_jobs);

static int remove_one(int folder, const char *name, int top) {
    struct stat status;
    if (unlinkat(folder, name, 0) == 0)
        return 0;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISDIR(status.st_mode))
        return unlinkat(folder, name, 0);
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0) /* most folders of a wide tree are empty */
        return 0;
    /* Entering and moving a folder needs write permission, which its owner can add; root does not need it. */
    if (status.st_uid == geteuid())
        change_mode(folder, name, geteuid(), 0700);
    if (folder != top)
        return lift(folder, name, top);
    int inner = enter(folder, name);
    if (inner < 0)
        return -1;
    remove_all(inner, top, 0);
    close(inner);
    return unlinkat(folder, name, AT_REMOVEDIR);
}

/* Moved folders come after the entries that were read, so repeat this until there is nothing left to remove. */
static void remove_all(int folder, int top, int only_jobs) {
    for (long removed = 1; removed > 0;) {
        int copy = openat(folder, ".", DIRECTORY);
        DIR *entries = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;
        struct stat status;
        removed = 0;
        if (!entries) {
            complain("a folder cannot be read");
            return;
        }
        while ((entry = readdir(entries))) {
            const char *name = entry->d_name;
            if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                continue;
            if (only_jobs && (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || status.st_uid != job_user))
                continue;
            if (remove_one(folder, name, top) == 0)
                removed++;
            else
                complain(name);
        }
        closedir(entries);
    }
}

/* Users with write permission in a folder that is not sticky can set its attributes (xattr(7)), which outlive its files. */
static void strip(int folder) {
    char names[65536]; /* the maximum length of the list */
    ssize_t size = flistxattr(folder, names, sizeof names);
    for (char *name = names; size > 0 && name < names + size; name += strlen(name) + 1)
        if (strncmp(name, "user.", 5) == 0 && fremovexattr(folder, name) < 0)
            complain(name);
}

static void empty(const char *path, int only_jobs) {
    int folder = open(path, DIRECTORY);
    if (folder < 0) {
        if (!only_jobs && (errno == ENOTDIR || errno == ELOOP)) {
            fprintf(stderr, "%s", path);
            exit(NO_FOLDER);
        }
        if (errno != ENOENT)
            complain(path);
        return;
    }
    remove_all(folder, folder, only_jobs);
    if (!only_jobs || geteuid() == 0) /* the folder of another user is sticky for all but root */
        strip(folder);
    close(folder);
}

static void delete(const char *path) {
    struct stat status;
    if (unlink(path) == 0 || errno == ENOENT)
        return;
    if (lstat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        if (status.st_uid == geteuid())
            change_mode(AT_FDCWD, path, geteuid(), 0700);
        empty(path, 0);
    }
    if (rmdir(path) < 0 && errno != ENOENT)
        complain(path);
}

/* --- System V IPC ----------------------------------------------------------------------------------- */

/* An object may have been removed since the table was read: marked memory goes with the last process that uses it. */
static void gone(int result, const char *what) {
    if (result < 0 && errno != EINVAL && errno != EIDRM)
        complain(what);
}

static void remove_shm(int id) { gone(shmctl(id, IPC_RMID, NULL), "shared memory"); }
static void remove_sem(int id) { gone(semctl(id, 0, IPC_RMID), "semaphores"); }
static void remove_msg(int id) { gone(msgctl(id, IPC_RMID, NULL), "message queue"); }

/* proc_sysvipc(5): a line of names, then a line for each object. */
static void remove_ipc(const char *path, const char *identifier, void (*remove)(int)) {
    FILE *table = fopen(path, "re");
    char line[1024];
    int columns[3] = {-1, -1, -1}, number = 0;
    if (!table)
        return;
    if (fgets(line, sizeof line, table)) {
        const char *const wanted[] = {identifier, "uid", "cuid"};
        for (char *name = strtok(line, " \n"); name; name = strtok(NULL, " \n"), number++)
            for (int i = 0; i < 3; i++)
                if (strcmp(name, wanted[i]) == 0)
                    columns[i] = number;
    }
    while (fgets(line, sizeof line, table)) {
        long values[3] = {-1, -1, -1};
        number = 0;
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), number++)
            for (int i = 0; i < 3; i++)
                if (number == columns[i])
                    values[i] = strtol(word, NULL, 10);
        if (values[1] == (long)job_user || values[2] == (long)job_user)
            remove(values[0]);
    }
    fclose(table);
}

/* Runs as the objects' owner: other users need CAP_SYS_ADMIN, which no pilot has. */
static void remove_all_ipc(void) {
    become_job_user();
    remove_ipc("/proc/sysvipc/shm", "shmid", remove_shm);
    remove_ipc("/proc/sysvipc/sem", "semid", remove_sem);
    remove_ipc("/proc/sysvipc/msg", "msqid", remove_msg);
}

/* --- commands --------------------------------------------------------------------------------------- */

static void clean(char **arguments) {
    int is_shared = 0;
    for (; *arguments; arguments++)
        if (strcmp(*arguments, "--") == 0)
            is_shared = 1;
        else
            empty(*arguments, is_shared);
    remove_all_ipc();
}

static uid_t number(const char *text) {
    char *end;
    unsigned long found = strtoul(text, &end, 10);
    if (*end || end == text || (uid_t)found != found || (uid_t)found == (uid_t)-1) {
        fprintf(stderr, "tidy: %s is not a numeric user id\n", text);
        exit(64);
    }
    return found;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    job_user = getuid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* without its caller it must end, because the next job's files may arrive */
    if (strcmp(what, "clean") == 0 && argc > 2) {
        job_user = number(argv[2]);
        clean(argv + 3);
    } else if (strcmp(what, "remove") == 0) {
        for (int i = 2; i < argc; i++)
            empty(argv[i], 0);
    } else if (strcmp(what, "delete") == 0) {
        for (int i = 2; i < argc; i++)
            delete(argv[i]);
    } else if (strcmp(what, "unlock") == 0 && argc == 4) {
        job_user = number(argv[2]);
        become_job_user();
        unlock_all(argv[3], TO_USER);
    } else if (strcmp(what, "open") == 0 && argc == 3) {
        unlock_all(argv[2], TO_GROUP);
    } else if (strcmp(what, "fence") == 0 && argc == 3) {
        unlock_all(argv[2], TO_GROUP_WITH_FENCE);
    } else if (strcmp(what, "measure") == 0 && argc > 4) {
        measure(atoll(argv[2]), atoi(argv[3]), argv + 4);
    } else {
        fprintf(stderr, "tidy: started by hand? See tidy.c\n");
        return 64;
    }
    return failures ? 1 : 0;
}
