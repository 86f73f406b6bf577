/* The space that a job occupies: the command measure of tidy.
 *
 * It runs while the job runs, which may change, move, hide and link its files as it likes. So each folder is opened by its
 * name in its parent's descriptor, no link is followed, and no mount is entered. What cannot be opened is not counted. The
 * figure is more than there is only for a job with very many files of several names (MOST_LINKED). Its memory is limited, since
 * root runs it in the pilot container: 24 MiB for such files, and 17 MiB for a deep tree. */
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

/* A file with several names counts once. Beyond this number of such files each name of a further one counts. */
#ifndef MOST_LINKED
#define MOST_LINKED (1UL << 20)
#endif
#define PLACES (2 * MOST_LINKED)
/* Levels of a tree that are entered: each one needs a descriptor and its buffer. */
#define MOST_OPEN (1UL << 13)
#define BLOCK 512
#define NICE 10

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

/* Returns where the table has the value, or has room for it. */
static uint64_t *find(uint64_t value) {
    size_t place = value >> 20 & (places - 1);
    while (linked[place] && linked[place] != value)
        place = (place + 1) & (places - 1);
    return linked + place;
}

static void grow(void) {
    uint64_t *before = linked, *larger = calloc(places ? places * 2 : 1024, sizeof *larger);
    size_t count = places;
    if (!larger)
        return;
    linked = larger;
    places = places ? places * 2 : 1024;
    for (size_t i = 0; i < count; i++)
        if (before[i])
            *find(before[i]) = before[i];
    free(before);
}

/* Returns whether this is the first name of a file, as far as the table has room for files. */
static int is_new(const struct stat *status) {
    uint64_t value = mark(status), *place;
    if (taken * 2 >= places && places < PLACES)
        grow();
    if (!places)
        return 1;
    place = find(value);
    if (*place)
        return 0;
    if (taken < MOST_LINKED && taken * 2 < places) {
        *place = value;
        taken++;
    }
    return 1;
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
        limit.rlim_cur = limit.rlim_max < MOST_OPEN ? limit.rlim_max : MOST_OPEN;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (geteuid() == 0 && nice(NICE) < 0) { /* it makes way for HTCondor and the engine; beside a job it need not */ }
    signal(SIGALRM, be_late);
    alarm(seconds);
    for (; *paths; paths++) {
        int folder = **paths == '@' ? openat(atoi(*paths + 1), ".", DIRECTORY) : open(*paths, DIRECTORY);
        unsigned long long bytes = folder < 0 ? 0 : count(folder, since);
        printf("%llu\n", bytes);
    }
    printf("%s\n", late ? "late" : "complete");
}
