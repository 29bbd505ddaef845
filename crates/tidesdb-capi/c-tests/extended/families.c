/* Settings, hooks, filters and upkeep of families; rows that are read and changed in one call; health and verification. */
#include <pthread.h>
#include <stdlib.h>

#include "extended.h"

static void settings_are_changed_by_name(void)
{
    struct shop shop = open_shop();
    uint64_t value = 0;
    OK(tidesdb_x_family_get(shop.cf, "table_bytes", &value));
    CHECK(value > 0);
    OK(tidesdb_x_family_set(shop.cf, "table_bytes", 1 << 20, 1));
    OK(tidesdb_x_family_set(shop.cf, "default_ttl", 3600000, 0)); /* not stored */
    OK(tidesdb_x_family_get(shop.cf, "table_bytes", &value));
    CHECK_INT(value, 1 << 20);
    x_put(shop.cf, "a", "1");
    OK(tidesdb_x_expiry(shop.cf, B("a"), NULL, &value));
    CHECK(value > 0);
    OK(tidesdb_x_family_get(shop.cf, "write_buffer_bytes", &value));
    CHECK_RC(tidesdb_x_family_set(shop.cf, "write_buffer_bytes", value, 0), TDB_ERR_INVALID_ARGS);
    CHECK(strstr(tidesdb_last_error(), "tidesdb_cf_update_runtime_config") != NULL);
    CHECK_RC(tidesdb_x_family_set(shop.cf, "value_garbage_percent", 1000, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_family_get(shop.cf, "none", &value), TDB_ERR_INVALID_ARGS);
    /* The base interface leaves them as they are. */
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    OK(tidesdb_cf_update_runtime_config(shop.cf, &config, 1));
    OK(tidesdb_x_family_get(shop.cf, "table_bytes", &value));
    CHECK_INT(value, 1 << 20);
    close_db(shop.db);
    shop.db = open_at("db");
    shop.cf = family(shop.db, "f");
    OK(tidesdb_x_family_get(shop.cf, "table_bytes", &value));
    CHECK_INT(value, 1 << 20);
    close_db(shop.db);
}

/* The header promises how to learn why a family that exists is NULL. */
static void a_family_that_cannot_be_opened_is_not_missing(void)
{
    db_t *db = open_at("db");
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    CHECK_RC(tidesdb_rename_column_family(db, "f", "f"), TDB_ERR_NOT_FOUND);
    OK(tidesdb_x_create_family(db, "f", NULL, NULL));
    OK(tidesdb_rename_column_family(db, "f", "f"));
    close_db(db);
    FILE *file = fopen("db/000001.vlog", "r+b"); /* its settings */
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    long within = ftell(file) * 3 / 4;
    CHECK(fseek(file, within, SEEK_SET) == 0);
    int byte = fgetc(file);
    CHECK(fseek(file, within, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF);
    CHECK(fclose(file) == 0);
    db = open_at("db");
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    CHECK_RC(tidesdb_rename_column_family(db, "f", "f"), TDB_ERR_CORRUPTION);
    CHECK(strstr(tidesdb_last_error(), "000001.vlog") != NULL);
    CHECK_RC(tidesdb_x_create_family(db, "f", NULL, NULL), TDB_ERR_EXISTS);
    close_db(db);
}

struct seen {
    char text[1024];
    atomic_int calls;
    uint64_t seq;
};

static int record(const tidesdb_x_commit_op_t *ops, size_t count, uint64_t seq, void *ctx)
{
    struct seen *seen = ctx;
    size_t used = strlen(seen->text);
    for (size_t i = 0; i < count; i++) {
        int shown = ops[i].value == NULL ? 0 : (int)ops[i].value_size;
        used += (size_t)snprintf(seen->text + used, sizeof seen->text - used, "%d:%.*s=%.*s/%d%s ", ops[i].kind,
                                 (int)ops[i].key_size, (const char *)ops[i].key, shown, (const char *)ops[i].value,
                                 (int)ops[i].value_size, ops[i].expires_at_ms == 0 ? "" : "!");
    }
    seen->calls++;
    seen->seq = seq;
    return 0;
}

static int count_base(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)seq;
    *(atomic_int *)ctx += count;
    return 0;
}

static void a_hook_sees_every_kind_of_operation(void)
{
    db_t *db = open_at("db");
    cf_t *cf = NULL;
    tidesdb_x_family_options_t options = {.size = sizeof options, .merge_operator = "tidesdb.max"};
    OK(tidesdb_x_create_family(db, "f", &options, &cf));
    struct seen seen = {.calls = 0};
    OK(tidesdb_x_set_commit_hook(cf, record, &seen));
    txn_t *txn = begin(db);
    tidesdb_x_write_options_t expiring = {sizeof expiring, 0, 0, 0, 0, UINT64_C(4102444800000)};
    OK(tidesdb_x_txn_put(txn, cf, B("a"), B("1"), &expiring));
    OK(tidesdb_txn_delete(txn, cf, B("b")));
    OK(tidesdb_x_txn_merge(txn, cf, B("c"), B("op")));
    OK(tidesdb_x_txn_delete_range(txn, cf, B("d"), B("f")));
    OK(tidesdb_x_txn_delete_prefix(txn, cf, B("p")));
    uint64_t seq = 0;
    OK(tidesdb_x_txn_commit(txn, NULL, &seq));
    tidesdb_txn_free(txn);
    CHECK_STR(seen.text, "0:a=1/1! 1:b=/0 3:c=op/2 4:d=f/1 4:p=q/1 ");
    CHECK_INT(seen.seq, seq);
    seen.text[0] = '\0';
    static uint8_t mib[1 << 20];
    tidesdb_x_value_writer_t *writer = NULL;
    OK(tidesdb_x_value_writer_new(cf, B("film"), NULL, &writer));
    for (int i = 0; i < 9; i++) OK(tidesdb_x_value_writer_write(writer, mib, sizeof mib));
    OK(tidesdb_x_value_writer_commit(writer, NULL));
    tidesdb_x_value_writer_free(writer);
    CHECK_STR(seen.text, "6:film=/9437184 ");
    /* A hook of the base interface takes its place, and is removed by either function. */
    atomic_int base = 0;
    OK(tidesdb_cf_set_commit_hook(cf, count_base, &base));
    x_put(cf, "a", "2");
    OK(tidesdb_x_delete_range(cf, B("x"), B("y"), NULL, NULL));
    CHECK_INT(base, 1);
    CHECK_INT(seen.calls, 2);
    OK(tidesdb_x_set_commit_hook(cf, record, &seen));
    x_put(cf, "a", "3");
    OK(tidesdb_x_set_commit_hook(cf, NULL, NULL));
    x_put(cf, "a", "4");
    CHECK_INT(base, 1);
    CHECK_INT(seen.calls, 3);
    close_db(db);
}

/* Removes keys that begin with r, and changes those that begin with c. */
static int tidy_up(const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, uint64_t expires_at_ms, void *ctx)
{
    CHECK(key_size > 0 && (value != NULL || value_size == 0) && expires_at_ms == 0);
    ++*(atomic_int *)ctx;
    if (key[0] == 'r') return TDB_X_FILTER_REMOVE;
    if (key[0] != 'c') return key[0] == 'k' ? TDB_X_FILTER_KEEP : 77; /* an unknown answer keeps the row, too */
    OK(tidesdb_x_result_append((const uint8_t *)"changed ", 8));
    OK(tidesdb_x_result_append(value, value_size));
    return TDB_X_FILTER_CHANGE;
}

static void a_filter_decides_about_rows(void)
{
    struct shop shop = open_shop();
    atomic_int calls = 0;
    OK(tidesdb_x_set_filter(shop.cf, tidy_up, &calls));
    x_put(shop.cf, "c1", "1");
    x_put(shop.cf, "k1", "1");
    x_put(shop.cf, "r1", "1");
    x_put(shop.cf, "u1", "1");
    OK(tidesdb_x_flush(shop.cf));
    OK(tidesdb_compact(shop.cf));
    CHECK(calls >= 4);
    X_ROWS(shop.cf, NULL, "c1=changed 1 k1=1 u1=1 ");
    OK(tidesdb_x_set_filter(shop.cf, NULL, NULL));
    int before = calls;
    x_put(shop.cf, "r2", "2");
    OK(tidesdb_x_flush(shop.cf));
    OK(tidesdb_compact(shop.cf));
    CHECK_INT(calls, before);
    X_GET(shop.cf, NULL, "r2", "2");
    OK(tidesdb_x_set_filter(shop.cf, tidy_up, &calls));
    close_db(shop.db);
    before = calls;
    sleep_ms(10);
    CHECK_INT(calls, before);
}

static void a_flush_and_a_limit_of_merges(void)
{
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 100);
    CHECK_INT(tables(shop.cf), 0);
    OK(tidesdb_x_flush(shop.cf));
    CHECK_INT(tables(shop.cf), 1);
    OK(tidesdb_x_set_compaction_rate(shop.db, 1 << 20));
    OK(tidesdb_x_set_compaction_rate(shop.db, 0));
    OK(tidesdb_x_compact_range(shop.cf, B("key000010"), B("key000020")));
    CHECK_INT(count_keys(shop.db, shop.cf), 100);
    close_db(shop.db);
}

static void rows_are_read_and_changed_in_one_call(void)
{
    struct shop shop = open_shop();
    uint8_t buffer[16];
    tidesdb_x_span_t old = {7, 7};
    tidesdb_x_row_t row = {7, 7, 7};
    size_t size = 7;
    OK(tidesdb_x_replace(shop.cf, B("a"), B("first"), NULL, buffer, 16, &old));
    CHECK(old.offset == TDB_X_NONE && old.size == 0);
    CHECK_RC(tidesdb_x_replace(shop.cf, B("a"), B("second"), NULL, buffer, 4, &old), TDB_ERR_TOO_LARGE);
    CHECK(old.offset == 0 && old.size == 5);
    X_GET(shop.cf, NULL, "a", "first");
    OK(tidesdb_x_replace(shop.cf, B("a"), B("second"), NULL, buffer, 5, &old));
    CHECK(old.size == 5 && memcmp(buffer, "first", 5) == 0);
    CHECK_RC(tidesdb_x_take(shop.cf, B("a"), NULL, buffer, 5, &size), TDB_ERR_TOO_LARGE);
    CHECK_INT(size, 6);
    OK(tidesdb_x_take(shop.cf, B("a"), NULL, buffer, 6, &size));
    CHECK(size == 6 && memcmp(buffer, "second", 6) == 0);
    size = 7;
    CHECK_RC(tidesdb_x_take(shop.cf, B("a"), NULL, buffer, 6, &size), TDB_ERR_NOT_FOUND);
    CHECK_INT(size, 7);
    CHECK_RC(tidesdb_x_pop_first(shop.cf, NULL, buffer, 16, &row), TDB_ERR_NOT_FOUND);
    CHECK_INT(row.offset, 7);
    x_put(shop.cf, "1", "one");
    x_put(shop.cf, "2", "two");
    x_put(shop.cf, "3", "three");
    CHECK_RC(tidesdb_x_pop_last(shop.cf, NULL, buffer, 5, &row), TDB_ERR_TOO_LARGE);
    CHECK(row.key_size == 1 && row.value_size == 5);
    OK(tidesdb_x_pop_last(shop.cf, NULL, buffer, 6, &row));
    CHECK(memcmp(buffer, "3three", 6) == 0);
    OK(tidesdb_x_pop_first(shop.cf, NULL, buffer, 16, &row));
    CHECK(memcmp(buffer, "1one", 4) == 0);
    X_ROWS(shop.cf, NULL, "2=two ");
    close_db(shop.db);
}

static atomic_int popped;

static void *pop_all(void *arg)
{
    cf_t *cf = arg;
    for (;;) {
        uint8_t buffer[64];
        tidesdb_x_row_t row;
        int rc = tidesdb_x_pop_first(cf, NULL, buffer, sizeof buffer, &row);
        if (rc == TDB_ERR_NOT_FOUND) return NULL;
        if (rc == TDB_ERR_CONFLICT) continue; /* after many attempts */
        CHECK_RC(rc, TDB_SUCCESS);
        popped++;
    }
}

static void threads_pop_different_rows(void)
{
    struct shop shop = open_shop();
    int rows = scaled(300, 30);
    fill(shop.db, shop.cf, 0, rows);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, pop_all, shop.cf) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(popped, rows);
    close_db(shop.db);
}

static void health_and_verification(void)
{
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 100);
    OK(tidesdb_x_flush(shop.cf));
    x_put(shop.cf, "unflushed", "1");
    tidesdb_x_health_t health = {.size = sizeof health};
    tidesdb_x_verified_t verified = {.size = sizeof verified};
    char *text = NULL;
    OK(tidesdb_x_health(shop.db, &health, &text));
    CHECK_STR(text, "");
    tidesdb_free(text);
    CHECK(health.state == 0 && health.discarded_commits == 0 && health.size == sizeof health);
    OK(tidesdb_x_verify(shop.db, &verified, &text));
    CHECK_STR(text, "");
    tidesdb_free(text);
    CHECK(verified.tables >= 1 && verified.entries >= 100 && verified.unflushed >= 1 && verified.faults == 0);
    OK(tidesdb_x_verify(shop.db, &verified, NULL));
    OK(tidesdb_x_health(shop.db, &health, NULL));
    verified.size = 3;
    CHECK_RC(tidesdb_x_verify(shop.db, &verified, NULL), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
    shop.db = open_at("db");
    OK(tidesdb_x_health(shop.db, &health, NULL));
    CHECK_INT(health.was_closed, 1);
    close_db(shop.db);
}

static void a_database_is_removed_with_its_own_files_only(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    CHECK_RC(tidesdb_x_destroy("db"), TDB_ERR_LOCKED);
    X_GET(shop.cf, NULL, "a", "1");
    close_db(shop.db);
    write_file("db/notes", "mine");
    OK(tidesdb_x_destroy("db"));
    char *notes = read_file("db/notes");
    CHECK_STR(notes, "mine");
    free(notes);
    CHECK_RC(tidesdb_x_destroy("db"), TDB_ERR_NOT_FOUND);
    write_file("db/CURRENT", "MANIFEST-000004\n");
    CHECK_RC(tidesdb_x_destroy("db"), TDB_ERR_CORRUPTION);
    CHECK_RC(tidesdb_x_destroy("missing"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_x_destroy(""), TDB_ERR_INVALID_ARGS);
    CHECK(remove("db/CURRENT") == 0 && remove("db/notes") == 0);
    tidesdb_config_t config = quiet("db");
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .flags = TDB_X_MUST_BE_NEW};
    tidesdb_t *fresh = NULL;
    config.log_to_file = 1; /* its LOG is a file of the database, too */
    OK(tidesdb_x_open(&options, &fresh));
    close_db(fresh);
    CHECK_RC(tidesdb_x_open(&options, &fresh), TDB_ERR_EXISTS);
    shop = open_shop();
    X_GET(shop.cf, NULL, "a", NULL);
    close_db(shop.db);
    OK(tidesdb_x_destroy("db"));
    CHECK(remove("db") != 0); /* the folder is gone, too */
}

const struct test family_tests[] = {
    TEST(a_database_is_removed_with_its_own_files_only),
    TEST(settings_are_changed_by_name),
    TEST(a_family_that_cannot_be_opened_is_not_missing),
    TEST(a_hook_sees_every_kind_of_operation),
    TEST(a_filter_decides_about_rows),
    TEST(a_flush_and_a_limit_of_merges),
    TEST(rows_are_read_and_changed_in_one_call),
    TEST(threads_pop_different_rows),
    TEST(health_and_verification),
    END_OF_TESTS,
};
