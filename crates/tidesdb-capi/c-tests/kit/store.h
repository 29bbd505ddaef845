/*
 * Shorthands for a database. Every call checks its result. Keys and values are strings without their terminating zero.
 */
#ifndef KIT_STORE_H
#define KIT_STORE_H

#include "check.h"

typedef tidesdb_t db_t;
typedef tidesdb_column_family_t cf_t;
typedef tidesdb_txn_t txn_t;
typedef tidesdb_iter_t iter_t;

/* A string as a key or value, with its size. */
#define B(text) ((const uint8_t *)(text)), strlen(text)

/* Default settings without log messages. */
tidesdb_config_t quiet(const char *path);

db_t *open_at(const char *path);
void close_db(db_t *db);

/* Returns a family with default settings; creates it if it does not exist. */
cf_t *family(db_t *db, const char *name);
cf_t *family_with(db_t *db, const char *name, const tidesdb_column_family_config_t *config);

txn_t *begin(db_t *db);
txn_t *begin_at(db_t *db, tidesdb_isolation_level_t isolation);
void commit(txn_t *txn); /* and frees */

/* In their own transactions. */
void put(db_t *db, cf_t *cf, const char *key, const char *value);
void del(db_t *db, cf_t *cf, const char *key);
/* Puts count pairs keyNNNNNN -> valueNNNNNN, from number first on. */
void fill(db_t *db, cf_t *cf, int first, int count);

/* Checks that a get in txn returns want; NULL if the key must be missing. */
#define EXPECT(txn, cf, key, want) expect(__FILE__, __LINE__, txn, cf, key, want)
/* The same in its own transaction. */
#define STORED(db, cf, key, want) stored(__FILE__, __LINE__, db, cf, key, want)
void expect(const char *file, int line, txn_t *txn, cf_t *cf, const char *key, const char *want);
void stored(const char *file, int line, db_t *db, cf_t *cf, const char *key, const char *want);

/* Checks all keys of cf in the iterator's order, each followed by a blank. */
#define WALK(db, cf, want) walk(__FILE__, __LINE__, db, cf, want)
void walk(const char *file, int line, db_t *db, cf_t *cf, const char *want);
int count_keys(db_t *db, cf_t *cf);

/* Checks the current key. */
#define AT(iter, key) at(__FILE__, __LINE__, iter, key)
void at(const char *file, int line, iter_t *iter, const char *key);

/* Flushes the memtable and waits. */
void flush(cf_t *cf);
int tables(cf_t *cf);

void sleep_ms(int ms);
double now_ms(void);

/* Runs body in a child process. Returns its status from wait(). */
int in_child(void (*body)(void *), void *arg);

/* Creates a file with these bytes. */
void write_file(const char *path, const char *text);
char *read_file(const char *path); /* the caller frees it */

/* Removes the files of a folder, but not those that begin with a dot. */
void remove_files(const char *path);

#endif
