/* The engine's answer to a line: the connection, its frames, and the streams of a job
 * (docker/command_lines/handler.py). */
#define _GNU_SOURCE
#include "docker-client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ERRORS = 2, STATUS = 3, BECOME_DOCKER = 4 };

/* --- the connection --------------------------------------------------------------------------------- */

static int dial(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *host = getenv("DOCKER_HOST");
    if (!host || strncmp(host, "unix://", 7) || strlen(host + 7) >= sizeof address.sun_path)
        refuse("DOCKER_HOST is not the path of a socket; restart the pilot");
    strcpy(address.sun_path, host + 7);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
        return connection;
    if (connection >= 0)
        close(connection);
    return -1;
}

static int send_all(int connection, const char *data, size_t length) {
    while (length > 0) {
        ssize_t sent = send(connection, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        data += sent;
        length -= sent;
    }
    return 0;
}

static void write_all(int file, const char *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(file, data, length);
        if (written >= 0) {
            data += written;
            length -= written;
        } else if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = file, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            refuse("the output cannot be written: %s", strerror(errno));
        }
    }
}

/* Sends the request. An engine that does not read it has answered, or is dead: the reader notices. */
static void send_request(int connection, const char *headers, const char *body, size_t length) {
    char head[1024];
    int used = snprintf(head, sizeof head,
        "POST /htcondor/command HTTP/1.1\r\nHost: docker\r\nContent-Length: %zu\r\n%s\r\n", length, headers);
    if (used > 0 && (size_t)used < sizeof head && send_all(connection, head, used) == 0)
        send_all(connection, body, length);
}

/* --- the answer ------------------------------------------------------------------------------------- */

static struct {
    char buffer[64 * 1024];
    size_t used;
    int begun;       /* the answer's head has been read, and the answer has frames */
    int broken;      /* it has none: the rest is an error's text */
    int stream;      /* of the frame that is being read */
    uint32_t left;   /* of it */
} answer;

static void drop(size_t length) {
    answer.used -= length;
    memmove(answer.buffer, answer.buffer + length, answer.used);
}

/* Reads the head, which a hostile engine could not make longer than the buffer. */
static void read_head(void) {
    char *end = memmem(answer.buffer, answer.used, "\r\n\r\n", 4);
    if (!end)
        return;
    answer.begun = 1;
    answer.broken = strncmp(answer.buffer, "HTTP/1.1 101 ", 13) != 0 && strncmp(answer.buffer, "HTTP/1.1 200 ", 13) != 0;
    if (answer.broken) {
        remove_note();
        fputs("Error response from daemon: ", stderr);
    }
    drop(end + 4 - answer.buffer);
}

/* Writes what is complete of the frames. Returns the exit status, or UNANSWERED while the last frame is missing. */
static int read_frames(void) {
    for (;;) {
        if (answer.left > 0) {
            size_t part = answer.used < answer.left ? answer.used : answer.left;
            if (part == 0)
                return UNANSWERED;
            if (answer.stream == STATUS)
                return (unsigned char)answer.buffer[0];
            if (answer.stream == ERRORS)
                remove_note();
            write_all(answer.stream == ERRORS ? STDERR_FILENO : STDOUT_FILENO, answer.buffer, part);
            answer.left -= part;
            drop(part);
        } else if (answer.used < 8) {
            return UNANSWERED;
        } else {
            const unsigned char *head = (unsigned char *)answer.buffer;
            answer.stream = head[0];
            answer.left = (uint32_t)head[4] << 24 | head[5] << 16 | head[6] << 8 | head[7];
            drop(8);
            if (answer.stream == BECOME_DOCKER)
                return BECOMES_DOCKER;
        }
    }
}

/* Takes what has come. Returns as read_frames; *ended is set at the end of the connection. */
static int take(int connection, int *ended) {
    ssize_t length = recv(connection, answer.buffer + answer.used, sizeof answer.buffer - answer.used, 0);
    if (length < 0 && (errno == EINTR || errno == EAGAIN))
        return UNANSWERED;
    *ended = length <= 0;
    answer.used += length > 0 ? length : 0;
    if (!answer.begun)
        read_head();
    if (answer.broken) {
        write_all(STDERR_FILENO, answer.buffer, answer.used);
        answer.used = 0;
        return *ended ? 1 : UNANSWERED;
    }
    if (!answer.begun && answer.used == sizeof answer.buffer)
        *ended = 1;
    return answer.begun ? read_frames() : UNANSWERED;
}

int ask(const char *headers, const char *line, size_t size) {
    int status = UNANSWERED, ended = 0, connection = dial();
    if (connection < 0)
        return UNANSWERED;
    answer.used = answer.begun = answer.broken = answer.left = 0;
    send_request(connection, headers, line, size);
    while (!ended && status == UNANSWERED)
        status = take(connection, &ended);
    close(connection);
    return status;
}

/* --- start ------------------------------------------------------------------------------------------ */

/* Passes a signal on to the job, as docker's client does. Its answer does not matter. */
static void forward(int number, const char *name) {
    char body[512];
    struct timeval patience = {.tv_sec = 5};
    int used = snprintf(body, sizeof body, "kill%c--signal%c%d%c%s", 0, 0, number, 0, name);
    int connection = dial();
    if (connection < 0)
        return;
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (used > 0 && (size_t)used < sizeof body)
        send_request(connection, "Connection: close\r\n", body, used + 1);
    while (recv(connection, body, sizeof body, 0) > 0) { }
    close(connection);
}

/* Blocks all signals but those of a fault, which the kernel does not let block, and returns a descriptor of them. They are
 * the kernel's own calls because musl keeps three signals to itself. */
static int catch_signals(void) {
    uint64_t all = ~(uint64_t)0;
    for (const int *one = (const int[]){SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGURG, 0}; *one; one++)
        all &= ~((uint64_t)1 << (*one - 1));
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all);
    return syscall(SYS_signalfd4, -1, &all, sizeof all, SFD_CLOEXEC | SFD_NONBLOCK);
}

static struct {
    char buffer[64 * 1024];
    size_t begin, end;
    int ended;
} input;

/* Reads standard input when all of the last part is sent, and ends it for the job at its end. */
static void read_input(int connection) {
    ssize_t length = read(STDIN_FILENO, input.buffer, sizeof input.buffer);
    if (length < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    input.begin = 0;
    input.end = length > 0 ? length : 0;
    if (length <= 0) {
        input.ended = 1;
        shutdown(connection, SHUT_WR);
    }
}

static void send_input(int connection) {
    ssize_t sent = send(connection, input.buffer + input.begin, input.end - input.begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
        input.begin += sent;
    else if (sent < 0 && errno != EAGAIN && errno != EINTR)
        input.ended = 1, input.begin = input.end = 0; /* the answer's end is read */
}

/* Carries the streams of a job until the engine's last frame. */
static int carry(int connection, const char *name) {
    enum { ENGINE, INPUT, SIGNALS };
    int status = UNANSWERED, ended = 0, signals = -1;
    while (!ended && status == UNANSWERED) {
        int waiting = input.begin < input.end, reads = answer.begun && !input.ended && !waiting;
        struct pollfd ends[] = {
            [ENGINE] = {.fd = connection, .events = POLLIN | (waiting ? POLLOUT : 0)},
            [INPUT] = {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN},
            [SIGNALS] = {.fd = signals, .events = POLLIN},
        };
        struct signalfd_siginfo sent;
        if (poll(ends, 3, -1) < 0)
            continue;
        if (ends[SIGNALS].revents && read(signals, &sent, sizeof sent) == sizeof sent)
            forward(sent.ssi_signo, name);
        if (ends[INPUT].revents)
            read_input(connection);
        if (ends[ENGINE].revents & POLLOUT)
            send_input(connection);
        if (ends[ENGINE].revents & ~POLLOUT)
            status = take(connection, &ended);
        if (answer.begun && signals < 0) /* the job starts now; before, a signal ends this program */
            signals = catch_signals();
    }
    return status;
}

int start(const char *line, size_t size, const char *name) {
    int connection = dial();
    if (connection < 0)
        return UNANSWERED;
    send_request(connection, "Connection: Upgrade\r\nUpgrade: tcp\r\n", line, size);
    return carry(connection, name);
}
