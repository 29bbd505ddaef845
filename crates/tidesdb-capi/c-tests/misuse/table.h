/* Functions as data, so that loops can call each of them with whatever they like. */
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
    int weight; /* how often random calls take it; 0 for what ends or copies the world */
    long (*call)(union arg *args);
};

extern const struct row rows[];
extern const int row_count;

/* A database in full use, and a second one. */
struct world {
    db_t *db, *other_db;
    cf_t *cf, *other_cf;
    txn_t *txn;
    iter_t *iter;
    uint64_t outputs[MAX_ARGS];
};

void build(struct world *world);
void tear_down(struct world *world);

/* Arguments with which the call would be right; outputs are filled with a mark. */
void right_args(struct world *world, const struct row *row, union arg *args);

/* What a handle of this kind is in the world. */
void *handle_of(const struct world *world, char kind);

int is_handle(char kind);
int is_pointer(char kind);

/* Whether no output was written. */
int untouched(const struct world *world);

/* Frees what a successful call gave. */
void release(struct world *world, const struct row *row, const union arg *args, long result);

/* What the functions must say to a bad argument: the code, no effect. */
void refused(struct world *world, const struct row *row, long result, const char *why);

void nothing(void);
int any_order(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx);
int any_hook(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx);

#endif
