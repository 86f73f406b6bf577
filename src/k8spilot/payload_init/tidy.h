/* What tidy's parts share: tidy.c (commands, removal of files and of System V IPC), unlock.c (access to sandboxes) and measure.c. */
#ifndef TIDY_H
#define TIDY_H

#include <sys/types.h>
#include <time.h>

/* How a folder is opened: never through a link. */
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* openat2(2): musl has neither the call nor, without the kernel's headers, its words. */
#define OPENAT2 437
#define RESOLVE_NO_XDEV 0x01
#define RESOLVE_NO_MAGICLINKS 0x02
#define RESOLVE_BENEATH 0x08
struct open_how {
    unsigned long long flags, mode, resolve;
};

/* The user whose files these are. */
extern uid_t job_user;

/* Writes `what` and the error's text to standard error, the first times; makes the exit status 1. */
void complain(const char *what);

/* Opens the folder `name` of `folder`; fails with EXDEV where something is mounted there. */
int enter(int folder, const char *name);

/* Changes the mode of the file or folder `name`, if `owner` has it: no link is followed, whatever takes its place meanwhile. */
int change_mode(int folder, const char *name, uid_t owner, mode_t mode);

/* What a job has locked in the folder `path` becomes readable: to the job's user, or to the folder's group. A fence also
 * removes links that lead out of the folder. */
enum unlock { TO_USER, TO_GROUP, TO_GROUP_WITH_FENCE };
void unlock_all(const char *path, enum unlock how);

/* Prints the bytes that the content of each path occupies, as far as it was changed since then, one line for each, and
 * "complete"; or "late" if the time was not enough, and less was counted than there is. A path @N is the descriptor N. */
void measure(time_t since, unsigned seconds, char **paths);

#endif
