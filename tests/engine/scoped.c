/* scoped: a program in the scope of a payload container, and nothing else of one.   scoped PROGRAM ARGUMENT... */
#include "../../src/k8spilot/payload_init/scope.h"

#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2 || !enter_scope())
        return 64;
    execvp(argv[1], argv + 1);
    return 127;
}
