/* A command: its encoding, and the process that becomes it. */
#ifndef COMMAND_H
#define COMMAND_H

#include <signal.h>
#include <sys/types.h>

/* A command is a sequence of records, each a letter, its value and a NUL (command.py writes it):
 * a argument, e NAME=VALUE, u NAME or PREFIX* to remove from the image's environment, d directory, m umask in octal,
 * f program to run if the first argument does not exist. */
struct command {
    char *text;
    size_t size;
    char **arguments, **environment;
    char *otherwise;
    const char *directory;
    mode_t mask;
};

/* Reads a command from `descriptor`; returns -1 with errno if it is invalid. The caller calls free_command in any case. */
int read_command(int descriptor, struct command *command);
void free_command(struct command *command);

/* Turns this process, a child, into the command; does not return. `stdio` is three descriptors, or the same one three
 * times: a terminal, which becomes the session's controlling terminal. An error is written to `report` ("ERRNO STAGE")
 * and to the command's stderr; then the process exits as a shell does: 127 not found, 126 not executable. */
_Noreturn void become(struct command *command, const int *stdio, int report, const sigset_t *mask);

#endif
