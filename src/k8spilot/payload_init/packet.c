/* Packets of the pilot's socket. */
#define _GNU_SOURCE
#include "packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void send_packet(int socket, const char *text, const int *descriptors, int count) {
    char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec data = {.iov_base = (void *)text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    /* The main loop detects the pilot's end by its end of the socket. */
    while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) { }
}

int receive_packet(int socket, char *text, size_t size, int *descriptors) {
    char control[CMSG_SPACE(PACKET_DESCRIPTORS * sizeof(int))];
    struct iovec data = {.iov_base = text, .iov_len = size - 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return 0;
    int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
    return count;
}
