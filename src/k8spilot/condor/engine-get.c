/* engine-get: prints an answer of the engine (common/pilot_api.py).
 *
 *     engine-get get SOCKET PATH SECONDS
 *     engine-get stream SOCKET PATH
 *
 * `get` prints a whole answer or nothing. While the engine restarts, or prepares its answer, `get` waits, at most SECONDS.
 * `stream` prints the answer as it arrives. Exit status: 0, or 1 after a failure. `get` writes the reason to standard error;
 * `stream` writes none, because HTCondor starts it again after each end.
 *
 * It is in C because each job waits for it (scripts/starter.sh): Python needs 18 ms to start, curl 13 ms. The GPU monitor runs
 * as long as the startd, so that it should be small, too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 300 /* before a request is repeated */
#define NO_LIMIT 0

static char answer[256 * 1024]; /* the inventory of GPUs has some hundred bytes for each */
static size_t used;
static const char *path;
static const char *why = ""; /* there is no whole answer */

_Noreturn static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("k8spilot: ", stderr);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int write_all(const char *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, data, length);
        if (written < 0 && errno != EINTR)
            return -1;
        data += written > 0 ? written : 0;
        length -= written > 0 ? written : 0;
    }
    return 0;
}

/* Limits how long each of the next calls waits: connect (unix(7): of a full queue), send, recv. Zero would be no limit. */
static void limit(int connection, double deadline) {
    double seconds = deadline - now();
    struct timeval patience = {.tv_usec = 10000};
    if (seconds > 0.01)
        patience = (struct timeval){.tv_sec = seconds, .tv_usec = (seconds - (long)seconds) * 1e6};
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

/* Sends the request. HTTP/1.0: the end of the connection is the end of the answer. Returns a descriptor, or -1. */
static int request(const char *what, double deadline) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char words[512];
    int length = snprintf(words, sizeof words, "GET %s HTTP/1.0\r\nHost: k8spilot\r\n\r\n", what);
    if (strlen(path) >= sizeof address.sun_path || length < 0 || (size_t)length >= sizeof words)
        fail("the path of the socket or of the request is too long");
    strcpy(address.sun_path, path);
    used = 0;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection >= 0 && deadline != NO_LIMIT)
        limit(connection, deadline);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(connection, words, length, MSG_NOSIGNAL) == length)
        return connection;
    why = errno == EAGAIN ? "it takes no connection" : strerror(errno);
    if (connection >= 0)
        close(connection);
    return -1;
}

/* Receives a part of the answer. Returns 0 at the answer's end, and -1 on an error. */
static int receive(int connection) {
    ssize_t length = recv(connection, answer + used, sizeof answer - 1 - used, 0);
    if (length < 0 && errno == EINTR)
        return 1;
    if (length < 0) {
        why = errno == EAGAIN ? "it takes too long" : strerror(errno);
        return -1;
    }
    used += length;
    answer[used] = 0;
    return length > 0;
}

/* Returns where the body begins, or NULL while the head is not complete. From then on a NUL ends the head. */
static char *find_body(void) {
    char *end = memmem(answer, used, "\r\n\r\n", 4);
    if (!end)
        return NULL;
    *end = 0;
    return end + 4;
}

static int is_good(void) { return strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 8, " 200", 4) == 0; }

/* Whether the body has as many bytes as the head says. */
static int is_whole(const char *body) {
    const char *length = strcasestr(answer, "\r\ncontent-length:");
    return !length || strtoul(length + 17, NULL, 10) == (size_t)(answer + used - body);
}

/* --- get -------------------------------------------------------------------------------------------- */

/* Returns the body of the answer that has been received, or NULL if it is not whole. Any other answer than 200 is final. */
static char *whole_body(void) {
    char *body = find_body();
    if (body && !is_good()) {
        body[strcspn(body, "\r\n")] = 0;
        fail("the engine at %s answers %.*s: %s", path, (int)strcspn(answer, "\r"), answer, body);
    }
    if (body && is_whole(body))
        return body;
    why = "it closed the connection in the middle of its answer";
    return NULL;
}

/* Requests once. Returns the body, or NULL if there is no whole answer. */
static char *get_once(const char *what, double deadline) {
    int more = 1, connection = request(what, deadline);
    if (connection < 0)
        return NULL;
    while (more > 0) {
        if (used == sizeof answer - 1)
            fail("the answer of the engine at %s is too long", path);
        limit(connection, deadline);
        more = receive(connection);
        if (more > 0 && now() >= deadline) {
            why = "it takes too long";
            more = -1;
        }
    }
    close(connection);
    return more == 0 ? whole_body() : NULL;
}

static int get(const char *what, double seconds) {
    double deadline = now() + seconds;
    for (;;) {
        char *body = get_once(what, deadline);
        if (body)
            return write_all(body, answer + used - body) < 0;
        if (now() + PAUSE_MS / 1000.0 >= deadline)
            fail("no answer from the engine at %s within %g s (%s)", path, seconds, why);
        usleep(PAUSE_MS * 1000);
    }
}

/* --- stream ----------------------------------------------------------------------------------------- */

static int stream(const char *what) {
    char *body = NULL;
    int more, connection = request(what, NO_LIMIT); /* HTCondor ends its monitor with its startd */
    while ((more = connection < 0 ? -1 : receive(connection)) > 0) {
        if (!body && !(body = find_body()))
            continue;
        if (!is_good() || write_all(body, answer + used - body) < 0)
            return 1;
        used = body - answer;
    }
    return more < 0 || !body;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && strcmp(argv[1], "get") == 0) {
        path = argv[2];
        return get(argv[3], atof(argv[4]));
    }
    if (argc == 4 && strcmp(argv[1], "stream") == 0) {
        path = argv[2];
        return stream(argv[3]);
    }
    fail("usage: engine-get get SOCKET PATH SECONDS, or engine-get stream SOCKET PATH");
}
