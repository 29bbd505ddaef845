#include "table.h"

#include <stdlib.h>

#define ROW(name, result, kinds, nulls, release, weight, call) \
    static long call_##name(union arg *a)                      \
    {                                                          \
        (void)a;                                               \
        return call;                                           \
    }
#include "table.inc"
#undef ROW

const struct row rows[] = {
#define ROW(name, result, kinds, nulls, release, weight, call) \
    {#name, result, kinds, nulls, release, weight, call_##name},
#include "table.inc"
#undef ROW
};

const int row_count = sizeof rows / sizeof rows[0];

static const uint64_t MARK = UINT64_C(0xa5a5a5a5a5a5a5a5);

static tidesdb_column_family_config_t settings;
static tidesdb_config_t config;
static tidesdb_db_stats_t db_stats;
static tidesdb_cache_stats_t cache_stats;
static tidesdb_objstore_s3_config_t s3;

void nothing(void) {}

int any_order(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    (void)ctx;
    int order = memcmp(a, b, na < nb ? na : nb);
    return order != 0 ? order : (na > nb) - (na < nb);
}

int any_hook(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)ctx;
    return count > 3 ? (int)seq : 0;
}

void build(struct world *world)
{
    world->db = open_at("db");
    world->other_db = open_at("other");
    world->cf = family(world->db, "f");
    world->other_cf = family(world->other_db, "f");
    put(world->db, world->cf, "key", "value");
    put(world->db, world->cf, "key2", "value2");
    put(world->other_db, world->other_cf, "key", "value");
    world->txn = begin_at(world->db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_iter_new(world->txn, world->cf, &world->iter));
    OK(tidesdb_iter_seek_to_first(world->iter));
    OK(tidesdb_txn_savepoint(world->txn, "f"));
}

void tear_down(struct world *world)
{
    tidesdb_iter_free(world->iter);
    tidesdb_txn_free(world->txn);
    close_db(world->db);
    close_db(world->other_db);
}

int is_handle(char kind)
{
    return strchr("DCTI", kind) != NULL;
}

int is_pointer(char kind)
{
    return strchr("nei", kind) == NULL;
}

void *handle_of(const struct world *world, char kind)
{
    switch (kind) {
    case 'D': return world->db;
    case 'C': return world->cf;
    case 'T': return world->txn;
    default: return world->iter;
    }
}

static union arg right_arg(struct world *world, char kind, int at)
{
    static uint8_t bytes[] = "key";
    union arg arg = {0};
    switch (kind) {
    case 'D':
    case 'C':
    case 'T':
    case 'I': arg.p = handle_of(world, kind); break;
    case 's': arg.p = "f"; break;
    case 'p': arg.p = "path"; break;
    case 'k': arg.p = bytes; break;
    case 'n': arg.n = 3; break;
    case 'O': arg.p = &world->outputs[at]; break;
    case 'f': arg.f = (void (*)(void))any_order; break;
    case 'H': arg.f = (void (*)(void))any_hook; break;
    case 'a': arg.f = nothing; break;
    case 'c': arg.p = &settings; break;
    case 'g': arg.p = &config; break;
    case 'd': arg.p = &db_stats; break;
    case 'h': arg.p = &cache_stats; break;
    case 'y': arg.p = &s3; break;
    case 'e': arg.n = TDB_ISOLATION_SNAPSHOT; break;
    default: break;
    }
    return arg;
}

void right_args(struct world *world, const struct row *row, union arg *args)
{
    settings = tidesdb_default_column_family_config();
    config = quiet("db");
    for (int i = 0; i < MAX_ARGS; i++) world->outputs[i] = MARK;
    for (int i = 0; row->kinds[i] != '\0'; i++) args[i] = right_arg(world, row->kinds[i], i);
}

int untouched(const struct world *world)
{
    for (int i = 0; i < MAX_ARGS; i++)
        if (world->outputs[i] != MARK) return 0;
    return 1;
}

static void *output(const union arg *args, int at)
{
    void *pointer;
    memcpy(&pointer, args[at].p, sizeof pointer);
    return pointer;
}

static void release_names(const union arg *args)
{
    char **names = output(args, 1);
    int count;
    memcpy(&count, args[2].p, sizeof count);
    for (int i = 0; i < count; i++) tidesdb_free(names[i]);
    tidesdb_free(names);
}

void release(struct world *world, const struct row *row, const union arg *args, long result)
{
    (void)world;
    if (row->release == 'o' && result != 0) {
        tidesdb_objstore_t *store = (tidesdb_objstore_t *)(intptr_t)result;
        store->destroy(store->ctx);
        free(store);
        return;
    }
    if (row->result != 'r' || result != TDB_SUCCESS) return;
    switch (row->release) {
    case 'v': tidesdb_free(output(args, 4)); break;
    case 't': tidesdb_txn_free(output(args, row->kinds[1] == 'O' ? 1 : 2)); break;
    case 'i': tidesdb_iter_free(output(args, 2)); break;
    case 's': tidesdb_free_stats(output(args, 1)); break;
    case 'd': tidesdb_close(output(args, 1)); break;
    case 'l': release_names(args); break;
    default: break;
    }
}

void refused(struct world *world, const struct row *row, long result, const char *why)
{
    long want = row->result == 'r' ? TDB_ERR_INVALID_ARGS : 0;
    count_check();
    if (row->result != 'o' && result != want)
        fail(__FILE__, __LINE__, "%s(%s) returned %ld, not %ld", row->name, why, result, want);
    if (!untouched(world) && row->release != 'd')
        fail(__FILE__, __LINE__, "%s(%s) wrote an output", row->name, why);
}
