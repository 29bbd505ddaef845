/*
 * A database in a few words, for tests that are about something else. Every call checks what it gets. Keys and values are
 * strings without their final zero.
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

/* The defaults, quiet. */
tidesdb_config_t quiet(const char *path);

db_t *open_at(const char *path);
void close_db(db_t *db);

/* A family with the defaults, created if it is not there. */
cf_t *family(db_t *db, const char *name);
cf_t *family_with(db_t *db, const char *name, const tidesdb_column_family_config_t *config);

txn_t *begin(db_t *db);
txn_t *begin_at(db_t *db, tidesdb_isolation_level_t isolation);
void commit(txn_t *txn); /* and free */

/* In a transaction of its own. */
void put(db_t *db, cf_t *cf, const char *key, const char *value);
void del(db_t *db, cf_t *cf, const char *key);
/* count pairs keyNNNNNN -> valueNNNNNN, from first on. */
void fill(db_t *db, cf_t *cf, int first, int count);

/* The code of a get in txn, its value compared with want if that is not NULL. */
#define EXPECT(txn, cf, key, want) expect(__FILE__, __LINE__, txn, cf, key, want)
/* The same in a transaction of its own; a want of NULL for a key that must not be there. */
#define STORED(db, cf, key, want) stored(__FILE__, __LINE__, db, cf, key, want)
void expect(const char *file, int line, txn_t *txn, cf_t *cf, const char *key, const char *want);
void stored(const char *file, int line, db_t *db, cf_t *cf, const char *key, const char *want);

/* All keys of cf in the iterator's order, each followed by a blank. */
#define WALK(db, cf, want) walk(__FILE__, __LINE__, db, cf, want)
void walk(const char *file, int line, db_t *db, cf_t *cf, const char *want);
int count_keys(db_t *db, cf_t *cf);

/* The key at which it stands. */
#define AT(iter, key) at(__FILE__, __LINE__, iter, key)
void at(const char *file, int line, iter_t *iter, const char *key);

/* Writes the memtable out and waits. */
void flush(cf_t *cf);
int tables(cf_t *cf);

void sleep_ms(int ms);
double now_ms(void);

/* Runs body in a child; returns how it ended, as wait() says it. */
int in_child(void (*body)(void *), void *arg);

/* A file of these bytes. */
void write_file(const char *path, const char *text);
char *read_file(const char *path); /* the caller frees it */

#endif
