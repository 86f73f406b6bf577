/* The scope of a container: a Landlock domain (landlock(7)), which this process enters and all that it starts inherits. */
#define _GNU_SOURCE
#include "scope.h"

#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

/* linux/landlock.h, which musl does not bring. */
#define CREATE_RULESET 444
#define RESTRICT_SELF 446
#define VERSION 1
#define ABSTRACT_UNIX_SOCKET 1ULL
#define SCOPES 6 /* the version that brought them: Linux 6.12 */
struct ruleset {
    uint64_t files, network, scoped;
};

/* `files` stays 0: mount(2) fails in a domain that handles any right to files, also in a user namespace of the job's own,
 * where apptainer and others mount. `network` stays 0: such rules allow a list of TCP ports, at any address, and no list
 * has all ports but the pod's own.
 *
 * Signals are not in the scope. `clear` ends by them what HTCondor has left of this uid in the pilot container, and whoever
 * is in this domain would not reach it. In a second domain for the commands alone, each command would have one for itself:
 * the job and the sessions beside it reached neither each other's abstract sockets nor each other by signals. */
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
