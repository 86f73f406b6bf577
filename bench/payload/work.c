/* What the benchmark's jobs do. Static, so that it runs in any image and beside none.
 *
 * Each line that it says is `<word> <seconds>`, since the epoch but for `used` and `turn<number>`; on stderr for `out`,
 * else on stdout.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char block[1 << 16];

static void fail(const char *what) {
    fprintf(stderr, "work: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void tell(FILE *where, const char *word) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(where, "%s %lld.%09ld\n", word, (long long)now.tv_sec, now.tv_nsec);
    fflush(where);
}

/* Seconds of processor that this process has used so far, in the place of a time. */
static void tell_used(FILE *where) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    fprintf(where, "used %lld.%09ld\n", (long long)used.tv_sec, used.tv_nsec);
}

/* Arithmetic in registers: nothing but the processor. */
static uint64_t compute(long count, uint64_t sum, const void *with) {
    uint64_t x = 88172645463325252ULL;
    (void)with;
    for (long i = 0; i < count; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        sum += x;
    }
    return sum;
}

/* Each step to where the last one points: nothing but memory. */
static uint64_t walk(long count, uint64_t at, const void *with) {
    const uint32_t *next = with;
    for (long i = 0; i < count; i++)
        at = next[at];
    return at;
}

/* 256 MiB to be walked through at random. */
static uint32_t *ground(void) {
    size_t count = (256UL << 20) / sizeof(uint32_t);
    uint32_t *next = malloc(count * sizeof(uint32_t));
    if (next == NULL)
        fail("no memory");
    for (size_t i = 0; i < count; i++)
        next[i] = (uint32_t)((i * 2654435761UL + 12345) % count);
    return next;
}

/* One part of work, of some fifty milliseconds, in each second tenth of a second by the clock of all containers: in the
 * even or in the odd ones. Two that take turns like this meet the same machine, and do not meet each other but for a
 * part that takes over a tenth of a second, as `turn` tells. */
static void take_turns(long seconds, long turn, uint64_t (*part)(long, uint64_t, const void *), long much,
                       const void *with) {
    const long long tenth = 100000000LL;
    struct timespec from, to;
    uint64_t state = 0;
    clock_gettime(CLOCK_REALTIME, &from);
    long long number = from.tv_sec * 10LL + from.tv_nsec / tenth + 1;
    long long last = number + seconds * 10;
    number += number % 2 != turn;
    while (number < last) {
        struct timespec at = {number / 10, number % 10 * tenth};
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
        clock_gettime(CLOCK_MONOTONIC, &from);
        state = part(much, state, with);
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("turn%lld %.9f\n", number,
               (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
        clock_gettime(CLOCK_REALTIME, &to);
        do  /* turns that have passed are not taken in others' time */
            number += 2;
        while (number <= to.tv_sec * 10LL + to.tv_nsec / tenth);
    }
    block[0] = (char)state;
}

static void write_all(int target, long mebibytes) {
    for (long left = mebibytes << 20; left > 0;) {
        ssize_t done = write(target, block, left < (long)sizeof block ? (size_t)left : sizeof block);
        if (done < 0)
            fail("cannot write");
        left -= done;
    }
}

static FILE *create(const char *name) {
    FILE *file = fopen(name, "w");
    if (file == NULL)
        fail(name);
    return file;
}

static void make_files(long count) {
    char name[64];
    if (mkdir("made", 0755) != 0)
        fail("made");
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "made/%06ld", i);
        FILE *file = create(name);
        fwrite(block, 1, 1024, file);
        fclose(file);
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "now";
    long much = count > 2 ? atol(words[2]) : 0;
    long turn = count > 3 ? atol(words[3]) : 0;
    struct timespec at = {count > 4 ? atol(words[4]) : 0, 0};
    FILE *where = strcmp(what, "out") == 0 ? stderr : stdout;
    tell(where, "start");
    clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
    if (strcmp(what, "cpu") == 0) {
        take_turns(much, turn, compute, 25000000, NULL);
    } else if (strcmp(what, "memory") == 0) {
        take_turns(much, turn, walk, 250000, ground());
    } else if (strcmp(what, "out") == 0) {
        write_all(STDOUT_FILENO, much);
    } else if (strcmp(what, "big") == 0) {
        FILE *file = create("made");
        write_all(fileno(file), much);
        fclose(file);
    } else if (strcmp(what, "files") == 0) {
        make_files(much);
    } else if (strcmp(what, "sleep") == 0) {
        struct timespec rest = {much / 1000, much % 1000 * 1000000L};
        nanosleep(&rest, NULL);
    }
    tell_used(where);
    tell(where, "end");
    return 0;
}
