/*
 * The C interface of TidesDB, for C11 and C++.
 *
 * A function that returns int returns TDB_SUCCESS or a negative TDB_ERR_ code, unless documented otherwise. After a
 * failure, tidesdb_last_error() returns a message. Out parameters are written on success only, except by tidesdb_open().
 *
 * A handle is not an address but a number assigned by the library. A handle that is NULL, freed, of the wrong kind or
 * invented is refused with TDB_ERR_INVALID_ARGS. Databases and column families may be used by any number of threads at
 * a time, a transaction or an iterator by one: a second thread waits or gets TDB_ERR_BUSY. A function that frees one never waits: the
 * handle is stale at once, and if a call is using the object, of another thread or the one that runs the calling hook or
 * comparator, the object ends with that call.
 *
 * Keys, values and names are copied; the library keeps no pointer to them after the call. Keys have 1 byte or more,
 * values 0 or more; a value of 0 bytes may be NULL.
 *
 * A thread that calls the library needs a stack of 128 KiB, and more for what hooks and comparators use. It must not be cancelled
 * (pthread_cancel) or end (pthread_exit) inside of a call, a hook or a comparator: that ends the process.
 *
 * A path is what the system takes: any bytes on Unix. On Windows it is UTF-8, whatever the code page, with / or \ between its
 * parts.
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
/** Out of memory; a NULL db_path; a read in a finished transaction; a second tidesdb_init(). */
#define TDB_ERR_MEMORY (-1)
/** A NULL pointer, a stale handle, an invalid value, or an object in the wrong state. */
#define TDB_ERR_INVALID_ARGS (-2)
/** No such key, family, comparator or savepoint; the end of an iteration. */
#define TDB_ERR_NOT_FOUND (-3)
#define TDB_ERR_IO (-4)
/** A checksum or structure on disk is wrong; tidesdb_last_error() names the file and the offset. */
#define TDB_ERR_CORRUPTION (-5)
#define TDB_ERR_EXISTS (-6)
/** Another transaction committed first: roll back and run the transaction again. */
#define TDB_ERR_CONFLICT (-7)
#define TDB_ERR_TOO_LARGE (-8)
#define TDB_ERR_MEMORY_LIMIT (-9)
/** The database is no longer open. */
#define TDB_ERR_INVALID_DB (-10)
#define TDB_ERR_UNKNOWN (-11)
/** The directory is locked by another open database. */
#define TDB_ERR_LOCKED (-12)
#define TDB_ERR_READONLY (-13)
/** The object is in use by another call: try again. From a commit: writes are stalled; roll back and run the transaction
 * again. */
#define TDB_ERR_BUSY (-14)
#define TDB_ERR_PRECONDITION (-15)

/** Seconds of UNIX time, with 64 bits. Where pointers have 4 bytes, time_t may have 32. */
#if UINTPTR_MAX > 0xFFFFFFFFu
#define TDB_TIME_T time_t
#else
#define TDB_TIME_T int64_t
#endif

/* ---- limits, in bytes including the terminating zero ---- */

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

/** Which data the reads of a transaction see, and which commits fail. */
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

/** Older name of the type. */
typedef tidesdb_compression_t compression_algorithm;

/** When a commit is durable: whenever the system writes it, before the commit returns, or within an interval. */
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

/** Returns less than, equal to or greater than 0 if key1 sorts before, equal to or after key2. Must be a total order that
 * never changes, and callable by any thread. */
typedef int (*tidesdb_comparator_fn)(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                     size_t key2_size, void *ctx);

/** One write of a commit, passed to its hook; valid during the call. */
typedef struct tidesdb_commit_op_t {
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value; /* NULL for a delete */
    size_t value_size;
    TDB_TIME_T ttl;
    int is_delete;
} tidesdb_commit_op_t;

/** Called in the committing thread after a commit is visible, once per family that it wrote, with all operations of the
 * transaction on that family in the order of the calls. The return value does not change the commit. A hook must not wait for a
 * thread that closes the database, or removes or replaces the hook, or drops its family: that thread waits for the hook. */
typedef int (*tidesdb_commit_hook_fn)(const tidesdb_commit_op_t *ops, int num_ops,
                                      uint64_t commit_seq, void *ctx);

/* ---- structures ---- */

/** Settings of a column family. Start from tidesdb_default_column_family_config(). */
typedef struct tidesdb_column_family_config_t {
    char name[TDB_MAX_CF_NAME_LEN];
    size_t write_buffer_size; /* more than an eighth of the memory limit has the effect of that eighth */
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
    int unified_memtable_sync_mode; /* with unified_memtable: the minimum for every commit */
    uint64_t unified_memtable_sync_interval_us;
    tidesdb_objstore_t *object_store;
    tidesdb_objstore_config_t *object_store_config;
    int max_concurrent_flushes;
    int finish_compactions_on_close;
} tidesdb_config_t;

/** Statistics of a family. The arrays have num_levels elements, at least 1; element i describes level i + 1. Entries are
 * versions of keys and tombstones. Counts of bytes and events start at 0 when the database is opened. */
typedef struct tidesdb_stats_t {
    int num_levels;
    size_t memtable_size; /* bytes of all memtables */
    size_t *level_sizes; /* bytes of the tables and of their values in value logs */
    int *level_num_sstables;
    tidesdb_column_family_config_t *config;
    uint64_t total_keys; /* entries in tables and memtables */
    uint64_t total_data_size; /* sum of level_sizes and memtable_size */
    double avg_key_size; /* of the entries in tables, before compression */
    double avg_value_size; /* likewise; a tombstone counts as 0 bytes */
    uint64_t *level_key_counts; /* entries */
    double read_amp; /* memtables, tables and levels that a read of one key may search */
    double hit_rate; /* of the block cache of the database, from 0 to 1 */
    int use_btree; /* as in config; there are no B+trees, so the next three are 0 */
    uint64_t btree_total_nodes;
    uint32_t btree_max_height;
    double btree_avg_height;
    uint64_t total_tombstones; /* in tables */
    double tombstone_ratio; /* total_tombstones divided by the entries in tables */
    uint64_t *level_tombstone_counts;
    double max_sst_density; /* largest share of tombstones among the entries of one table */
    int max_sst_density_level; /* the level of that table; 0 if no table has a tombstone */
    uint64_t wal_bytes_written; /* bytes of the family in the log, without headers: same as user_bytes_written */
    uint64_t flush_bytes_written; /* of tables */
    uint64_t compaction_bytes_written; /* of tables */
    uint64_t compaction_bytes_read; /* of tables */
    uint64_t user_bytes_written; /* of keys and values */
    uint64_t flush_count;
    uint64_t compaction_count;
} tidesdb_stats_t;

/** Statistics of the block cache; all 0 if it is off. */
typedef struct tidesdb_cache_stats_t {
    int enabled;
    size_t total_entries; /* blocks */
    size_t total_bytes;
    uint64_t hits;
    uint64_t misses;
    double hit_rate; /* hits divided by hits plus misses, from 0 to 1 */
    size_t num_partitions;
} tidesdb_cache_stats_t;

/** Statistics of a database: sums over the caller's families, unless a comment says otherwise. Counts of bytes and events
 * start at 0 when the database is opened. */
typedef struct tidesdb_db_stats_t {
    int num_column_families;
    uint64_t total_memory; /* bytes that this process may use: limit of the machine or of its control group */
    uint64_t available_memory; /* free part of total_memory */
    size_t resolved_memory_limit; /* limit of the database: max_memory_usage, or half of total_memory */
    int memory_pressure_level; /* 0; 1 from 60 % of the limit, 2 from 75 %, 3 from 95 % */
    int flush_pending_count; /* immutable memtables, not flushed yet */
    int64_t total_memtable_bytes;
    int total_immutable_count; /* immutable memtables, not flushed yet */
    int total_sstable_count;
    uint64_t total_data_size_bytes; /* of tables and their values in value logs */
    int num_open_sstables; /* all are open */
    uint64_t global_seq; /* newest visible sequence number; each commit raises it by more than 1 */
    int64_t txn_memory_bytes; /* writes of transactions that have not ended */
    size_t compaction_queue_size; /* families that are being merged */
    size_t flush_queue_size; /* immutable memtables, not flushed yet */
    int unified_memtable_enabled; /* 1 if set in the configuration; if 0, the next five are 0 */
    int64_t unified_memtable_bytes;
    int unified_immutable_count;
    int unified_is_flushing;
    uint32_t unified_next_cf_index; /* greater than the number of every family */
    uint64_t unified_wal_generation; /* number of the log segment that is written to */
    int object_store_enabled; /* 1 if a connector is configured; if 0, all up to seen_epoch are 0 or NULL */
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
    uint64_t uwal_bytes_written; /* to the log, if the memtable is unified; else 0 */
    uint64_t wal_bytes_written; /* to the log, if the memtable is not unified; else 0 */
    uint64_t flush_bytes_written;
    uint64_t compaction_bytes_written;
    uint64_t compaction_bytes_read;
    uint64_t user_bytes_written;
    uint64_t flush_count;
    uint64_t compaction_count;
} tidesdb_db_stats_t;

/* ---- the library ---- */

/** Returns the message of the last failed call in this thread, or "" if there was none. Never NULL. The library owns the
 * string; it is valid until the next call in this thread. */
const char *tidesdb_last_error(void);

/** Returns 1 if families may use this compression_algorithm, else 0. */
int tidesdb_compression_available(int algorithm);

/** Sets the four functions that manage all memory that callers free. If one of them is NULL, libc's four are used. Only
 * before the first tidesdb_open(); otherwise TDB_ERR_MEMORY. */
int tidesdb_init(void *(*malloc_fn)(size_t), void *(*calloc_fn)(size_t, size_t),
                 void *(*realloc_fn)(void *, size_t), void (*free_fn)(void *));

/** Undoes tidesdb_init(), which may then be called again. Before that, free all memory that came from its functions. */
void tidesdb_finalize(void);

/** Frees memory that this library returned: values, names. NULL is allowed. On Windows a program may have another C library with
 * memory of its own, whose free() does not take it: call this one. */
void tidesdb_free(void *ptr);

/** Raises the process's limit of open files toward desired. Returns the resulting limit. With 0 or less, only returns
 * the limit. LONG_MAX if there is none, as on Windows. */
long tidesdb_raise_open_file_limit(long desired);

/* ---- configuration ---- */

/** Returns the default settings of a database, by value; db_path is a static string. */
tidesdb_config_t tidesdb_default_config(void);

/** Returns the default settings of a family, by value. */
tidesdb_column_family_config_t tidesdb_default_column_family_config(void);

/** Fills config with the defaults, overridden by a section of the file. A missing section overrides nothing. TDB_ERR_IO if
 * the file cannot be read, TDB_ERR_CORRUPTION if it is not a valid INI file. */
int tidesdb_cf_config_load_from_ini(const char *ini_file, const char *section,
                                    tidesdb_column_family_config_t *config);

/** Writes config as the only section of the file, which is replaced and synced. A comparator name or context that a line
 * cannot hold (control characters, blanks at an end, not UTF-8) is written in hexadecimal, under its key with the suffix
 * _hex. TDB_ERR_INVALID_ARGS if the section name is empty or contains "]", control characters or blanks at an end. */
int tidesdb_cf_config_save_to_ini(const char *ini_file, const char *section,
                                  const tidesdb_column_family_config_t *config);

/** Changes all settings of an open family except name, comparator, use_btree and the object_ fields. A NULL hook keeps
 * the current one. With persist, the settings are stored in the database. TDB_ERR_INVALID_ARGS for invalid values. */
int tidesdb_cf_update_runtime_config(tidesdb_column_family_t *cf,
                                     const tidesdb_column_family_config_t *config, int persist);

/* ---- databases ---- */

/** Opens the database at config->db_path, or creates it; the parent directory must exist. The caller closes *db with
 * tidesdb_close(); after a failure *db may be NULL. TDB_ERR_LOCKED if another handle or process has the directory open. */
int tidesdb_open(const tidesdb_config_t *config, tidesdb_t **db);

/** Stops background work, flushes the memtables and frees db with all its families. Remaining transactions and iterators
 * become stale: only their free functions may be called. Keys and values returned by an iterator stay readable until
 * tidesdb_iter_free(); until then their memory and open files are kept as well. Waits for calls of other threads on db and its handles.
 * When this returns, whatever it returns besides TDB_ERR_INVALID_ARGS and TDB_ERR_BUSY, no hook, comparator or connector function of
 * db runs or will be called: their contexts may be freed. TDB_ERR_BUSY inside of such a function; TDB_ERR_INVALID_ARGS if db is stale
 * or another thread closes it. */
int tidesdb_close(tidesdb_t *db);

/** Copies the database into dir, which is created if missing. The copy can be opened. TDB_ERR_EXISTS if dir is not empty: if it
 * contains a file, a folder or anything else. */
int tidesdb_backup(tidesdb_t *db, const char *dir);

/** Like tidesdb_backup(), but with hard links instead of copies where the file system supports them. */
int tidesdb_checkpoint(tidesdb_t *db, const char *dir);

/** Flushes and merges all families. Waits until that is done. */
int tidesdb_purge(tidesdb_t *db);

/** Stops running and future merges, and waits until they have ended. Lasts until the next tidesdb_open(). */
int tidesdb_cancel_background_work(tidesdb_t *db);

/** Always returns TDB_ERR_INVALID_ARGS: replicas are not supported. */
int tidesdb_promote_to_primary(tidesdb_t *db);

/** Fills the caller's structure. */
int tidesdb_get_db_stats(tidesdb_t *db, tidesdb_db_stats_t *stats);

/** Fills the caller's structure. */
int tidesdb_get_cache_stats(tidesdb_t *db, tidesdb_cache_stats_t *stats);

/* ---- comparators ---- */

/** Registers a comparator. It must be registered before a family that uses it is created, and again after each
 * tidesdb_open(). The registration of the last comparator that the families need recovers the database and makes it usable; it fails
 * as tidesdb_open() would, and then the database must be closed. name has 1 to 63 bytes of UTF-8.
 * ctx_str may have any bytes; it is cut to 255 and stored with the families that use the comparator. ctx must live until
 * tidesdb_close() has returned. */
int tidesdb_register_comparator(tidesdb_t *db, const char *name, tidesdb_comparator_fn fn,
                                const char *ctx_str, void *ctx);

/** Finds a comparator by name; both out parameters may be NULL. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_get_comparator(tidesdb_t *db, const char *name, tidesdb_comparator_fn *fn, void **ctx);

/** "memcmp": compares bytes, then length. The default comparator. */
int tidesdb_comparator_memcmp(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                              size_t key2_size, void *ctx);

/** "lexicographic": compares bytes up to the first zero. */
int tidesdb_comparator_lexicographic(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                     size_t key2_size, void *ctx);

/** "uint64": compares two keys of 8 bytes as unsigned integers in native byte order, other keys as bytes. */
int tidesdb_comparator_uint64(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                              size_t key2_size, void *ctx);

/** "int64": compares two keys of 8 bytes as signed integers in native byte order, other keys as bytes. */
int tidesdb_comparator_int64(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                             size_t key2_size, void *ctx);

/** "reverse": the reverse of "memcmp". */
int tidesdb_comparator_reverse_memcmp(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                      size_t key2_size, void *ctx);

/** "case_insensitive": compares bytes with A to Z equal to a to z, then length. */
int tidesdb_comparator_case_insensitive(const uint8_t *key1, size_t key1_size, const uint8_t *key2,
                                        size_t key2_size, void *ctx);

/* ---- column families ---- */

/** Creates a family; config is copied. The name has 1 to 127 bytes of UTF-8. TDB_ERR_EXISTS if the name is in use,
 * TDB_ERR_NOT_FOUND if the comparator is not registered. */
int tidesdb_create_column_family(tidesdb_t *db, const char *name,
                                 const tidesdb_column_family_config_t *config);

/** Deletes a family and its data. Its handles become stale. When this returns, its hook does not run any more, unless the call
 * came from a hook, comparator or connector. */
int tidesdb_drop_column_family(tidesdb_t *db, const char *name);

/** Deletes a family by its handle, which becomes stale. */
int tidesdb_delete_column_family(tidesdb_t *db, tidesdb_column_family_t *cf);

/** Renames a family; its handle stays valid. The same name changes nothing. TDB_ERR_NOT_FOUND, TDB_ERR_EXISTS. */
int tidesdb_rename_column_family(tidesdb_t *db, const char *old_name, const char *new_name);

/** Copies a family under a new name. A transaction that began before the copy sees an empty family. TDB_ERR_NOT_FOUND,
 * TDB_ERR_EXISTS. */
int tidesdb_clone_column_family(tidesdb_t *db, const char *src_name, const char *dst_name);

/** Returns the family with this name. The handle belongs to the database and is not freed. NULL if there is none, and after a failure, such as
 * damage of its stored settings: tidesdb_rename_column_family() with this name twice returns the code. */
tidesdb_column_family_t *tidesdb_get_column_family(tidesdb_t *db, const char *name);

/** Lists all names. The caller frees each of the *count strings and the array; *names is NULL if there are none. */
int tidesdb_list_column_families(tidesdb_t *db, char ***names, int *count);

/** Sets the function that is called after commits that write to cf; NULL removes it. When this returns, the old function does not
 * run and is not called again, so its ctx may be freed. Called from within a hook, comparator or connector, it does not wait for
 * calls of the old function that run already. */
int tidesdb_cf_set_commit_hook(tidesdb_column_family_t *cf, tidesdb_commit_hook_fn fn, void *ctx);

/** Starts a flush of the memtable and returns without waiting. */
int tidesdb_flush_memtable(tidesdb_column_family_t *cf);

/** Returns 1 while a memtable is being flushed, else 0. */
int tidesdb_is_flushing(tidesdb_column_family_t *cf);

/** Returns 1 while tables are being merged, else 0. */
int tidesdb_is_compacting(tidesdb_column_family_t *cf);

/** Merges the whole family. Waits until that is done. */
int tidesdb_compact(tidesdb_column_family_t *cf);

/** Merges the tables that hold keys of [start, end]. One end, but not both, may be NULL with size 0: no limit. */
int tidesdb_compact_range(tidesdb_column_family_t *cf, const uint8_t *start_key,
                          size_t start_key_size, const uint8_t *end_key, size_t end_key_size);

/** Flushes and merges a family. Waits until that is done. */
int tidesdb_purge_cf(tidesdb_column_family_t *cf);

/** Makes all earlier commits durable. */
int tidesdb_sync_wal(tidesdb_column_family_t *cf);

/** Returns statistics of a family, in memory that tidesdb_free_stats() frees. */
int tidesdb_get_stats(tidesdb_column_family_t *cf, tidesdb_stats_t **stats);

/** Frees the result of tidesdb_get_stats(). NULL is allowed. */
void tidesdb_free_stats(tidesdb_stats_t *stats);

/** Returns an upper bound of the number of different keys in cf. */
int tidesdb_cf_estimate_cardinality(tidesdb_column_family_t *cf, uint64_t *cardinality);

/** Estimates the cost of a scan between two keys, given in either order. The result is 0 or more, and only comparable
 * with other results of this function. */
int tidesdb_range_cost(tidesdb_column_family_t *cf, const uint8_t *key_a, size_t key_a_size,
                       const uint8_t *key_b, size_t key_b_size, double *cost);

/* ---- transactions ---- */

/** Begins a transaction at READ_COMMITTED. The caller frees it with tidesdb_txn_free(). */
int tidesdb_txn_begin(tidesdb_t *db, tidesdb_txn_t **txn);

/** Begins a transaction. The caller frees it with tidesdb_txn_free(). */
int tidesdb_txn_begin_with_isolation(tidesdb_t *db, tidesdb_isolation_level_t isolation,
                                     tidesdb_txn_t **txn);

/** Puts a pair. ttl is the time of its expiry in UNIX seconds; with 0 or less it never expires. */
int tidesdb_txn_put(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                    size_t key_size, const uint8_t *value, size_t value_size, TDB_TIME_T ttl);

/** Returns the value of a key, in memory that the caller frees with tidesdb_free() or, without tidesdb_init(), free().
 * TDB_ERR_NOT_FOUND if there is none; TDB_ERR_MEMORY if txn is finished. */
int tidesdb_txn_get(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                    size_t key_size, uint8_t **value, size_t *value_size);

/** Like tidesdb_txn_get(), but the read is not checked for conflicts at commit. */
int tidesdb_txn_get_notrack(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                            size_t key_size, uint8_t **value, size_t *value_size);

/** Returns TDB_SUCCESS if the key exists, TDB_ERR_NOT_FOUND if not. The read is not checked for conflicts at commit. */
int tidesdb_txn_contains(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                         size_t key_size);

/** Deletes a key, whether or not it exists. */
int tidesdb_txn_delete(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                       size_t key_size);

/** Deletes a key that was put at most once since its last delete. */
int tidesdb_txn_single_delete(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key,
                              size_t key_size);

/** Commits all writes, or none. After a failure the transaction is still open: roll it back. */
int tidesdb_txn_commit(tidesdb_txn_t *txn);

/** Discards all writes. May be called again; after a commit TDB_ERR_INVALID_ARGS. */
int tidesdb_txn_rollback(tidesdb_txn_t *txn);

/** Restarts a transaction that is finished or has no writes. */
int tidesdb_txn_reset(tidesdb_txn_t *txn, tidesdb_isolation_level_t isolation);

/** Frees a transaction; an open one is rolled back. NULL is allowed. */
void tidesdb_txn_free(tidesdb_txn_t *txn);

/** Sets a savepoint. A savepoint of the same name is moved. */
int tidesdb_txn_savepoint(tidesdb_txn_t *txn, const char *name);

/** Discards the writes since the savepoint, and removes that savepoint and the later ones. TDB_ERR_NOT_FOUND if no savepoint
 * has this name. */
int tidesdb_txn_rollback_to_savepoint(tidesdb_txn_t *txn, const char *name);

/** Removes one savepoint and keeps the writes. */
int tidesdb_txn_release_savepoint(tidesdb_txn_t *txn, const char *name);

/* ---- iterators ---- */

/*
 * Key and value pointers belong to the iterator. They are valid until the same iterator moves (seek, next, prev) or is
 * freed, whichever comes first. They stay valid when its transaction commits, ends or is freed, when the family changes or
 * is dropped, and when another thread closes the database. Copy data that must live longer.
 */

/** Creates an iterator over cf as txn sees it, not positioned. What txn writes after the first positioning may or may not be shown. The caller
 * frees it with tidesdb_iter_free(). */
int tidesdb_iter_new(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, tidesdb_iter_t **iter);

/** Moves to the first key at or after this one. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek(tidesdb_iter_t *iter, const uint8_t *key, size_t key_size);

/** Moves to the last key at or before this one. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek_for_prev(tidesdb_iter_t *iter, const uint8_t *key, size_t key_size);

/** Moves to the first key. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek_to_first(tidesdb_iter_t *iter);

/** Moves to the last key. TDB_ERR_NOT_FOUND if there is none. */
int tidesdb_iter_seek_to_last(tidesdb_iter_t *iter);

/** Moves to the next key. TDB_ERR_NOT_FOUND after the last key, TDB_ERR_INVALID_ARGS if it is not at a key. */
int tidesdb_iter_next(tidesdb_iter_t *iter);

/** Moves to the previous key. TDB_ERR_NOT_FOUND before the first key, TDB_ERR_INVALID_ARGS if it is not at a key. */
int tidesdb_iter_prev(tidesdb_iter_t *iter);

/** Returns 1 if it is at a key, else 0. */
int tidesdb_iter_valid(tidesdb_iter_t *iter);

/** Returns the current key; valid until the iterator moves or is freed. */
int tidesdb_iter_key(tidesdb_iter_t *iter, uint8_t **key, size_t *key_size);

/** Returns the current value; valid until the iterator moves or is freed. */
int tidesdb_iter_value(tidesdb_iter_t *iter, uint8_t **value, size_t *value_size);

/** Returns the current key and value; valid until the iterator moves or is freed. */
int tidesdb_iter_key_value(tidesdb_iter_t *iter, uint8_t **key, size_t *key_size, uint8_t **value,
                           size_t *value_size);

/** Frees an iterator. NULL is allowed. */
void tidesdb_iter_free(tidesdb_iter_t *iter);

/* ---- structure sizes that binaries rely on, if pointers have 8 bytes ---- */

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
