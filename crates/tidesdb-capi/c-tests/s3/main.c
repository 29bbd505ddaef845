/* Object stores in S3, against a server that `cargo xtask s3` starts: `all ADDRESS KEY SECRET`, `tls ADDRESS CERTIFICATE`, `missing`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidesdb/extended.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, tidesdb_last_error()); \
            exit(1); \
        } \
    } while (0)
#define OK(call) CHECK((call) == TDB_SUCCESS)

static const char *address, *key, *secret;

/* A prefix that no other run uses. */
static const char *at(const char *name)
{
    static char prefix[64];
    snprintf(prefix, sizeof prefix, "c/%ld/%s", (long)getpid(), name);
    return prefix;
}

static tidesdb_objstore_s3_config_t settings(const char *prefix)
{
    return (tidesdb_objstore_s3_config_t){.endpoint = address,
                                          .bucket = "tests",
                                          .prefix = prefix,
                                          .access_key = key,
                                          .secret_key = secret,
                                          .region = "us-east-1",
                                          .use_ssl = 0,
                                          .use_path_style = 1};
}

static tidesdb_objstore_t *create(const char *prefix)
{
    const tidesdb_objstore_s3_config_t config = settings(prefix);
    tidesdb_objstore_t *store = tidesdb_objstore_s3_create_config(&config);
    CHECK(store != NULL);
    return store;
}

static void give_back(tidesdb_objstore_t *store)
{
    store->destroy(store->ctx);
    tidesdb_free(store);
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static void count(const char *name, size_t size, void *ctx)
{
    (void)name;
    *(size_t *)ctx += size;
}

static void each_function_of_a_connector_works(void)
{
    tidesdb_objstore_t *store =
        tidesdb_objstore_s3_create(address, "tests", at("one"), key, secret, "us-east-1", 0, 1);
    size_t size = 0, sum = 0;
    char buf[16], tag[TDB_OBJSTORE_ETAG_SIZE], second[TDB_OBJSTORE_ETAG_SIZE];
    CHECK(store != NULL && store->backend == TDB_BACKEND_S3);
    write_file("in", "0123456789", 10);
    OK(store->put(store->ctx, "a", "in"));
    OK(store->get(store->ctx, "a", "out"));
    FILE *file = fopen("out", "rb");
    CHECK(file != NULL && fread(buf, 1, sizeof buf, file) == 10 && memcmp(buf, "0123456789", 10) == 0);
    fclose(file);
    CHECK(store->range_get(store->ctx, "a", 3, buf, 4) == 4 && memcmp(buf, "3456", 4) == 0);
    CHECK(store->range_get(store->ctx, "a", 8, buf, 4) == 2 && memcmp(buf, "89", 2) == 0);
    CHECK(store->range_get(store->ctx, "a", 10, buf, 4) == 0);
    CHECK(store->range_get(store->ctx, "none", 0, buf, 4) == -1);
    CHECK(store->exists(store->ctx, "a", &size) == 1 && size == 10);
    CHECK(store->exists(store->ctx, "none", &size) == 0);
    OK(store->head(store->ctx, "a", &size, tag));
    CHECK(size == 10 && strlen(tag) > 8);
    CHECK(store->head(store->ctx, "none", &size, tag) == TDB_ERR_NOT_FOUND);
    CHECK(store->put_if(store->ctx, "a", "x", 1, TDB_PUT_IF_NONE_MATCH, NULL, NULL) == TDB_ERR_CONFLICT);
    OK(store->put_if(store->ctx, "a", "xy", 2, TDB_PUT_IF_MATCH, tag, second));
    CHECK(strcmp(tag, second) != 0);
    CHECK(store->put_if(store->ctx, "a", "z", 1, TDB_PUT_IF_MATCH, tag, NULL) == TDB_ERR_CONFLICT);
    OK(store->put_if(store->ctx, "a", "xyz", 3, TDB_PUT_OVERWRITE, NULL, tag));
    OK(store->put_if(store->ctx, "b", "12", 2, TDB_PUT_IF_NONE_MATCH, NULL, tag));
    CHECK(store->put_if(store->ctx, "b", "12", 2, (tidesdb_objstore_put_cond_t)7, NULL, tag) == TDB_ERR_INVALID_ARGS);
    CHECK(store->list(store->ctx, "", count, &sum) == 2 && sum == 5);
    CHECK(store->list(store->ctx, "b", count, &sum) == 1);
    OK(store->delete_object(store->ctx, "a"));
    OK(store->delete_object(store->ctx, "a"));
    CHECK(store->exists(store->ctx, "a", &size) == 0);
    give_back(store);
}

/* Bodies of 6 MiB, in parts and in one piece. */
static void long_objects_are_whole(void)
{
    const size_t size = 6 << 20;
    unsigned char *bytes = malloc(size), *found = malloc(size);
    CHECK(bytes != NULL && found != NULL);
    for (size_t n = 0; n < size; n++) bytes[n] = (unsigned char)(n * 2654435761u >> 13);
    write_file("in", bytes, size);
    for (int parts = 0; parts < 2; parts++) {
        tidesdb_objstore_s3_config_t config = settings(at("long"));
        config.multipart_threshold = parts ? 1 << 20 : 64 << 20;
        config.multipart_part_size = 5 << 20;
        tidesdb_objstore_t *store = tidesdb_objstore_s3_create_config(&config);
        char tag[TDB_OBJSTORE_ETAG_SIZE];
        size_t length = 0;
        CHECK(store != NULL);
        OK(store->put(store->ctx, "long", "in"));
        OK(store->head(store->ctx, "long", &length, tag));
        CHECK(length == size);
        CHECK((strstr(tag, "-2") != NULL) == (parts == 1)); /* the tag of an upload in two parts */
        CHECK(store->range_get(store->ctx, "long", 0, found, size) == (ssize_t)size);
        CHECK(memcmp(bytes, found, size) == 0);
        give_back(store);
    }
    free(bytes);
    free(found);
}

static tidesdb_t *open_db(const char *path, tidesdb_objstore_t *store)
{
    tidesdb_config_t config = tidesdb_default_config();
    tidesdb_t *db = NULL;
    config.db_path = (char *)path;
    config.object_store = store;
    OK(tidesdb_open(&config, &db));
    return db;
}

static void put(tidesdb_t *db, const char *name, const char *value)
{
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
    tidesdb_txn_t *txn = NULL;
    OK(tidesdb_txn_begin(db, &txn));
    OK(tidesdb_txn_put(txn, cf, (const uint8_t *)name, strlen(name), (const uint8_t *)value, strlen(value), 0));
    OK(tidesdb_txn_commit(txn));
    tidesdb_txn_free(txn);
}

static void check(tidesdb_t *db, const char *name, const char *want)
{
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
    tidesdb_txn_t *txn = NULL;
    uint8_t *value = NULL;
    size_t size = 0;
    OK(tidesdb_txn_begin(db, &txn));
    OK(tidesdb_txn_get(txn, cf, (const uint8_t *)name, strlen(name), &value, &size));
    CHECK(size == strlen(want) && memcmp(value, want, size) == 0);
    tidesdb_free(value);
    tidesdb_txn_free(txn);
}

static void a_database_comes_back_from_the_store(void)
{
    tidesdb_column_family_config_t family = tidesdb_default_column_family_config();
    tidesdb_t *db = open_db("here", create(at("db")));
    OK(tidesdb_create_column_family(db, "f", &family));
    put(db, "whale", "blue");
    OK(tidesdb_close(db));
    db = open_db("there", create(at("db")));
    check(db, "whale", "blue");
    OK(tidesdb_close(db));
}

static void generations_are_kept_in_a_store(void)
{
    tidesdb_column_family_config_t family = tidesdb_default_column_family_config();
    tidesdb_x_backups_t *backups = NULL;
    uint64_t number = 0, faults = 9;
    tidesdb_t *db = open_db("shop", NULL);
    OK(tidesdb_create_column_family(db, "f", &family));
    put(db, "apple", "3");
    tidesdb_objstore_t *store = create(at("backups")), copy = *store;
    copy.head = NULL;
    CHECK(tidesdb_x_backups_open_store(&copy, &backups) == TDB_ERR_INVALID_ARGS); /* changed: still the caller's */
    CHECK(tidesdb_x_backups_open_store(NULL, &backups) == TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_backups_open_store(store, &backups));
    OK(tidesdb_x_backups_create(backups, db, NULL, &number));
    put(db, "apple", "4");
    OK(tidesdb_x_backups_create(backups, db, NULL, NULL));
    OK(tidesdb_close(db));
    OK(tidesdb_x_backups_verify(backups, number, &faults, NULL));
    CHECK(faults == 0);
    OK(tidesdb_x_backups_restore(backups, number, "before"));
    tidesdb_x_backups_free(backups);
    db = open_db("before", NULL);
    check(db, "apple", "3");
    OK(tidesdb_close(db));
}

static void wrong_settings_have_a_reason(void)
{
    tidesdb_objstore_s3_config_t config = settings("p");
    config.bucket = "";
    CHECK(tidesdb_objstore_s3_create_config(&config) == NULL && strstr(tidesdb_last_error(), "bucket"));
    config = settings("p");
    config.secret_key = NULL;
    CHECK(tidesdb_objstore_s3_create_config(&config) == NULL && strstr(tidesdb_last_error(), "keys"));
    config = settings("p");
    config.tls_ca_path = "no-such-file";
    CHECK(tidesdb_objstore_s3_create_config(&config) == NULL && strstr(tidesdb_last_error(), "no-such-file"));
    config = settings("p");
    config.secret_key = "not-the-secret";
    tidesdb_objstore_t *store = tidesdb_objstore_s3_create_config(&config);
    size_t size = 0;
    CHECK(store != NULL && store->head(store->ctx, "a", &size, NULL) == TDB_ERR_IO);
    CHECK(strstr(tidesdb_last_error(), "not-the-secret") == NULL && strstr(tidesdb_last_error(), key) == NULL);
    give_back(store);
    CHECK(tidesdb_objstore_s3_create("https://h", "b", "p", key, secret, "r", 0, 1) == NULL);
    CHECK(tidesdb_objstore_s3_create("http://h", "b", "p", key, secret, "r", 1, 1) == NULL);
}

/* The server checks no signatures; the bucket is made by a put to nothing. */
static void tls(const char *certificate)
{
    tidesdb_objstore_s3_config_t config = settings("p");
    size_t size = 0;
    config.use_ssl = 1;
    tidesdb_objstore_t *store = tidesdb_objstore_s3_create_config(&config);
    CHECK(store != NULL && store->head(store->ctx, "a", &size, NULL) == TDB_ERR_IO); /* its certificate is not known */
    CHECK(strstr(tidesdb_last_error(), "ertificate") != NULL);
    give_back(store);
    for (int n = 0; n < 2; n++) {
        config.tls_ca_path = n == 0 ? certificate : NULL;
        config.tls_insecure_skip_verify = n;
        store = tidesdb_objstore_s3_create_config(&config);
        CHECK(store != NULL);
        const int code = store->head(store->ctx, "a", &size, NULL);
        if (code != TDB_ERR_NOT_FOUND) fprintf(stderr, "%d: %s\n", code, tidesdb_last_error());
        CHECK(code == TDB_ERR_NOT_FOUND); /* an answer of the server */
        give_back(store);
    }
}

static void missing(void)
{
    address = "127.0.0.1:1";
    const tidesdb_objstore_s3_config_t config = settings("p");
    CHECK(tidesdb_objstore_s3_create_config(&config) == NULL);
    CHECK(strstr(tidesdb_last_error(), "libtidesdb_s3") && strstr(tidesdb_last_error(), "--s3"));
    puts(tidesdb_last_error());
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    address = argc > 2 ? argv[2] : NULL;
    key = "key", secret = "secret";
    if (strcmp(what, "all") == 0 && argc == 5) {
        key = argv[3], secret = argv[4];
        each_function_of_a_connector_works();
        long_objects_are_whole();
        a_database_comes_back_from_the_store();
        generations_are_kept_in_a_store();
        wrong_settings_have_a_reason();
    } else if (strcmp(what, "tls") == 0 && argc == 4) {
        tls(argv[3]);
    } else if (strcmp(what, "missing") == 0) {
        missing();
    } else {
        fprintf(stderr, "usage: s3 all ADDRESS KEY SECRET | tls ADDRESS CERTIFICATE | missing\n");
        return 2;
    }
    printf("s3 %s: passed\n", what);
    return 0;
}
