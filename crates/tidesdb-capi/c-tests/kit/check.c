#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

atomic_uint *function_calls;

/* Index of the count of checks, after the counts of calls. */
enum { CHECKS = FUNCTION_COUNT, COUNTERS };

static char home[PATH_MAX];
static int together, crashes;

void count_check(void)
{
    atomic_fetch_add_explicit(&function_calls[CHECKS], 1, memory_order_relaxed);
}

_Noreturn void fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("\n%s:%d: ", file, line);
    vprintf(format, args);
    va_end(args);
    const char *why = tidesdb_last_error();
    if (why[0] != '\0') printf(" [last error: %s]", why);
    printf("\n");
    fflush(stdout);
    _exit(1);
}

void check_rc(const char *file, int line, const char *what, int got, int want)
{
    count_check();
    if (got != want) fail(file, line, "%s returned %d, not %d", what, got, want);
}

void check_int(const char *file, int line, const char *what, long long got, long long want)
{
    count_check();
    if (got != want) fail(file, line, "%s is %lld, not %lld", what, got, want);
}

void check_str(const char *file, int line, const char *what, const char *got, const char *want)
{
    count_check();
    if (got == NULL || strcmp(got, want) != 0)
        fail(file, line, "%s is \"%s\", not \"%s\"", what, got == NULL ? "(null)" : got, want);
}

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    int n = text == NULL ? 0 : atoi(text);
    return n > 0 ? n : otherwise;
}

int scaled(int n, int least)
{
    int size = n / number("TDB_SIZE", 1);
    return size > least ? size : least;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

/* Time limit of a test, in seconds. */
static unsigned time_limit(void)
{
    return (unsigned)number("TDB_TIMEOUT", 60);
}

static void go_home(void)
{
    if (chdir(home) != 0) fail(__FILE__, __LINE__, "chdir %s: %s", home, strerror(errno));
}

/* Creates an empty directory and enters it. */
static void enter(const char *name)
{
    go_home();
    if (mkdir(name, 0700) != 0 || chdir(name) != 0)
        fail(__FILE__, __LINE__, "%s/%s: %s", home, name, strerror(errno));
}

static void leave(const char *name)
{
    go_home();
    nftw(name, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int run_alone(const struct test *test)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) fail(__FILE__, __LINE__, "fork: %s", strerror(errno));
    if (child == 0) {
        alarm(time_limit());
        enter(test->name);
        test->run();
        /* Frees what the last readers of a closed database left to be freed later: the leak checker does not see the pointers of a block cache. */
        (tidesdb_finalize)();
        exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    leave(test->name);
    if (WIFSIGNALED(status)) {
        int by = WTERMSIG(status);
        printf("\n%s (signal %d)\n", by == SIGALRM ? "TIMED OUT" : "CRASHED", by);
        crashes++;
        return -1;
    }
    return WEXITSTATUS(status);
}

static int run_one(const struct test *test)
{
    if (!together) return run_alone(test);
    alarm(time_limit());
    enter(test->name);
    test->run();
    leave(test->name);
    alarm(0);
    return 0;
}

static int wanted(const struct test *test, int argc, char **argv)
{
    int named = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        named = 1;
        if (strncmp(test->name, argv[i], strlen(argv[i])) == 0) return 1;
    }
    return !named && !(together && test->alone);
}

static unsigned long calls(void)
{
    unsigned long sum = 0;
    for (int i = 0; i < FUNCTION_COUNT; i++) sum += atomic_load(&function_calls[i]);
    return sum;
}

static int uncalled(void)
{
    static const char *const names[] = {
#define FUNCTION_NAME(name) #name,
        ALL_FUNCTIONS(FUNCTION_NAME)};
    int missing = 0;
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        if (atomic_load(&function_calls[i]) == 0) {
            printf("never called: %s\n", names[i]);
            missing++;
        }
    }
    printf("functions=%d called=%d\n", FUNCTION_COUNT, FUNCTION_COUNT - missing);
    return missing;
}

static void print_functions(void)
{
#define PRINT_NAME(name) puts(#name);
    ALL_FUNCTIONS(PRINT_NAME)
}

static void prepare(const char *program)
{
    size_t size = COUNTERS * sizeof(atomic_uint);
    function_calls = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (function_calls == MAP_FAILED) abort();
    const char *tmp = getenv("TMPDIR");
    snprintf(home, sizeof home, "%s/tidesdb-%s-XXXXXX", tmp == NULL ? "/tmp" : tmp, program);
    if (mkdtemp(home) == NULL) {
        fprintf(stderr, "%s: %s\n", home, strerror(errno));
        exit(2);
    }
}

int run_tests(const char *program, const struct test *const *lists, int argc, char **argv)
{
    int tests = 0, failed = 0, filtered = 0;
    const struct test *last = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--functions") == 0) {
            print_functions();
            return 0;
        }
        if (strcmp(argv[i], "--together") == 0) together = 1;
        filtered = 1;
    }
    prepare(program);
    for (; *lists != NULL; lists++) {
        for (const struct test *test = *lists; test->name != NULL; test++) {
            if (!wanted(test, argc, argv)) continue;
            printf("%-44s ", test->name);
            fflush(stdout);
            int status = run_one(test);
            tests++;
            if (status == 0) {
                printf("ok\n");
                continue;
            }
            printf("%s FAILED (%d)\n", test->name, status);
            last = test;
            failed++;
        }
    }
    go_home();
    rmdir(home);
    if (!filtered && uncalled() != 0) failed++;
    printf("%s: tests=%d failed=%d calls=%lu cases=%u crashes=%d\n", program, tests, failed, calls(),
           atomic_load(&function_calls[CHECKS]), crashes);
    if (last != NULL) printf("%s: the last test that failed: %s\n", program, last->name);
    return failed == 0 && tests > 0 ? 0 : 1;
}
