/* Access to locked files (chmod 000) and links in a job's sandbox: the commands unlock, open and fence of tidy. */
#define _GNU_SOURCE
#include "tidy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* For the names of the folders that are still to be visited, where this runs in the pilot container: that has a limit of
 * memory for all its processes, and ends as a whole beyond it. A job chooses how many folders it makes. */
#define MEMORY_BYTES (32UL << 20)

static void *need(void *memory) {
    if (!memory) {
        fprintf(stderr, "tidy: %s\n", strerror(ENOMEM));
        exit(1);
    }
    return memory;
}

struct name {
    struct name *next;
    char text[]; /* empty at the end of a folder */
};

static int top;
static const char *top_path;
static gid_t group;
static enum unlock to;
static char path[PATH_MAX]; /* of the current folder, from the top; "" there */
static size_t length;       /* of that path */
static int links;           /* whether this is the pass over links, after all folders can be entered */
static int removed_links = 0;
static size_t deeper;       /* number of further levels, if the path would be too long */

static void add_mode(const char *name, const struct stat *status, mode_t bits) {
    if ((status->st_mode & bits) != bits && change_mode(AT_FDCWD, name, job_user, (status->st_mode & 07777) | bits) < 0)
        complain(name);
}

static void share(const char *name, const struct stat *status, mode_t bits) {
    if (status->st_gid != group && fchownat(AT_FDCWD, name, -1, group, AT_SYMLINK_NOFOLLOW) < 0)
        complain(name);
    add_mode(name, status, bits);
}

/* HTCondor reads outputs as the job's user, and silently treats an unreadable folder as empty. */
static void unlock(const char *name, const struct stat *status) {
    int is_folder = S_ISDIR(status->st_mode);
    if (status->st_uid != job_user || !(is_folder || S_ISREG(status->st_mode)))
        return;
    if (to != TO_USER)
        share(name, status, is_folder ? 0770 : 0040);
    else if (is_folder)
        add_mode(name, status, 0700);
    else if (!(status->st_mode & 0400))
        add_mode(name, status, status->st_mode & 0111 ? 0700 : 0600);
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
    /* A dangling link dangles for every user; a target that this user cannot see may be visible to another. */
    return found >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
}

/* Replaces a link with the sandbox's full path, as jobs create them, by a relative one. */
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

/* Handles all entries of the current folder; returns its subfolders, before `rest`. */
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
        if (links && S_ISLNK(status.st_mode))
            look_at_link(name);
        else if (!links)
            unlock(name, &status);
        if (S_ISDIR(status.st_mode)) {
            struct name *found = need(malloc(sizeof *found + strlen(name) + 1));
            strcpy(found->text, name);
            found->next = rest;
            rest = found;
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
        int inner = *this->text ? enter(AT_FDCWD, this->text) : -1;
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

void unlock_all(const char *folder, enum unlock how) {
    struct stat status;
#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer maps terabytes */
    const struct rlimit memory = {MEMORY_BYTES, MEMORY_BYTES};
    if (how == TO_USER && setrlimit(RLIMIT_AS, &memory) < 0)
        complain("the limit of memory");
#endif
    to = how;
    top_path = folder;
    top = open(folder, DIRECTORY);
    if (top < 0 || fstat(top, &status) < 0) {
        if (errno != ENOENT)
            complain(folder);
        return;
    }
    group = status.st_gid;
    for (links = 0; links <= (how == TO_GROUP_WITH_FENCE); links++)
        walk();
    close(top);
}
