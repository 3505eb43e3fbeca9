// The least that running a program for each request can cost: posix_spawn, read its output, wait for it.
// Prints how many ran in how many seconds.
//
//     spawn PROGRAM SECONDS
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int run(char *program) {
    char *argv[] = {program, 0}, buffer[4096];
    int out[2], status;
    pid_t pid;
    if (pipe2(out, O_CLOEXEC)) return -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    int failed = posix_spawn(&pid, program, &actions, 0, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    while (!failed && read(out[0], buffer, sizeof buffer) > 0) {
    }
    close(out[0]);
    return failed || waitpid(pid, &status, 0) != pid || status;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    double start = now(), end = start + atof(argv[2]), at;
    long count = 0;
    for (; (at = now()) < end; count++)
        if (run(argv[1])) return 1;
    printf("%ld %.6f\n", count, at - start);
    return 0;
}
