/* What docker-client's parts share: docker-client.c (the line), engine.c (its answer) and sandbox.c (files of jobs). */
#ifndef DOCKER_CLIENT_H
#define DOCKER_CLIENT_H

#include <stddef.h>

/* Outcomes beside an exit status: no complete answer, and that docker's own client is to run. */
#define UNANSWERED -1
#define BECOMES_DOCKER -2

/* Writes a sentence to standard error, and ends with 1. */
_Noreturn void refuse(const char *format, ...);

/* Empties standard error of the reason for a killed client, before anything else is written there. */
void remove_note(void);

/* Sends a line, and writes what the engine answers. Returns the exit status, or one of the above. */
int ask(const char *headers, const char *line, size_t size);

/* The same for `start -a` of the container `name`, with standard input, until the job's end. */
int start(const char *line, size_t size, const char *name);

/* Writes headers with what the job has requested, as its ad in the sandbox says: the disk in KiB, and the number of GPUs.
 * Without root, the engine does not see the sandboxes. A number that is not known has no header. */
void add_requests(char **words, char *headers, size_t size);

/* Opens the sandboxes in the folder `execute` to its group, which is that of the payload container. */
void open_sandboxes(const char *execute);

#endif
