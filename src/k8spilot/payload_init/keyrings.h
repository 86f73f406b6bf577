/* The kernel's key retention service (keyrings(7)), which is not for jobs. */
#ifndef KEYRINGS_H
#define KEYRINGS_H

/* Makes the kernel deny this process and its later children all use of keys: EPERM. Returns 0, or the error number if the
 * kernel accepts no filter; then nothing is denied. */
int forbid_keyrings(void);

#define KEYRINGS_OPEN "The kernel's keyrings are open to this container's processes: no system call filter can be installed"

#endif
