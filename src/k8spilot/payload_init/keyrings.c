/* A system call filter (seccomp(2)) against the kernel's keyrings: they belong to a uid of the node and not to a container.
 *
 * A key in the uid's keyring outlives the job. The next job and the jobs of other pods with the same uid could find it.
 * containerd's profile RuntimeDefault denies these system calls. CRI-O's profile allows keyctl(2). Since Linux 5.11, the kernel
 * finds out once which system calls the filter can deny, and skips the filter for all others (seccomp_cache_prepare).
 */
#define _GNU_SOURCE
#include "keyrings.h"

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From linux/filter.h, linux/bpf_common.h and linux/seccomp.h, which musl lacks. */
struct instruction {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
};
struct filter {
    uint16_t length;
    const struct instruction *instructions;
};
enum { LOAD = 0x20, EQUAL = 0x15, AT_LEAST = 0x35, ABOVE = 0x25, AND = 0x54, RETURN = 0x06 };
#define NUMBER 0 /* offsets in struct seccomp_data */
#define ARCHITECTURE 4
#define ALLOW 0x7fff0000U
#define DENY (0x00050000U | EPERM)
#define MODE_FILTER 2 /* for prctl(2) */
#define SET_MODE_FILTER 1 /* for seccomp(2) */
#define SPEC_ALLOW 4
#define X32 0x40000000U /* bit of a system call's number for the ABI x32 (asm/unistd.h), which has the same numbers here */

/* Denies the three system calls of an architecture (linux/audit.h), the first of which is add_key(2): their numbers follow each
 * other. Other architectures go on with the instruction after these. */
#define KEYS(architecture, first) \
    {LOAD, 0, 0, ARCHITECTURE}, {EQUAL, 0, 5, architecture}, {LOAD, 0, 0, NUMBER}, {AND, 0, 0, ~X32}, {AT_LEAST, 0, 2, first}, \
        {ABOVE, 1, 0, first + 2}, {RETURN, 0, 0, DENY}

static const struct instruction program[] = {
    KEYS(0xc000003eU, 248), /* x86-64 */
    KEYS(0x40000003U, 286), /* i386 */
    KEYS(0xc00000b7U, 217), /* arm64 */
    KEYS(0x40000028U, 309), /* arm */
    {RETURN, 0, 0, ALLOW},
};

int forbid_keyrings(void) {
#if !(defined __x86_64__ || defined __i386__ || defined __aarch64__ || defined __arm__)
    return ENOSYS; /* the program does not know this architecture's numbers */
#endif
    struct filter filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return errno;
    /* Without the flag (Linux 4.17), kernels before 5.16 by default disable speculative stores in each filtered process, which
     * slows jobs (spec_store_bypass_disable in Linux's kernel-parameters.txt). */
    if (syscall(SYS_seccomp, SET_MODE_FILTER, SPEC_ALLOW, &filter) == 0)
        return 0;
    return prctl(PR_SET_SECCOMP, MODE_FILTER, &filter, 0, 0) == 0 ? 0 : errno;
}
