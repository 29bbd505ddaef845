/* Shorthands of the tests of tidesdb/extended.h. */
#ifndef EXTENDED_TESTS_H
#define EXTENDED_TESTS_H

#include "../kit/store.h"

/* A database with an empty family. */
struct shop {
    db_t *db;
    cf_t *cf;
};

struct shop open_shop(void);

/* Puts a row without a transaction. */
void x_put(cf_t *cf, const char *key, const char *value);

/* Checks the value of a key; NULL if it must be missing. options may be NULL. */
#define X_GET(cf, options, key, want) x_get(__FILE__, __LINE__, cf, options, key, want)
void x_get(const char *file, int line, cf_t *cf, const tidesdb_x_read_options_t *options, const char *key, const char *want);

/* Checks the rows up to the end, "key=value " each, read rows_max at a time. */
#define X_NEXT(iter, rows_max, want) x_walk(__FILE__, __LINE__, iter, 1, rows_max, want)
#define X_PREV(iter, rows_max, want) x_walk(__FILE__, __LINE__, iter, 0, rows_max, want)
void x_walk(const char *file, int line, tidesdb_x_iter_t *iter, int forwards, size_t rows_max, const char *want);

/* Checks all rows of a family as options see it. */
#define X_ROWS(cf, options, want) x_rows(__FILE__, __LINE__, cf, options, want)
void x_rows(const char *file, int line, cf_t *cf, const tidesdb_x_read_options_t *options, const char *want);

/* The value of a figure of the database, such as durable_end. */
uint64_t figure(db_t *db, const char *name);

/* Bytes of memory of this process that are not of files. */
long anonymous_memory(void);

#endif
