/* Wrong calls: NULL, handles that are freed, of another kind or invented, impossible sizes, threads, and memory over many calls. */
#include <pthread.h>
#include <stdlib.h>

#include "extended.h"

enum { MAX_ARGS = 9, KINDS = 12, OWN = 3 }; /* the last OWN kinds belong to no database */

static const char kinds[] = "DCTBISVWLUER";

union arg {
    void *p;
    size_t n;
    void (*f)(void);
};

struct row {
    const char *name;
    char result;
    const char *kinds, *nulls;
    char creates;
    long (*call)(union arg *args);
};

#define ROW(name, result, kinds, nulls, creates, call) \
    static long call_##name(union arg *a)              \
    {                                                  \
        return call;                                   \
    }
#include "table.inc"
#undef ROW

static const struct row rows[] = {
#define ROW(name, result, kinds, nulls, creates, call) {#name, result, kinds, nulls, creates, call_##name},
#include "table.inc"
#undef ROW
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* A database with one handle of each kind. */
struct world {
    void *handles[KINDS]; /* in the order of kinds */
    uint64_t outputs[MAX_ARGS][8];
    uint8_t buffer[256];
};

static const uint64_t MARK = UINT64_C(0xa5a5a5a5a5a5a5a5);

static void **handle_of(struct world *world, char kind)
{
    const char *at = strchr(kinds, kind);
    return at == NULL || kind == '\0' ? NULL : &world->handles[at - kinds];
}

static tidesdb_config_t config;
static tidesdb_x_open_options_t open_options;

static void build(struct world *world, const char *path)
{
    db_t *db = open_at(path);
    cf_t *cf = NULL;
    tidesdb_x_family_options_t options = {.size = sizeof options, .merge_operator = "tidesdb.max"};
    OK(tidesdb_x_create_family(db, "f", &options, &cf));
    x_put(cf, "key", "value");
    x_put(cf, "key2", "value2");
    config = quiet(path);
    open_options.size = sizeof open_options;
    open_options.config = &config;
    world->handles[0] = db;
    world->handles[1] = cf;
    world->handles[2] = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_x_batch_new(db, (tidesdb_x_batch_t **)&world->handles[3]));
    OK(tidesdb_x_iter_new(cf, NULL, NULL, 0, NULL, 0, (tidesdb_x_iter_t **)&world->handles[4]));
    OK(tidesdb_x_snapshot_new(db, (tidesdb_x_snapshot_t **)&world->handles[5]));
    OK(tidesdb_x_value_reader_new(cf, B("key"), NULL, (tidesdb_x_value_reader_t **)&world->handles[6], NULL));
    OK(tidesdb_x_value_writer_new(cf, B("streamed"), NULL, (tidesdb_x_value_writer_t **)&world->handles[7]));
    OK(tidesdb_x_builder_new(cf, NULL, (tidesdb_x_builder_t **)&world->handles[8]));
    OK(tidesdb_x_backups_open("backups", (tidesdb_x_backups_t **)&world->handles[9]));
    OK(tidesdb_x_resources_new(NULL, (tidesdb_x_resources_t **)&world->handles[10]));
    OK(tidesdb_x_reader_open(&open_options, (tidesdb_x_reader_t **)&world->handles[11]));
}

static void free_objects(struct world *world)
{
    tidesdb_txn_free(world->handles[2]);
    tidesdb_x_batch_free(world->handles[3]);
    tidesdb_x_iter_free(world->handles[4]);
    tidesdb_x_snapshot_free(world->handles[5]);
    tidesdb_x_value_reader_free(world->handles[6]);
    tidesdb_x_value_writer_free(world->handles[7]);
    tidesdb_x_builder_free(world->handles[8]);
    tidesdb_x_backups_free(world->handles[9]);
    tidesdb_x_resources_free(world->handles[10]);
    (void)tidesdb_x_reader_close(world->handles[11]);
}

static void tear_down(struct world *world)
{
    X_GET(world->handles[1], NULL, "key", "value");
    free_objects(world);
    close_db(world->handles[0]);
}

static void nothing(int code, uint64_t seq, const char *message, void *ctx)
{
    (void)code;
    (void)seq;
    (void)message;
    (void)ctx;
}

static void right_args(struct world *world, const struct row *row, union arg *args)
{
    static uint8_t bytes[] = "keykeykey";
    static const size_t sizes[] = {3, 3, 3, 0};
    static tidesdb_x_read_options_t read;
    static tidesdb_x_write_options_t write;
    static tidesdb_x_family_options_t of_family;
    static tidesdb_x_backup_options_t backup;
    static tidesdb_objstore_t connector;
    static tidesdb_x_ingested_t taken;
    static const char *const paths[] = {"missing-000001.klog"};
    static tidesdb_x_tables_t tables = {NULL, paths, 1};
    static union {
        size_t size;
        tidesdb_x_writer_t writer;
        tidesdb_x_health_t health;
        tidesdb_x_verified_t verified;
        tidesdb_x_resources_use_t use;
    } shown;
    static tidesdb_x_resources_options_t of_resources;
    read.size = sizeof read;
    write.size = sizeof write;
    of_family.size = sizeof of_family;
    backup.size = sizeof backup;
    of_resources.size = sizeof of_resources;
    taken.size = sizeof taken;
    tables.cf = world->handles[1];
    shown.size = row->kinds[0] == 'p' ? sizeof shown.writer
                 : row->kinds[0] == 'E' ? sizeof shown.use
                 : strcmp(row->name, "tidesdb_x_verify") == 0 ? sizeof shown.verified : sizeof shown.health;
    memset(world->outputs, 0xa5, sizeof world->outputs);
    for (int i = 0; row->kinds[i] != '\0'; i++) {
        void **handle = handle_of(world, row->kinds[i]);
        args[i].p = NULL;
        if (handle != NULL) {
            args[i].p = *handle;
            continue;
        }
        switch (row->kinds[i]) {
        case 'k': args[i].p = bytes; break;
        case 'n': args[i].n = 3; break;
        case 'b': args[i].p = world->buffer; break;
        case 'm': args[i].n = sizeof world->buffer; break;
        case 'a': args[i].p = (void *)(uintptr_t)sizes; break;
        case 'z': args[i].n = 1; break;
        case 's': args[i].p = "other"; break;
        case 't': args[i].p = "table_bytes"; break;
        case 'p': args[i].p = "db"; break;
        case 'O': args[i].p = world->outputs[i]; break;
        case 'A': args[i].p = &open_options; break;
        case 'F': args[i].p = &of_family; break;
        case 'G': args[i].p = &read; break;
        case 'P': args[i].p = &write; break;
        case 'Q': args[i].p = &shown; break;
        case 'H': args[i].p = &tables; break;
        case 'K': args[i].p = &backup; break;
        case 'M': args[i].p = &of_resources; break;
        case 'J': args[i].p = &connector; break;
        case 'N': args[i].p = &taken; break;
        case 'f': args[i].f = (void (*)(void))nothing; break;
        default: break;
        }
    }
}

static void *created(const union arg *args, const struct row *row)
{
    void *handle = NULL;
    const char *at = strchr(row->kinds, 'O');
    memcpy(&handle, args[at - row->kinds].p, sizeof handle);
    return handle;
}

static void release(const struct row *row, const union arg *args, long result)
{
    if (row->creates == '-' || result != TDB_SUCCESS) return;
    void *handle = created(args, row);
    switch (row->creates) {
    case 'b': tidesdb_x_batch_free(handle); break;
    case 'i': tidesdb_x_iter_free(handle); break;
    case 's': tidesdb_x_snapshot_free(handle); break;
    case 'v': tidesdb_x_value_reader_free(handle); break;
    case 'w': tidesdb_x_value_writer_free(handle); break;
    case 'l': tidesdb_x_builder_free(handle); break;
    case 'u': tidesdb_x_backups_free(handle); break;
    case 'e': tidesdb_x_resources_free(handle); break;
    case 'm': tidesdb_free(handle); break;
    case 'r': OK(tidesdb_x_reader_close(handle)); break;
    case 'd': OK(tidesdb_close(handle)); break;
    default: break;
    }
}

static void refused(struct world *world, const struct row *row, long result, const char *why)
{
    count_check();
    if (row->result == 'r' && result != TDB_ERR_INVALID_ARGS)
        fail(__FILE__, __LINE__, "%s(%s) returned %ld, not %d", row->name, why, result, TDB_ERR_INVALID_ARGS);
    for (int i = 0; i < MAX_ARGS; i++)
        for (int k = 0; k < 8; k++)
            if (world->outputs[i][k] != MARK) fail(__FILE__, __LINE__, "%s(%s) wrote an output", row->name, why);
}

static void every_pointer_null_in_turn(void)
{
    struct world world;
    build(&world, "db");
    int cases = 0;
    for (int r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        CHECK_INT(strlen(row->kinds), strlen(row->nulls));
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            if (row->nulls[at] != '2' && row->nulls[at] != 'n') continue;
            union arg args[MAX_ARGS] = {{0}};
            char why[32];
            right_args(&world, row, args);
            args[at].p = NULL;
            snprintf(why, sizeof why, "argument %d NULL", at + 1);
            refused(&world, row, row->call(args), why);
            cases++;
        }
    }
    CHECK(cases > 150);
    tear_down(&world);
}

/* Optional arguments that are NULL do no harm; calls that end an object or write are left out where they would disturb. */
static void optional_pointers_may_be_null(void)
{
    struct world world;
    build(&world, "db");
    for (int r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        if (strchr("WTBL", row->kinds[0]) != NULL || strstr(row->name, "ingest") != NULL || strstr(row->name, "prune") != NULL || row->kinds[0] == 'A' || strstr(row->name, "delete") != NULL) continue;
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            if (row->nulls[at] != 'x') continue;
            union arg args[MAX_ARGS] = {{0}};
            right_args(&world, row, args);
            args[at].p = NULL;
            long result = row->call(args);
            if (result != TDB_SUCCESS && result != TDB_ERR_EXISTS && result != TDB_ERR_NOT_FOUND)
                fail(__FILE__, __LINE__, "%s returned %ld", row->name, result);
            count_check();
            release(row, args, result);
        }
    }
    x_put(world.handles[1], "key", "value");
    tear_down(&world);
}

/* Calls every function once for each of its handles, with bad in its place, except for the kind whose handle bad is. */
static void all_refuse(struct world *world, char except, void *bad, const char *why)
{
    for (int r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            if (handle_of(world, row->kinds[at]) == NULL || row->kinds[at] == except) continue;
            union arg args[MAX_ARGS] = {{0}};
            right_args(world, row, args);
            args[at].p = bad;
            refused(world, row, row->call(args), why);
        }
    }
    tidesdb_x_read_options_t txn = {sizeof txn, bad, NULL, 0}, snapshot = {sizeof snapshot, NULL, bad, 0};
    if (bad == NULL) return;
    if (except != 'T') CHECK_RC(tidesdb_x_contains(world->handles[1], B("key"), &txn), TDB_ERR_INVALID_ARGS);
    if (except != 'S') CHECK_RC(tidesdb_x_contains(world->handles[1], B("key"), &snapshot), TDB_ERR_INVALID_ARGS);
}

static void handles_of_another_kind(void)
{
    struct world world;
    build(&world, "db");
    for (int i = 0; i < KINDS; i++) all_refuse(&world, kinds[i], world.handles[i], "a handle of another kind");
    tear_down(&world);
}

static void handles_that_are_made_up(void)
{
    static const uint64_t numbers[] = {1, 8, 4096, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(0x7fffffffffff), UINT32_MAX};
    struct world world;
    int here;
    build(&world, "db");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        all_refuse(&world, '-', (void *)(uintptr_t)numbers[i], "a number");
    all_refuse(&world, '-', &here, "an address");
    for (int bit = 0; bit < 64; bit++) {
        for (int k = 0; k < KINDS; k++) {
            uintptr_t handle = (uintptr_t)world.handles[k] ^ (uintptr_t)1 << bit;
            int is_another = 0;
            for (int i = 0; i < KINDS; i++) is_another |= (uintptr_t)world.handles[i] == handle;
            if (!is_another) all_refuse(&world, '-', (void *)handle, "a handle with a bit off");
        }
    }
    tear_down(&world);
}

static void handles_that_were_freed(void)
{
    struct world world, gone;
    build(&gone, "gone");
    build(&world, "db");
    free_objects(&gone);
    for (int k = 2; k < KINDS; k++) all_refuse(&world, '-', gone.handles[k], "a freed handle");
    free_objects(&gone);
    close_db(gone.handles[0]);
    struct world closed;
    build(&closed, "closed");
    close_db(closed.handles[0]);
    for (int k = 0; k < KINDS - OWN; k++) all_refuse(&world, '-', closed.handles[k], "a handle of a closed database");
    free_objects(&closed);
    config = quiet("db");
    tear_down(&world);
}

static void families_of_another_database(void)
{
    struct world world, other;
    build(&other, "other");
    build(&world, "db");
    void *own = world.handles[1];
    for (int r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        if (row->kinds[0] != 'T' && row->kinds[0] != 'B') continue;
        if (row->kinds[1] != 'C') continue;
        union arg args[MAX_ARGS] = {{0}};
        right_args(&world, row, args);
        args[1].p = other.handles[1];
        refused(&world, row, row->call(args), "another database's family");
    }
    tidesdb_x_read_options_t txn = {sizeof txn, world.handles[2], NULL, 0};
    tidesdb_x_read_options_t snapshot = {sizeof snapshot, NULL, world.handles[5], 0};
    CHECK_RC(tidesdb_x_contains(other.handles[1], B("key"), &txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_contains(other.handles[1], B("key"), &snapshot), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_contains(own, B("key"), &txn));
    CHECK_RC(tidesdb_x_value_writer_join(world.handles[7], other.handles[2]), TDB_ERR_INVALID_ARGS);
    tear_down(&world);
    tear_down(&other);
}

static void sizes_that_cannot_be(void)
{
    static const size_t sizes[] = {SIZE_MAX / 2 + 1, SIZE_MAX - 1, SIZE_MAX};
    struct world world;
    build(&world, "db");
    for (int r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            for (int s = 0; strchr("nm", row->kinds[at]) != NULL && s < 3; s++) {
                union arg args[MAX_ARGS] = {{0}};
                right_args(&world, row, args);
                args[at].n = sizes[s];
                refused(&world, row, row->call(args), "a huge size");
            }
        }
    }
    tear_down(&world);
}

struct shared {
    struct world world;
    int rounds;
    atomic_int closed;
};

static void *use_everything(void *arg)
{
    struct shared *shared = arg;
    struct world world = shared->world;
    uint32_t random = (uint32_t)(uintptr_t)&world;
    for (int i = 0; i < shared->rounds; i++) {
        random = random * 1664525 + 1013904223;
        const struct row *row = &rows[(random >> 16) % ROWS];
        if (row->kinds[0] == 'A' || row->kinds[0] == 'p' || strstr(row->name, "compact_range") != NULL) continue;
        if (strcmp(row->name, "tidesdb_x_reader_close") == 0 || strstr(row->name, "backups_") != NULL) continue;
        union arg args[MAX_ARGS] = {{0}};
        right_args(&world, row, args);
        long result = row->call(args);
        count_check();
        if (result > 0 || result == TDB_ERR_UNKNOWN || (result < TDB_ERR_PRECONDITION && result != TDB_X_ERR_MERGE))
            fail(__FILE__, __LINE__, "%s returned %ld", row->name, result);
        release(row, args, result);
    }
    return NULL;
}

/* Threads that share every handle, while one of them may close the database. */
static void threads_share_handles(void)
{
    for (int closes = 0; closes < 2; closes++) {
        struct shared shared = {.rounds = scaled(20000, 300)};
        build(&shared.world, "db");
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, use_everything, &shared) == 0);
        if (closes) {
            sleep_ms(scaled(50, 5));
            close_db(shared.world.handles[0]);
        }
        for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        free_objects(&shared.world);
        if (!closes) {
            close_db(shared.world.handles[0]);
            remove_files("db");
        }
    }
}

/* One call of each function of the table; of the slow ones now and then only. */
static void one_round(struct world *world, int round)
{
    for (int r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        if (strchr("ApRVWTU", row->kinds[0]) != NULL || row->result == 'v' || strstr(row->name, "ingest") != NULL) continue;
        static const char *const slow[] = {"compact_range", "metrics", "diagnose", "figures", "explain", "flush", "verify", "family_set", "builder_new"};
        int is_slow = 0;
        for (int i = 0; i < 9; i++) is_slow |= strstr(row->name, slow[i]) != NULL;
        if (is_slow && round % 500 != 0) continue;
        if (strstr(row->name, "create_family") != NULL || strstr(row->name, "async") != NULL) continue;
        union arg args[MAX_ARGS] = {{0}};
        right_args(world, row, args);
        long result = row->call(args);
        count_check();
        if (result != TDB_SUCCESS && result != TDB_ERR_NOT_FOUND && result != TDB_ERR_INVALID_ARGS)
            fail(__FILE__, __LINE__, "%s returned %ld", row->name, result);
        release(row, args, result);
    }
    db_t *db = world->handles[0];
    cf_t *cf = world->handles[1];
    txn_t *txn = begin(db);
    tidesdb_x_value_writer_t *writer = NULL;
    OK(tidesdb_x_txn_put(txn, cf, B("key"), B("value"), NULL));
    OK(tidesdb_x_value_writer_new(cf, B("long"), NULL, &writer));
    OK(tidesdb_x_value_writer_write(writer, B("value")));
    OK(tidesdb_x_value_writer_join(writer, txn));
    tidesdb_x_value_writer_free(writer);
    OK(tidesdb_x_txn_commit(txn, NULL, NULL));
    tidesdb_txn_free(txn);
    OK(tidesdb_x_iter_seek(world->handles[4], NULL, 0));
    OK(tidesdb_x_batch_clear(world->handles[3]));
}

/* TDB_ROUNDS=n makes it longer, for a soak. */
static void memory_is_flat_over_many_calls(void)
{
    struct world world;
    const char *given = getenv("TDB_ROUNDS");
    int round = 0, rounds = given == NULL ? scaled(10000, 100) : atoi(given);
    build(&world, "db");
    for (; round < rounds / 2; round++) one_round(&world, round);
    flush(world.handles[1]);
    long before = anonymous_memory();
    for (; round < rounds; round++) one_round(&world, round);
    flush(world.handles[1]);
    long after = anonymous_memory();
    printf("(%ld KiB more) ", (after - before) >> 10);
#if defined(__SANITIZE_ADDRESS__)
    before = after; /* it keeps freed memory */
#endif
    if (after - before > 8L << 20) fail(__FILE__, __LINE__, "%ld bytes more after %d rounds", after - before, rounds / 2);
    x_put(world.handles[1], "key", "value");
    tear_down(&world);
}

const struct test misuse_tests[] = {
    TEST(every_pointer_null_in_turn),
    TEST(optional_pointers_may_be_null),
    TEST(handles_of_another_kind),
    TEST(handles_that_are_made_up),
    TEST(handles_that_were_freed),
    TEST(families_of_another_database),
    TEST(sizes_that_cannot_be),
    TEST(threads_share_handles),
    TEST(memory_is_flat_over_many_calls),
    END_OF_TESTS,
};
