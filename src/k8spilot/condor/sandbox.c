/* Sandboxes, as HTCondor without root has them: they belong to its own user, which runs this program.
 *
 * A job can have any file in its sandbox, and replace its ad by a link or a pipe. So no link is followed, no mount is
 * entered, and a file is not assumed to be what it was a moment ago. */
#define _GNU_SOURCE
#include "docker-client.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRATCH "_CONDOR_SCRATCH_DIR="
#define AD_BYTES (4 * 1024 * 1024)
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define DEEPEST 4096 /* HTCondor makes no deeper folder, by the length of its paths */

/* --- what the job has requested --------------------------------------------------------------------- */

/* Opens the folder `path` below `execute`, component by component. */
static int open_below(const char *execute, const char *path) {
    size_t length = strlen(execute);
    if (strncmp(path, execute, length) != 0 || path[length] != '/')
        return -1;
    char *rest = strdup(path + length), *place = NULL;
    int folder = rest ? open(execute, DIRECTORY) : -1;
    for (char *name = folder < 0 ? NULL : strtok_r(rest, "/", &place); name; name = strtok_r(NULL, "/", &place)) {
        int next = strcmp(name, "..") == 0 ? -1 : openat(folder, name, DIRECTORY);
        close(folder);
        folder = next;
        if (folder < 0)
            break;
    }
    free(rest);
    return folder;
}

/* Reads the ad of a job; returns its size, or -1 if there is none. */
static ssize_t read_ad(const char *execute, const char *scratch, char *ad) {
    struct stat status;
    ssize_t size = -1, part = 0;
    int folder = open_below(execute, scratch);
    int file = folder < 0 ? -1 : openat(folder, ".job.ad", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        size = 0;
        while (size < AD_BYTES && (part = read(file, ad + size, AD_BYTES - size)) > 0)
            size += part;
        size = part < 0 ? -1 : size;
    }
    if (file >= 0)
        close(file);
    if (folder >= 0)
        close(folder);
    return size;
}

static int is_blank(char one) { return one == ' ' || one == '\t' || one == '\r'; }

/* Returns the expression of an attribute, and its length; NULL if the ad has no such attribute. The first one counts. */
static const char *expression(const char *ad, size_t size, const char *name, size_t *length) {
    const char *end = ad + size;
    size_t named = strlen(name);
    for (const char *begin = ad, *next; begin < end; begin = next + 1) {
        next = memchr(begin, '\n', end - begin);
        next = next ? next : end;
        const char *one = begin + named;
        if (one >= next || strncasecmp(begin, name, named) != 0)
            continue;
        while (one < next && (*one == ' ' || *one == '\t'))
            one++;
        if (one == next || *one++ != '=')
            continue;
        const char *last = next;
        while (one < last && is_blank(*one))
            one++;
        while (last > one && is_blank(last[-1]))
            last--;
        *length = last - one;
        return one;
    }
    return NULL;
}

/* Writes a header with the number of an attribute, or `otherwise` without it, unless that is NULL. */
static size_t add(const char *ad, size_t size, const char *name, size_t digits, const char *otherwise, const char *header,
    char *target, size_t room) {
    size_t length = 0;
    const char *value = expression(ad, size, name, &length);
    if (!value && otherwise) {
        value = otherwise;
        length = strlen(otherwise);
    }
    if (!value || length == 0 || length > digits || strspn(value, "0123456789") < length)
        return 0;
    int used = snprintf(target, room, "%s: %.*s\r\n", header, (int)length, value);
    return used > 0 && (size_t)used < room ? used : 0;
}

void add_requests(char **words, char *headers, size_t size) {
    const char *execute = getenv("_CONDOR_EXECUTE");
    char **found = words;
    while (*found && !(strcmp(*found, "-e") == 0 && found[1] && strncmp(found[1], SCRATCH, strlen(SCRATCH)) == 0))
        found++;
    char *ad = *found && execute && *execute ? calloc(1, AD_BYTES + 1) : NULL;
    ssize_t length = ad ? read_ad(execute, found[1] + strlen(SCRATCH), ad) : -1;
    if (length >= 0) {
        size_t used = add(ad, length, "RequestDisk", 15, NULL, "K8spilot-Disk", headers, size);
        add(ad, length, "RequestGPUs", 4, "0", "K8spilot-Gpus", headers + used, size - used);
    }
    free(ad);
}

/* --- access ----------------------------------------------------------------------------------------- */

/* Gives a file of the caller's to the group: read and write, and what is a folder or a program for others, too. A folder
 * passes its group on. */
static void open_one(int folder, const char *name, gid_t group) {
    struct stat status;
    char self[32];
    int found = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (found < 0)
        return;
    if (fstat(found, &status) == 0 && !S_ISLNK(status.st_mode) && status.st_uid == getuid()) {
        int is_folder = S_ISDIR(status.st_mode), runs = is_folder || (status.st_mode & 0111);
        mode_t mode = (status.st_mode & 07777) | 060 | (runs ? 010 : 0) | (is_folder ? 02000 : 0);
        snprintf(self, sizeof self, "/proc/self/fd/%d", found);
        if (fchownat(found, "", -1, group, AT_EMPTY_PATH) == 0)
            chmod(self, mode); /* fchmodat2(2) is younger than many kernels */
    }
    close(found);
}

static void open_all(int outer, const char *name, dev_t device, gid_t group, int depth) {
    struct stat status;
    int folder = openat(outer, name, DIRECTORY);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    if (!entries) {
        if (folder >= 0)
            close(folder);
        return;
    }
    if (fstat(folder, &status) == 0 && status.st_dev == device && depth < DEEPEST) {
        open_one(folder, ".", group);
        for (struct dirent *entry; (entry = readdir(entries));) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            if (entry->d_type != DT_DIR)
                open_one(folder, entry->d_name, group);
            if (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN)
                open_all(folder, entry->d_name, device, group, depth + 1);
        }
    }
    closedir(entries);
}

void open_sandboxes(const char *execute) {
    struct stat status;
    DIR *entries = execute && *execute ? opendir(execute) : NULL;
    if (!entries)
        return;
    if (fstat(dirfd(entries), &status) == 0)
        for (struct dirent *entry; (entry = readdir(entries));) {
            int sandbox = strncmp(entry->d_name, "dir_", 4) == 0 ? openat(dirfd(entries), entry->d_name, DIRECTORY) : -1;
            if (sandbox < 0)
                continue;
            open_all(sandbox, "scratch", status.st_dev, status.st_gid, 0);
            open_all(sandbox, "user", status.st_dev, status.st_gid, 0);
            close(sandbox);
        }
    closedir(entries);
}
