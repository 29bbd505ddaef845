/*
 * A workload under failing system calls: it writes, reads, flushes, merges, copies, closes and reopens a database, and
 * continues after every reported error. The caller makes one system call fail (`cargo xtask inject` does so with strace).
 *
 *   inject work DIRECTORY ACKS SEED    runs the workload; records in the file ACKS which commits were tried and succeeded
 *   inject check DIRECTORY ACKS SEED   opens the directory without failing calls, and compares
 *
 * Exit codes: 0 all calls succeeded; 1 a call failed and reported an error; 2 the start failed; 3 an answer was wrong.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <tidesdb/tidesdb.h>

enum { KEYS = 12, STEPS = 60, REOPEN_AT = 40, KEY_BYTES = 5, VALUE_MAX = 3000, SECONDS = 30 };
enum { NOT_TRIED = 0, TRIED = 1, ACKED = 2 };
enum { ALL_WELL = 0, FAILED = 1, NOT_BEGUN = 2, WRONG = 3 };

/* The steps that were tried and that succeeded. Mapped from the file, so that it survives the process without a system call. */
static volatile unsigned char *acks;
static unsigned long seed;
static int failures, checking;

static tidesdb_t *db;
static tidesdb_column_family_t *small, *large;

static _Noreturn void wrong(const char *what, int key, int step)
{
    fprintf(stderr, "WRONG: %s (key %d, step %d) [%s]\n", what, key, step, tidesdb_last_error());
    exit(WRONG);
}

/* Checks a call that may fail only with an error code. */
static int tried(const char *what, int rc)
{
    if (rc > 0 || rc < TDB_ERR_PRECONDITION) wrong("an unknown code", -1, rc);
    if (rc != TDB_SUCCESS) {
        failures++;
        fprintf(stderr, "%s: %d %s\n", what, rc, tidesdb_last_error());
        if (checking) wrong("a call failed although no system call did", -1, rc);
    }
    return rc;
}

/* The key of step n, which writes its own value to it or deletes it. */
static int key_of(int step)
{
    return step % KEYS;
}

static int deletes(int step)
{
    return (step / KEYS + key_of(step)) % 4 == 3;
}

static size_t value_of(int step, int is_large, uint8_t *value)
{
    unsigned long mixed = (seed * 1000003 + (unsigned long)step) * 2654435761u;
    size_t size = is_large ? 700 + mixed % (VALUE_MAX - 700) : 1 + mixed % 60;
    for (size_t i = 0; i < size; i++) value[i] = (uint8_t)(mixed + i * 7 + (unsigned long)step);
    return size;
}

static void key_text(int key, char *text)
{
    snprintf(text, KEY_BYTES + 1, "k%04d", key);
}

/* Returns whether the key may have the state after this step (-1: before all steps): no later commit of it succeeded. */
static int may_be_of(int key, int step)
{
    if (step >= 0 && acks[step] == NOT_TRIED) return 0;
    for (int later = step + 1; later < STEPS; later++)
        if (key_of(later) == key && acks[later] == ACKED) return 0;
    return 1;
}

/* Returns the step that left the state of a key in a family: -1 for none, -2 for a deleted key, -3 for a value never written. */
enum { NO_KEY = -2, NOBODY = -3 };
static int step_of(int key, const uint8_t *value, size_t size, int is_large)
{
    uint8_t wanted[VALUE_MAX];
    for (int step = key; step < STEPS; step += KEYS) {
        if (deletes(step)) continue;
        size_t bytes = value_of(step, is_large, wanted);
        if (bytes == size && memcmp(value, wanted, size) == 0) return step;
    }
    return NOBODY;
}

static void check_state(int key, int step)
{
    if (step == NOBODY) wrong("a value that was never written", key, step);
    if (step >= 0) {
        if (!may_be_of(key, step)) wrong("an old value, or one that was never committed", key, step);
        return;
    }
    int fine = may_be_of(key, -1);
    for (int deleted = key; deleted < STEPS; deleted += KEYS)
        fine |= deletes(deleted) && may_be_of(key, deleted);
    if (!fine) wrong("a key whose commit succeeded is gone", key, step);
}

/* Reads one key of one family; returns NOBODY - 1 if the read failed. */
static int read_key(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, int key, int is_large)
{
    char text[KEY_BYTES + 1];
    uint8_t *value = NULL;
    size_t size = 0;
    key_text(key, text);
    int rc = tidesdb_txn_get(txn, cf, (const uint8_t *)text, KEY_BYTES, &value, &size);
    if (rc == TDB_ERR_NOT_FOUND) {
        check_state(key, NO_KEY);
        return NO_KEY;
    }
    if (tried("get", rc) != TDB_SUCCESS) return NOBODY - 1;
    int step = step_of(key, value, size, is_large);
    tidesdb_free(value);
    check_state(key, step);
    return step;
}

static void get_all(void)
{
    tidesdb_txn_t *txn = NULL;
    if (tried("begin", tidesdb_txn_begin_with_isolation(db, TDB_ISOLATION_SNAPSHOT, &txn)) != TDB_SUCCESS) return;
    for (int key = 0; key < KEYS; key++) {
        int a = read_key(txn, small, key, 0), b = read_key(txn, large, key, 1);
        if (a > NOBODY - 1 && b > NOBODY - 1 && a != b) wrong("half of a commit", key, a * 1000 + b);
    }
    tidesdb_txn_free(txn);
}

static void walk(tidesdb_column_family_t *cf, int is_large, int backwards)
{
    tidesdb_txn_t *txn = NULL;
    tidesdb_iter_t *iter = NULL;
    int seen[KEYS] = {0}, last = backwards ? KEYS : -1;
    if (tried("begin", tidesdb_txn_begin(db, &txn)) != TDB_SUCCESS) return;
    if (tried("iter_new", tidesdb_iter_new(txn, cf, &iter)) == TDB_SUCCESS) {
        int rc = backwards ? tidesdb_iter_seek_to_last(iter) : tidesdb_iter_seek_to_first(iter);
        while (rc == TDB_SUCCESS) {
            uint8_t *key, *value;
            size_t key_size, size;
            rc = tidesdb_iter_key_value(iter, &key, &key_size, &value, &size);
            if (rc != TDB_SUCCESS) break;
            int n = key_size == KEY_BYTES ? atoi((const char[]){(char)key[1], (char)key[2], (char)key[3], (char)key[4], 0}) : -1;
            if (n < 0 || n >= KEYS) wrong("a key that was never written", n, 0);
            if (backwards ? n >= last : n <= last) wrong("keys out of order", n, last);
            last = n;
            seen[n] = 1;
            check_state(n, step_of(n, value, size, is_large));
            rc = backwards ? tidesdb_iter_prev(iter) : tidesdb_iter_next(iter);
        }
        if (rc == TDB_ERR_NOT_FOUND) {
            for (int key = 0; key < KEYS; key++)
                if (!seen[key]) check_state(key, NO_KEY);
        } else {
            tried("walk", rc);
        }
    }
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
}

static void read_everything(void)
{
    get_all();
    for (int backwards = 0; backwards < 2; backwards++) {
        walk(small, 0, backwards);
        walk(large, 1, backwards);
    }
}

static void take_step(int step)
{
    char key[KEY_BYTES + 1];
    uint8_t value[VALUE_MAX];
    tidesdb_txn_t *txn = NULL;
    key_text(key_of(step), key);
    if (tried("begin", tidesdb_txn_begin(db, &txn)) != TDB_SUCCESS) return;
    int rc = TDB_SUCCESS;
    for (int is_large = 0; is_large < 2 && rc == TDB_SUCCESS; is_large++) {
        tidesdb_column_family_t *cf = is_large ? large : small;
        size_t size = value_of(step, is_large, value);
        rc = deletes(step) ? tidesdb_txn_delete(txn, cf, (uint8_t *)key, KEY_BYTES)
                           : tidesdb_txn_put(txn, cf, (uint8_t *)key, KEY_BYTES, value, size, 0);
    }
    if (tried("write", rc) == TDB_SUCCESS) {
        acks[step] = TRIED;
        if (tried("commit", tidesdb_txn_commit(txn)) == TDB_SUCCESS) acks[step] = ACKED;
        else tidesdb_txn_rollback(txn);
    }
    tidesdb_txn_free(txn);
}

static void flush(tidesdb_column_family_t *cf)
{
    if (tried("flush", tidesdb_flush_memtable(cf)) != TDB_SUCCESS) return;
    for (int i = 0; i < 200 && tidesdb_is_flushing(cf); i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static tidesdb_column_family_t *find_or_make(const char *name, int sync_mode)
{
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, name);
    if (cf != NULL) return cf;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.sync_mode = sync_mode;
    config.l1_file_count_trigger = 2;
    int rc = tidesdb_create_column_family(db, name, &config);
    if (rc != TDB_ERR_EXISTS) tried("create", rc);
    return tidesdb_get_column_family(db, name);
}

static int open_it(const char *directory)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = directory;
    config.log_level = TDB_LOG_NONE;
    config.block_cache_size = 1 << 20;
    if (tried("open", tidesdb_open(&config, &db)) != TDB_SUCCESS) return 0;
    small = find_or_make("small", TDB_SYNC_NONE);
    large = find_or_make("large", TDB_SYNC_FULL);
    if (small != NULL && large != NULL) return 1;
    if (checking) wrong("a family is missing", -1, -1);
    failures++;
    tried("close", tidesdb_close(db));
    return 0;
}

/* Creates and drops families, copies the database, and stores settings in a file. */
static void other_work(const char *directory)
{
    char path[4096];
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    tidesdb_column_family_t *cf = find_or_make("passing", TDB_SYNC_NONE);
    if (cf != NULL) {
        tidesdb_txn_t *txn = NULL;
        uint8_t value[VALUE_MAX];
        if (tried("begin", tidesdb_txn_begin(db, &txn)) == TDB_SUCCESS) {
            tried("write", tidesdb_txn_put(txn, cf, (const uint8_t *)"x", 1, value, value_of(1, 1, value), 0));
            tried("commit", tidesdb_txn_commit(txn));
            tidesdb_txn_free(txn);
        }
        tried("rename", tidesdb_rename_column_family(db, "passing", "renamed"));
        tried("clone", tidesdb_clone_column_family(db, "large", "cloned"));
        tried("drop", tidesdb_delete_column_family(db, cf));
        if (tidesdb_get_column_family(db, "cloned") != NULL) tried("drop", tidesdb_drop_column_family(db, "cloned"));
    }
    snprintf(path, sizeof path, "%s.checkpoint", directory);
    tried("checkpoint", tidesdb_checkpoint(db, path));
    snprintf(path, sizeof path, "%s.backup", directory);
    tried("backup", tidesdb_backup(db, path));
    snprintf(path, sizeof path, "%s.ini", directory);
    if (tried("save", tidesdb_cf_config_save_to_ini(path, "f", &config)) == TDB_SUCCESS)
        tried("load", tidesdb_cf_config_load_from_ini(path, "f", &config));
    tried("sync", tidesdb_sync_wal(small));
}

static void work(const char *directory)
{
    if (!open_it(directory)) return;
    for (int step = 0; step < REOPEN_AT; step++) {
        take_step(step);
        if (step % 12 == 11) {
            flush(small);
            flush(large);
        }
    }
    read_everything();
    tried("compact", tidesdb_compact(small));
    tried("compact_range", tidesdb_compact_range(large, (const uint8_t *)"k0002", 5, NULL, 0));
    read_everything();
    other_work(directory);
    tried("close", tidesdb_close(db));
    if (!open_it(directory)) return;
    read_everything();
    for (int step = REOPEN_AT; step < STEPS; step++) take_step(step);
    tried("purge", tidesdb_purge(db));
    read_everything();
    tried("close", tidesdb_close(db));
}

static void check(const char *directory)
{
    checking = 1;
    for (int round = 0; round < 2; round++) {
        if (!open_it(directory)) return;
        read_everything();
        if (round == 0) tried("purge", tidesdb_purge(db));
        read_everything();
        tried("close", tidesdb_close(db));
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) return NOT_BEGUN;
    alarm(SECONDS);
    seed = strtoul(argv[4], NULL, 10);
    int file = open(argv[3], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, STEPS) != 0) return NOT_BEGUN;
    void *map = mmap(NULL, STEPS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return NOT_BEGUN;
    acks = map;
    if (strcmp(argv[1], "work") == 0) work(argv[2]);
    else check(argv[2]);
    return failures == 0 ? ALL_WELL : FAILED;
}
