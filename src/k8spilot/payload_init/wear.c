/* Detection of what a job has changed of payload-init, before the next job of the same claim runs in the container.
 *
 * The same uid suffices for prlimit(2), sched_setaffinity(2), sched_setattr(2), setpriority(2) and ioprio_set(2), also on
 * a process that is not dumpable. Children inherit all of it: without this check a job could slow or limit the next one.
 * Priorities must be the usual ones and not only those of the start: another process of the uid, a transfer plugin in the
 * pilot container, could have changed them before main(). The files in /proc of a process that is not dumpable belong to
 * root (proc(5)), so that oom_score_adj needs no check.
 */
#define _GNU_SOURCE
#include "wear.h"

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IOPRIO_WHO_PROCESS 1
#define CPU_BYTES 1024 /* 8192 CPUs, the most that Linux is built for (NR_CPUS) */

#define BEST_EFFORT_4 ((2 << 13) | 4) /* what ioprio_get(2) says of a process without a priority of its own, or 0 */

struct attributes { /* struct sched_attr of linux/sched/types.h, with room for what later kernels add */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t others[27]; /* priority, deadline, utilization clamps */
};

static struct state {
    struct rlimit limits[RLIM_NLIMITS];
    unsigned char cpus[CPU_BYTES];
    struct attributes scheduler;
    long io_priority;
} first;

static void read_state(struct state *now) {
    memset(now, 0, sizeof *now);
    for (int limit = 0; limit < RLIM_NLIMITS; limit++)
        getrlimit(limit, &now->limits[limit]);
    syscall(SYS_sched_getaffinity, 0, sizeof now->cpus, now->cpus);
    syscall(SYS_sched_getattr, 0, &now->scheduler, sizeof now->scheduler, 0U);
    now->io_priority = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
}

void note_state(void) {
    read_state(&first);
}

const char *changed_state(void) {
    static struct state now;
    read_state(&now);
    if (memcmp(now.limits, first.limits, sizeof now.limits))
        return "limits";
    if (memcmp(now.cpus, first.cpus, sizeof now.cpus))
        return "affinity";
    if (memcmp(&now.scheduler, &first.scheduler, sizeof now.scheduler) || now.scheduler.policy || now.scheduler.nice)
        return "priority";
    if (now.io_priority != 0 && now.io_priority != BEST_EFFORT_4)
        return "io-priority";
    return NULL;
}
