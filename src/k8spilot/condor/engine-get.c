/* engine-get: prints an answer of the engine (common/pilot_api.py).
 *
 *     engine-get get SOCKET PATH SECONDS
 *     engine-get stream SOCKET PATH
 *
 * `get` prints a whole answer or nothing, and waits up to SECONDS for an engine that restarts or works. `stream` prints the
 * answer as it arrives. Exit status: 0 or 1; on 1 `get` writes the reason to standard error. HTCondor restarts a stream that
 * has ended, so that its failures need no words.
 *
 * HTCondor runs this program for each job (scripts/starter.sh), and for as long as a startd with GPUs lives. Python's start
 * takes 18 ms, curl's 13 ms.
 */
#define _GNU_SOURCE
#include <errno.h>
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

static char answer[256 * 1024]; /* the inventory of GPUs has some hundred bytes for each */
static size_t used;
static const char *path;

_Noreturn static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "k8spilot: ");
    vfprintf(stderr, format, values);
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

/* Sends the request. HTTP/1.0: the end of the connection is the end of the answer. Returns a descriptor, or -1. */
static int request(const char *what) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char words[512];
    int length = snprintf(words, sizeof words, "GET %s HTTP/1.0\r\nHost: k8spilot\r\n\r\n", what);
    if (strlen(path) >= sizeof address.sun_path || length < 0 || (size_t)length >= sizeof words)
        fail("the path of the socket or of the request is too long");
    strcpy(address.sun_path, path);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    if (connect(connection, (struct sockaddr *)&address, sizeof address) < 0 ||
        send(connection, words, length, MSG_NOSIGNAL) != length) {
        int error = errno;
        close(connection);
        errno = error;
        return -1;
    }
    return connection;
}

/* Limits how long each of the next calls waits. Zero would be no limit. */
static void limit(int connection, double seconds) {
    struct timeval patience = {.tv_usec = 10000};
    if (seconds > 0.01)
        patience = (struct timeval){.tv_sec = seconds, .tv_usec = (seconds - (long)seconds) * 1e6};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

/* Receives a part of the answer. Returns 0 at the answer's end, and -1 on an error. */
static int receive(int connection) {
    ssize_t length = recv(connection, answer + used, sizeof answer - 1 - used, 0);
    if (length < 0)
        return errno == EINTR ? 1 : -1;
    used += length;
    answer[used] = 0;
    return length > 0;
}

/* Returns the begin of the body, or NULL while the head is not complete. The head ends with a NUL from then on. */
static char *find_body(void) {
    char *end = memmem(answer, used, "\r\n\r\n", 4);
    if (!end)
        return NULL;
    *end = 0;
    return end + 4;
}

static int is_good(void) { return strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 8, " 200", 4) == 0; }

/* Whether the body has as many bytes as the head says, and fits into the buffer. */
static int is_whole(const char *body) {
    const char *length = strcasestr(answer, "\r\ncontent-length:");
    if (used == sizeof answer - 1)
        return 0;
    return !length || strtoul(length + 17, NULL, 10) == (size_t)(answer + used - body);
}

/* --- get -------------------------------------------------------------------------------------------- */

/* Requests once. Returns the body, or NULL if there is no whole answer. Ends the program after another status than 200. */
static char *get_once(const char *what, double deadline) {
    int more = 1, connection = request(what);
    if (connection < 0)
        return NULL;
    used = 0;
    while (more > 0) {
        limit(connection, deadline - now());
        more = receive(connection);
    }
    close(connection);
    char *body = more < 0 ? NULL : find_body();
    if (body && !is_good())
        fail("the engine at %s answers %.*s", path, (int)strcspn(answer, "\r"), answer);
    return body && is_whole(body) ? body : NULL;
}

static int get(const char *what, double seconds) {
    double deadline = now() + seconds;
    for (;;) {
        char *body = get_once(what, deadline);
        if (body)
            return write_all(body, answer + used - body) < 0;
        if (now() + PAUSE_MS / 1000.0 >= deadline)
            fail("no answer from the engine at %s within %g s", path, seconds);
        usleep(PAUSE_MS * 1000);
    }
}

/* --- stream ----------------------------------------------------------------------------------------- */

static int stream(const char *what) {
    char *body = NULL;
    int connection = request(what);
    while (connection >= 0 && receive(connection) > 0) {
        if (!body && !(body = find_body()))
            continue;
        if (!is_good() || write_all(body, answer + used - body) < 0)
            return 1;
        used = body - answer;
    }
    return !body || !is_good();
}

int main(int argc, char **argv) {
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
