/*
 * Object stores: the types of the interface, so that programs that name them compile and link.
 *
 * This library keeps its data in a local directory only. The functions that make a connector return NULL, and
 * tidesdb_open() refuses a configuration that has one with TDB_ERR_INVALID_ARGS; tidesdb_last_error() says so.
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

/** How a database uses its object store. */
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

/** Always NULL here: no object store is built in. Nothing is created in root_dir. */
tidesdb_objstore_t *tidesdb_objstore_fs_create(const char *root_dir);

/** Always NULL here: no object store is built in. No connection is made. */
tidesdb_objstore_t *tidesdb_objstore_s3_create(const char *endpoint, const char *bucket,
                                               const char *prefix, const char *access_key,
                                               const char *secret_key, const char *region,
                                               int use_ssl, int use_path_style);

/** Always NULL here: no object store is built in. The configuration stays the caller's. */
tidesdb_objstore_t *tidesdb_objstore_s3_create_config(const tidesdb_objstore_s3_config_t *config);

#ifdef __cplusplus
}
#endif

#endif
