/*
 * Tests in C: each runs in a child of its own, in an empty directory of its own, and fails by a CHECK that does not hold, by
 * a signal, by a leak that a sanitizer sees, or by taking too long.
 *
 * TDB_SIZE=n divides the long loops by n, for slow tools; TDB_TIMEOUT=n gives a test n seconds. With --together the tests
 * share one process, which a tool that translates code likes better, and the first that fails ends it; those that need a
 * process of their own are left out.
 */
#ifndef KIT_CHECK_H
#define KIT_CHECK_H

#include <stdio.h>
#include <string.h>

#include "functions.h"

struct test {
    const char *name;
    void (*run)(void);
    int alone; /* needs a process of its own */
};

#define TEST(name) {#name, name, 0}
#define TEST_ALONE(name) {#name, name, 1}
#define END_OF_TESTS {NULL, NULL, 0}

/* Runs all tests of the lists whose names begin with one of the arguments, or all; returns the exit code. */
int run_tests(const char *program, const struct test *const *lists, int argc, char **argv);

/* Ends the test as failed. */
_Noreturn void fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* n, or fewer for a slow tool, but at least least. */
int scaled(int n, int least);

#define CHECK(condition)                                                   \
    do {                                                                   \
        count_check();                                                     \
        if (!(condition)) fail(__FILE__, __LINE__, "CHECK(%s)", #condition); \
    } while (0)

#define CHECK_RC(call, want) check_rc(__FILE__, __LINE__, #call, (call), (want))
#define OK(call) check_rc(__FILE__, __LINE__, #call, (call), TDB_SUCCESS)
#define CHECK_INT(got, want) check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define CHECK_STR(got, want) check_str(__FILE__, __LINE__, #got, (got), (want))

/* Every check is counted; so may be what is checked otherwise. */
void count_check(void);
void check_rc(const char *file, int line, const char *what, int got, int want);
void check_int(const char *file, int line, const char *what, long long got, long long want);
void check_str(const char *file, int line, const char *what, const char *got, const char *want);

#endif
