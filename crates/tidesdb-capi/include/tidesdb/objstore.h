/*
 * Object stores: a database keeps a copy of itself in a store. A lost folder is restored from it.
 *
 * Set object_store in tidesdb_config_t to a connector: the result of tidesdb_objstore_fs_create(), of tidesdb_objstore_s3_create(), or one of your own. If
 * tidesdb_open() succeeds, the database owns the connector; tidesdb_close() calls destroy and frees it. If it fails, you
 * still own the connector. A connector serves one database, and each database needs a store of its own.
 *
 * Memory: allocate a connector of your own with malloc, with or without tidesdb_init(); tidesdb_close() passes it to free(), of the C
 * library that TidesDB is linked with. If your program has another C library, as on Windows, use the malloc_fn that tidesdb_allocator
 * has before tidesdb_init(). The results of the create functions come from tidesdb_allocator, like all memory that the library
 * returns: if you still own one, call its destroy and then tidesdb_free().
 *
 * You may replace functions in the result of a create function, copy the table, or call its functions from your own, with the
 * ctx of the result. The library calls what is in the table that it gets. A connector must not call tidesdb_close(): TDB_ERR_BUSY.
 *
 * Your own connector must have put, get, delete_object and list. They may be called from any thread, several at a time.
 * put, get and delete_object return 0 for success; put must replace an object atomically; list returns a negative code for
 * failure and must not omit objects; delete_object may return TDB_ERR_NOT_FOUND. The paths passed to them name files in the
 * folder of the database, which exist during the call. The library calls no range_get, exists, put_if or head of your own.
 */
#ifndef TIDESDB_OBJSTORE_H
#define TIDESDB_OBJSTORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef _MSC_VER
#include <basetsd.h>
typedef SSIZE_T ssize_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Size of a buffer for an entity tag in bytes, including the terminating zero. */
#define TDB_OBJSTORE_ETAG_SIZE 128

/** Backend of a connector. */
typedef enum {
    TDB_BACKEND_FS = 0,
    TDB_BACKEND_S3 = 1,
    TDB_BACKEND_UNKNOWN = 99
} tidesdb_objstore_backend_t;

/** When a conditional put may write. */
typedef enum {
    TDB_PUT_OVERWRITE = 0,
    TDB_PUT_IF_NONE_MATCH = 1,
    TDB_PUT_IF_MATCH = 2
} tidesdb_objstore_put_cond_t;

/** Called for each object of a listing; key is valid during the call. */
typedef void (*tidesdb_objstore_list_fn)(const char *key, size_t size, void *list_ctx);

/** A connector: functions and the context passed to them. Its creator allocates it with malloc, see above. */
typedef struct tidesdb_objstore_t {
    tidesdb_objstore_backend_t backend;
    int (*put)(void *ctx, const char *key, const char *local_path);
    int (*get)(void *ctx, const char *key, const char *local_path);
    ssize_t (*range_get)(void *ctx, const char *key, uint64_t offset, void *buf, size_t size);
    int (*delete_object)(void *ctx, const char *key);
    int (*exists)(void *ctx, const char *key, size_t *size);
    int (*list)(void *ctx, const char *prefix, tidesdb_objstore_list_fn fn, void *list_ctx);
    int (*put_if)(void *ctx, const char *key, const void *data, size_t size,
                  tidesdb_objstore_put_cond_t cond, const char *etag, char *new_etag);
    int (*head)(void *ctx, const char *key, size_t *size, char *etag);
    void (*destroy)(void *ctx);
    void *ctx;
} tidesdb_objstore_t;

/**
 * How a database uses its object store. local_cache_max_bytes, replicate_wal, wal_sync_threshold_bytes and
 * wal_sync_on_commit have an effect; replica_mode must be 0; all other fields are ignored. See docs/reference/c-api.md for the
 * guarantees.
 */
typedef struct tidesdb_objstore_config_t {
    const char *local_cache_path;
    size_t local_cache_max_bytes;
    int cache_on_read;
    int cache_on_write;
    int max_concurrent_uploads;
    int max_concurrent_downloads;
    size_t multipart_threshold;
    size_t multipart_part_size;
    int sync_manifest_to_object;
    int replicate_wal;
    int wal_upload_sync;
    size_t wal_sync_threshold_bytes;
    int wal_sync_on_commit;
    int replica_mode;
    uint64_t replica_sync_interval_us;
    int replica_replay_wal;
} tidesdb_objstore_config_t;

/** Where and how to reach an S3 store. */
typedef struct tidesdb_objstore_s3_config_t {
    const char *endpoint;
    const char *bucket;
    const char *prefix;
    const char *access_key;
    const char *secret_key;
    const char *region;
    int use_ssl;
    int use_path_style;
    const char *tls_ca_path;
    int tls_insecure_skip_verify;
    size_t multipart_threshold;
    size_t multipart_part_size;
} tidesdb_objstore_s3_config_t;

/** Returns the default settings of an object store, by value; local_cache_path is NULL. */
tidesdb_objstore_config_t tidesdb_objstore_default_config(void);

/**
 * Creates a connector that keeps objects as files in root_dir, which is created if missing. Returns NULL on failure;
 * tidesdb_last_error() returns the reason. put_if and head are NULL. Keys consist of ASCII letters, digits and dots, as those of the library do.
 */
tidesdb_objstore_t *tidesdb_objstore_fs_create(const char *root_dir);

/**
 * Creates a connector that keeps objects in an S3 bucket, below prefix. Loads the library libtidesdb_s3: from the path in the variable TIDESDB_S3_LIBRARY,
 * or else beside this library, or else where the system looks, on Windows only in the folder of the system. Returns NULL on failure, also if that library
 * is missing; tidesdb_last_error() returns the reason. No request is made.
 *
 * endpoint: a host with or without a port, or an address with https:// or http://; NULL is Amazon S3. access_key and secret_key: both, or both NULL for the
 * credentials of the environment, a profile, or the machine. region: NULL is us-east-1. put_if returns TDB_ERR_CONFLICT if its condition does not hold.
 */
tidesdb_objstore_t *tidesdb_objstore_s3_create(const char *endpoint, const char *bucket,
                                               const char *prefix, const char *access_key,
                                               const char *secret_key, const char *region,
                                               int use_ssl, int use_path_style);

/** As tidesdb_objstore_s3_create(). tls_ca_path is a file of PEM certificates that count beside those of the system. Bodies longer than multipart_threshold are
 * uploaded in parts of multipart_part_size, at least 5 MiB; 0 is 8 MiB for both. The caller still owns the configuration. */
tidesdb_objstore_t *tidesdb_objstore_s3_create_config(const tidesdb_objstore_s3_config_t *config);

#ifdef __cplusplus
}
#endif

#endif
