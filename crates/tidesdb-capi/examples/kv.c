/*
 * Example in C: open, put, get, iterate, a transaction with a savepoint, close.
 *
 *   cc kv.c $(pkg-config --cflags --libs tidesdb) -o kv && ./kv shop
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidesdb/tidesdb.h>

static void check(int code, const char *what)
{
    if (code == TDB_SUCCESS) return;
    fprintf(stderr, "%s: %d: %s\n", what, code, tidesdb_last_error());
    exit(1);
}

static void put(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value)
{
    check(tidesdb_txn_put(txn, cf, (const uint8_t *)key, strlen(key), (const uint8_t *)value, strlen(value), 0),
          "put");
}

static void print_all(tidesdb_txn_t *txn, tidesdb_column_family_t *cf)
{
    tidesdb_iter_t *iter;
    check(tidesdb_iter_new(txn, cf, &iter), "iterator");
    for (int code = tidesdb_iter_seek_to_first(iter); code == TDB_SUCCESS; code = tidesdb_iter_next(iter)) {
        uint8_t *key, *value;
        size_t key_size, value_size;
        check(tidesdb_iter_key_value(iter, &key, &key_size, &value, &value_size), "pair");
        printf("  %.*s = %.*s\n", (int)key_size, (char *)key, (int)value_size, (char *)value);
    }
    tidesdb_iter_free(iter);
}

int main(int argc, char **argv)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = argc > 1 ? argv[1] : "shop";
    config.log_level = TDB_LOG_NONE;
    tidesdb_t *db;
    check(tidesdb_open(&config, &db), "open");

    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    settings.compression_algorithm = TDB_COMPRESS_ZSTD;
    int code = tidesdb_create_column_family(db, "fruit", &settings);
    if (code != TDB_ERR_EXISTS) check(code, "create");
    tidesdb_column_family_t *fruit = tidesdb_get_column_family(db, "fruit");

    tidesdb_txn_t *txn;
    check(tidesdb_txn_begin_with_isolation(db, TDB_ISOLATION_SERIALIZABLE, &txn), "begin");
    put(txn, fruit, "apple", "red");
    put(txn, fruit, "banana", "yellow");
    check(tidesdb_txn_savepoint(txn, "before the mistake"), "savepoint");
    put(txn, fruit, "carrot", "no fruit");
    check(tidesdb_txn_rollback_to_savepoint(txn, "before the mistake"), "back");
    put(txn, fruit, "cherry", "black");
    check(tidesdb_txn_commit(txn), "commit");

    check(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT), "reset");
    uint8_t *value;
    size_t size;
    check(tidesdb_txn_get(txn, fruit, (const uint8_t *)"apple", 5, &value, &size), "get");
    printf("apple is %.*s\n", (int)size, (char *)value);
    tidesdb_free(value);
    code = tidesdb_txn_get(txn, fruit, (const uint8_t *)"carrot", 6, &value, &size);
    printf("carrot is %s\n", code == TDB_ERR_NOT_FOUND ? "not there" : "there");
    printf("all:\n");
    print_all(txn, fruit);
    tidesdb_txn_free(txn);

    check(tidesdb_close(db), "close");
    return 0;
}
