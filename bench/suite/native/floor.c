// The least that a server on one core can do for a small file: an epoll loop that reads whatever comes and
// answers fixed bytes. It parses nothing and checks nothing.
//
//     floor PORT
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, BODY = 1024 };

static char answer[2048], request[8192];

static int make_answer(void) {
    int head = sprintf(answer,
                       "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Sun, 15 Nov 2026 00:00:00 GMT\r\n"
                       "Content-Type: text/html\r\nContent-Length: %d\r\n"
                       "Last-Modified: Sun, 15 Nov 2026 00:00:00 GMT\r\nETag: \"aaaa-bbbb\"\r\n\r\n",
                       BODY);
    memset(answer + head, 'x', BODY);
    return head + BODY;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(atoi(argv[1])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) return 1;
    struct epoll_event want = {.events = EPOLLIN, .data.fd = listener}, got[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &want);
    int length = make_answer();
    for (;;) {
        int count = epoll_wait(poll, got, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int fd = got[i].data.fd, peer;
            if (fd == listener) {
                while ((peer = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    struct epoll_event on = {.events = EPOLLIN | EPOLLET, .data.fd = peer};
                    epoll_ctl(poll, EPOLL_CTL_ADD, peer, &on);
                }
            } else if (recv(fd, request, sizeof request, 0) <= 0) {
                close(fd);
            } else {
                send(fd, answer, length, MSG_NOSIGNAL);
            }
        }
    }
}
