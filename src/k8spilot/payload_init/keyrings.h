/* The kernel's key retention service (keyrings(7)), which is not for jobs. */
#ifndef KEYRINGS_H
#define KEYRINGS_H

/* Makes the kernel deny this process and its later children all use of keys: EPERM. Where it cannot, nothing changes. */
void forbid_keyrings(void);

#endif
