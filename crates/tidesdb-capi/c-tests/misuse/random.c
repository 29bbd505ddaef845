/*
 * Random calls with random arguments: handles that are valid, freed, of another kind or invented; names, keys and numbers
 * that are valid or not. TDB_SEED=n repeats a run, TDB_CALLS=n sets its length.
 */
#include <stdlib.h>

#include "table.h"

enum { POOL = 24, KINDS = 4, BYTES = 1 << 16 };

/* Handles of one kind, valid or not; only the library knows which. */
struct pool {
    void *handles[POOL];
    int next;
};

static struct pool pools[KINDS];
static uint64_t state;
static uint8_t bytes[2 * BYTES];
static struct world world;
static long refusals, successes;
static int opened;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(2685821657736338717) >> 16;
}

static int one_in(int n)
{
    return draw() % (uint64_t)n == 0;
}

static struct pool *pool_of(char kind)
{
    return &pools[strchr("DCTI", kind) - "DCTI"];
}

/* Replaces an older handle by a new one. Returns the older one. */
static void *keep(char kind, void *handle)
{
    struct pool *pool = pool_of(kind);
    void *old = pool->handles[pool->next];
    pool->handles[pool->next] = handle;
    pool->next = (pool->next + 1) % POOL;
    return old;
}

static void *some_handle(char kind)
{
    if (one_in(40)) kind = "DCTI"[draw() % KINDS];
    if (one_in(60)) return (void *)(uintptr_t)draw();
    const struct pool *pool = pool_of(kind);
    /* Usually one of the latest, which are more likely to be valid and to belong together. */
    uint64_t at = (uint64_t)pool->next + POOL - 1 - draw() % 4;
    if (kind == 'D') at = draw() % (POOL / 2);
    void *handle = pool->handles[(one_in(6) ? draw() : at) % POOL];
    if (one_in(80)) return (void *)((uintptr_t)handle ^ (uintptr_t)1 << draw() % 64);
    return handle;
}

static const char *some_name(void)
{
    static const char *const names[] = {"f", "g", "h", "..", "a/b", "gr\xc3\xbc n", "memcmp", "reverse", "any"};
    static const char *const odd[] = {"", "\xff\xfe", "nonsense", NULL};
    static char endless[300];
    if (one_in(200)) return memset(endless, 'x', sizeof endless - 1);
    if (one_in(20)) return odd[draw() % 4];
    return names[draw() % 9];
}

static size_t some_size(void)
{
    if (one_in(300)) return (size_t)1 << (33 + draw() % 31);
    if (one_in(300)) return SIZE_MAX - draw() % 8;
    if (one_in(100)) return draw() % BYTES;
    if (one_in(30)) return 0;
    return 1 + draw() % 3;
}

static uint64_t some_number(void)
{
    static const uint64_t numbers[] = {0, 1, 2, 3, 4, 5, UINT64_MAX, 4102444800, 1000, UINT64_C(1) << 31, UINT64_C(1) << 62};
    return numbers[draw() % 11];
}

static tidesdb_column_family_config_t *some_settings(void)
{
    static tidesdb_column_family_config_t settings;
    settings = tidesdb_default_column_family_config();
    settings.write_buffer_size = 64 << draw() % 16;
    settings.compression_algorithm = (tidesdb_compression_t)(draw() % 5);
    settings.sync_interval_us = 100000;
    settings.klog_value_threshold = one_in(2) ? 16 : 512;
    if (one_in(4)) strcpy(settings.comparator_name, one_in(2) ? "reverse" : "any");
    if (one_in(10)) settings.commit_hook_fn = any_hook;
    if (one_in(10)) settings.sync_mode = (int)some_number();
    if (one_in(20)) settings.use_btree = 1;
    if (one_in(30)) settings.compression_algorithm = (tidesdb_compression_t)7;
    return &settings;
}

static union arg some_arg(const struct row *row, int at, union arg right)
{
    union arg arg = right;
    char kind = row->kinds[at];
    if (is_handle(kind)) arg.p = some_handle(kind);
    else if (kind == 's') arg.p = (void *)(uintptr_t)some_name();
    else if (kind == 'k') arg.p = bytes + draw() % 7;
    else if (kind == 'n') arg.n = row->result == 'o' ? draw() % 40 : some_size();
    else if (kind == 'e') arg.n = draw() % 6;
    else if (kind == 'i') arg.n = some_number();
    else if (kind == 'c') arg.p = some_settings();
    else if (kind == 'm') arg.p = NULL;
    if (is_pointer(kind) && kind != 'p' && one_in(120)) {
        arg.p = NULL;
        arg.f = NULL;
    }
    return arg;
}

/* The output in which a successful call returned its handle, and the kind of that handle. */
static void keep_handle(const struct row *row, const union arg *args, long result)
{
    void *handle = NULL, *old;
    if (row->release == 'c' && result != 0) {
        (void)keep('C', (void *)(intptr_t)result);
    } else if (row->release == 't' && result == TDB_SUCCESS) {
        memcpy(&handle, args[row->kinds[1] == 'O' ? 1 : 2].p, sizeof handle);
        old = keep('T', handle);
        if (old != NULL) tidesdb_txn_free(old);
    } else if (row->release == 'i' && result == TDB_SUCCESS) {
        memcpy(&handle, args[2].p, sizeof handle);
        old = keep('I', handle);
        if (old != NULL) tidesdb_iter_free(old);
    } else {
        release(&world, row, args, result);
    }
}

static void judge(const struct row *row, long result)
{
    count_check();
    if (row->result == 'b' && result != 0 && result != 1)
        fail(__FILE__, __LINE__, "%s gave %ld", row->name, result);
    if (row->result != 'r') return;
    if (result > 0 || result < TDB_ERR_PRECONDITION || result == TDB_ERR_UNKNOWN)
        fail(__FILE__, __LINE__, "%s gave %ld", row->name, result);
    if (result == TDB_SUCCESS) successes++;
    else refusals++;
    if (result != TDB_SUCCESS && !untouched(&world))
        fail(__FILE__, __LINE__, "%s failed with %ld but wrote an output", row->name, result);
}

static void call_one(const struct row *row)
{
    union arg args[MAX_ARGS] = {{0}};
    right_args(&world, row, args);
    for (int at = 0; row->kinds[at] != '\0'; at++) args[at] = some_arg(row, at, args[at]);
    long result = row->call(args);
    judge(row, result);
    keep_handle(row, args, result);
}

static int total_weight(void)
{
    int sum = 0;
    for (int r = 0; r < row_count; r++) sum += rows[r].weight;
    return sum;
}

static const struct row *some_row(void)
{
    static int sum;
    if (sum == 0) sum = total_weight();
    int at = (int)(draw() % (uint64_t)sum);
    for (int r = 0; r < row_count; r++) {
        at -= rows[r].weight;
        if (at < 0) return &rows[r];
    }
    return &rows[0];
}

/* Opens the database at one of two paths; it may be open already. */
static void open_some(void)
{
    int other = one_in(3);
    tidesdb_config_t config = quiet(other ? "other" : "db");
    db_t *db = NULL;
    config.block_cache_size = one_in(3) ? 0 : 1 << 20;
    int rc = tidesdb_open(&config, &db);
    CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_LOCKED);
    if (rc != TDB_SUCCESS) return;
    (void)tidesdb_register_comparator(db, "any", any_order, "", NULL);
    /* Each path has half of the pool, including some older handles. */
    for (int i = 0; i < POOL / 2; i++)
        if (!one_in(6)) pool_of('D')->handles[i + (other ? POOL / 2 : 0)] = db;
    for (int i = 0; i < 3; i++) (void)keep('C', family(db, i % 2 ? "f" : "g"));
    opened++;
}

static void close_all(void)
{
    for (int i = 0; i < POOL; i++) (void)tidesdb_close(pools[0].handles[i]);
}

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : atol(text);
}

static void random_calls(uint64_t seed, long calls)
{
    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    memset(pools, 0, sizeof pools);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(draw() % 3);
    printf("(seed %llu) ", (unsigned long long)seed);
    fflush(stdout);
    for (int i = 0; i < 8; i++) open_some();
    for (long i = 0; i < calls; i++) {
        call_one(some_row());
        if (one_in(1000)) open_some();
        if (one_in(10000)) (void)tidesdb_close(some_handle('D'));
        if (one_in(5000)) (void)tidesdb_purge(some_handle('D'));
        if (one_in(30000)) close_all();
        if (one_in(20000)) (void)tidesdb_cancel_background_work(some_handle('D'));
        if (one_in(20000)) (void)tidesdb_checkpoint(some_handle('D'), "copy");
    }
    close_all();
    for (int i = 0; i < POOL; i++) {
        tidesdb_txn_free(pools[2].handles[i]);
        tidesdb_iter_free(pools[3].handles[i]);
    }
    CHECK(successes > calls / 6 && refusals > calls / 10);
    CHECK(opened > 0);
}

static void random_calls_one(void)
{
    random_calls((uint64_t)number_of("TDB_SEED", 1), number_of("TDB_CALLS", scaled(150000, 3000)));
}

static void random_calls_two(void)
{
    random_calls((uint64_t)number_of("TDB_SEED", 1) + 1, number_of("TDB_CALLS", scaled(150000, 3000)));
}

/* Calls that affect the whole process, in their own process. */
static void init_and_finalize_at_any_time(void)
{
    tidesdb_finalize();
    OK(tidesdb_init(NULL, NULL, NULL, NULL));
    CHECK_RC(tidesdb_init(malloc, calloc, realloc, free), TDB_ERR_MEMORY);
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    tidesdb_finalize();
    STORED(db, cf, "key", "value");
    txn_t *txn = begin(db);
    OK(tidesdb_backup(db, "copy"));
    close_db(db);
    tidesdb_finalize();
    tidesdb_txn_free(txn);
    close_db(open_at("copy"));
}

const struct test random_tests[] = {
    TEST(random_calls_one),
    TEST(random_calls_two),
    TEST_ALONE(init_and_finalize_at_any_time),
    END_OF_TESTS,
};
