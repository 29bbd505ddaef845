/*
 * The extended C interface of TidesDB: what the engine does beyond the interface of libtidesdb 9.3, which db.h declares. In the same
 * library; its functions are called tidesdb_x_.
 *
 * Sections: structures; opening; many databases in one process; families; writes; transactions; batches; reads; iterators; snapshots; values piece by piece; merge
 * operators; figures; a reader beside the writer; commits in the background; tables of sorted rows; backups by generations.
 *
 * The rules are those of db.h: codes, tidesdb_last_error(), handles, threads, out parameters that are written on success only. In addition:
 *
 * Structures that a caller passes have their size as first field, set to sizeof, and may get more fields at their end in later versions. A
 * structure filled with zeros except for its size has all defaults, and NULL stands for such a structure. A field that the library does not know
 * must be 0. Structures in arrays of results, and tidesdb_x_tables_t, have no size and keep their layout.
 *
 * A buffer belongs to the caller, must not overlap another argument, and may be NULL if its capacity is 0. If it is too short, the call
 * returns TDB_ERR_TOO_LARGE and writes the size that it needs, and nothing else: the exception to the rule on out parameters.
 *
 * A range of keys goes from start, included, to end, not included, in the order of the family. An end with size 0 is no limit.
 *
 * Sequence numbers number the commits. The parameter seq receives that of the commit and may be NULL.
 */
#ifndef TIDESDB_EXTENDED_H
#define TIDESDB_EXTENDED_H

#include "db.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- codes, besides those of db.h ---- */

/** The merge operator of a key failed or is not registered; other keys can be read. */
#define TDB_X_ERR_MERGE (-100)

/* ---- handles ---- */

typedef struct tidesdb_x_batch_t tidesdb_x_batch_t;
typedef struct tidesdb_x_iter_t tidesdb_x_iter_t;
typedef struct tidesdb_x_snapshot_t tidesdb_x_snapshot_t;
typedef struct tidesdb_x_reader_t tidesdb_x_reader_t;
typedef struct tidesdb_x_value_reader_t tidesdb_x_value_reader_t;
typedef struct tidesdb_x_value_writer_t tidesdb_x_value_writer_t;
typedef struct tidesdb_x_builder_t tidesdb_x_builder_t;
typedef struct tidesdb_x_backups_t tidesdb_x_backups_t;
typedef struct tidesdb_x_resources_t tidesdb_x_resources_t;

/* ---- callbacks ---- */

/*
 * A callback may be called by any thread, by several at a time, until tidesdb_close() of its database has returned; those of a reader, until the
 * reader and all its views are closed. It must return, without an exception or longjmp. It must not close the database: TDB_ERR_BUSY.
 */

/** Combines a value with an operand, or an operand with the next newer one: appends the result with tidesdb_x_result_append() and returns 0. Any
 * other number is a failure: reads of the key return TDB_X_ERR_MERGE, and the value and its operands stay as they are. It must be associative,
 * and its result must depend on nothing but the two. Like a comparator it may only read. */
typedef int (*tidesdb_x_merge_fn)(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx);

/** Checks an operand before it is written: returns 0, or any other number to refuse it with TDB_ERR_INVALID_ARGS. */
typedef int (*tidesdb_x_check_fn)(const uint8_t *operand, size_t operand_size, void *ctx);

/** Kinds of operations of tidesdb_x_batch_add() and of commit hooks, and what their key and value are. */
enum {
    TDB_X_OP_PUT = 0,
    TDB_X_OP_DELETE = 1,        /* the value is empty */
    TDB_X_OP_SINGLE_DELETE = 2, /* the value is empty */
    TDB_X_OP_MERGE = 3,         /* the value is the operand */
    TDB_X_OP_DELETE_RANGE = 4,  /* the key is the start, the value the end; empty: no limit */
    TDB_X_OP_DELETE_PREFIX = 5, /* the key is the prefix, the value is empty */
    TDB_X_OP_PUT_STREAM = 6     /* in commit hooks only */
};

/** Answers of a filter. */
enum {
    TDB_X_FILTER_KEEP = 0,
    TDB_X_FILTER_REMOVE = 1,
    TDB_X_FILTER_CHANGE = 2 /* the value becomes what was appended with tidesdb_x_result_append() */
};

/** Decides about a row that a merge of tables rewrites. value is NULL if the value lies in a value log, which a merge does not read;
 * expires_at_ms is 0 if the row never expires. Snapshots that show the row may keep it. Like a comparator it may only read. */
typedef int (*tidesdb_x_filter_fn)(const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, uint64_t expires_at_ms,
                                   void *ctx);

/** An operation of a commit, for a hook. kind is one of TDB_X_OP_: put, delete (also of tidesdb_x_single_delete), merge, delete range (also of a
 * prefix), put stream. Of a range, key is the start and value the end; an empty one is no limit. Of a streamed value there is only the size. */
typedef struct tidesdb_x_commit_op_t {
    int kind;
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value;
    uint64_t value_size;
    uint64_t expires_at_ms; /* 0: never */
} tidesdb_x_commit_op_t;

/** Called after a commit, with its operations on the family, in the order of the calls. A result that is not 0 is logged. */
typedef int (*tidesdb_x_commit_hook_fn)(const tidesdb_x_commit_op_t *ops, size_t count, uint64_t seq, void *ctx);

/** Receives the result of a commit: code and message are those of tidesdb_x_batch_write(), seq is 0 after a failure. message is valid until it
 * returns. It may call the library, but other commits wait for it. */
typedef void (*tidesdb_x_committed_fn)(int code, uint64_t seq, const char *message, void *ctx);

/* ---- structures ---- */

/** Flags of a read. A function that does not take a flag refuses it with TDB_ERR_INVALID_ARGS. KEYS_ONLY is for iterators, tidesdb_x_first() and
 * tidesdb_x_last(); tidesdb_x_contains(), tidesdb_x_multi_contains() and tidesdb_x_expiry() take it and read no value anyway. UNTRACKED is for
 * tidesdb_x_get() and tidesdb_x_contains(). */
enum {
    TDB_X_KEYS_ONLY = 1, /* no values: their sizes are 0, and none is read from disk */
    TDB_X_UNTRACKED = 2  /* the commit of the transaction does not depend on this read of one key */
};

/** What a read sees: the newest commits, or txn, which includes its own writes, or snapshot. */
typedef struct tidesdb_x_read_options_t {
    size_t size;
    tidesdb_txn_t *txn;
    tidesdb_x_snapshot_t *snapshot;
    unsigned flags;
} tidesdb_x_read_options_t;

/** When a commit is durable; tidesdb_sync_mode_t has other numbers, because 0 is the default here. */
enum {
    TDB_X_SYNC_DEFAULT = 0, /* as the settings of the written families say */
    TDB_X_SYNC_NONE = 1,
    TDB_X_SYNC_FULL = 2,
    TDB_X_SYNC_INTERVAL = 3 /* within sync_interval_us */
};

/** Flags of a write. */
enum {
    TDB_X_NEVER_EXPIRES = 1 /* whatever the default of the family */
};

/** How to write. At most one of ttl_ms, expires_at_ms and TDB_X_NEVER_EXPIRES is set, and only for a put. Without any, the row expires as
 * the default_ttl_ms of its family says. */
typedef struct tidesdb_x_write_options_t {
    size_t size;
    int sync_mode;
    unsigned flags;
    uint64_t sync_interval_us;
    uint64_t ttl_ms;
    uint64_t expires_at_ms; /* UNIX time; a moment in the past is allowed */
} tidesdb_x_write_options_t;

/** Bytes in a buffer. */
typedef struct tidesdb_x_span_t {
    size_t offset; /* TDB_X_NONE: there is no such key */
    size_t size;
} tidesdb_x_span_t;

#define TDB_X_NONE SIZE_MAX

/** A row in a buffer: its value follows its key. */
typedef struct tidesdb_x_row_t {
    size_t offset; /* of the key */
    size_t key_size;
    size_t value_size;
} tidesdb_x_row_t;

/** A merge operator of the program. */
typedef struct tidesdb_x_merge_operator_t {
    size_t size;
    const char *name; /* 1 to 255 bytes of UTF-8, stored with the families that use it; not "tidesdb." at its beginning */
    tidesdb_x_merge_fn merge;
    tidesdb_x_check_fn check; /* may be NULL: every operand is valid */
    void *ctx;
} tidesdb_x_merge_operator_t;

/** A comparator of the program: see tidesdb_register_comparator(). */
typedef struct tidesdb_x_comparator_t {
    size_t size;
    const char *name;
    tidesdb_comparator_fn compare;
    void *ctx;
} tidesdb_x_comparator_t;

/** Flags of an open. */
enum {
    TDB_X_READ_ONLY = 1, /* writes are TDB_ERR_READONLY; nothing on disk changes */
    TDB_X_MUST_EXIST = 2, /* TDB_ERR_NOT_FOUND if there is no database */
    TDB_X_MUST_BE_NEW = 4 /* TDB_ERR_EXISTS if there is one */
};

/** How to open a database. Names are copied. */
typedef struct tidesdb_x_open_options_t {
    size_t size;
    const tidesdb_config_t *config; /* required */
    const tidesdb_x_comparator_t *comparators;
    size_t comparator_count;
    const tidesdb_x_merge_operator_t *merge_operators;
    size_t merge_operator_count;
    uint64_t history_bytes; /* how far back tidesdb_x_snapshot_at() can read, in bytes of log written since */
    unsigned flags;
    tidesdb_x_resources_t *resources; /* shared with other databases; NULL: its own */
} tidesdb_x_open_options_t;

/** The settings of a new family. */
typedef struct tidesdb_x_family_options_t {
    size_t size;
    const tidesdb_column_family_config_t *config; /* NULL: the defaults */
    const char *merge_operator; /* its name, or NULL. Built in: tidesdb.add (64-bit integers), tidesdb.max, tidesdb.min, "tidesdb.append:" and a separator */
    uint64_t default_ttl_ms;    /* after which rows expire that are put without an expiry by a tidesdb_x_ function; 0: never */
} tidesdb_x_family_options_t;

/* ---- opening ---- */

/** Like tidesdb_open(), with merge operators, comparators and more. A family whose merge operator is not among them can be used, but its
 * merges, and reads of keys with operands, return TDB_X_ERR_MERGE. tidesdb_close() closes it. */
int tidesdb_x_open(const tidesdb_x_open_options_t *options, tidesdb_t **db);

/* ---- many databases in one process ---- */

/*
 * Databases that are opened with the same resources have one limit for their memory, one block cache and one set of threads, in place of
 * max_memory_usage, block_cache_size and the numbers of threads of each. See docs/how-to/many-databases.md.
 */

/** What several databases share. The caller sets size, and 0 for the defaults. */
typedef struct tidesdb_x_resources_options_t {
    size_t size;
    uint64_t memory_limit; /* 0: half of the memory of the machine or the control group */
    uint64_t cache_bytes;  /* 0: 64 MiB */
    uint64_t descriptors;  /* files open for reading; 0: the budget of the process */
    uint64_t compaction_bytes_per_second; /* of all merges; 0: no limit */
    uint64_t threads; /* that flush and merge, 2 to 256, 1 is taken as 2; 0: the number of cores, at least 4 and at most 16 */
} tidesdb_x_resources_options_t;

/** What they use now. The caller sets size; fields that it does not have are left out. */
typedef struct tidesdb_x_resources_use_t {
    size_t size;
    uint64_t memory_limit;
    uint64_t memory_used;
    uint64_t cache_used; /* of it, by the block cache and open tables */
    uint64_t databases;
    uint64_t threads; /* that have started */
} tidesdb_x_resources_use_t;

/** Makes resources for any number of databases. options may be NULL. The caller frees the handle. */
int tidesdb_x_resources_new(const tidesdb_x_resources_options_t *options, tidesdb_x_resources_t **resources);

/** Returns what the databases use. */
int tidesdb_x_resources_use(tidesdb_x_resources_t *resources, tidesdb_x_resources_use_t *use);

/** Limits what the merges of all databases together may write per second; 0: no limit. Running merges adapt at once. */
int tidesdb_x_resources_set_compaction_rate(tidesdb_x_resources_t *resources, uint64_t bytes_per_second);

/** Frees the handle. Open databases keep what they share; the threads end with the last of them. NULL is allowed. */
void tidesdb_x_resources_free(tidesdb_x_resources_t *resources);

/** Removes the database at path: its own files, and the folder, if nothing else is in it. TDB_ERR_LOCKED if it is open; TDB_ERR_NOT_FOUND if there is
 * none; TDB_ERR_CORRUPTION if another program wrote the file CURRENT there: nothing is removed. */
int tidesdb_x_destroy(const char *path);

/* ---- families ---- */

/** Creates a family, and returns its handle as tidesdb_get_column_family() does; cf may be NULL. TDB_ERR_NOT_FOUND for an unknown operator or
 * comparator; otherwise as tidesdb_create_column_family(). */
int tidesdb_x_create_family(tidesdb_t *db, const char *name, const tidesdb_x_family_options_t *options, tidesdb_column_family_t **cf);

/** Returns a setting of a family by its name: see docs/reference/options.md. */
int tidesdb_x_family_get(tidesdb_column_family_t *cf, const char *name, uint64_t *value);

/** Changes a setting that tidesdb_column_family_config_t does not have: table_bytes, vlog_file_bytes, value_garbage_percent, default_ttl (in
 * milliseconds), tiered_runs_max. With persist it is stored in the database, else it is in force until the close. */
int tidesdb_x_family_set(tidesdb_column_family_t *cf, const char *name, uint64_t value, int persist);

/** Sets the function that is called after commits that write to cf, in the place of any other hook; NULL removes it. Unlike that of
 * tidesdb_cf_set_commit_hook(), it also sees merges, deletes of ranges and streamed values, but not the rows of tables. The rules are the same. */
int tidesdb_x_set_commit_hook(tidesdb_column_family_t *cf, tidesdb_x_commit_hook_fn fn, void *ctx);

/** Sets the function that decides about the rows that merges of tables rewrite from now on; NULL removes it. It is not stored. When this returns,
 * the old function does not run, unless the call came from within a callback. */
int tidesdb_x_set_filter(tidesdb_column_family_t *cf, tidesdb_x_filter_fn fn, void *ctx);

/** Flushes the memtables of cf, and waits until that is done. */
int tidesdb_x_flush(tidesdb_column_family_t *cf);

/** Merges the tables that hold keys of a range, and waits until that is done. Unlike tidesdb_compact_range(), without its end. */
int tidesdb_x_compact_range(tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size);

/** Limits what merges of tables write; 0: no limit. */
int tidesdb_x_set_compaction_rate(tidesdb_t *db, uint64_t bytes_per_second);

/* ---- writes without a transaction ---- */

/** Puts a row. */
int tidesdb_x_put(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                  const tidesdb_x_write_options_t *options, uint64_t *seq);

/** Deletes a key, whether or not it exists. */
int tidesdb_x_delete(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const tidesdb_x_write_options_t *options,
                     uint64_t *seq);

/** Deletes a key that was put at most once since its last delete. */
int tidesdb_x_single_delete(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                            const tidesdb_x_write_options_t *options, uint64_t *seq);

/** Adds an operand for the merge operator of the family. TDB_ERR_INVALID_ARGS if the family has none, or if its check refuses the operand;
 * TDB_X_ERR_MERGE if the operator is not registered. */
int tidesdb_x_merge(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *operand, size_t operand_size,
                    const tidesdb_x_write_options_t *options, uint64_t *seq);

/** Deletes all keys of a range at the cost of one put. */
int tidesdb_x_delete_range(tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size,
                           const tidesdb_x_write_options_t *options, uint64_t *seq);

/** Deletes all keys that begin with prefix at the cost of one put. TDB_ERR_INVALID_ARGS if the order of the family may put other keys
 * between them. */
int tidesdb_x_delete_prefix(tidesdb_column_family_t *cf, const uint8_t *prefix, size_t prefix_size,
                            const tidesdb_x_write_options_t *options, uint64_t *seq);

/** Sets the value of a key to new if it is expected, and sets *swapped to 1; else changes nothing and sets it to 0. expected NULL: there is no
 * such key. new NULL: delete the key. So an empty value must not be NULL here. */
int tidesdb_x_compare_and_swap(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *expected,
                               size_t expected_size, const uint8_t *new_value, size_t new_size,
                               const tidesdb_x_write_options_t *options, int *swapped);

/** Puts a row and copies the old value into buffer. *old receives its size; its offset is 0, or TDB_X_NONE if there was no such key. If the old
 * value does not fit, nothing changes. */
int tidesdb_x_replace(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                      const tidesdb_x_write_options_t *options, uint8_t *buffer, size_t capacity, tidesdb_x_span_t *old);

/** Deletes a key and copies its value into buffer. TDB_ERR_NOT_FOUND if there is no such key. If the value does not fit, nothing changes. */
int tidesdb_x_take(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const tidesdb_x_write_options_t *options,
                   uint8_t *buffer, size_t capacity, size_t *value_size);

/** Deletes the first row and copies it into buffer. Threads that do this at once get different rows. TDB_ERR_NOT_FOUND if the family is empty. If
 * the row does not fit, nothing changes. */
int tidesdb_x_pop_first(tidesdb_column_family_t *cf, const tidesdb_x_write_options_t *options, uint8_t *buffer, size_t capacity,
                        tidesdb_x_row_t *row);

/** Like tidesdb_x_pop_first(), for the last row. */
int tidesdb_x_pop_last(tidesdb_column_family_t *cf, const tidesdb_x_write_options_t *options, uint8_t *buffer, size_t capacity,
                       tidesdb_x_row_t *row);

/* ---- writes in a transaction; db.h has the others ---- */

/** Puts a row. The sync mode is given to the commit. */
int tidesdb_x_txn_put(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *value,
                      size_t value_size, const tidesdb_x_write_options_t *options);

/** As tidesdb_x_merge(). */
int tidesdb_x_txn_merge(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *operand,
                        size_t operand_size);

/** As tidesdb_x_delete_range(). */
int tidesdb_x_txn_delete_range(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size,
                               const uint8_t *end, size_t end_size);

/** As tidesdb_x_delete_prefix(). */
int tidesdb_x_txn_delete_prefix(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *prefix, size_t prefix_size);

/** Like tidesdb_txn_commit(), with a sync mode. */
int tidesdb_x_txn_commit(tidesdb_txn_t *txn, const tidesdb_x_write_options_t *options, uint64_t *seq);

/* ---- batches ---- */

/*
 * A batch collects writes to any families of a database and commits all of them or none. It reads nothing and has no conflicts. One thread
 * uses it at a time.
 */

/** Creates an empty batch. The caller frees it with tidesdb_x_batch_free(). */
int tidesdb_x_batch_new(tidesdb_t *db, tidesdb_x_batch_t **batch);

/** Adds a put. The sync mode is given to the commit. */
int tidesdb_x_batch_put(tidesdb_x_batch_t *batch, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const uint8_t *value,
                        size_t value_size, const tidesdb_x_write_options_t *options);

/** Adds a delete. */
int tidesdb_x_batch_delete(tidesdb_x_batch_t *batch, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size);

/** Adds a merge: see tidesdb_x_merge(). */
int tidesdb_x_batch_merge(tidesdb_x_batch_t *batch, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                          const uint8_t *operand, size_t operand_size);

/** Adds a delete of a range: see tidesdb_x_delete_range(). */
int tidesdb_x_batch_delete_range(tidesdb_x_batch_t *batch, tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size,
                                 const uint8_t *end, size_t end_size);

/** Adds many operations in one call. Operation i is of the kind kinds[i]; with kinds NULL all are puts. bytes has the keys and values one after
 * the other, key and value of an operation together; their sizes are sizes[2 * i] and sizes[2 * i + 1]. options is for the puts. After a
 * failure, which names the operation, the batch has a part of the operations and cannot be committed: clear it. */
int tidesdb_x_batch_add(tidesdb_x_batch_t *batch, tidesdb_column_family_t *cf, const uint8_t *kinds, const uint8_t *bytes,
                        const size_t *sizes, size_t count, const tidesdb_x_write_options_t *options);

/** Returns the number of operations and the bytes that they take. Both out parameters may be NULL. */
int tidesdb_x_batch_size(tidesdb_x_batch_t *batch, size_t *count, size_t *bytes);

/** Removes all operations. The memory is kept for the next ones. */
int tidesdb_x_batch_clear(tidesdb_x_batch_t *batch);

/** Commits the batch, which is empty afterwards. After a failure nothing was written, and it keeps its operations. An empty batch is a commit,
 * too: with TDB_X_SYNC_FULL, all commits before it are durable when the call returns. */
int tidesdb_x_batch_write(tidesdb_x_batch_t *batch, const tidesdb_x_write_options_t *options, uint64_t *seq);

/** Frees a batch. NULL is allowed. */
void tidesdb_x_batch_free(tidesdb_x_batch_t *batch);

/* ---- reads ---- */

/** Copies the value of a key into buffer. TDB_ERR_NOT_FOUND if there is none; TDB_ERR_TOO_LARGE, with its size in *value_size, if it is
 * longer than capacity. */
int tidesdb_x_get(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const tidesdb_x_read_options_t *options,
                  uint8_t *buffer, size_t capacity, size_t *value_size);

/** Returns TDB_SUCCESS if the key exists, TDB_ERR_NOT_FOUND if not. */
int tidesdb_x_contains(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const tidesdb_x_read_options_t *options);

/** Copies the values of count keys into buffer. keys has the keys one after the other, key_sizes their sizes. spans, of count elements,
 * receives where each value is; *needed the bytes of all values. All values are of one moment. */
int tidesdb_x_multi_get(tidesdb_column_family_t *cf, const uint8_t *keys, const size_t *key_sizes, size_t count,
                        const tidesdb_x_read_options_t *options, uint8_t *buffer, size_t capacity, tidesdb_x_span_t *spans,
                        size_t *needed);

/** Sets found[i] to 1 if key i exists, else to 0. The keys are given as for tidesdb_x_multi_get(). */
int tidesdb_x_multi_contains(tidesdb_column_family_t *cf, const uint8_t *keys, const size_t *key_sizes, size_t count,
                             const tidesdb_x_read_options_t *options, uint8_t *found);

/** Copies the first row of the family into buffer. TDB_ERR_NOT_FOUND if it is empty; TDB_ERR_TOO_LARGE, with the sizes in *row, if the
 * row is longer than capacity. */
int tidesdb_x_first(tidesdb_column_family_t *cf, const tidesdb_x_read_options_t *options, uint8_t *buffer, size_t capacity,
                    tidesdb_x_row_t *row);

/** Like tidesdb_x_first(), for the last row. */
int tidesdb_x_last(tidesdb_column_family_t *cf, const tidesdb_x_read_options_t *options, uint8_t *buffer, size_t capacity,
                   tidesdb_x_row_t *row);

/** Returns the moment at which a row expires, in UNIX milliseconds; 0 = never. TDB_ERR_NOT_FOUND if there is no such key. */
int tidesdb_x_expiry(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const tidesdb_x_read_options_t *options,
                     uint64_t *expires_at_ms);

/* ---- iterators ---- */

/*
 * An iterator shows the rows of a range as they were when it was created. In a transaction they include the writes that it has made before; those
 * that it makes later, or undoes, may or may not be shown, key by key: a new iterator shows them. With TDB_ISOLATION_READ_UNCOMMITTED commits of
 * others may appear, too.
 *
 * It stands between two rows: next returns the rows after it and moves over them, prev returns the rows before it, the nearest first, and
 * moves back over them. A new iterator stands before the first row for next, and after the last one for prev.
 *
 * TDB_ERR_NOT_FOUND means that there is no further row. After any other failure it has not moved, except over a row with TDB_X_ERR_MERGE, and
 * after a failure to read the same call fails again until the next seek.
 */

/** Creates an iterator over a range of keys. The caller frees it with tidesdb_x_iter_free(). */
int tidesdb_x_iter_new(tidesdb_column_family_t *cf, const tidesdb_x_read_options_t *options, const uint8_t *start, size_t start_size,
                       const uint8_t *end, size_t end_size, tidesdb_x_iter_t **iter);

/** Creates an iterator over the keys that begin with prefix. TDB_ERR_INVALID_ARGS if the order of the family may put other keys between them. */
int tidesdb_x_iter_new_prefix(tidesdb_column_family_t *cf, const tidesdb_x_read_options_t *options, const uint8_t *prefix,
                              size_t prefix_size, tidesdb_x_iter_t **iter);

/** Moves before the first key of the range at or after key; with size 0, before the first one. */
int tidesdb_x_iter_seek(tidesdb_x_iter_t *iter, const uint8_t *key, size_t key_size);

/** Moves after the last key of the range at or before key; with size 0, after the last one. */
int tidesdb_x_iter_seek_for_prev(tidesdb_x_iter_t *iter, const uint8_t *key, size_t key_size);

/** Copies the next rows into buffer, at most rows_max, and where they are into rows, which has rows_max elements. *count receives their number.
 * If it ends because the next row did not fit, *needed receives the size of that row, else 0; needed may be NULL. TDB_ERR_TOO_LARGE, with
 * *needed, if not even one row fits. */
int tidesdb_x_iter_next(tidesdb_x_iter_t *iter, uint8_t *buffer, size_t capacity, tidesdb_x_row_t *rows, size_t rows_max, size_t *count,
                        size_t *needed);

/** Like tidesdb_x_iter_next(), for the rows before the iterator, in descending order. */
int tidesdb_x_iter_prev(tidesdb_x_iter_t *iter, uint8_t *buffer, size_t capacity, tidesdb_x_row_t *rows, size_t rows_max, size_t *count,
                        size_t *needed);

/** Returns the next rows in memory of the iterator: at most rows_max, and at most bytes_max bytes unless the first is longer. *bytes and *rows are
 * valid until the next call with this iterator, also if another thread closes the database. */
int tidesdb_x_iter_lend_next(tidesdb_x_iter_t *iter, size_t rows_max, size_t bytes_max, const uint8_t **bytes,
                             const tidesdb_x_row_t **rows, size_t *count);

/** Like tidesdb_x_iter_lend_next(), for the rows before the iterator, in descending order. */
int tidesdb_x_iter_lend_prev(tidesdb_x_iter_t *iter, size_t rows_max, size_t bytes_max, const uint8_t **bytes,
                             const tidesdb_x_row_t **rows, size_t *count);

/** Frees an iterator. NULL is allowed. */
void tidesdb_x_iter_free(tidesdb_x_iter_t *iter);

/* ---- snapshots ---- */

/** Creates a snapshot of all families as they are now. It keeps the versions that it shows on disk. The caller frees it with
 * tidesdb_x_snapshot_free(). Any number of threads may use it at a time. */
int tidesdb_x_snapshot_new(tidesdb_t *db, tidesdb_x_snapshot_t **snapshot);

/** Creates a snapshot of the database as the commit with this sequence number left it. TDB_ERR_INVALID_ARGS if that is not kept any more: see
 * history_bytes of tidesdb_x_open_options_t. */
int tidesdb_x_snapshot_at(tidesdb_t *db, uint64_t seq, tidesdb_x_snapshot_t **snapshot);

/** Returns the sequence number of the last commit that it shows. */
int tidesdb_x_snapshot_seq(tidesdb_x_snapshot_t *snapshot, uint64_t *seq);

/** Frees a snapshot. NULL is allowed. */
void tidesdb_x_snapshot_free(tidesdb_x_snapshot_t *snapshot);

/* ---- values piece by piece ---- */

/*
 * A value of up to 4 TiB is written and read in constant memory. One thread uses a reader or a writer at a time.
 */

/** Creates a writer of the value of a key. The caller frees it with tidesdb_x_value_writer_free(). */
int tidesdb_x_value_writer_new(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                               const tidesdb_x_write_options_t *options, tidesdb_x_value_writer_t **writer);

/** Appends bytes to the value. After a failure the value cannot be committed. */
int tidesdb_x_value_writer_write(tidesdb_x_value_writer_t *writer, const uint8_t *bytes, size_t size);

/** Puts the value. The writer has ended then, also after a failure: free it. */
int tidesdb_x_value_writer_commit(tidesdb_x_value_writer_t *writer, uint64_t *seq);

/** Adds the put to a transaction. The writer has ended then. */
int tidesdb_x_value_writer_join(tidesdb_x_value_writer_t *writer, tidesdb_txn_t *txn);

/** Frees a writer; a value that was neither committed nor joined is discarded. NULL is allowed. */
void tidesdb_x_value_writer_free(tidesdb_x_value_writer_t *writer);

/** Creates a reader of a value as it is now, whatever is written later. *value_size, which may be NULL as a parameter, receives its size.
 * TDB_ERR_NOT_FOUND if there is no such key. */
int tidesdb_x_value_reader_new(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                               const tidesdb_x_read_options_t *options, tidesdb_x_value_reader_t **reader, uint64_t *value_size);

/** Copies the next bytes of the value. *size receives their number: less than capacity at the end of the value only, 0 after it. */
int tidesdb_x_value_reader_read(tidesdb_x_value_reader_t *reader, uint8_t *buffer, size_t capacity, size_t *size);

/** Moves to an offset, and reads from there. */
int tidesdb_x_value_reader_read_at(tidesdb_x_value_reader_t *reader, uint64_t offset, uint8_t *buffer, size_t capacity, size_t *size);

/** Frees a reader. NULL is allowed. */
void tidesdb_x_value_reader_free(tidesdb_x_value_reader_t *reader);

/* ---- merge operators and filters ---- */

/** Appends bytes to the result of the merge operator or filter that runs in this thread. TDB_ERR_INVALID_ARGS outside of one. */
int tidesdb_x_result_append(const uint8_t *bytes, size_t size);

/* ---- figures ---- */

/*
 * The names of the figures are those of docs/operate/monitoring.md. New versions add figures and groups, so a program looks for the names that
 * it knows. Results are one piece of memory that the caller frees with tidesdb_free(): an array, and the texts that it points to.
 */

/** A figure. */
typedef struct tidesdb_x_figure_t {
    const char *group; /* "database", "family", "tree", "level", "operation", "stall", "remote" */
    const char *of;    /* the name of the family, of the operation, or of the cause of the stalls; else "" */
    const char *name;
    const char *unit; /* "count", "bytes", "seconds", "share", "ratio" */
    int level;        /* 1 and more: the figure is of this level of the tree; else 0 */
    int is_counter;   /* 1: it only grows while the database is open */
    uint64_t number;  /* the value, rounded down */
    double real;      /* the value */
} tidesdb_x_figure_t;

/** Returns all figures of a database and its families. */
int tidesdb_x_figures(tidesdb_t *db, tidesdb_x_figure_t **figures, size_t *count);

/** The state of a database. The caller sets size; fields that it does not have are left out. */
typedef struct tidesdb_x_health_t {
    size_t size;
    int state;      /* 0: healthy, 1: degraded, 2: it takes no writes until it is opened again */
    int was_closed; /* 1: the last process closed it */
    uint64_t recovered_commits; /* by the open, from the log */
    uint64_t recovered_log_bytes;
    uint64_t discarded_commits; /* behind damage in the log */
} tidesdb_x_health_t;

/** Returns the state of a database, and in *causes, which may be NULL as a parameter, why it is so, one cause a line. The caller frees *causes
 * with tidesdb_free(). */
int tidesdb_x_health(tidesdb_t *db, tidesdb_x_health_t *health, char **causes);

/** What tidesdb_x_verify() has read. The caller sets size; fields that it does not have are left out. */
typedef struct tidesdb_x_verified_t {
    size_t size;
    uint64_t tables;
    uint64_t value_logs;
    uint64_t entries;
    uint64_t unflushed; /* entries in memory, which were not verified */
    uint64_t faults;
} tidesdb_x_verified_t;

/** Reads all tables and value logs and checks every checksum. *faults, which may be NULL as a parameter, receives what is wrong, one fault a line
 * with its file and offset; the caller frees it with tidesdb_free(). TDB_SUCCESS also if there are faults. */
int tidesdb_x_verify(tidesdb_t *db, tidesdb_x_verified_t *verified, char **faults);

/** Returns the figures as text in the format OpenMetrics 1.0, which Prometheus reads. The caller frees it with tidesdb_free(). */
int tidesdb_x_metrics(tidesdb_t *db, char **text);

/** What is known of a process that writes a database. */
enum {
    TDB_X_WRITER_RUNNING = 0,
    TDB_X_WRITER_IDLE = 1,     /* it has had nothing to do since */
    TDB_X_WRITER_STOPPED = 2,  /* by a signal or a debugger */
    TDB_X_WRITER_CLOSED = 3,   /* it has closed the database */
    TDB_X_WRITER_ENDED = 4,    /* without closing the database */
    TDB_X_WRITER_REBOOTED = 5, /* it ended so, and the machine was started again */
    TDB_X_WRITER_UNKNOWN = 6
};

/** The process that writes a database. The caller sets size; fields that it does not have are left out. */
typedef struct tidesdb_x_writer_t {
    size_t size;
    int state;
    uint32_t process;
    uint64_t age_ms;      /* of the figures */
    uint64_t open_for_ms; /* how long the database had been open then */
    uint64_t written_ms;  /* when they were published, in UNIX time */
} tidesdb_x_writer_t;

/** Returns the figures that another process has published last, at most a few seconds ago while it works, without opening the database.
 * TDB_ERR_NOT_FOUND if there is no database at path, or no process has published any. */
int tidesdb_x_writer_figures(const char *path, tidesdb_x_writer_t *writer, tidesdb_x_figure_t **figures, size_t *count);

/** A finding of the doctor. */
typedef struct tidesdb_x_finding_t {
    int severity; /* 0: urgent, 1: a problem, 2: advice */
    const char *rule;
    const char *what;
    const char *evidence; /* the figures, one a line */
    const char *cause;
    const char *advice;
    const char *price; /* of following the advice */
} tidesdb_x_finding_t;

/** Returns what the doctor finds in the figures of a database, the most severe first. */
int tidesdb_x_diagnose(tidesdb_t *db, tidesdb_x_finding_t **findings, size_t *count);

/** The same in the figures of another process: see tidesdb_x_writer_figures(). */
int tidesdb_x_writer_diagnose(const char *path, tidesdb_x_finding_t **findings, size_t *count);

/** Explains the look-up of a key: where it looked, what it read, which versions there are. The text is for people: its form may change in any
 * version. The caller frees it with tidesdb_free(). Reads of a transaction are not explained. */
int tidesdb_x_explain(tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, const tidesdb_x_read_options_t *options,
                      char **text);

/** Explains a scan of a range, of at most rows_max rows: see tidesdb_x_explain(). */
int tidesdb_x_explain_range(tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size,
                            size_t rows_max, const tidesdb_x_read_options_t *options, char **text);

/* ---- a reader beside the writer ---- */

/*
 * A reader shows a database that another process, or another handle of this one, has open for writing. It takes no lock, changes nothing on
 * disk, and costs the writer nothing. Any number of threads may use it at a time.
 */

/** Opens a reader. Of the settings it uses db_path, max_memory_usage, block_cache_size, log_level, the comparators and the merge operators. The
 * caller closes it with tidesdb_x_reader_close(). */
int tidesdb_x_reader_open(const tidesdb_x_open_options_t *options, tidesdb_x_reader_t **reader);

/** Returns a view of the database as it is now: a handle that never shows later commits and refuses writes with TDB_ERR_READONLY, for all
 * functions that read. The caller closes it with tidesdb_close(), before or after the reader. Families belong to their view. */
int tidesdb_x_reader_refresh(tidesdb_x_reader_t *reader, tidesdb_t **view);

/** Closes a reader, after calls of other threads. Its views stay. */
int tidesdb_x_reader_close(tidesdb_x_reader_t *reader);

/* ---- commits in the background ---- */

/** Commits a batch, which is empty afterwards, in a thread of the library, and passes the result to committed. After TDB_SUCCESS, committed is
 * called exactly once, before tidesdb_close() of the database returns, which commits what is queued; after a failure it is not called. Batches are
 * committed in the order of the calls; those that wait share a sync, and take memory of the database: additions to batches return
 * TDB_ERR_MEMORY_LIMIT if there is none left. */
int tidesdb_x_batch_write_async(tidesdb_x_batch_t *batch, const tidesdb_x_write_options_t *options, tidesdb_x_committed_fn committed,
                                void *ctx);

/* ---- tables of sorted rows ---- */

/*
 * The fastest way to load much data: rows that come in the order of their keys are written to tables, past the log, and taken all at once, as one
 * commit. Reads and other writes go on meanwhile. See docs/how-to/bulk-load.md.
 */

/** What was taken. The caller sets size; fields that it does not have are left out. */
typedef struct tidesdb_x_ingested_t {
    size_t size;
    uint64_t seq; /* of the commit; 0 if there was nothing to take */
    uint64_t tables;
    uint64_t rows; /* deletes included */
    uint64_t bytes;
} tidesdb_x_ingested_t;

/** Begins to write rows for a family. With stem they go to files of the program, stem-000001.klog and so on, for families of this order and
 * merge operator in any database; its folder must exist. With NULL they go to the folder of the database, for tidesdb_x_builder_commit(). The caller frees the builder. */
int tidesdb_x_builder_new(tidesdb_column_family_t *cf, const char *stem, tidesdb_x_builder_t **builder);

/** Adds a row, behind all rows so far: TDB_ERR_INVALID_ARGS if its key does not come after them. Of options, the expiry counts. */
int tidesdb_x_builder_put(tidesdb_x_builder_t *builder, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                          const tidesdb_x_write_options_t *options);

/** Adds many rows in one call: see tidesdb_x_batch_add(). Each key has one operation: put, delete or merge. Deletes of ranges may come at any time
 * and delete what is older than the tables. A failure names the operation; those before it were added. */
int tidesdb_x_builder_add(tidesdb_x_builder_t *builder, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count,
                          const tidesdb_x_write_options_t *options);

/** Completes the tables of a builder with a stem, makes them durable and returns their paths, in one array that the caller frees with
 * tidesdb_free(). Long values lie in files beside them: path.vlog. After a failure no file is left. */
int tidesdb_x_builder_finish(tidesdb_x_builder_t *builder, const char ***paths, size_t *count);

/** Takes the rows of a builder without a stem as one commit, which no commit hook sees. taken may be NULL. The builder has ended then, also after a
 * failure: nothing was taken, unless the sync of the log failed, which the next open decides. */
int tidesdb_x_builder_commit(tidesdb_x_builder_t *builder, const tidesdb_x_write_options_t *options, tidesdb_x_ingested_t *taken);

/** Frees a builder. One that was not finished or committed leaves no file. */
void tidesdb_x_builder_free(tidesdb_x_builder_t *builder);

/** How files come into the folder of the database. */
enum {
    TDB_X_COPY = 0,
    TDB_X_LINK = 1, /* the program and the database share them: nobody may change them later */
    TDB_X_MOVE = 2  /* they lose their names; the commit is synced in any case */
};

/** Tables for a family, oldest first. */
typedef struct tidesdb_x_tables_t {
    tidesdb_column_family_t *cf;
    const char *const *paths;
    size_t count;
} tidesdb_x_tables_t;

/** Takes tables of count families as one commit. transfer is one of TDB_X_COPY, TDB_X_LINK, TDB_X_MOVE; the last two need the same file system. Every
 * byte of the files is checked first: TDB_ERR_CORRUPTION for damage and for files that no builder wrote. Of options, the sync mode counts. taken
 * may be NULL. No commit hook sees the rows. After a failure nothing was taken, unless the sync of the log failed (TDB_ERR_IO, and the database takes
 * no more writes): then the next open decides, and linked and moved files must stay as they are. */
int tidesdb_x_ingest(tidesdb_t *db, const tidesdb_x_tables_t *tables, size_t count, int transfer, const tidesdb_x_write_options_t *options,
                     tidesdb_x_ingested_t *taken);

/* ---- backups by generations ---- */

/*
 * A directory with generations of one or several databases. Each is a whole backup; what they have in common is stored once. The handle may be used
 * by any number of threads. One handle at a time may change the directory, of all processes: the next one that does takes over, and changes by the
 * one before return TDB_ERR_LOCKED until it is opened again. See docs/how-to/backup.md.
 */

/** A generation. */
typedef struct tidesdb_x_generation_t {
    uint64_t number;
    uint64_t created_ms; /* UNIX time */
    uint64_t seq;        /* of its last commit */
    uint64_t files;
    uint64_t bytes;
    uint64_t bytes_copied; /* by its creation; the rest was there */
    uint64_t proven_ms;    /* when it was last restored and compared; 0: never */
    int is_proven;         /* 1: the rows were those of the database */
    const char *database;  /* identity of the database */
} tidesdb_x_generation_t;

/** Receives the progress of a backup. It must not close the database: TDB_ERR_BUSY. */
typedef void (*tidesdb_x_progress_fn)(uint64_t bytes_done, uint64_t bytes_total, void *ctx);

/** Asked after each piece of a backup, and now and then while it waits for its rate or a proof compares rows: another result than 0 ends the call with TDB_ERR_BUSY. As above. */
typedef int (*tidesdb_x_stop_fn)(void *ctx);

/** How to make a generation, or how to read one. */
typedef struct tidesdb_x_backup_options_t {
    size_t size;
    const char *scratch; /* a new or empty folder in which the new generation is restored and compared; NULL: it is not */
    uint64_t bytes_per_second; /* 0: no limit */
    tidesdb_x_progress_fn progress;
    void *ctx;
    tidesdb_x_stop_fn stop;
} tidesdb_x_backup_options_t;

/** Opens the backups in a directory, which is created if it is missing. The caller frees the handle. */
int tidesdb_x_backups_open(const char *directory, tidesdb_x_backups_t **backups);

/** Opens the backups in a store: an unchanged result of tidesdb_objstore_fs_create(), tidesdb_objstore_s3_create() or
 * tidesdb_objstore_s3_create_config(). After success the store belongs to the handle; if this fails, you still own it. */
int tidesdb_x_backups_open_store(tidesdb_objstore_t *store, tidesdb_x_backups_t **backups);

/** Makes a generation of a database, beside its readers and writers; copies what the directory lacks. number may be NULL. If it could not be
 * proven, or the proof was stopped, this fails, and the generation stays, with is_proven 0: tidesdb_x_backups_list() has its number. */
int tidesdb_x_backups_create(tidesdb_x_backups_t *backups, tidesdb_t *db, const tidesdb_x_backup_options_t *options, uint64_t *number);

/** Returns all generations, oldest first, in one array that the caller frees with tidesdb_free(). */
int tidesdb_x_backups_list(tidesdb_x_backups_t *backups, tidesdb_x_generation_t **generations, size_t *count);

/** Reads every byte of a generation. faults receives the number of faults, text, which may be NULL, their descriptions, one a line: the caller
 * frees it with tidesdb_free(). */
int tidesdb_x_backups_verify(tidesdb_x_backups_t *backups, uint64_t number, uint64_t *faults, char **text);

/** As tidesdb_x_backups_verify(), with a rate, progress and a way to end it. options may be NULL; its scratch must be. */
int tidesdb_x_backups_verify_with(tidesdb_x_backups_t *backups, uint64_t number, const tidesdb_x_backup_options_t *options, uint64_t *faults,
                                  char **text);

/** Restores a generation to path, which must not exist or be empty. */
int tidesdb_x_backups_restore(tidesdb_x_backups_t *backups, uint64_t number, const char *path);

/** As tidesdb_x_backups_restore(), with a rate, progress and a way to end it, which leaves no file in path. options may be NULL; its scratch must be. */
int tidesdb_x_backups_restore_with(tidesdb_x_backups_t *backups, uint64_t number, const char *path, const tidesdb_x_backup_options_t *options);

/** Removes a generation, and what no other one needs. */
int tidesdb_x_backups_delete(tidesdb_x_backups_t *backups, uint64_t number);

/** Removes the generations of each database but the last keep_last, those younger than keep_younger_ms, and the newest that is proven. A policy that keeps
 * nothing is TDB_ERR_INVALID_ARGS. removed may be NULL. */
int tidesdb_x_backups_prune(tidesdb_x_backups_t *backups, uint64_t keep_last, uint64_t keep_younger_ms, size_t *removed);

/** Makes the list of generations anew from what the directory holds, if it was lost or damaged. found, which may be NULL, receives their number. */
int tidesdb_x_backups_repair(tidesdb_x_backups_t *backups, size_t *found);

/** Frees the handle. The generations stay. */
void tidesdb_x_backups_free(tidesdb_x_backups_t *backups);

#ifdef __cplusplus
}
#endif

#endif
