/* The isolation of a container's processes from the pod's other containers, which share its network namespace. */
#ifndef SCOPE_H
#define SCOPE_H

/* Makes the kernel deny this process and its later children the use of abstract Unix sockets that others created, and the
 * tracing of others. Returns whether the kernel does so: Linux 6.12 or newer with Landlock among its security modules. */
int enter_scope(void);

#endif
