/* Object stores: a lost folder is restored from the library's own connector and from a caller's. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kit/store.h"

#define ROWS scaled(3000, 300)

/* Removes a folder and its files. */
static void remove_folder(const char *path)
{
    remove_files(path);
    CHECK_INT(rmdir(path), 0);
}

static db_t *open_on(tidesdb_objstore_t *store, tidesdb_objstore_config_t *how)
{
    tidesdb_config_t config = quiet("db");
    config.object_store = store;
    config.object_store_config = how;
    db_t *db = NULL;
    CHECK(store != NULL);
    OK(tidesdb_open(&config, &db));
    return db;
}

/* Every third value goes to a value log. */
static size_t value_of(int i, uint8_t *value)
{
    size_t size = i % 3 == 0 ? 900 : 60;
    for (size_t at = 0; at < size; at++) value[at] = (uint8_t)((unsigned)i * 31 + at * (size_t)(i % 7 + 1));
    return size;
}

static void put_rows(db_t *db, cf_t *cf, int from, int to)
{
    for (int i = from; i < to; i++) {
        uint8_t value[1024];
        char key[32];
        snprintf(key, sizeof key, "key%06d", i);
        txn_t *txn = begin(db);
        OK(tidesdb_txn_put(txn, cf, B(key), value, value_of(i, value), 0));
        commit(txn);
    }
}

static void check_rows(db_t *db, cf_t *cf, int count)
{
    CHECK_INT(count_keys(db, cf), count);
    txn_t *txn = begin(db);
    for (int i = 0; i < count; i++) {
        uint8_t want[1024], *got = NULL;
        size_t size = 0;
        char key[32];
        snprintf(key, sizeof key, "key%06d", i);
        OK(tidesdb_txn_get(txn, cf, B(key), &got, &size));
        CHECK_INT(size, value_of(i, want));
        CHECK(memcmp(got, want, size) == 0);
        tidesdb_free(got);
    }
    commit(txn);
}

static tidesdb_db_stats_t stats_of(db_t *db)
{
    tidesdb_db_stats_t stats;
    OK(tidesdb_get_db_stats(db, &stats));
    return stats;
}

static void a_folder_that_is_lost_comes_back(void)
{
    db_t *db = open_on(tidesdb_objstore_fs_create("objects"), NULL);
    CHECK_INT(stats_of(db).object_store_enabled, 1);
    CHECK_STR(stats_of(db).object_store_connector, "fs");
    put_rows(db, family(db, "f"), 0, ROWS);
    fill(db, family(db, "g"), 0, 50);
    flush(family(db, "f"));
    for (int i = 0; i < 200 && stats_of(db).last_uploaded_generation == 0; i++) sleep_ms(50);
    CHECK(stats_of(db).last_uploaded_generation > 0);
    CHECK(stats_of(db).total_uploads >= 4);
    CHECK_INT(stats_of(db).total_upload_failures, 0);
    CHECK(stats_of(db).local_cache_num_files > 0 && stats_of(db).local_cache_bytes_used > 0);
    close_db(db);
    remove_folder("db");
    db = open_on(tidesdb_objstore_fs_create("objects"), NULL);
    check_rows(db, family(db, "f"), ROWS);
    CHECK_INT(count_keys(db, family(db, "g")), 50);
    put_rows(db, family(db, "f"), ROWS, ROWS + 10);
    close_db(db);
    remove_folder("db");
    db = open_on(tidesdb_objstore_fs_create("objects"), NULL);
    check_rows(db, family(db, "f"), ROWS + 10);
    close_db(db);
    remove_folder("objects");
}

static void the_log_is_replicated_before_the_process_dies(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        tidesdb_objstore_config_t how = tidesdb_objstore_default_config();
        how.wal_sync_on_commit = 1;
        db_t *db = open_on(tidesdb_objstore_fs_create("objects"), &how);
        put_rows(db, family(db, "f"), 0, 40);
        uint64_t uploads = stats_of(db).total_uploads;
        put_rows(db, family(db, "f"), 40, 50);
        for (int i = 0; i < 100 && stats_of(db).total_uploads <= uploads; i++) sleep_ms(50);
        sleep_ms(1500); /* and the parts of the log that may still be missing */
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    remove_folder("db");
    db_t *db = open_on(tidesdb_objstore_fs_create("objects"), NULL);
    check_rows(db, family(db, "f"), 50);
    close_db(db);
}

static void the_local_cache_has_a_limit(void)
{
    tidesdb_objstore_config_t how = tidesdb_objstore_default_config();
    how.local_cache_max_bytes = 64 << 10;
    db_t *db = open_on(tidesdb_objstore_fs_create("objects"), &how);
    CHECK_INT(stats_of(db).local_cache_bytes_max, 64 << 10);
    for (int i = 0; i < 5; i++) {
        put_rows(db, family(db, "f"), ROWS / 5 * i, ROWS / 5 * (i + 1));
        flush(family(db, "f"));
    }
    close_db(db);
    db = open_on(tidesdb_objstore_fs_create("objects"), &how);
    check_rows(db, family(db, "f"), ROWS / 5 * 5);
    for (int i = 0; i < 100 && stats_of(db).upload_queue_depth > 0; i++) sleep_ms(50);
    close_db(db);
    long bytes = 0;
    DIR *dir = opendir("db");
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char name[512];
        struct stat about;
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 3, "log") != 0) continue;
        snprintf(name, sizeof name, "db/%s", entry->d_name);
        CHECK_INT(stat(name, &about), 0);
        bytes += (long)about.st_size;
    }
    closedir(dir);
    CHECK(bytes <= (64 << 10) + 4096);
}

/* A caller's connector: objects are files named after their keys. */
static struct {
    int puts, gets, deletes, lists, destroyed, refuse;
} calls;

static int copy(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = in == NULL ? NULL : fopen(to, "wb");
    char piece[4096];
    size_t n;
    if (out == NULL) {
        if (in != NULL) fclose(in);
        return TDB_ERR_IO;
    }
    while ((n = fread(piece, 1, sizeof piece, in)) > 0) fwrite(piece, 1, n, out);
    fclose(in);
    return fclose(out) == 0 ? 0 : TDB_ERR_IO;
}

static const char *place(const char *key, char *path)
{
    snprintf(path, 300, "mine/%s", key);
    return path;
}

static int my_put(void *ctx, const char *key, const char *local)
{
    char path[300];
    CHECK(ctx == &calls);
    if (__atomic_load_n(&calls.refuse, __ATOMIC_SEQ_CST)) return TDB_ERR_IO;
    __atomic_add_fetch(&calls.puts, 1, __ATOMIC_SEQ_CST);
    return copy(local, place(key, path));
}

static int my_get(void *ctx, const char *key, const char *local)
{
    char path[300];
    CHECK(ctx == &calls);
    __atomic_add_fetch(&calls.gets, 1, __ATOMIC_SEQ_CST);
    return copy(place(key, path), local);
}

static int my_delete(void *ctx, const char *key)
{
    char path[300];
    CHECK(ctx == &calls);
    __atomic_add_fetch(&calls.deletes, 1, __ATOMIC_SEQ_CST);
    return unlink(place(key, path)) == 0 ? 0 : TDB_ERR_NOT_FOUND;
}

static int my_list(void *ctx, const char *prefix, tidesdb_objstore_list_fn each, void *list_ctx)
{
    CHECK(ctx == &calls && prefix != NULL);
    __atomic_add_fetch(&calls.lists, 1, __ATOMIC_SEQ_CST);
    DIR *dir = opendir("mine");
    if (dir == NULL) return TDB_ERR_IO;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[300];
        struct stat about;
        if (entry->d_name[0] == '.' || stat(place(entry->d_name, path), &about) != 0) continue;
        each(entry->d_name, (size_t)about.st_size, list_ctx);
    }
    closedir(dir);
    return 0;
}

static void my_destroy(void *ctx)
{
    CHECK(ctx == &calls);
    calls.destroyed++;
}

static tidesdb_objstore_t *mine(void)
{
    tidesdb_objstore_t *store = calloc(1, sizeof *store);
    CHECK(store != NULL);
    store->backend = TDB_BACKEND_UNKNOWN;
    store->put = my_put;
    store->get = my_get;
    store->delete_object = my_delete;
    store->list = my_list;
    store->destroy = my_destroy;
    store->ctx = &calls;
    return store;
}

static void a_connector_of_the_callers(void)
{
    memset(&calls, 0, sizeof calls);
    CHECK_INT(mkdir("mine", 0700), 0);
    db_t *db = open_on(mine(), NULL);
    CHECK_STR(stats_of(db).object_store_connector, "unknown");
    put_rows(db, family(db, "f"), 0, ROWS);
    close_db(db);
    CHECK(calls.puts > 2 && calls.lists == 1);
    CHECK_INT(calls.destroyed, 1);
    remove_folder("db");
    db = open_on(mine(), NULL);
    check_rows(db, family(db, "f"), ROWS);
    CHECK(calls.gets > 2);
    /* An unavailable store fails no commit, but the close reports it. */
    __atomic_store_n(&calls.refuse, 1, __ATOMIC_SEQ_CST);
    put_rows(db, family(db, "f"), ROWS, ROWS + 20);
    flush(family(db, "f"));
    CHECK_RC(tidesdb_close(db), TDB_ERR_IO);
    CHECK(strlen(tidesdb_last_error()) > 0);
    CHECK_INT(calls.destroyed, 2);
    __atomic_store_n(&calls.refuse, 0, __ATOMIC_SEQ_CST);
    db = open_on(mine(), NULL);
    check_rows(db, family(db, "f"), ROWS + 20);
    close_db(db);
    remove_folder("db");
    db = open_on(mine(), NULL);
    check_rows(db, family(db, "f"), ROWS + 20);
    close_db(db);
}

static void copy_list(const char *key, size_t size, void *list_ctx)
{
    CHECK(strcmp(key, "a.txt") == 0 && size == 5);
    ++*(int *)list_ctx;
}

static void the_functions_of_the_librarys_connector(void)
{
    tidesdb_objstore_t *store = tidesdb_objstore_fs_create("objects/deep");
    CHECK(store != NULL);
    CHECK_INT(store->backend, TDB_BACKEND_FS);
    FILE *file = fopen("here", "wb");
    CHECK(file != NULL && fwrite("hello", 1, 5, file) == 5 && fclose(file) == 0);
    OK(store->put(store->ctx, "a.txt", "here"));
    OK(store->get(store->ctx, "a.txt", "there"));
    CHECK_RC(store->get(store->ctx, "b.txt", "there"), TDB_ERR_NOT_FOUND);
    char text[8] = {0};
    CHECK_INT(store->range_get(store->ctx, "a.txt", 1, text, 3), 3);
    CHECK_STR(text, "ell");
    size_t size = 0;
    CHECK_INT(store->exists(store->ctx, "a.txt", &size), 1);
    CHECK_INT(size, 5);
    CHECK_INT(store->exists(store->ctx, "b.txt", &size), 0);
    int seen = 0;
    CHECK_INT(store->list(store->ctx, "a", copy_list, &seen), 1);
    CHECK_INT(store->list(store->ctx, "b", copy_list, &seen), 0);
    CHECK_INT(seen, 1);
    OK(store->delete_object(store->ctx, "a.txt"));
    CHECK_INT(store->exists(store->ctx, "a.txt", &size), 0);
    store->destroy(store->ctx);
    tidesdb_free(store);
}

static void replicas_are_refused_and_the_connector_stays_the_callers(void)
{
    tidesdb_objstore_config_t how = tidesdb_objstore_default_config();
    how.replica_mode = 1;
    tidesdb_config_t config = quiet("db");
    config.object_store = tidesdb_objstore_fs_create("objects");
    config.object_store_config = &how;
    db_t *db = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_INVALID_ARGS);
    CHECK(db == NULL);
    how.replica_mode = 0;
    OK(tidesdb_open(&config, &db));
    close_db(db);
}

static void a_store_holds_one_database(void)
{
    close_db(open_at("db"));
    rename("db", "other");
    db_t *db = open_on(tidesdb_objstore_fs_create("objects"), NULL);
    put_rows(db, family(db, "f"), 0, 10);
    close_db(db);
    tidesdb_config_t config = quiet("other");
    config.object_store = tidesdb_objstore_fs_create("objects");
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_INVALID_ARGS);
    config.object_store->destroy(config.object_store->ctx);
    tidesdb_free(config.object_store);
    close_db(open_at("other"));
}

const struct test object_tests[] = {
    TEST(a_folder_that_is_lost_comes_back),
    TEST_ALONE(the_log_is_replicated_before_the_process_dies),
    TEST(the_local_cache_has_a_limit),
    TEST(a_connector_of_the_callers),
    TEST(the_functions_of_the_librarys_connector),
    TEST(replicas_are_refused_and_the_connector_stays_the_callers),
    TEST(a_store_holds_one_database),
    END_OF_TESTS,
};
