/* tidy: puts right what jobs leave.
 *
 * It runs when no process of a job is left: before a job begins, and after one has ended; by root in the pilot container
 * (payload/scrub/leftovers.py), or, where nobody is root, by the jobs' own user in a fresh payload container (payload-init starts it). So
 * nothing changes under its feet, but all that it finds was made by a job: it follows no link, needs no more memory for a
 * deep tree than for a wide one, and nothing of it depends on the length of a path. What it has done when it is killed
 * need not be done again.
 *
 *   tidy remove FOLDER...   remove all that is in the folders
 *   tidy of UID FOLDER...   remove what belongs to that user in them: others have files there, too
 *   tidy ipc                remove this user's System V memory, semaphores and queues
 *   tidy open FOLDER        let the folder's group read and remove what this user made in it
 *   tidy fence FOLDER       and then remove links that lead out of it, where nothing else keeps whoever collects outputs,
 *                           with more rights than the job, from following them
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

/* openat2(2): musl has neither the call nor, without the kernel's headers, its words. */
#define OPENAT2 437
#define RESOLVE_NO_MAGICLINKS 0x02
#define RESOLVE_BENEATH 0x08
struct open_how {
    unsigned long long flags, mode, resolve;
};

/* Exit status when an image has something else where a folder of the pod's is to be emptied; its path is all that is said. */
#define NO_FOLDER 3
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static uid_t me; /* whose files these are */
static int failures = 0;

static void complain(const char *what) {
    if (failures++ < 5)
        fprintf(stderr, "tidy: %s: %s\n", what, strerror(errno));
}

static void *need(void *memory) {
    if (!memory) {
        fprintf(stderr, "tidy: %s\n", strerror(ENOMEM));
        exit(1);
    }
    return memory;
}

/* --- remove ----------------------------------------------------------------------------------------- */

/* Moves a folder to the top, so that nothing ever lies deeper than one level below it. */
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

static void remove_all(int folder, int top, int only_mine);

static int remove_one(int folder, const char *name, int top) {
    struct stat status;
    if (unlinkat(folder, name, 0) == 0)
        return 0;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISDIR(status.st_mode))
        return unlinkat(folder, name, 0);
    /* A folder is entered, and moved, only by who may write in it. */
    if (status.st_uid == me)
        fchmodat(folder, name, 0700, 0);
    if (folder != top)
        return lift(folder, name, top);
    int inner = openat(folder, name, DIRECTORY);
    if (inner < 0)
        return -1;
    remove_all(inner, top, 0);
    close(inner);
    return unlinkat(folder, name, AT_REMOVEDIR);
}

/* What is lifted comes after what has been read, so that this goes over a folder until nothing is left to remove. */
static void remove_all(int folder, int top, int only_mine) {
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
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            if (only_mine && (fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 || status.st_uid != me))
                continue;
            if (remove_one(folder, entry->d_name, top) == 0)
                removed++;
            else
                complain(entry->d_name);
        }
        closedir(entries);
    }
}

/* Whoever may write to a folder that is not sticky may give it attributes (xattr(7)), which stay when it is empty. */
static void strip(int folder) {
    char names[65536]; /* as long as a list of them can be */
    ssize_t size = flistxattr(folder, names, sizeof names);
    for (char *name = names; size > 0 && name < names + size; name += strlen(name) + 1)
        if (strncmp(name, "user.", 5) == 0 && fremovexattr(folder, name) < 0)
            complain(name);
}

static void empty(const char *path, int only_mine) {
    int folder = open(path, DIRECTORY);
    if (folder < 0) {
        if (!only_mine && (errno == ENOTDIR || errno == ELOOP)) {
            fprintf(stderr, "%s", path);
            exit(NO_FOLDER);
        }
        if (errno != ENOENT)
            complain(path);
        return;
    }
    remove_all(folder, folder, only_mine);
    if (!only_mine)
        strip(folder);
    close(folder);
}

/* --- ipc -------------------------------------------------------------------------------------------- */

/* What has gone since the table was read is no trouble: memory that was marked goes with whoever had it last. */
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
        if (values[1] == (long)me || values[2] == (long)me)
            remove(values[0]);
    }
    fclose(table);
}

/* --- open ------------------------------------------------------------------------------------------- */

struct name {
    struct name *next;
    char text[]; /* nothing, at the end of a folder */
};

static int top;
static const char *top_path;
static gid_t group;
static char path[PATH_MAX]; /* of the current folder, from the top; "" there */
static size_t length;       /* of that path */
static int links;           /* whether this is the pass over links: what they lead through can be entered by then */
static int removed_links = 0;
static size_t deeper;       /* how many folders deeper it is, where the path would be too long */

static void share(const char *name, const struct stat *status, mode_t bits) {
    if (status->st_gid != group && fchownat(AT_FDCWD, name, -1, group, AT_SYMLINK_NOFOLLOW) < 0)
        complain(name);
    if ((status->st_mode & bits) != bits && fchmodat(AT_FDCWD, name, (status->st_mode & 07777) | bits, 0) < 0)
        complain(name);
}

static int stays_inside(const char *name) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    char full[2 * PATH_MAX];
    if (deeper || length + strlen(name) + 2 > PATH_MAX)
        return 0;
    snprintf(full, sizeof full, "%s%s%s", path, *path ? "/" : "", name);
    int found = syscall(OPENAT2, top, full, &how, sizeof how);
    if (found >= 0)
        close(found);
    /* What leads nowhere does so for everybody; what this user may not see, another may. */
    return found >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
}

/* A link by the sandbox's full path, as jobs make them, is made one that needs no such path. */
static int make_relative(const char *name) {
    char target[PATH_MAX], relative[2 * PATH_MAX] = "";
    ssize_t size = readlink(name, target, sizeof target - 1);
    size_t prefix = strlen(top_path), depth = *path ? 1 : 0;
    if (size < 0 || deeper)
        return -1;
    target[size] = '\0';
    if (strncmp(target, top_path, prefix) != 0 || (target[prefix] != '/' && target[prefix] != '\0'))
        return -1;
    for (const char *at = path; *at; at++)
        depth += *at == '/';
    if (3 * depth + size >= sizeof target)
        return -1;
    while (depth-- > 0)
        strcat(relative, "../");
    strcat(relative, target[prefix] ? target + prefix + 1 : ".");
    if (!*relative || unlink(name) < 0)
        return -1;
    return symlink(relative, name);
}

static void look_at_link(const char *name) {
    if (stays_inside(name) || (make_relative(name) == 0 && stays_inside(name)))
        return;
    if (unlink(name) < 0)
        complain(name);
    else if (removed_links++ < 5)
        fprintf(stderr, "tidy: removed the link %.200s, which leads out of the sandbox\n", name);
}

/* Looks at all that is in the current folder; returns the folders in it, before `rest`. */
static struct name *look_around(struct name *rest) {
    DIR *entries = opendir(".");
    struct dirent *entry;
    struct stat status;
    if (!entries) {
        complain(deeper ? "a folder" : path);
        return rest;
    }
    while ((entry = readdir(entries))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(AT_FDCWD, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISLNK(status.st_mode)) {
            if (links)
                look_at_link(name);
        } else if (S_ISDIR(status.st_mode)) {
            if (status.st_uid == me && !links)
                share(name, &status, 0770);
            struct name *found = need(malloc(sizeof *found + strlen(name) + 1));
            strcpy(found->text, name);
            found->next = rest;
            rest = found;
        } else if (S_ISREG(status.st_mode) && status.st_uid == me && !links) {
            share(name, &status, 0040);
        }
    }
    closedir(entries);
    return rest;
}

static void descend(const char *name) {
    if (deeper || length + strlen(name) + 2 > PATH_MAX)
        deeper++;
    else
        length += snprintf(path + length, sizeof path - length, "%s%s", *path ? "/" : "", name);
}

static void ascend(void) {
    if (chdir("..") < 0) {
        complain("..");
        exit(1);
    }
    if (deeper) {
        deeper--;
        return;
    }
    while (length > 0 && path[length - 1] != '/')
        length--;
    length -= length > 0;
    path[length] = '\0';
}

static void walk(void) {
    struct name *todo;
    if (fchdir(top) < 0) {
        complain(top_path);
        return;
    }
    for (todo = look_around(NULL); todo;) {
        struct name *this = todo;
        todo = this->next;
        int inner = *this->text ? open(this->text, DIRECTORY) : -1;
        if (!*this->text) {
            ascend();
        } else if (inner < 0 || fchdir(inner) < 0) {
            complain(this->text);
        } else {
            struct name *end = need(malloc(sizeof *end + 1));
            end->next = todo;
            *end->text = '\0';
            descend(this->text);
            todo = look_around(end);
        }
        if (inner >= 0)
            close(inner);
        free(this);
    }
}

static void open_all(const char *folder, int fence) {
    struct stat status;
    top_path = folder;
    top = open(folder, DIRECTORY);
    if (top < 0 || fstat(top, &status) < 0) {
        if (errno != ENOENT)
            complain(folder);
        return;
    }
    group = status.st_gid;
    for (links = 0; links <= fence; links++)
        walk();
    close(top);
}
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    me = getuid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* when nobody waits for it any more, the next job's files may come at any time */
    if (strcmp(what, "remove") == 0) {
        for (int i = 2; i < argc; i++)
            empty(argv[i], 0);
    } else if (strcmp(what, "of") == 0 && argc > 2) {
        me = strtoul(argv[2], NULL, 10);
        for (int i = 3; i < argc; i++)
            empty(argv[i], 1);
    } else if (strcmp(what, "ipc") == 0) {
        remove_ipc("/proc/sysvipc/shm", "shmid", remove_shm);
        remove_ipc("/proc/sysvipc/sem", "semid", remove_sem);
        remove_ipc("/proc/sysvipc/msg", "msqid", remove_msg);
    } else if ((strcmp(what, "open") == 0 || strcmp(what, "fence") == 0) && argc == 3) {
        open_all(argv[2], *what == 'f');
    } else {
        fprintf(stderr, "tidy: started by hand? See tidy.c\n");
        return 64;
    }
    return failures ? 1 : 0;
}
