/* The scope of a container: a Landlock domain (landlock(7)). This process enters it, and its children inherit it. */
#define _GNU_SOURCE
#include "scope.h"

#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

/* From linux/landlock.h, which musl lacks. */
#define CREATE_RULESET 444
#define RESTRICT_SELF 446
#define VERSION 1
#define ABSTRACT_UNIX_SOCKET 1ULL
#define SCOPES 6 /* first version with scopes: Linux 6.12 */
struct ruleset {
    uint64_t files, network, scoped;
};

/* `files` stays 0: mount(2) fails in a domain that handles any right to files, even in the job's own user namespace,
 * where apptainer and others mount. `network` stays 0: its rules allow a list of TCP ports at any address, and no list can
 * express all ports but the pod's own.
 *
 * The scope does not include signals: `clear` kills HTCondor's remaining processes of this uid in the pilot container by
 * signals, which a process in such a domain could not send. A second domain for the commands would separate each command
 * from the others: the job and its sessions could reach neither each other's abstract sockets nor each other by signals. */
int enter_scope(void) {
    struct ruleset asked = {.scoped = ABSTRACT_UNIX_SOCKET};
    if (syscall(CREATE_RULESET, NULL, 0, VERSION) < SCOPES)
        return 0;
    int ruleset = syscall(CREATE_RULESET, &asked, sizeof asked, 0);
    if (ruleset < 0)
        return 0;
    int entered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(RESTRICT_SELF, ruleset, 0) == 0;
    close(ruleset);
    return entered;
}
