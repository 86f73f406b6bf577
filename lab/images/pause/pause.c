/* First process of every pod: holds the pod's namespaces and reaps what others leave behind. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(signal == SIGINT ? 130 : 0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void)
{
    struct sigaction ending = {.sa_handler = end};
    struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGINT, &ending, 0);
    sigaction(SIGTERM, &ending, 0);
    sigaction(SIGCHLD, &reaping, 0);
    for (;;)
        pause();
}
