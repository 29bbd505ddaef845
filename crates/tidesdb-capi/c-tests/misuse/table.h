/* Functions as data, so that loops can call each of them with any arguments. */
#ifndef MISUSE_TABLE_H
#define MISUSE_TABLE_H

#include "../kit/store.h"

enum { MAX_ARGS = 8 };

union arg {
    void *p;
    size_t n;
    void (*f)(void);
};

struct row {
    const char *name;
    char result;
    const char *kinds, *nulls;
    char release;
    int weight; /* how often random calls choose it; 0 for functions that close or copy the database */
    long (*call)(union arg *args);
};

extern const struct row rows[];
extern const int row_count;

/* A database with all kinds of handles, and a second one. */
struct world {
    db_t *db, *other_db;
    cf_t *cf, *other_cf;
    txn_t *txn;
    iter_t *iter;
    uint64_t outputs[MAX_ARGS];
};

void build(struct world *world);
void tear_down(struct world *world);

/* Sets valid arguments for the call; outputs are filled with a mark. */
void right_args(struct world *world, const struct row *row, union arg *args);

/* Returns the handle of this kind in the world. */
void *handle_of(const struct world *world, char kind);

int is_handle(char kind);
int is_pointer(char kind);

/* Returns whether no output was written. */
int untouched(const struct world *world);

/* Frees the results of a successful call. */
void release(struct world *world, const struct row *row, const union arg *args, long result);

/* Checks the result for a bad argument: the expected code, and no output written. */
void refused(struct world *world, const struct row *row, long result, const char *why);

void nothing(void);
int any_order(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx);
int any_hook(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx);

#endif
