/* A backend that answers every request head with the same bytes: backend PORT BODY_SIZE. Requests have no body. With
   "upgrade" for the size it switches to WebSocket (for the key of RFC 6455's example), and says nothing more. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_DESCRIPTORS 65536

static char *answer;
static size_t answer_size;
/* How many bytes each connection is still owed. */
static size_t owed[MAX_DESCRIPTORS];

static void watch(int epoll, int operation, int descriptor, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = descriptor};
    epoll_ctl(epoll, operation, descriptor, &event);
}

/* Sends what can be sent; 0 when the connection is lost. */
static int send_owed(int descriptor) {
    while (owed[descriptor]) {
        size_t at = (answer_size - owed[descriptor] % answer_size) % answer_size;
        ssize_t sent = send(descriptor, answer + at, answer_size - at, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN;
        owed[descriptor] -= sent;
    }
    return 1;
}

static void serve(int epoll, int descriptor, unsigned events) {
    static char input[65536];
    if (events & ~EPOLLOUT) {
        ssize_t got = read(descriptor, input, sizeof input);
        if (got <= 0) {
            close(descriptor);
            return;
        }
        for (char *at = input; (at = memmem(at, input + got - at, "\r\n\r\n", 4)); at += 4) owed[descriptor] += answer_size;
    }
    size_t was_owed = owed[descriptor];
    if (!send_owed(descriptor)) {
        close(descriptor);
        return;
    }
    if (owed[descriptor] || (was_owed && events & EPOLLOUT))
        watch(epoll, EPOLL_CTL_MOD, descriptor, EPOLLIN | (owed[descriptor] ? EPOLLOUT : 0));
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t body = strtoul(arguments[2], NULL, 10);
    answer = malloc(body + 256);
    int head = strcmp(arguments[2], "upgrade")
        ? sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n", body)
        : sprintf(answer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
    memset(answer + head, 'b', body);
    answer_size = head + body;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) return 1;
    watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN);
    struct epoll_event events[256];
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int at = 0; at < ready; at++) {
            if (events[at].data.fd != listener) {
                serve(epoll, events[at].data.fd, events[at].events);
                continue;
            }
            int accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (accepted < 0) continue;
            if (accepted >= MAX_DESCRIPTORS) {
                close(accepted);
                continue;
            }
            setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            owed[accepted] = 0;
            watch(epoll, EPOLL_CTL_ADD, accepted, EPOLLIN);
        }
    }
}
