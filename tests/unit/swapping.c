/* Loses every race: built into tidy, it puts a link in the place of a folder right after tidy has looked at the folder.
 *
 *   SWAPPED_FOR   where the link leads to
 *   LOOK          after which of its looks
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int looks_and_swaps(int folder, const char *name, struct stat *status, int flags) {
    static int looks = 0;
    int found = fstatat(folder, name, status, flags);
    if (found == 0 && strcmp(name, "swapped") == 0 && ++looks == atoi(getenv("LOOK"))) {
        renameat(folder, name, folder, "aside");
        if (symlinkat(getenv("SWAPPED_FOR"), folder, name) < 0)
            perror("swapping.c");
        fprintf(stderr, "swapped\n");
    }
    return found;
}
