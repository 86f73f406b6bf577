/* A command: its form on the wire, and the process that becomes it. */
#ifndef COMMAND_H
#define COMMAND_H

#include <signal.h>
#include <sys/types.h>

/* A command is a sequence of records, each a letter, its value and a NUL (command.py writes it):
 * a argument, e NAME=VALUE, u NAME or PREFIX* to take out of the image's environment, d directory, m umask in octal,
 * f program to run if the first argument is not there. */
struct command {
    char *text;
    size_t size;
    char **arguments, **environment;
    char *otherwise;
    const char *directory;
    mode_t mask;
};

/* Reads a command from `descriptor`; -1 with errno when it is none. What was read is freed in any case by free_command. */
int read_command(int descriptor, struct command *command);
void free_command(struct command *command);

/* Makes this process, a child, the command; does not return. `stdio` is three descriptors, or the same one three times:
 * a terminal, which becomes the session's own. What goes wrong is written to `report` ("ERRNO STAGE") and to the
 * command's stderr; then it ends as a shell would: 127 not found, 126 cannot be run. */
_Noreturn void become(struct command *command, const int *stdio, int report, const sigset_t *mask);

#endif
