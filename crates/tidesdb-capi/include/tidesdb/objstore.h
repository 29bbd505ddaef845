/*
 * Object stores: a database keeps a copy of itself in one, and a folder that is lost is fetched from it.
 *
 * Set object_store in tidesdb_config_t to a connector: that of tidesdb_objstore_fs_create(), or one of your own. When
 * tidesdb_open() succeeds the connector belongs to the database; tidesdb_close() calls destroy and frees it. When it
 * fails the connector stays yours. A connector serves one database, which needs a store of its own.
 *
 * Of a connector of your own, put, get, delete_object and list are needed. They may be called from any thread, several at
 * a time. put, get and delete_object return 0 for success; put must replace an object as one step; list returns a negative
 * code for failure and must not leave objects out; delete_object may return TDB_ERR_NOT_FOUND. The paths they get are
 * files in the folder of the database, which exist for the call. range_get, exists, put_if and head are never called.
 */
#ifndef TIDESDB_OBJSTORE_H
#define TIDESDB_OBJSTORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a buffer for an entity tag, the final zero included. */
#define TDB_OBJSTORE_ETAG_SIZE 128

/** What a connector talks to. */
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

/** Called for each object of a listing; key is borrowed for the call. */
typedef void (*tidesdb_objstore_list_fn)(const char *key, size_t size, void *list_ctx);

/** A connector: functions and the context they get. Allocated with malloc by whoever makes one. */
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
 * wal_sync_on_commit count; replica_mode must be 0; the rest changes nothing. docs/c-api.md has the promises.
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

/** The defaults of an object store's configuration, by value; local_cache_path is NULL. */
tidesdb_objstore_config_t tidesdb_objstore_default_config(void);

/**
 * A connector that keeps objects as files of root_dir, which is created; NULL if it cannot be, tidesdb_last_error() says
 * why. put_if and head are NULL.
 */
tidesdb_objstore_t *tidesdb_objstore_fs_create(const char *root_dir);

/** Always NULL here: S3 is not built in. No connection is made. */
tidesdb_objstore_t *tidesdb_objstore_s3_create(const char *endpoint, const char *bucket,
                                               const char *prefix, const char *access_key,
                                               const char *secret_key, const char *region,
                                               int use_ssl, int use_path_style);

/** Always NULL here: S3 is not built in. The configuration stays the caller's. */
tidesdb_objstore_t *tidesdb_objstore_s3_create_config(const tidesdb_objstore_s3_config_t *config);

#ifdef __cplusplus
}
#endif

#endif
