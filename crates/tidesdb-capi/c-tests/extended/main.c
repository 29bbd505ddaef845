/*
 * Tests of tidesdb/extended.h: an example of every function, the promises of the header, and wrong calls.
 */
#include "../kit/check.h"

extern const struct test write_tests[], batch_tests[], read_tests[], scan_tests[], snapshot_tests[], value_tests[];
extern const struct test operator_tests[], figure_tests[], commit_tests[], table_tests[], backup_tests[], misuse_tests[], family_tests[], random_tests[];
extern const struct test free_tests[], resource_tests[];

int main(int argc, char **argv)
{
    static const struct test *const lists[] = {
        write_tests, batch_tests, read_tests, scan_tests, snapshot_tests, value_tests,
        operator_tests, figure_tests, commit_tests, table_tests, backup_tests, family_tests, resource_tests, misuse_tests, free_tests, random_tests, NULL,
    };
    return run_tests("extended", lists, argc, argv);
}
