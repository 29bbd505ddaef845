/*
 * Tests of the C interface: behaviour and return values of every function, behaviour that existing programs rely on
 * (trap_NN), and faults of libtidesdb 9.3 (fixed_NN).
 */
#include "../kit/check.h"

extern const struct test library_tests[], lifecycle_tests[], config_tests[], runtime_tests[];
extern const struct test comparator_tests[], family_tests[], transaction_tests[], conflict_tests[];
extern const struct test iterator_tests[], maintenance_tests[], statistics_tests[], trap_tests[];
extern const struct test fixed_tests[], hook_tests[], byte_tests[], figure_tests[], object_tests[];
extern const struct test wrapped_tests[];

int main(int argc, char **argv)
{
    static const struct test *const lists[] = {
        library_tests,     lifecycle_tests, config_tests,   runtime_tests,     comparator_tests,
        family_tests,      hook_tests,      transaction_tests, conflict_tests, iterator_tests,
        maintenance_tests, statistics_tests, figure_tests, trap_tests, fixed_tests, byte_tests,
        object_tests,      wrapped_tests,   NULL,
    };
    return run_tests("abi", lists, argc, argv);
}
