// A load generator for what wrk does not do: many connections that are opened before the clock starts, and a
// fixed rate. At a fixed rate the time of an answer counts from when its request was *due*, not from when it
// could be sent: a server that stalls makes the requests behind it late as well, and that is measured
// ("coordinated omission" is what it is called where it is not).
//
//     load PORT PATH CONNECTIONS RATE
//
// RATE 0: each connection asks again as soon as it has its answer. Talks with its parent by lines: says
// `ready` when every connection is open and has had one answer; `go SECONDS` measures and answers with one
// line of JSON; the end of its input is its end.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 1024, HEAD_MAX = 4096, AT_ONCE = 200, SOURCES = 8, SAMPLES_MAX = 1 << 23 };

struct connection {
    int fd, is_waiting;      // whether an answer is due
    int64_t due;             // when the request in work was to be sent
    int head_length;         // of the head, while it is not whole
    int64_t body_left;
    char head[HEAD_MAX];
};

static struct connection *all;
static int count, poll_fd, request_length;
static char request[1024], buffer[1 << 18];
static int64_t answered, errors, reconnected;
static uint32_t *samples;    // tenths of microseconds
static int64_t sample_count;
static struct sockaddr_in server;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void open_connection(int at) {
    struct connection *c = &all[at];
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) die("socket");
    // Several addresses of this machine: one has too few ports for many connections in a row.
    struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + at % SOURCES);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(fd, (void *)&from, sizeof from)) die("bind");
    if (connect(fd, (void *)&server, sizeof server)) die("connect");
    struct epoll_event on = {.events = EPOLLIN, .data.u32 = at};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &on);
    c->fd = fd;
    c->is_waiting = c->head_length = c->body_left = 0;
}

static void ask(struct connection *c, int64_t due) {
    c->is_waiting = 1;
    c->due = due;
    c->head_length = c->body_left = 0;
    if (send(c->fd, request, request_length, MSG_NOSIGNAL) != request_length) errors++;
}

// Whether the head is whole now, and how many of the bytes were its own.
static int take_head(struct connection *c, const char *bytes, int length, int *taken) {
    int room = HEAD_MAX - 1 - c->head_length, before = c->head_length;
    int more = length < room ? length : room;
    memcpy(c->head + before, bytes, more);
    c->head_length += more;
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) {
        *taken = more;
        return 0;
    }
    *taken = end + 4 - c->head - before;
    end[2] = 0;
    char *field = strcasestr(c->head, "\r\nContent-Length:");
    c->body_left = field ? atoll(field + 17) : 0;
    if (strncmp(c->head + 8, " 200", 4)) errors++;
    return 1;
}

// Reads what is there; whether the answer is whole.
static int read_answer(int at) {
    struct connection *c = &all[at];
    int length = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (length <= 0) {
        // The server has closed it: that is allowed, and counted.
        if (c->is_waiting) errors++;
        reconnected++;
        close(c->fd);
        open_connection(at);
        return -1;
    }
    int used = 0, is_whole = c->head_length < 0;
    if (!is_whole) {
        is_whole = take_head(c, buffer, length, &used);
        if (!is_whole) return 0;
        c->head_length = -1;
    }
    c->body_left -= length - used;
    return c->body_left <= 0;
}

static void note(int64_t due) {
    answered++;
    if (sample_count < SAMPLES_MAX) samples[sample_count++] = (now() - due) / 100;
}

static void wait_for(struct epoll_event *got, int *found, int64_t until) {
    int64_t left = until - now();
    if (left < 0) left = 0;
    struct timespec t = {left / 1000000000, left % 1000000000};
    *found = epoll_pwait2(poll_fd, got, EVENTS, &t, 0);
    if (*found < 0) *found = 0;
}

// Every connection is opened and has one answer, a few at a time.
static void begin(void) {
    struct epoll_event got[EVENTS];
    for (int first = 0; first < count; first += AT_ONCE) {
        int last = first + AT_ONCE < count ? first + AT_ONCE : count, missing = last - first, found;
        for (int at = first; at < last; at++) {
            open_connection(at);
            ask(&all[at], now());
        }
        int64_t limit = now() + 10000000000LL;
        while (missing > 0 && now() < limit) {
            wait_for(got, &found, limit);
            for (int i = 0; i < found; i++)
                if (read_answer(got[i].data.u32) > 0) {
                    all[got[i].data.u32].is_waiting = 0;
                    missing--;
                }
        }
        if (missing > 0) {
            fprintf(stderr, "no answer to %d of %d\n", missing, last - first);
            exit(1);
        }
    }
}

// As fast as the answers come.
static void closed_loop(int64_t end) {
    struct epoll_event got[EVENTS];
    int found;
    for (int at = 0; at < count; at++) ask(&all[at], now());
    while (now() < end) {
        wait_for(got, &found, end);
        for (int i = 0; i < found; i++) {
            int at = got[i].data.u32, done = read_answer(at);
            if (done > 0) note(all[at].due);
            if (done) ask(&all[at], now());
        }
    }
}

// At a fixed rate: request n is due at start + n / rate, on whichever connection is free first. While none
// is, those that are due wait in order, and their clocks run.
static void open_loop(int64_t start, int64_t end, double rate) {
    struct epoll_event got[EVENTS];
    int *vacant = malloc(count * sizeof *vacant), vacancies = 0, found;
    for (int at = 0; at < count; at++) vacant[vacancies++] = at;
    int64_t sent = 0, total = (int64_t)((end - start) / 1e9 * rate), limit = end + 10000000000LL;
    while (answered + errors < total && now() < limit) {
        int64_t at_time = now();
        while (sent < total && vacancies > 0) {
            int64_t due = start + (int64_t)(sent * 1e9 / rate);
            if (due > at_time) break;
            ask(&all[vacant[--vacancies]], due);
            sent++;
        }
        int64_t next = limit;
        if (sent < total && vacancies > 0) next = start + (int64_t)(sent * 1e9 / rate);
        wait_for(got, &found, next);
        for (int i = 0; i < found; i++) {
            int at = got[i].data.u32, was_waiting = all[at].is_waiting, done = read_answer(at);
            if (done > 0) note(all[at].due);
            if (done && was_waiting) {
                all[at].is_waiting = 0;
                vacant[vacancies++] = at;
            }
        }
    }
    free(vacant);
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(double part) {
    if (!sample_count) return 0;
    int64_t at = (int64_t)(sample_count * part);
    return samples[at < sample_count ? at : sample_count - 1] / 10.0;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    prctl(PR_SET_TIMERSLACK, 1UL);
    server = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons(atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    request_length = snprintf(request, sizeof request,
                              "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n",
                              argv[2]);
    count = atoi(argv[3]);
    double rate = atof(argv[4]);
    all = calloc(count, sizeof *all);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    poll_fd = epoll_create1(0);
    begin();
    puts("ready");
    fflush(stdout);
    double seconds;
    if (scanf("go %lf", &seconds) == 1) {
        answered = errors = sample_count = 0;
        int64_t start = now(), end = start + (int64_t)(seconds * 1e9);
        if (rate > 0) open_loop(start, end, rate);
        else closed_loop(end);
        double took = (now() - start) / 1e9;
        qsort(samples, sample_count, sizeof *samples, by_size);
        printf("{\"count\": %ld, \"seconds\": %.6f, \"errors\": %ld, \"reconnected\": %ld, \"p50_us\": %.1f, "
               "\"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
               answered, took, errors, reconnected, percentile(0.5), percentile(0.9), percentile(0.99),
               percentile(0.999), percentile(1));
        fflush(stdout);
    }
    while (getchar() != EOF) {
    }
    return 0;
}
