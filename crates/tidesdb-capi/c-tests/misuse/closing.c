/*
 * Functions of the program and the end of a database: once tidesdb_close has returned, none runs and none begins. The same
 * for a hook that was removed, replaced, or whose family was dropped. Contexts are freed as soon as that is promised, so a late
 * call is a use of freed memory for a sanitizer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "table.h"

enum { KEYS = 300, THREADS = 4 };

/* A hook that is removed leaves the comparator at work: flushes and merges call it in threads of the library. */
enum kind { HOOK, ORDER, KINDS };

/* Set in a thread whose calls of hooks and comparators stop at the gate. */
static _Thread_local int stops;
/* Set in a thread whose calls of them take long now and then, and the number of those since. */
static _Thread_local int dawdles, calls_here;

/* What hooks and comparators of these tests share. Static, so that a late call can still be counted. */
static struct {
    atomic_int armed;         /* the next call of a thread that stops waits inside */
    atomic_int inside[KINDS]; /* calls that run */
    atomic_int stopped;       /* a call waits inside */
    atomic_int released;      /* it may go on */
    atomic_int over[KINDS];   /* the promise is given: none of the kind may run any more */
    atomic_int late;          /* calls that run nevertheless */
} gate;

/* The context of a function, freed by the thread that was promised that nothing uses it. */
struct context {
    int size;
    int bytes[16];
};

static struct context *new_context(void)
{
    struct context *context = calloc(1, sizeof *context);
    CHECK(context != NULL);
    context->size = 16;
    return context;
}

static void enter(enum kind kind, struct context *context)
{
    if (atomic_load(&gate.over[kind])) {
        atomic_fetch_add(&gate.late, 1);
        return;
    }
    atomic_fetch_add(&gate.inside[kind], 1);
    if (stops && atomic_exchange(&gate.armed, 0)) {
        atomic_store(&gate.stopped, 1);
        while (!atomic_load(&gate.released)) sched_yield();
    }
    if (dawdles && ++calls_here % 64 == 0) sleep_ms(1);
    CHECK(context->size == 16);
    atomic_fetch_sub(&gate.inside[kind], 1);
    if (atomic_load(&gate.over[kind])) atomic_fetch_add(&gate.late, 1);
}

static int gated_order(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    enter(ORDER, ctx);
    return any_order(a, na, b, nb, ctx);
}

static int gated_hook(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)count;
    (void)seq;
    enter(HOOK, ctx);
    return 0;
}

/* What a thread of the program calls while another one closes. */
struct visit {
    db_t *db;
    cf_t *cf;
    txn_t *txn;
    iter_t *iter;
    int (*call)(struct visit *visit);
    int code;
    struct context *order, *hook;
    void (*end)(struct visit *visit);
};

static int call_put_and_commit(struct visit *visit)
{
    int rc = tidesdb_txn_put(visit->txn, visit->cf, B("key000007"), B("new"), 0);
    return rc == TDB_SUCCESS ? tidesdb_txn_commit(visit->txn) : rc;
}

static int call_get(struct visit *visit)
{
    uint8_t *value = NULL;
    size_t size = 0;
    int rc = tidesdb_txn_get(visit->txn, visit->cf, B("key000007"), &value, &size);
    if (rc == TDB_SUCCESS) tidesdb_free(value);
    return rc;
}

static int call_contains(struct visit *visit) { return tidesdb_txn_contains(visit->txn, visit->cf, B("key000007")); }

static int call_seek(struct visit *visit) { return tidesdb_iter_seek(visit->iter, B("key000007")); }

static int call_seek_for_prev(struct visit *visit) { return tidesdb_iter_seek_for_prev(visit->iter, B("key000007")); }

static int call_next(struct visit *visit)
{
    int rc = tidesdb_iter_next(visit->iter);
    for (int i = 0; rc == TDB_SUCCESS && i < KEYS / 2; i++) rc = tidesdb_iter_next(visit->iter);
    return rc;
}

static int call_prev(struct visit *visit) { return tidesdb_iter_prev(visit->iter); }

static int call_cost(struct visit *visit)
{
    double cost;
    return tidesdb_range_cost(visit->cf, B("key000007"), B("key000100"), &cost);
}

static int call_compact(struct visit *visit) { return tidesdb_compact(visit->cf); }

static int call_compact_range(struct visit *visit)
{
    return tidesdb_compact_range(visit->cf, B("key000007"), B("key000100"));
}

static int call_purge(struct visit *visit) { return tidesdb_purge(visit->db); }

static void *call_it(void *arg)
{
    struct visit *visit = arg;
    stops = 1;
    visit->code = visit->call(visit);
    return NULL;
}

static void close_it(struct visit *visit) { OK(tidesdb_close(visit->db)); }

/* Ends what the gate is about, then frees the contexts: nothing may use them. */
static void *end_it(void *arg)
{
    struct visit *visit = arg;
    visit->end(visit);
    for (enum kind kind = HOOK; kind <= (visit->end == close_it ? ORDER : HOOK); kind++) {
        CHECK_INT(atomic_load(&gate.inside[kind]), 0);
        atomic_store(&gate.over[kind], 1);
    }
    free(visit->hook);
    if (visit->end == close_it) free(visit->order);
    return NULL;
}

/* Opens a database with rows in a table and in the memtable, in an order of the program, and with a hook. */
static void set_up(struct visit *visit)
{
    memset(&gate, 0, sizeof gate);
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "gated");
    visit->order = new_context();
    visit->hook = new_context();
    visit->db = open_at("db");
    OK(tidesdb_register_comparator(visit->db, "gated", gated_order, "", visit->order));
    visit->cf = tidesdb_get_column_family(visit->db, "f");
    if (visit->cf == NULL) visit->cf = family_with(visit->db, "f", &config);
    fill(visit->db, visit->cf, 0, KEYS);
    flush(visit->cf);
    fill(visit->db, visit->cf, 0, KEYS);
    OK(tidesdb_cf_set_commit_hook(visit->cf, gated_hook, visit->hook));
    visit->txn = begin(visit->db);
    OK(tidesdb_iter_new(visit->txn, visit->cf, &visit->iter));
    OK(tidesdb_iter_seek(visit->iter, B("key000005")));
}

/* Another thread is stopped in a function of the program: `end` must not return before that function has. */
static void stopped_inside(struct visit *visit, int (*call)(struct visit *), void (*end)(struct visit *))
{
    pthread_t caller, ender;
    visit->call = call;
    visit->end = end;
    atomic_store(&gate.armed, 1);
    CHECK(pthread_create(&caller, NULL, call_it, visit) == 0);
    while (!atomic_load(&gate.stopped)) sched_yield();
    CHECK(pthread_create(&ender, NULL, end_it, visit) == 0);
    sleep_ms(scaled(100, 20)); /* the longer, the surer a fault shows; without one, nothing depends on it */
    CHECK_INT(atomic_load(&gate.over[HOOK]), 0);
    atomic_store(&gate.released, 1);
    CHECK(pthread_join(caller, NULL) == 0);
    CHECK(pthread_join(ender, NULL) == 0);
    CHECK_INT(atomic_load(&gate.late), 0);
}

/* Every call on a handle of a closed database fails and calls nothing. */
static void nothing_is_called(struct visit *visit)
{
    static int (*const all[])(struct visit *) = {
        call_put_and_commit, call_get, call_contains, call_seek,          call_seek_for_prev, call_next,
        call_prev,           call_cost, call_compact, call_compact_range, call_purge,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) CHECK_RC(all[i](visit), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_to_first(visit->iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_to_last(visit->iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_set_commit_hook(visit->cf, gated_hook, NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_iter_free(visit->iter);
    tidesdb_txn_free(visit->txn);
    CHECK_INT(atomic_load(&gate.late), 0);
}

static void a_close_waits_for_a_comparator(void)
{
    static int (*const calls[])(struct visit *) = {
        call_put_and_commit, call_get, call_contains, call_seek,          call_seek_for_prev, call_next,
        call_cost,           call_compact, call_compact_range, call_purge,
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct visit visit = {0};
        set_up(&visit);
        stopped_inside(&visit, calls[i], close_it);
        nothing_is_called(&visit);
    }
}

static int call_commit_with_a_hook(struct visit *visit)
{
    stops = 0; /* not in a comparator */
    CHECK_INT(tidesdb_txn_put(visit->txn, visit->cf, B("key000007"), B("new"), 0), TDB_SUCCESS);
    txn_t *txn = begin(visit->db);
    cf_t *other = family(visit->db, "hooked");
    OK(tidesdb_cf_set_commit_hook(other, gated_hook, visit->hook));
    OK(tidesdb_txn_put(txn, other, B("key"), B("value"), 0));
    stops = 1;
    int rc = tidesdb_txn_commit(txn);
    CHECK_RC(tidesdb_txn_put(txn, other, B("key"), B("value"), 0), TDB_ERR_INVALID_ARGS);
    int reset = tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT); /* the close that waited for the hook may have ended by now */
    CHECK(reset == TDB_SUCCESS || reset == TDB_ERR_INVALID_ARGS);
    tidesdb_txn_free(txn);
    return rc;
}

/* Regression test: a close returned after 3 ms while a hook needed a second more, and with the context that the program freed then. */
static void a_close_waits_for_a_hook(void)
{
    struct visit visit = {0};
    set_up(&visit);
    stopped_inside(&visit, call_commit_with_a_hook, close_it);
    CHECK_INT(visit.code, TDB_SUCCESS);
    nothing_is_called(&visit);
    visit.db = open_at("db");
    OK(tidesdb_register_comparator(visit.db, "gated", tidesdb_comparator_memcmp, "", NULL));
    STORED(visit.db, family(visit.db, "hooked"), "key", "value");
    close_db(visit.db);
}

static void remove_the_hook(struct visit *visit)
{
    OK(tidesdb_cf_set_commit_hook(family(visit->db, "hooked"), NULL, NULL));
}

static struct context last_context = {.size = 16};

static void replace_the_hook(struct visit *visit)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.commit_hook_fn = gated_hook;
    config.commit_hook_ctx = &last_context;
    OK(tidesdb_cf_update_runtime_config(family(visit->db, "hooked"), &config, 0));
}

static void drop_the_family(struct visit *visit) { OK(tidesdb_drop_column_family(visit->db, "hooked")); }

static void delete_the_family(struct visit *visit)
{
    OK(tidesdb_delete_column_family(visit->db, family(visit->db, "hooked")));
}

static int call_commit_with_a_hook_only(struct visit *visit)
{
    txn_t *txn = begin(visit->db);
    cf_t *other = family(visit->db, "hooked");
    OK(tidesdb_txn_put(txn, other, B("key"), B("value"), 0));
    int rc = tidesdb_txn_commit(txn);
    tidesdb_txn_free(txn);
    return rc;
}

/* Regression test: a hook that had been removed was still called by a commit that was about to call it, and went on running. */
static void a_hook_that_was_removed_does_not_run(void)
{
    static void (*const ends[])(struct visit *) = {remove_the_hook, replace_the_hook, drop_the_family, delete_the_family};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct visit visit = {0};
        set_up(&visit);
        struct context *unused = visit.hook;
        visit.hook = new_context();
        OK(tidesdb_cf_set_commit_hook(family(visit.db, "hooked"), gated_hook, visit.hook));
        stopped_inside(&visit, call_commit_with_a_hook_only, ends[i]);
        CHECK_INT(visit.code, TDB_SUCCESS);
        tidesdb_iter_free(visit.iter);
        tidesdb_txn_free(visit.txn);
        close_db(visit.db);
        free(unused);
        free(visit.order);
    }
}

/* A hook that calls the library for the family that another thread drops meanwhile: neither may wait for the other. */
struct meeting {
    db_t *db;
    cf_t *cf;
    atomic_int inside, dropping;
};

static int hook_that_looks(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)count;
    (void)seq;
    struct meeting *meeting = ctx;
    atomic_store(&meeting->inside, 1);
    while (!atomic_load(&meeting->dropping)) sched_yield();
    sleep_ms(scaled(50, 10));
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    (void)tidesdb_get_column_family(meeting->db, "f");
    OK(tidesdb_create_column_family(meeting->db, "made by the hook", &config));
    (void)tidesdb_cf_set_commit_hook(meeting->cf, NULL, NULL);
    return 0;
}

static void *commit_once(void *arg)
{
    struct meeting *meeting = arg;
    put(meeting->db, meeting->cf, "key", "value");
    return NULL;
}

static void a_hook_calls_the_library_while_its_family_is_dropped(void)
{
    struct meeting meeting = {.db = open_at("db")};
    pthread_t thread;
    meeting.cf = family(meeting.db, "f");
    OK(tidesdb_cf_set_commit_hook(meeting.cf, hook_that_looks, &meeting));
    CHECK(pthread_create(&thread, NULL, commit_once, &meeting) == 0);
    while (!atomic_load(&meeting.inside)) sched_yield();
    atomic_store(&meeting.dropping, 1);
    OK(tidesdb_drop_column_family(meeting.db, "f"));
    CHECK(tidesdb_get_column_family(meeting.db, "made by the hook") != NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    close_db(meeting.db);
}

/* Uses everything until the database is closed, and the old handles some time longer. */
static void *use_everything(void *arg)
{
    struct visit *of = arg;
    static int (*const calls[])(struct visit *) = {
        call_put_and_commit, call_get, call_contains, call_seek, call_next, call_seek_for_prev, call_prev, call_cost,
    };
    enum { CALLS = sizeof calls / sizeof *calls };
    dawdles = 1;
    for (int closed = 0, i = 0; closed < 20; i++) {
        struct visit visit = {.db = of->db, .cf = of->cf};
        int rc = tidesdb_txn_begin(visit.db, &visit.txn);
        if (rc == TDB_SUCCESS) rc = tidesdb_iter_new(visit.txn, visit.cf, &visit.iter);
        if (rc == TDB_SUCCESS) rc = tidesdb_iter_seek_to_first(visit.iter);
        closed += rc == TDB_ERR_INVALID_ARGS || rc == TDB_ERR_INVALID_DB;
        for (int j = 0; j < 40; j++) (void)calls[(i + j) % CALLS](&visit);
        if (i % 16 == 0) (void)tidesdb_compact(visit.cf);
        tidesdb_iter_free(visit.iter);
        tidesdb_txn_free(visit.txn);
    }
    return NULL;
}

static void nothing_runs_after_a_close_in_any_thread(void)
{
    for (int round = 0, rounds = scaled(40, 4); round < rounds; round++) {
        struct visit visit = {.end = close_it};
        pthread_t threads[THREADS];
        set_up(&visit);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, use_everything, &visit) == 0);
        sleep_ms(round % 8);
        end_it(&visit);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_INT(atomic_load(&gate.late), 0);
        nothing_is_called(&visit);
    }
}

const struct test closing_tests[] = {
    TEST(a_close_waits_for_a_hook),
    TEST(a_close_waits_for_a_comparator),
    TEST(a_hook_that_was_removed_does_not_run),
    TEST(a_hook_calls_the_library_while_its_family_is_dropped),
    TEST(nothing_runs_after_a_close_in_any_thread),
    END_OF_TESTS,
};
