/*
 * Wrong calls of every kind: none may crash, hang, write an output or go unnoticed.
 */
#include "../kit/check.h"

extern const struct test argument_tests[], handle_tests[], thread_tests[], callback_tests[], random_tests[];
extern const struct test race_tests[], closing_tests[];

int main(int argc, char **argv)
{
    static const struct test *const lists[] = {argument_tests, handle_tests, thread_tests,
                                               callback_tests, race_tests, closing_tests, random_tests, NULL};
    return run_tests("misuse", lists, argc, argv);
}
