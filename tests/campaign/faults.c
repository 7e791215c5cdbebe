/* A layer under a process (LD_PRELOAD) that counts its changes of files below a directory, and
 * ends the process at one of them, or refuses it as a disk would.
 *
 *     faults_begin(directory, mode, number)   from now on; see `Mode`
 *     faults_count()                          changes so far
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum Mode {
    COUNT,    /* only count */
    KILL,     /* SIGKILL instead of change NUMBER */
    REFUSE,   /* change NUMBER alone fails with an input/output error */
    READONLY, /* from change NUMBER on, all fail: the file system has become read-only */
    FULL      /* space for NUMBER bytes; then files can only be removed */
};

static char place[PATH_MAX];
static enum Mode mode;
static long limit;
static atomic_long changes, bytes;

void faults_begin(const char *directory, int chosen, long number)
{
    snprintf(place, sizeof place, "%s", directory);
    mode = chosen;
    limit = number;
    changes = bytes = 0;
}

long faults_count(void) { return changes; }

static int below(const char *path)
{
    size_t length = strlen(place);
    return length && !strncmp(path, place, length) && (!path[length] || path[length] == '/');
}

static int of_descriptor(int descriptor)
{
    char link[64], path[PATH_MAX];
    if (!*place) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int of_path(int directory, const char *path)
{
    char whole[PATH_MAX];
    if (!*place) return 0;
    if (*path == '/') return below(path);
    if (directory != AT_FDCWD) return of_descriptor(directory);
    return getcwd(whole, sizeof whole) && below(whole);
}

/* Counts a change; the error it gets, or 0. `grows`: it needs space, so many bytes. */
static int fault(int ours, int grows, size_t size)
{
    if (!ours) return 0;
    long number = ++changes;
    if (mode == KILL && number == limit) {
        kill(getpid(), SIGKILL);
        pause();
    }
    if (mode == REFUSE && number == limit) return EIO;
    if (mode == READONLY && number >= limit) return EROFS;
    if (mode == FULL && grows && atomic_fetch_add(&bytes, size) + (long)size > limit) return ENOSPC;
    return 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define GUARD(ours, grows, size) \
    do { \
        int saved = errno, problem = fault((ours), (grows), (size)); \
        errno = saved; \
        if (problem) { \
            errno = problem; \
            return -1; \
        } \
    } while (0)

static int writes(int flags) { return flags & (O_CREAT | O_TRUNC); }

static mode_t rights(int flags, va_list rest)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t given = rights(flags, rest); \
        va_end(rest); \
        if (writes(flags)) GUARD(of_path(AT_FDCWD, path), 1, 0); \
        return real(path, flags, given); \
    }
#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t given = rights(flags, rest); \
        va_end(rest); \
        if (writes(flags)) GUARD(of_path(directory, path), 1, 0); \
        return real(directory, path, flags, given); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define CHANGE(type, name, parameters, arguments, ours, grows, size) \
    type name parameters \
    { \
        REAL(name); \
        GUARD(ours, grows, size); \
        return real arguments; \
    }

static size_t total(const struct iovec *parts, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

CHANGE(ssize_t, write, (int d, const void *b, size_t n), (d, b, n), of_descriptor(d), 1, n)
CHANGE(ssize_t, pwrite, (int d, const void *b, size_t n, off_t o), (d, b, n, o), of_descriptor(d),
       1, n)
CHANGE(ssize_t, pwrite64, (int d, const void *b, size_t n, off64_t o), (d, b, n, o),
       of_descriptor(d), 1, n)
CHANGE(ssize_t, writev, (int d, const struct iovec *v, int c), (d, v, c), of_descriptor(d), 1,
       total(v, c))
CHANGE(ssize_t, pwritev, (int d, const struct iovec *v, int c, off_t o), (d, v, c, o),
       of_descriptor(d), 1, total(v, c))
CHANGE(ssize_t, copy_file_range,
       (int a, off64_t *s, int d, off64_t *t, size_t n, unsigned f), (a, s, d, t, n, f),
       of_descriptor(d), 1, n)
CHANGE(ssize_t, sendfile, (int d, int a, off_t *o, size_t n), (d, a, o, n), of_descriptor(d), 1, 0)
CHANGE(ssize_t, sendfile64, (int d, int a, off64_t *o, size_t n), (d, a, o, n), of_descriptor(d),
       1, 0)
CHANGE(int, ftruncate, (int d, off_t n), (d, n), of_descriptor(d), 0, 0)
CHANGE(int, ftruncate64, (int d, off64_t n), (d, n), of_descriptor(d), 0, 0)
CHANGE(int, fsync, (int d), (d), of_descriptor(d), 0, 0)
CHANGE(int, fdatasync, (int d), (d), of_descriptor(d), 0, 0)
CHANGE(int, rename, (const char *a, const char *b), (a, b), of_path(AT_FDCWD, b), 0, 0)
CHANGE(int, renameat, (int c, const char *a, int d, const char *b), (c, a, d, b), of_path(d, b), 0,
       0)
CHANGE(int, renameat2, (int c, const char *a, int d, const char *b, unsigned f), (c, a, d, b, f),
       of_path(d, b), 0, 0)
CHANGE(int, link, (const char *a, const char *b), (a, b), of_path(AT_FDCWD, b), 1, 0)
CHANGE(int, linkat, (int c, const char *a, int d, const char *b, int f), (c, a, d, b, f),
       of_path(d, b), 1, 0)
CHANGE(int, symlink, (const char *a, const char *b), (a, b), of_path(AT_FDCWD, b), 1, 0)
CHANGE(int, mkdir, (const char *a, mode_t m), (a, m), of_path(AT_FDCWD, a), 1, 0)
CHANGE(int, mkdirat, (int d, const char *a, mode_t m), (d, a, m), of_path(d, a), 1, 0)
CHANGE(int, rmdir, (const char *a), (a), of_path(AT_FDCWD, a), 0, 0)
CHANGE(int, unlink, (const char *a), (a), of_path(AT_FDCWD, a), 0, 0)
CHANGE(int, unlinkat, (int d, const char *a, int f), (d, a, f), of_path(d, a), 0, 0)
CHANGE(int, chmod, (const char *a, mode_t m), (a, m), of_path(AT_FDCWD, a), 0, 0)
CHANGE(int, fchmod, (int d, mode_t m), (d, m), of_descriptor(d), 0, 0)
