/*
 * The C interface of TidesDB, C11 and C++.
 *
 * A function that returns int returns TDB_SUCCESS or a negative TDB_ERR_ code, unless it says otherwise. After a failure
 * tidesdb_last_error() has it in words. Out parameters are written on success only, except by tidesdb_open().
 *
 * A handle is no address but a number that the library gave out. A handle that is NULL, freed, of the wrong kind or made
 * up is refused with TDB_ERR_INVALID_ARGS. Databases and column families may be used by all threads; a
 * transaction and an iterator by one at a time: a second one at the same moment waits or gets TDB_ERR_BUSY.
 *
 * Keys, values and names are copied; none of them is kept beyond the call. Keys have 1 byte or more, values 0 or more;
 * a value of 0 bytes may be NULL.
 */
#ifndef TIDESDB_DB_H
#define TIDESDB_DB_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "objstore.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- codes ---- */

#define TDB_SUCCESS 0
/** No memory; a NULL db_path; a read in a finished transaction; a second tidesdb_init(). */
#define TDB_ERR_MEMORY (-1)
/** A NULL, a stale handle, a value out of its domain, an object in the wrong state. */
#define TDB_ERR_INVALID_ARGS (-2)
/** No such key, family, comparator or savepoint; the end of an iteration. */
#define TDB_ERR_NOT_FOUND (-3)
#define TDB_ERR_IO (-4)
/** A checksum or a structure that does not hold; tidesdb_last_error() has the file and the offset. */
#define TDB_ERR_CORRUPTION (-5)
#define TDB_ERR_EXISTS (-6)
/** Another transaction was first; roll back and do it again. */
#define TDB_ERR_CONFLICT (-7)
#define TDB_ERR_TOO_LARGE (-8)
#define TDB_ERR_MEMORY_LIMIT (-9)
/** The database is not open any more. */
#define TDB_ERR_INVALID_DB (-10)
#define TDB_ERR_UNKNOWN (-11)
/** The directory belongs to another open database. */
#define TDB_ERR_LOCKED (-12)
#define TDB_ERR_READONLY (-13)
/** The object is in use by another call: try again. From a commit: writing is held back; roll back and do it all again. */
#define TDB_ERR_BUSY (-14)
#define TDB_ERR_PRECONDITION (-15)

/* ---- limits, in bytes with the final zero ---- */

#define TDB_MAX_COMPARATOR_NAME 64
#define TDB_MAX_COMPARATOR_CTX 256
#define TDB_MAX_CF_NAME_LEN 128

/* ---- enumerations ---- */

typedef enum {
    TDB_LOG_DEBUG = 0,
    TDB_LOG_INFO = 1,
    TDB_LOG_WARN = 2,
    TDB_LOG_ERROR = 3,
    TDB_LOG_FATAL = 4,
    TDB_LOG_NONE = 99
} tidesdb_log_level_t;

/** What a transaction's reads see, and which commits are refused. */
typedef enum {
    TDB_ISOLATION_READ_UNCOMMITTED = 0,
    TDB_ISOLATION_READ_COMMITTED = 1,
    TDB_ISOLATION_REPEATABLE_READ = 2,
    TDB_ISOLATION_SNAPSHOT = 3,
    TDB_ISOLATION_SERIALIZABLE = 4
} tidesdb_isolation_level_t;

typedef enum {
    TDB_COMPRESS_NONE = 0,
    TDB_COMPRESS_SNAPPY = 1,
    TDB_COMPRESS_LZ4 = 2,
    TDB_COMPRESS_ZSTD = 3,
    TDB_COMPRESS_LZ4_FAST = 4
} tidesdb_compression_t;

/** The older name of the type. */
typedef tidesdb_compression_t compression_algorithm;

/** When a commit is on the disk: whenever the system likes, before it returns, or within an interval. */
typedef enum {
    TDB_SYNC_NONE = 0,
    TDB_SYNC_FULL = 1,
    TDB_SYNC_INTERVAL = 2
} tidesdb_sync_mode_t;

/* ---- handles ---- */

typedef struct tidesdb_t tidesdb_t;
typedef struct tidesdb_column_family_t tidesdb_column_family_t;
typedef struct tidesdb_txn_t tidesdb_txn_t;
typedef struct tidesdb_iter_t tidesdb_iter_t;

/* ---- callbacks ---- */

/** Less than, equal to or greater than 0 as key1 comes before, with or after key2. Must be a total order, the same for
 * ever, and callable by any thread. */
typedef int (*tidesdb_comparator_fn)(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                     size_t key2_size, void *ctx);

/** One write of a commit, as its hook sees it; borrowed for the call. */
typedef struct tidesdb_commit_op_t {
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value; /* NULL for a delete */
    size_t value_size;
    time_t ttl;
    int is_delete;
} tidesdb_commit_op_t;

/** Called in the committing thread once a commit is visible, once per family that it wrote, with all
 * operations of the transaction on it, in the order of the calls. What it returns does not change the commit. */
typedef int (*tidesdb_commit_hook_fn)(const tidesdb_commit_op_t *ops, int num_ops,
                                      uint64_t commit_seq, void *ctx);

/* ---- structures ---- */

/** Settings of a column family. Start from tidesdb_default_column_family_config(). */
typedef struct tidesdb_column_family_config_t {
    char name[TDB_MAX_CF_NAME_LEN];
    size_t write_buffer_size;
    size_t level_size_ratio;
    int min_levels;
    int dividing_level_offset;
    size_t klog_value_threshold;
    tidesdb_compression_t compression_algorithm;
    int enable_bloom_filter;
    double bloom_fpr;
    int enable_block_indexes;
    int index_sample_ratio;
    int block_index_prefix_len;
    int sync_mode; /* a tidesdb_sync_mode_t */
    uint64_t sync_interval_us;
    char comparator_name[TDB_MAX_COMPARATOR_NAME];
    char comparator_ctx_str[TDB_MAX_COMPARATOR_CTX];
    void *comparator_fn_cached;
    void *comparator_ctx_cached;
    int skip_list_max_level;
    float skip_list_probability;
    tidesdb_isolation_level_t default_isolation_level;
    uint64_t min_disk_space;
    int l1_file_count_trigger;
    int l0_queue_stall_threshold;
    double tombstone_density_trigger;
    uint64_t tombstone_density_min_entries;
    int use_btree;
    tidesdb_commit_hook_fn commit_hook_fn;
    void *commit_hook_ctx;
    size_t object_target_file_size;
    int object_lazy_compaction;
    int object_prefetch_compaction;
} tidesdb_column_family_config_t;

/** Settings of a database. Start from tidesdb_default_config(). */
typedef struct tidesdb_config_t {
    const char *db_path;
    int num_flush_threads;
    int num_compaction_threads;
    tidesdb_log_level_t log_level;
    size_t block_cache_size;
    size_t max_open_sstables;
    int log_to_file;
    size_t log_truncation_at;
    size_t max_memory_usage;
    int unified_memtable;
    size_t unified_memtable_write_buffer_size;
    int unified_memtable_skip_list_max_level;
    float unified_memtable_skip_list_probability;
    int unified_memtable_sync_mode; /* with unified_memtable the least that every commit gets */
    uint64_t unified_memtable_sync_interval_us;
    tidesdb_objstore_t *object_store;
    tidesdb_objstore_config_t *object_store_config;
    int max_concurrent_flushes;
    int finish_compactions_on_close;
} tidesdb_config_t;

/** Figures of a family. The arrays have num_levels entries, at least 1; entry i is of level i + 1. Entries are versions of keys and
 * tombstones; counts of bytes and events begin with the open. */
typedef struct tidesdb_stats_t {
    int num_levels;
    size_t memtable_size; /* bytes of all memtables */
    size_t *level_sizes; /* bytes of the tables and of their values in value logs */
    int *level_num_sstables;
    tidesdb_column_family_config_t *config;
    uint64_t total_keys; /* entries in tables and memtables */
    uint64_t total_data_size; /* the sum of level_sizes and memtable_size */
    double avg_key_size; /* of the entries in tables, before compression */
    double avg_value_size; /* the same; a tombstone counts as 0 bytes */
    uint64_t *level_key_counts; /* entries */
    double read_amp; /* memtables, tables and levels that a read of one key may look into */
    double hit_rate; /* of the block cache of the database, from 0 to 1 */
    int use_btree; /* as in config; there are no trees: the next three are 0 */
    uint64_t btree_total_nodes;
    uint32_t btree_max_height;
    double btree_avg_height;
    uint64_t total_tombstones; /* in tables */
    double tombstone_ratio; /* total_tombstones by the entries in tables */
    uint64_t *level_tombstone_counts;
    double max_sst_density; /* largest share of tombstones among the entries of one table */
    int max_sst_density_level; /* the level of that table; 0 if no table has a tombstone */
    uint64_t wal_bytes_written; /* what the family put into the log, without headers: user_bytes_written */
    uint64_t flush_bytes_written; /* of tables */
    uint64_t compaction_bytes_written; /* of tables */
    uint64_t compaction_bytes_read; /* of tables */
    uint64_t user_bytes_written; /* of keys and values */
    uint64_t flush_count;
    uint64_t compaction_count;
} tidesdb_stats_t;

/** Figures of the block cache; all 0 when it is off. */
typedef struct tidesdb_cache_stats_t {
    int enabled;
    size_t total_entries; /* blocks */
    size_t total_bytes;
    uint64_t hits;
    uint64_t misses;
    double hit_rate; /* hits by hits and misses, from 0 to 1 */
    size_t num_partitions;
} tidesdb_cache_stats_t;

/** Figures of a database: sums over the caller's families, unless a comment says otherwise. Counts of bytes and events begin
 * with the open. */
typedef struct tidesdb_db_stats_t {
    int num_column_families;
    uint64_t total_memory; /* bytes that this process may use: the machine's or its control group's */
    uint64_t available_memory; /* the part of it that is free */
    size_t resolved_memory_limit; /* of the database: max_memory_usage, or half of total_memory */
    int memory_pressure_level; /* 0; 1 from 60 % of the limit on, 2 from 75 %, 3 from 95 % */
    int flush_pending_count; /* memtables that wait for their flush */
    int64_t total_memtable_bytes;
    int total_immutable_count; /* memtables that wait for their flush */
    int total_sstable_count;
    uint64_t total_data_size_bytes; /* of tables and their values in value logs */
    int num_open_sstables; /* all are open */
    uint64_t global_seq; /* newest sequence number; it grows with each commit, by more than 1 */
    int64_t txn_memory_bytes; /* writes of transactions that have not ended */
    size_t compaction_queue_size; /* families that are being merged */
    size_t flush_queue_size; /* memtables that wait for their flush */
    int unified_memtable_enabled; /* whether the configuration asked for it; if not, the next five are 0 */
    int64_t unified_memtable_bytes;
    int unified_immutable_count;
    int unified_is_flushing;
    uint32_t unified_next_cf_index; /* above the number of every family */
    uint64_t unified_wal_generation; /* number of the log segment that is written to */
    int object_store_enabled; /* whether the configuration has a connector; if not, all up to seen_epoch are 0 or NULL */
    const char *object_store_connector; /* a static string */
    size_t local_cache_bytes_used;
    size_t local_cache_bytes_max;
    int local_cache_num_files;
    uint64_t last_uploaded_generation;
    size_t upload_queue_depth;
    uint64_t total_uploads;
    uint64_t total_upload_failures;
    int replica_mode;
    uint64_t primary_epoch;
    uint64_t seen_epoch;
    uint64_t uwal_bytes_written; /* to the log, with a unified memtable; else 0 */
    uint64_t wal_bytes_written; /* to the log, without a unified memtable; else 0 */
    uint64_t flush_bytes_written;
    uint64_t compaction_bytes_written;
    uint64_t compaction_bytes_read;
    uint64_t user_bytes_written;
    uint64_t flush_count;
    uint64_t compaction_count;
} tidesdb_db_stats_t;

/* ---- the library ---- */

/** The last failure of a call in this thread, in words; "" if there was none. Never NULL; the library's, valid until the
 * next call in this thread. */
const char *tidesdb_last_error(void);

/** 1 if families may use this compression_algorithm, else 0. */
int tidesdb_compression_available(int algorithm);

/** Makes these four functions the ones behind all memory that callers free; one NULL among them stands for libc's four.
 * Before the first tidesdb_open() only, else TDB_ERR_MEMORY. */
int tidesdb_init(void *(*malloc_fn)(size_t), void *(*calloc_fn)(size_t, size_t),
                 void *(*realloc_fn)(void *, size_t), void (*free_fn)(void *));

/** Forgets what tidesdb_init() set, so that it may be called again. Free first what came from those functions. */
void tidesdb_finalize(void);

/** Frees memory that this library handed out: values, names. NULL is fine. */
void tidesdb_free(void *ptr);

/** Raises the process's limit of open files toward desired; returns the limit now in force. 0 and less only ask. */
long tidesdb_raise_open_file_limit(long desired);

/* ---- configuration ---- */

/** Defaults of a database, by value; db_path is a static string. */
tidesdb_config_t tidesdb_default_config(void);

/** Defaults of a family, by value. */
tidesdb_column_family_config_t tidesdb_default_column_family_config(void);

/** Fills config with the defaults and what section of the file overrides; a section that is not there changes nothing.
 * TDB_ERR_IO without the file, TDB_ERR_CORRUPTION if it is no INI file. */
int tidesdb_cf_config_load_from_ini(const char *ini_file, const char *section,
                                    tidesdb_column_family_config_t *config);

/** Writes config as the one section of the file, which is replaced and synced. A comparator name or context that a line cannot
 * hold (control characters, blanks at an end, no UTF-8) is written in hexadecimal under its key with _hex behind it. The
 * section needs a name without "]", control characters and blanks at its ends, else TDB_ERR_INVALID_ARGS. */
int tidesdb_cf_config_save_to_ini(const char *ini_file, const char *section,
                                  const tidesdb_column_family_config_t *config);

/** Changes a live family: all but name, comparator, use_btree and the object_ fields. A NULL hook keeps the present one.
 * With persist the settings outlive the database handle. TDB_ERR_INVALID_ARGS for values out of their domain. */
int tidesdb_cf_update_runtime_config(tidesdb_column_family_t *cf,
                                     const tidesdb_column_family_config_t *config, int persist);

/* ---- databases ---- */

/** Creates or opens the database at config->db_path, whose parent must exist. *db is the caller's until tidesdb_close();
 * it may be NULL after a failure. TDB_ERR_LOCKED while another handle or process has the directory. */
int tidesdb_open(const tidesdb_config_t *config, tidesdb_t **db);

/** Ends the background work, writes what memory holds and frees db with all its families. Transactions and
 * iterators that are still there become stale: only their free functions remain useful. Keys and values that an iterator lent
 * stay readable until tidesdb_iter_free(); so do the memory and the open files behind them. */
int tidesdb_close(tidesdb_t *db);

/** Copies the database into dir, which is created or empty; the copy can be opened. TDB_ERR_EXISTS if it is not empty. */
int tidesdb_backup(tidesdb_t *db, const char *dir);

/** Like tidesdb_backup(), with hard links instead of copies where the file system can. */
int tidesdb_checkpoint(tidesdb_t *db, const char *dir);

/** Flushes and merges all families; complete when it returns. */
int tidesdb_purge(tidesdb_t *db);

/** Stops the merges that run and those to come, and waits for them. For good: until the next tidesdb_open(). */
int tidesdb_cancel_background_work(tidesdb_t *db);

/** TDB_ERR_INVALID_ARGS: there are no replicas here. */
int tidesdb_promote_to_primary(tidesdb_t *db);

/** Fills the caller's structure. */
int tidesdb_get_db_stats(tidesdb_t *db, tidesdb_db_stats_t *stats);

/** Fills the caller's structure. */
int tidesdb_get_cache_stats(tidesdb_t *db, tidesdb_cache_stats_t *stats);

/* ---- comparators ---- */

/** Names an order, before a family that uses it is created or, after a reopening, used. Its families of an earlier run
 * come back with this call. name is 1 to 63 bytes of UTF-8, any of them; ctx_str is kept with the families that use the order,
 * any bytes, cut to 255. ctx must live as long as db. */
int tidesdb_register_comparator(tidesdb_t *db, const char *name, tidesdb_comparator_fn fn,
                                const char *ctx_str, void *ctx);

/** The order of this name; both out parameters may be NULL. TDB_ERR_NOT_FOUND. */
int tidesdb_get_comparator(tidesdb_t *db, const char *name, tidesdb_comparator_fn *fn, void **ctx);

/** Bytes, then length: "memcmp", the order of a family that names none. */
int tidesdb_comparator_memcmp(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                              size_t key2_size, void *ctx);

/** Bytes up to the first zero: "lexicographic". */
int tidesdb_comparator_lexicographic(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                     size_t key2_size, void *ctx);

/** Two keys of 8 bytes as unsigned numbers of this machine, others as bytes: "uint64". */
int tidesdb_comparator_uint64(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                              size_t key2_size, void *ctx);

/** Two keys of 8 bytes as signed numbers of this machine, others as bytes: "int64". */
int tidesdb_comparator_int64(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                             size_t key2_size, void *ctx);

/** The opposite of memcmp: "reverse". */
int tidesdb_comparator_reverse_memcmp(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                      size_t key2_size, void *ctx);

/** Bytes with A to Z like a to z, then length: "case_insensitive". */
int tidesdb_comparator_case_insensitive(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                        size_t key2_size, void *ctx);

/* ---- column families ---- */

/** Creates a family; config is copied. The name is 1 to 127 bytes of UTF-8. TDB_ERR_EXISTS, TDB_ERR_NOT_FOUND for a comparator
 * nobody registered. */
int tidesdb_create_column_family(tidesdb_t *db, const char *name,
                                 const tidesdb_column_family_config_t *config);

/** Deletes a family and its data. Its handles become stale. */
int tidesdb_drop_column_family(tidesdb_t *db, const char *name);

/** Deletes a family by its handle, which becomes stale. */
int tidesdb_delete_column_family(tidesdb_t *db, tidesdb_column_family_t *cf);

/** Renames a family; its handle stays. TDB_ERR_NOT_FOUND, TDB_ERR_EXISTS. */
int tidesdb_rename_column_family(tidesdb_t *db, const char *old_name, const char *new_name);

/** Copies a family under a new name. A transaction older than the copy finds the copy empty. TDB_ERR_NOT_FOUND, TDB_ERR_EXISTS. */
int tidesdb_clone_column_family(tidesdb_t *db, const char *src_name, const char *dst_name);

/** The family of this name, or NULL. The database's: nothing to free. */
tidesdb_column_family_t *tidesdb_get_column_family(tidesdb_t *db, const char *name);

/** All names. The caller frees each of *count strings and the array; *names is NULL if there are none. */
int tidesdb_list_column_families(tidesdb_t *db, char ***names, int *count);

/** Sets what is called after commits that write to cf; NULL for nothing. ctx must outlive its use. */
int tidesdb_cf_set_commit_hook(tidesdb_column_family_t *cf, tidesdb_commit_hook_fn fn, void *ctx);

/** Begins to write the memtable to a table and returns. */
int tidesdb_flush_memtable(tidesdb_column_family_t *cf);

/** 1 while a memtable is being written, else 0. */
int tidesdb_is_flushing(tidesdb_column_family_t *cf);

/** 1 while tables are being merged, else 0. */
int tidesdb_is_compacting(tidesdb_column_family_t *cf);

/** Merges the whole family; done when it returns. */
int tidesdb_compact(tidesdb_column_family_t *cf);

/** Merges what holds keys of [start, end]; NULL with size 0 leaves one side open, not both. */
int tidesdb_compact_range(tidesdb_column_family_t *cf, const uint8_t *start_key,
                          size_t start_key_size, const uint8_t *end_key, size_t end_key_size);

/** Flushes and merges a family; complete when it returns. */
int tidesdb_purge_cf(tidesdb_column_family_t *cf);

/** Makes all commits so far durable. */
int tidesdb_sync_wal(tidesdb_column_family_t *cf);

/** Figures of a family, in memory that tidesdb_free_stats() frees. */
int tidesdb_get_stats(tidesdb_column_family_t *cf, tidesdb_stats_t **stats);

/** Frees what tidesdb_get_stats() gave. NULL is fine. */
void tidesdb_free_stats(tidesdb_stats_t *stats);

/** At most so many different keys are in cf. */
int tidesdb_cf_estimate_cardinality(tidesdb_column_family_t *cf, uint64_t *cardinality);

/** The cost of a walk between two keys, in either order: a number to compare with others of its kind, 0 or more. */
int tidesdb_range_cost(tidesdb_column_family_t *cf, const uint8_t *key_a, size_t key_a_size,
                       const uint8_t *key_b, size_t key_b_size, double *cost);

/* ---- transactions ---- */

/** Begins a transaction at READ_COMMITTED. The caller frees it with tidesdb_txn_free(). */
int tidesdb_txn_begin(tidesdb_t *db, tidesdb_txn_t **txn);

/** Begins a transaction. The caller frees it with tidesdb_txn_free(). */
int tidesdb_txn_begin_with_isolation(tidesdb_t *db, tidesdb_isolation_level_t isolation,
                                     tidesdb_txn_t **txn);

/** Puts a pair; ttl is the second of the UNIX epoch at which it expires, 0 or less for never. */
int tidesdb_txn_put(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                    size_t key_size, const uint8_t *value, size_t value_size, time_t ttl);

/** The value of a key, in memory that the caller frees with tidesdb_free() or, without tidesdb_init(), free().
 * TDB_ERR_NOT_FOUND; TDB_ERR_MEMORY if txn is finished. */
int tidesdb_txn_get(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                    size_t key_size, uint8_t **value, size_t *value_size);

/** Like tidesdb_txn_get(), but the read does not count at the commit. */
int tidesdb_txn_get_notrack(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                            size_t key_size, uint8_t **value, size_t *value_size);

/** TDB_SUCCESS if the key is there, TDB_ERR_NOT_FOUND if not; the read does not count at the commit. */
int tidesdb_txn_contains(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                         size_t key_size);

/** Deletes a key, be it there or not. */
int tidesdb_txn_delete(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                       size_t key_size);

/** Deletes a key that was put at most once since its last delete. */
int tidesdb_txn_single_delete(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                              size_t key_size);

/** Makes all writes visible, or none. After a failure the transaction is still open: roll it back. */
int tidesdb_txn_commit(tidesdb_txn_t *txn);

/** Drops all writes. Twice is fine; after a commit TDB_ERR_INVALID_ARGS. */
int tidesdb_txn_rollback(tidesdb_txn_t *txn);

/** Makes a new transaction of one that is finished or wrote nothing. */
int tidesdb_txn_reset(tidesdb_txn_t *txn, tidesdb_isolation_level_t isolation);

/** Frees a transaction; one that is open is rolled back. NULL is fine. */
void tidesdb_txn_free(tidesdb_txn_t *txn);

/** Marks a place to roll back to; a name that is there moves. */
int tidesdb_txn_savepoint(tidesdb_txn_t *txn, const char *name);

/** Drops the writes since the savepoint, that savepoint and the later ones. TDB_ERR_NOT_FOUND if no savepoint has the name. */
int tidesdb_txn_rollback_to_savepoint(tidesdb_txn_t *txn, const char *name);

/** Forgets one savepoint and keeps the writes. */
int tidesdb_txn_release_savepoint(tidesdb_txn_t *txn, const char *name);

/* ---- iterators ---- */

/*
 * Key and value pointers are lent by the iterator. They are valid until the same iterator moves (seek, next, prev) or is
 * freed, whichever comes first: not when its transaction commits, ends or is freed, not when the family changes or is
 * dropped, and not when another thread closes the database. Copy what must live longer.
 */

/** An iterator over cf as txn sees it, nowhere at first. The caller frees it with tidesdb_iter_free(). */
int tidesdb_iter_new(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, tidesdb_iter_t **iter);

/** Goes to the first key not before this one. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek(tidesdb_iter_t *iter, const uint8_t *key, size_t key_size);

/** Goes to the last key not after this one. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek_for_prev(tidesdb_iter_t *iter, const uint8_t *key, size_t key_size);

/** Goes to the first key, from wherever it is. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek_to_first(tidesdb_iter_t *iter);

/** Goes to the last key, from wherever it is. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek_to_last(tidesdb_iter_t *iter);

/** Steps on. TDB_ERR_NOT_FOUND when it leaves the last key, TDB_ERR_INVALID_ARGS if it is nowhere. */
int tidesdb_iter_next(tidesdb_iter_t *iter);

/** Steps back. TDB_ERR_NOT_FOUND when it leaves the first key, TDB_ERR_INVALID_ARGS if it is nowhere. */
int tidesdb_iter_prev(tidesdb_iter_t *iter);

/** 1 if it is at a key, else 0. */
int tidesdb_iter_valid(tidesdb_iter_t *iter);

/** The key it is at; the iterator's, until it moves or is freed. */
int tidesdb_iter_key(tidesdb_iter_t *iter, uint8_t **key, size_t *key_size);

/** The value it is at; the iterator's, until it moves or is freed. */
int tidesdb_iter_value(tidesdb_iter_t *iter, uint8_t **value, size_t *value_size);

/** The pair it is at; the iterator's, until it moves or is freed. */
int tidesdb_iter_key_value(tidesdb_iter_t *iter, uint8_t **key, size_t *key_size, uint8_t **value,
                           size_t *value_size);

/** Frees an iterator. NULL is fine. */
void tidesdb_iter_free(tidesdb_iter_t *iter);

/* ---- what a binary relies on, where pointers have 8 bytes ---- */

#ifdef __cplusplus
#define TDB_ABI_SIZE(type, size) static_assert(sizeof(void *) != 8 || sizeof(type) == (size), #type)
#else
#define TDB_ABI_SIZE(type, size) \
    _Static_assert(sizeof(void *) != 8 || sizeof(type) == (size), #type)
#endif
TDB_ABI_SIZE(tidesdb_column_family_config_t, 624);
TDB_ABI_SIZE(tidesdb_config_t, 128);
TDB_ABI_SIZE(tidesdb_stats_t, 224);
TDB_ABI_SIZE(tidesdb_cache_stats_t, 56);
TDB_ABI_SIZE(tidesdb_db_stats_t, 304);
TDB_ABI_SIZE(tidesdb_commit_op_t, 48);
TDB_ABI_SIZE(tidesdb_objstore_config_t, 96);
TDB_ABI_SIZE(tidesdb_objstore_s3_config_t, 88);
TDB_ABI_SIZE(tidesdb_objstore_t, 88);
#undef TDB_ABI_SIZE

#ifdef __cplusplus
}
#endif

#endif
