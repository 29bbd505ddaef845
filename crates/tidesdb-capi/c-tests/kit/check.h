/*
 * Runner for tests in C. Each test runs in its own child process and its own empty directory. It fails if a CHECK fails, on
 * a signal, on a leak that a sanitizer reports, or on a timeout.
 *
 * TDB_SIZE=n divides the long loops by n, for slow tools; TDB_TIMEOUT=n sets the timeout of a test in seconds. With
 * --together the tests share one process, which is faster under tools that translate code. The first failure ends it, and
 * tests that need their own process are left out.
 */
#ifndef KIT_CHECK_H
#define KIT_CHECK_H

#include <stdio.h>
#include <string.h>

#include "functions.h"

struct test {
    const char *name;
    void (*run)(void);
    int alone; /* needs its own process */
};

#define TEST(name) {#name, name, 0}
#define TEST_ALONE(name) {#name, name, 1}
#define END_OF_TESTS {NULL, NULL, 0}

/* Runs the tests of the lists whose names begin with one of the arguments, or all tests. Returns the exit code. */
int run_tests(const char *program, const struct test *const *lists, int argc, char **argv);

/* Ends the test with a failure. */
_Noreturn void fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns n, divided by TDB_SIZE, but not less than least. */
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

/* Every CHECK is counted; other checks may be counted with this. */
void count_check(void);
void check_rc(const char *file, int line, const char *what, int got, int want);
void check_int(const char *file, int line, const char *what, long long got, long long want);
void check_str(const char *file, int line, const char *what, const char *got, const char *want);

#endif
