/* Faults of libtidesdb 9.3 that this library must not have. More are in the files of their subjects. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#include "../kit/store.h"

static void fixed_c1_any_number_of_snapshots_is_kept(void)
{
    enum { MOST = 1500 };
    static txn_t *txns[MOST];
    int count = scaled(MOST, 100);
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "old");
    for (int i = 0; i < count; i++) txns[i] = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    put(db, cf, "key", "new");
    del(db, cf, "key");
    flush(cf);
    OK(tidesdb_compact(cf));
    for (int i = 0; i < count; i++) {
        EXPECT(txns[i], cf, "key", "old");
        tidesdb_txn_free(txns[i]);
    }
    OK(tidesdb_compact(cf));
    STORED(db, cf, "key", NULL);
    close_db(db);
}

struct race {
    db_t *db;
    cf_t *cf;
    atomic_int over;
};

enum { RACE_KEYS = 20 };

static void *write_generations(void *arg)
{
    struct race *race = arg;
    for (int generation = 1; !atomic_load(&race->over); generation++) {
        char value[16];
        snprintf(value, sizeof value, "%d", generation);
        txn_t *txn = begin(race->db);
        for (int i = 0; i < RACE_KEYS; i++) {
            char key[16];
            snprintf(key, sizeof key, "key%02d", i);
            OK(tidesdb_txn_put(txn, race->cf, B(key), B(value), 0));
        }
        commit(txn);
    }
    return NULL;
}

/* Returns the generation that a scan sees, which must be the same for all rows. */
static void one_generation(struct race *race, tidesdb_isolation_level_t level)
{
    char first[16] = "";
    int count = 0;
    txn_t *txn = begin_at(race->db, level);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, race->cf, &iter));
    for (int rc = tidesdb_iter_seek_to_first(iter); rc == TDB_SUCCESS; rc = tidesdb_iter_next(iter)) {
        uint8_t *value;
        size_t size;
        char text[16];
        OK(tidesdb_iter_value(iter, &value, &size));
        snprintf(text, sizeof text, "%.*s", (int)size, (char *)value);
        if (count++ == 0) strcpy(first, text);
        CHECK_STR(text, first);
    }
    CHECK_INT(count, RACE_KEYS);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
}

static void fixed_c2_a_walk_sees_whole_commits(void)
{
    struct race race = {0};
    race.db = open_at("db");
    race.cf = family(race.db, "f");
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_generations, &race) == 0);
    double begin = now_ms();
    while (count_keys(race.db, race.cf) == 0 && now_ms() - begin < 10000) sleep_ms(1);
    for (int i = 0, rounds = scaled(3000, 100); i < rounds; i++)
        one_generation(&race, (tidesdb_isolation_level_t)(TDB_ISOLATION_READ_COMMITTED + i % 4));
    atomic_store(&race.over, 1);
    CHECK(pthread_join(writer, NULL) == 0);
    close_db(race.db);
}

static long generation_of(struct race *race, txn_t *txn, const char *key)
{
    uint8_t *value = NULL;
    size_t size = 0;
    char text[16];
    OK(tidesdb_txn_get(txn, race->cf, B(key), &value, &size));
    snprintf(text, sizeof text, "%.*s", (int)size, (char *)value);
    tidesdb_free(value);
    return atol(text);
}

static void fixed_c3_reads_repeat_and_never_see_half_a_commit(void)
{
    struct race race = {0};
    race.db = open_at("db");
    race.cf = family(race.db, "f");
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_generations, &race) == 0);
    double begin = now_ms();
    while (count_keys(race.db, race.cf) == 0 && now_ms() - begin < 10000) sleep_ms(1);
    for (int i = 0, rounds = scaled(3000, 100); i < rounds; i++) {
        int weak = i % 2;
        txn_t *txn = begin_at(race.db, weak ? TDB_ISOLATION_READ_COMMITTED : TDB_ISOLATION_REPEATABLE_READ);
        long last = generation_of(&race, txn, "key19");
        long first = generation_of(&race, txn, "key00");
        long again = generation_of(&race, txn, "key19");
        if (weak) CHECK(first >= last && again >= first);
        else CHECK(first == last && again == last);
        tidesdb_txn_free(txn);
    }
    atomic_store(&race.over, 1);
    CHECK(pthread_join(writer, NULL) == 0);
    close_db(race.db);
}

static void fixed_c4_empty_value(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("alone"), NULL, 0, 0));
    commit(txn);
    txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_put(txn, cf, B("b"), (const uint8_t *)"x", 0, 0));
    OK(tidesdb_txn_put(txn, cf, B("c"), B("3"), 0));
    commit(txn);
    for (int round = 0; round < 3; round++) {
        STORED(db, cf, "alone", "");
        STORED(db, cf, "b", "");
        WALK(db, cf, "a alone b c ");
        txn = begin(db);
        OK(tidesdb_txn_contains(txn, cf, B("alone")));
        iter_t *iter = NULL;
        uint8_t *value = NULL;
        size_t size = 1;
        OK(tidesdb_iter_new(txn, cf, &iter));
        OK(tidesdb_iter_seek(iter, B("b")));
        OK(tidesdb_iter_value(iter, &value, &size));
        CHECK_INT(size, 0);
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
        if (round == 0) flush(cf);
        close_db(db);
        db = open_at("db");
        cf = tidesdb_get_column_family(db, "f");
    }
    close_db(db);
}

static void fixed_c5_an_expired_version_hides_older_ones(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "in tables", "old");
    put(db, cf, "in memory", "old");
    flush(cf);
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("in tables"), B("new"), time(NULL) + 1));
    commit(txn);
    flush(cf);
    txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("in memory"), B("new"), time(NULL) + 1));
    commit(txn);
    sleep_ms(2500);
    for (int round = 0; round < 3; round++) {
        STORED(db, cf, "in tables", NULL);
        STORED(db, cf, "in memory", NULL);
        WALK(db, cf, "");
        if (round == 0) flush(cf);
        if (round == 1) OK(tidesdb_compact(cf));
    }
    close_db(db);
}

static void fixed_c6_first_and_last_always_rewind(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 10);
    for (int round = 0; round < 2; round++) {
        txn_t *txn = begin(db);
        iter_t *iter = NULL;
        OK(tidesdb_iter_new(txn, cf, &iter));
        OK(tidesdb_iter_seek(iter, B("key000005")));
        OK(tidesdb_iter_seek_to_first(iter));
        AT(iter, "key000000");
        OK(tidesdb_iter_next(iter));
        OK(tidesdb_iter_seek_to_first(iter));
        AT(iter, "key000000");
        OK(tidesdb_iter_seek_to_last(iter));
        AT(iter, "key000009");
        CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_NOT_FOUND);
        OK(tidesdb_iter_seek_to_first(iter));
        AT(iter, "key000000");
        CHECK_RC(tidesdb_iter_prev(iter), TDB_ERR_NOT_FOUND);
        OK(tidesdb_iter_seek_to_last(iter));
        AT(iter, "key000009");
        CHECK_RC(tidesdb_iter_seek(iter, B("z")), TDB_ERR_NOT_FOUND);
        OK(tidesdb_iter_seek_to_last(iter));
        AT(iter, "key000009");
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
        flush(cf);
    }
    close_db(db);
}

static void two_families_for_ever(void)
{
    db_t *db = open_at("db");
    cf_t *a = family(db, "a"), *b = family(db, "b");
    for (int i = 0;; i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", i);
        txn_t *txn = begin(db);
        OK(tidesdb_txn_put(txn, a, B("counter"), B(value), 0));
        OK(tidesdb_txn_put(txn, b, B("counter"), B(value), 0));
        commit(txn);
        if (i % 1000 == 999) OK(tidesdb_flush_memtable(i % 2000 == 999 ? a : b));
    }
}

static void fixed_c13_commits_over_families_survive_a_kill_whole(void)
{
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) two_families_for_ever();
        sleep_ms(100 + 37 * round);
        CHECK(kill(child, SIGKILL) == 0);
        CHECK(waitpid(child, NULL, 0) == child);
        db_t *db = open_at("db");
        txn_t *txn = begin(db);
        uint8_t *value = NULL;
        size_t size = 0;
        int rc = tidesdb_txn_get(txn, family(db, "a"), B("counter"), &value, &size);
        if (rc == TDB_SUCCESS) {
            char text[16];
            snprintf(text, sizeof text, "%.*s", (int)size, (char *)value);
            tidesdb_free(value);
            EXPECT(txn, family(db, "b"), "counter", text);
        } else {
            EXPECT(txn, family(db, "b"), "counter", NULL);
        }
        tidesdb_txn_free(txn);
        close_db(db);
    }
}

const struct test fixed_tests[] = {
    TEST(fixed_c1_any_number_of_snapshots_is_kept),
    TEST(fixed_c2_a_walk_sees_whole_commits),
    TEST(fixed_c3_reads_repeat_and_never_see_half_a_commit),
    TEST(fixed_c4_empty_value),
    TEST(fixed_c5_an_expired_version_hides_older_ones),
    TEST(fixed_c6_first_and_last_always_rewind),
    TEST_ALONE(fixed_c13_commits_over_families_survive_a_kill_whole),
    END_OF_TESTS,
};
