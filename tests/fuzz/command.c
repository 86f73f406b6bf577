/* Reads command texts and says of each how it was understood; built with the compiler's own checks of memory and arithmetic.
 *
 *   standard input: for each text its length, four bytes in this machine's order, and the text
 *   standard output: for each a line: "-" for none, or the numbers of arguments and of variables
 */
#define _GNU_SOURCE
#include "../../src/k8spilot/payload_init/command.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    uint32_t size;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        char *text = malloc(size + 1);
        struct command command = {.mask = 022};
        int memory = memfd_create("command", 0), arguments = 0, variables = 0;
        size_t used = 0;
        if (!text || memory < 0 || fread(text, 1, size, stdin) != size || write(memory, text, size) != (ssize_t)size)
            return 70;
        if (read_command(memory, &command) == 0) {
            for (; command.arguments[arguments]; arguments++)
                used += strlen(command.arguments[arguments]);
            for (; command.environment[variables]; variables++)
                used += strlen(command.environment[variables]);
            used += command.directory ? strlen(command.directory) : 0;
            used += command.otherwise ? strlen(command.otherwise) : 0;
            printf("%d %d\n", arguments, variables);
            if (used == (size_t)-1)
                return 71;
        } else {
            puts("-");
        }
        fflush(stdout);
        free_command(&command);
        close(memory);
        free(text);
    }
    return 0;
}
