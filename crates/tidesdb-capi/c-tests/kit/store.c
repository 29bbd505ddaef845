#define _GNU_SOURCE
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

tidesdb_config_t quiet(const char *path)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = path;
    config.log_level = TDB_LOG_NONE;
    return config;
}

db_t *open_at(const char *path)
{
    tidesdb_config_t config = quiet(path);
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    CHECK(db != NULL);
    return db;
}

void close_db(db_t *db)
{
    OK(tidesdb_close(db));
}

cf_t *family_with(db_t *db, const char *name, const tidesdb_column_family_config_t *config)
{
    OK(tidesdb_create_column_family(db, name, config));
    cf_t *cf = tidesdb_get_column_family(db, name);
    CHECK(cf != NULL);
    return cf;
}

cf_t *family(db_t *db, const char *name)
{
    cf_t *cf = tidesdb_get_column_family(db, name);
    if (cf != NULL) return cf;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    return family_with(db, name, &config);
}

txn_t *begin(db_t *db)
{
    txn_t *txn = NULL;
    OK(tidesdb_txn_begin(db, &txn));
    CHECK(txn != NULL);
    return txn;
}

txn_t *begin_at(db_t *db, tidesdb_isolation_level_t isolation)
{
    txn_t *txn = NULL;
    OK(tidesdb_txn_begin_with_isolation(db, isolation, &txn));
    CHECK(txn != NULL);
    return txn;
}

void commit(txn_t *txn)
{
    OK(tidesdb_txn_commit(txn));
    tidesdb_txn_free(txn);
}

void put(db_t *db, cf_t *cf, const char *key, const char *value)
{
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B(key), B(value), 0));
    commit(txn);
}

void del(db_t *db, cf_t *cf, const char *key)
{
    txn_t *txn = begin(db);
    OK(tidesdb_txn_delete(txn, cf, B(key)));
    commit(txn);
}

void fill(db_t *db, cf_t *cf, int first, int count)
{
    txn_t *txn = begin(db);
    for (int i = first; i < first + count; i++) {
        char key[32], value[32];
        snprintf(key, sizeof key, "key%06d", i);
        snprintf(value, sizeof value, "value%06d", i);
        OK(tidesdb_txn_put(txn, cf, B(key), B(value), 0));
    }
    commit(txn);
}

void expect(const char *file, int line, txn_t *txn, cf_t *cf, const char *key, const char *want)
{
    uint8_t untouched;
    uint8_t *value = &untouched;
    size_t size = 77;
    int rc = tidesdb_txn_get(txn, cf, B(key), &value, &size);
    if (want == NULL) {
        if (rc != TDB_ERR_NOT_FOUND) fail(file, line, "get of \"%s\" returned %d, not -3", key, rc);
        if (value != &untouched || size != 77) fail(file, line, "a missing key wrote its outputs");
        return;
    }
    if (rc != TDB_SUCCESS) fail(file, line, "get of \"%s\" returned %d", key, rc);
    if (size != strlen(want) || memcmp(value, want, size) != 0)
        fail(file, line, "\"%s\" is \"%.*s\", not \"%s\"", key, (int)size, (char *)value, want);
    tidesdb_free(value);
}

void stored(const char *file, int line, db_t *db, cf_t *cf, const char *key, const char *want)
{
    txn_t *txn = begin(db);
    expect(file, line, txn, cf, key, want);
    tidesdb_txn_free(txn);
}

void walk(const char *file, int line, db_t *db, cf_t *cf, const char *want)
{
    char got[4096];
    size_t used = 0;
    txn_t *txn = begin(db);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    for (int rc = tidesdb_iter_seek_to_first(iter); rc == TDB_SUCCESS; rc = tidesdb_iter_next(iter)) {
        uint8_t *key;
        size_t size;
        OK(tidesdb_iter_key(iter, &key, &size));
        if (used + size + 2 > sizeof got) fail(file, line, "too many keys");
        memcpy(got + used, key, size);
        used += size;
        got[used++] = ' ';
    }
    got[used] = '\0';
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    check_str(file, line, "the walk", got, want);
}

int count_keys(db_t *db, cf_t *cf)
{
    int count = 0;
    txn_t *txn = begin(db);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    int rc = tidesdb_iter_seek_to_first(iter);
    while (rc == TDB_SUCCESS) {
        count++;
        rc = tidesdb_iter_next(iter);
    }
    CHECK_INT(rc, TDB_ERR_NOT_FOUND);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    return count;
}

void at(const char *file, int line, iter_t *iter, const char *want)
{
    uint8_t *key;
    size_t size;
    if (tidesdb_iter_valid(iter) != 1) fail(file, line, "the iterator is not positioned, expected at \"%s\"", want);
    OK(tidesdb_iter_key(iter, &key, &size));
    if (size != strlen(want) || memcmp(key, want, size) != 0)
        fail(file, line, "the iterator is at \"%.*s\", not \"%s\"", (int)size, (char *)key, want);
}

void flush(cf_t *cf)
{
    OK(tidesdb_flush_memtable(cf));
    double begin = now_ms();
    while (tidesdb_is_flushing(cf)) {
        if (now_ms() - begin > 30000) fail(__FILE__, __LINE__, "the flush does not end");
        sleep_ms(1);
    }
}

int tables(cf_t *cf)
{
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    int count = 0;
    for (int i = 0; i < stats->num_levels; i++) count += stats->level_num_sstables[i];
    tidesdb_free_stats(stats);
    return count;
}

void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) continue;
}

double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int in_child(void (*body)(void *), void *arg)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        body(arg);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    return status;
}

void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    char *text = calloc(1, 65536);
    CHECK(text != NULL);
    size_t size = fread(text, 1, 65535, file);
    CHECK(size < 65535);
    fclose(file);
    return text;
}

void remove_files(const char *path)
{
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char name[512];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        CHECK_INT(unlink(name), 0);
    }
    closedir(dir);
}
