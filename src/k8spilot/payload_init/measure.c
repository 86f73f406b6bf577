/* The space that a job occupies: the command measure of tidy.
 *
 * It runs while the job runs, which may change, move, hide and link its files as it likes. So each folder is opened by its
 * name in its parent's descriptor, no link is followed, and no mount is entered. What cannot be opened is not counted: the
 * figure is never more than there is. */
#define _GNU_SOURCE
#include "tidy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file with several names counts once. Beyond this number of such files (64 MiB of memory) further ones do not count. */
#define MOST_LINKED (1UL << 22)
#define BLOCK 512

static volatile sig_atomic_t late = 0;
static uint64_t *linked = NULL; /* hash table of device and inode; 0 is a free place */
static size_t places = 0, taken = 0;

static void be_late(int number) {
    (void)number;
    late = 1;
}

static uint64_t mark(const struct stat *status) {
    uint64_t value = ((uint64_t)status->st_ino ^ (uint64_t)status->st_dev << 44) * 0x9E3779B97F4A7C15u;
    return value ? value : 1;
}

static int put(uint64_t value) {
    size_t place = value >> 20 & (places - 1);
    for (; linked[place]; place = (place + 1) & (places - 1))
        if (linked[place] == value)
            return 0;
    linked[place] = value;
    return 1;
}

/* Returns whether this is the first name of a file. */
static int is_new(const struct stat *status) {
    if (taken * 2 >= places) {
        uint64_t *before = linked;
        size_t count = places, larger = places ? places * 2 : 1024;
        if (larger > 2 * MOST_LINKED || !(linked = calloc(larger, sizeof *linked))) {
            linked = before;
            return 0;
        }
        places = larger;
        for (size_t i = 0; i < count; i++)
            if (before[i])
                put(before[i]);
        free(before);
    }
    int is_first = put(mark(status));
    taken += is_first;
    return is_first;
}

static unsigned long long occupied(const struct stat *status, time_t since) {
    if (status->st_ctime < since || (!S_ISDIR(status->st_mode) && status->st_nlink > 1 && !is_new(status)))
        return 0;
    return (unsigned long long)status->st_blocks * BLOCK;
}

struct level {
    struct level *outer;
    DIR *entries;
};

static struct level *down(struct level *outer, int folder) {
    struct level *level = malloc(sizeof *level);
    DIR *entries = level ? fdopendir(folder) : NULL;
    if (!entries) {
        free(level);
        close(folder);
        return outer;
    }
    level->outer = outer;
    level->entries = entries;
    return level;
}

/* Counts the content of a folder, and closes it. A deep tree needs a descriptor for each level. */
static unsigned long long count(int folder, time_t since) {
    unsigned long long bytes = 0;
    struct stat status;
    struct level *level = down(NULL, folder);
    while (level) {
        int here = dirfd(level->entries);
        struct dirent *entry = late ? NULL : readdir(level->entries);
        if (!entry) {
            struct level *outer = level->outer;
            closedir(level->entries);
            free(level);
            level = outer;
            continue;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(here, entry->d_name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
            continue;
        if (S_ISDIR(status.st_mode)) {
            int inner = enter(here, entry->d_name);
            if (inner < 0)
                continue; /* gone, locked, or a mount */
            level = down(level, inner);
        }
        bytes += occupied(&status, since);
    }
    return bytes;
}

void measure(time_t since, unsigned seconds, char **paths) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    signal(SIGALRM, be_late);
    alarm(seconds);
    for (; *paths; paths++) {
        int folder = **paths == '@' ? openat(atoi(*paths + 1), ".", DIRECTORY) : open(*paths, DIRECTORY);
        unsigned long long bytes = folder < 0 ? 0 : count(folder, since);
        printf("%llu\n", bytes);
    }
    printf("%s\n", late ? "late" : "complete");
}
