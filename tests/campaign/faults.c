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
    mode = chosen, limit = number, changes = bytes = 0;
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
    if (mode == KILL && number == limit) kill(getpid(), SIGKILL), pause();
    if (mode == REFUSE && number == limit) return EIO;
    if (mode == READONLY && number >= limit) return EROFS;
    if (mode == FULL && grows && atomic_fetch_add(&bytes, size) + (long)size > limit) return ENOSPC;
    return 0;
}

#define GUARD(ours, grows, size) \
    do { \
        int saved = errno, problem = fault((ours), (grows), (size)); \
        errno = problem ? problem : saved; \
        if (problem) return -1; \
    } while (0)
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define CHANGE(type, name, parameters, arguments, ours, grows, size) \
    type name parameters { REAL(name); GUARD(ours, grows, size); return real arguments; }
#define OPEN(name, directory, parameters, arguments) \
    int name parameters \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t rights = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (flags & (O_CREAT | O_TRUNC)) GUARD(of_path(directory, path), 1, 0); \
        return real arguments; \
    }
OPEN(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, rights))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, rights))
OPEN(openat, d, (int d, const char *path, int flags, ...), (d, path, flags, rights))
OPEN(openat64, d, (int d, const char *path, int flags, ...), (d, path, flags, rights))

static size_t total(const struct iovec *parts, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

#define WRITE(name, parameters, arguments, size) \
    CHANGE(ssize_t, name, parameters, arguments, of_descriptor(d), 1, size)
#define DESCRIPTOR(name, parameters, arguments) \
    CHANGE(int, name, parameters, arguments, of_descriptor(d), 0, 0)
#define PATH(name, parameters, arguments, directory, path, grows) \
    CHANGE(int, name, parameters, arguments, of_path(directory, path), grows, 0)
WRITE(write, (int d, const void *b, size_t n), (d, b, n), n)
WRITE(pwrite, (int d, const void *b, size_t n, off_t o), (d, b, n, o), n)
WRITE(pwrite64, (int d, const void *b, size_t n, off64_t o), (d, b, n, o), n)
WRITE(writev, (int d, const struct iovec *v, int c), (d, v, c), total(v, c))
WRITE(pwritev, (int d, const struct iovec *v, int c, off_t o), (d, v, c, o), total(v, c))
WRITE(copy_file_range, (int a, off64_t *s, int d, off64_t *t, size_t n, unsigned f), (a, s, d, t, n, f), n)
WRITE(sendfile, (int d, int a, off_t *o, size_t n), (d, a, o, n), 0)
WRITE(sendfile64, (int d, int a, off64_t *o, size_t n), (d, a, o, n), 0)
DESCRIPTOR(ftruncate, (int d, off_t n), (d, n))
DESCRIPTOR(ftruncate64, (int d, off64_t n), (d, n))
DESCRIPTOR(fsync, (int d), (d))
DESCRIPTOR(fdatasync, (int d), (d))
DESCRIPTOR(fchmod, (int d, mode_t m), (d, m))
PATH(rename, (const char *a, const char *b), (a, b), AT_FDCWD, b, 0)
PATH(renameat, (int c, const char *a, int d, const char *b), (c, a, d, b), d, b, 0)
PATH(renameat2, (int c, const char *a, int d, const char *b, unsigned f), (c, a, d, b, f), d, b, 0)
PATH(link, (const char *a, const char *b), (a, b), AT_FDCWD, b, 1)
PATH(linkat, (int c, const char *a, int d, const char *b, int f), (c, a, d, b, f), d, b, 1)
PATH(symlink, (const char *a, const char *b), (a, b), AT_FDCWD, b, 1)
PATH(mkdir, (const char *a, mode_t m), (a, m), AT_FDCWD, a, 1)
PATH(mkdirat, (int d, const char *a, mode_t m), (d, a, m), d, a, 1)
PATH(rmdir, (const char *a), (a), AT_FDCWD, a, 0)
PATH(unlink, (const char *a), (a), AT_FDCWD, a, 0)
PATH(unlinkat, (int d, const char *a, int f), (d, a, f), d, a, 0)
PATH(chmod, (const char *a, mode_t m), (a, m), AT_FDCWD, a, 0)
