/* The smallest job: says so, shows its arguments, ends with the code that its first argument names. */
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    printf("hello from an image with one static program\n");
    for (int i = 1; i < count; i++)
        printf("argument %d: %s\n", i, arguments[i]);
    return count > 1 ? atoi(arguments[1]) : 0;
}
