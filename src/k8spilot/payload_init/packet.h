/* Packets of the pilot's socket: text, with open descriptors beside it (SCM_RIGHTS, unix(7)). */
#ifndef PACKET_H
#define PACKET_H

#include <stddef.h>

#define PACKET_DESCRIPTORS 4 /* received at most: of a command, its text and its streams */

void send_packet(int socket, const char *text, const int *descriptors, int count);

/* Returns the number of descriptors that came with the text, which the kernel drops beyond this process's RLIMIT_NOFILE;
 * or -1 at the end of the stream. */
int receive_packet(int socket, char *text, size_t size, int *descriptors);

#endif
