/* What processes of a container reach of the pod's other containers, whose network namespace they share. */
#ifndef SCOPE_H
#define SCOPE_H

/* Has the kernel keep this process, and all that it starts from now on, from abstract Unix sockets that were made by others, and
 * from tracing others. Returns whether it does: Linux 6.12 or newer does, where Landlock is among its security modules. */
int enter_scope(void);

#endif
