// Loaded before the C library (LD_PRELOAD): counts what a process asks of the allocator, and who asked. The
// counts lie in a file that is mapped by the process and read by the test, named by SEKISHO_ALLOCATIONS:
// 0 allocations of all threads, 1 those of threads called "worker-…".
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static _Atomic uint64_t before[2];
static _Atomic uint64_t *counts = before;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SEKISHO_ALLOCATIONS");
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof before)) return;
    void *memory = mmap(0, sizeof before, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) counts = memory;
    close(file);
    // Programs that the server starts are not counted.
    unsetenv("LD_PRELOAD");
}

static void count(void) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    atomic_fetch_add_explicit(&counts[0], 1, memory_order_relaxed);
    if (!strncmp(name, "worker-", 7)) atomic_fetch_add_explicit(&counts[1], 1, memory_order_relaxed);
}

void *malloc(size_t size) {
    count();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count();
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    count();
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **at, size_t alignment, size_t size) {
    count();
    *at = __libc_memalign(alignment, size);
    return *at ? 0 : 12;
}
