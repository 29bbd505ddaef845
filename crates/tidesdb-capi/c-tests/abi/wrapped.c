/*
 * Programs that wrap what the library hands out: they change the table of its connector, or copy functions from it, and bring
 * memory and allocators of their own.
 */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "../kit/store.h"

enum { ROWS = 400 };

static const char SECRET[] = "in plain text";

/* The functions of the library's connector, as its table had them, and what the program counts. */
static struct {
    tidesdb_objstore_t inner;
    int puts, gets, deletes, lists, destroyed;
} wrapped;

#define COUNT(what) __atomic_add_fetch(&wrapped.what, 1, __ATOMIC_SEQ_CST)

/* Copies a file and flips all bits of its bytes: the encryption of this program. */
static int flip(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = in == NULL ? NULL : fopen(to, "wb");
    int c;
    if (out == NULL) {
        if (in != NULL) fclose(in);
        return TDB_ERR_IO;
    }
    while ((c = getc(in)) != EOF) putc(c ^ 0xff, out);
    fclose(in);
    return fclose(out) == 0 ? 0 : TDB_ERR_IO;
}

/* Returns a name for a file that is used by one call of one thread. */
static const char *scratch(char *path)
{
    static int next;
    snprintf(path, 64, "scratch%d", __atomic_add_fetch(&next, 1, __ATOMIC_SEQ_CST));
    return path;
}

static int put_flipped(void *ctx, const char *key, const char *local)
{
    char path[64];
    COUNT(puts);
    int rc = flip(local, scratch(path));
    if (rc == 0) rc = wrapped.inner.put(ctx, key, path);
    unlink(path);
    return rc;
}

static int get_flipped(void *ctx, const char *key, const char *local)
{
    char path[64];
    COUNT(gets);
    int rc = wrapped.inner.get(ctx, key, scratch(path));
    if (rc == 0) rc = flip(path, local);
    unlink(path);
    return rc;
}

static int put_counted(void *ctx, const char *key, const char *local)
{
    COUNT(puts);
    return wrapped.inner.put(ctx, key, local);
}

static int get_counted(void *ctx, const char *key, const char *local)
{
    COUNT(gets);
    return wrapped.inner.get(ctx, key, local);
}

static int delete_counted(void *ctx, const char *key)
{
    COUNT(deletes);
    return wrapped.inner.delete_object(ctx, key);
}

static int list_counted(void *ctx, const char *prefix, tidesdb_objstore_list_fn each, void *list_ctx)
{
    COUNT(lists);
    return wrapped.inner.list(ctx, prefix, each, list_ctx);
}

static void destroy_counted(void *ctx)
{
    COUNT(destroyed);
    wrapped.inner.destroy(ctx);
}

/* A context of the program: it holds the library's connector. */
static struct holder {
    tidesdb_objstore_t *held;
} holder;

static int put_held(void *ctx, const char *key, const char *local)
{
    CHECK(ctx == &holder);
    return put_counted(holder.held->ctx, key, local);
}

static int get_held(void *ctx, const char *key, const char *local) { return get_counted(((struct holder *)ctx)->held->ctx, key, local); }

static int delete_held(void *ctx, const char *key) { return delete_counted(((struct holder *)ctx)->held->ctx, key); }

static int list_held(void *ctx, const char *prefix, tidesdb_objstore_list_fn each, void *list_ctx)
{
    return list_counted(((struct holder *)ctx)->held->ctx, prefix, each, list_ctx);
}

static void destroy_held(void *ctx)
{
    struct holder *of = ctx;
    destroy_counted(of->held->ctx);
    tidesdb_free(of->held);
}

/* Returns the library's connector to the folder `objects`, to be changed. */
static tidesdb_objstore_t *to_wrap(void)
{
    tidesdb_objstore_t *store = tidesdb_objstore_fs_create("objects");
    CHECK(store != NULL);
    memset(&wrapped, 0, sizeof wrapped);
    wrapped.inner = *store;
    return store;
}

static db_t *open_on(tidesdb_objstore_t *store)
{
    tidesdb_config_t config = quiet("db");
    config.object_store = store;
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    return db;
}

/* Returns how many objects of the store contain the secret. */
static int objects_with_the_secret(void)
{
    DIR *dir = opendir("objects");
    int count = 0;
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        static char bytes[1 << 20];
        char name[512];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "objects/%s", entry->d_name);
        FILE *file = fopen(name, "rb");
        CHECK(file != NULL);
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        for (size_t i = 0; i + sizeof SECRET <= size; i++)
            if (memcmp(bytes + i, SECRET, sizeof SECRET - 1) == 0) {
                count++;
                break;
            }
    }
    closedir(dir);
    return count;
}

/* Writes rows, loses the folder, and reads the rows from the store. Each time `make` returns the connector. */
static void write_and_restore(tidesdb_objstore_t *(*make)(void))
{
    if (access("objects", F_OK) == 0) remove_files("objects");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.compression_algorithm = TDB_COMPRESS_NONE;
    db_t *db = open_on(make());
    cf_t *cf = family_with(db, "f", &config);
    put(db, cf, "secret", SECRET);
    fill(db, cf, 0, ROWS);
    close_db(db);
    remove_files("db");
    CHECK_INT(rmdir("db"), 0);
    db = open_on(make());
    STORED(db, tidesdb_get_column_family(db, "f"), "secret", SECRET);
    CHECK_INT(count_keys(db, tidesdb_get_column_family(db, "f")), ROWS + 1);
    close_db(db);
    remove_files("db");
    CHECK_INT(rmdir("db"), 0);
}

static tidesdb_objstore_t *unchanged(void) { return to_wrap(); }

static tidesdb_objstore_t *flipping(void)
{
    tidesdb_objstore_t *store = to_wrap();
    store->put = put_flipped;
    store->get = get_flipped;
    return store;
}

/* Regression test: the library recognised its connector by `destroy` alone and did not call the functions that the program had put
 * into the table: what a wrapper should have encrypted was in the store in plain text. */
static void a_wrapper_that_encrypts(void)
{
    write_and_restore(unchanged);
    CHECK(objects_with_the_secret() > 0);
    write_and_restore(flipping);
    CHECK(wrapped.gets > 2);
    CHECK_INT(objects_with_the_secret(), 0);
}

static int changed;

static tidesdb_objstore_t *with_one_change(void)
{
    tidesdb_objstore_t *store = to_wrap();
    switch (changed) {
    case 0: store->put = put_counted; break;
    case 1: store->get = get_counted; break;
    case 2: store->delete_object = delete_counted; break;
    case 3: store->list = list_counted; break;
    case 4: store->destroy = destroy_counted; break;
    }
    return store;
}

static void every_function_that_a_program_replaces_is_called(void)
{
    for (changed = 0; changed < 5; changed++) {
        write_and_restore(with_one_change);
        int calls = wrapped.puts + wrapped.gets + wrapped.lists + wrapped.destroyed;
        /* Nothing had to be deleted, and the second database uploaded nothing. */
        if (changed == 1 || changed == 3 || changed == 4) CHECK(calls > 0);
        tidesdb_objstore_t *store = with_one_change();
        db_t *db = open_on(store);
        for (int i = 0; i < 3; i++) {
            fill(db, family(db, "f"), 0, ROWS);
            OK(tidesdb_purge(db));
        }
        close_db(db);
        calls = wrapped.puts + wrapped.gets + wrapped.deletes + wrapped.lists + wrapped.destroyed;
        if (changed != 1) CHECK(calls > 0);
        remove_files("db");
        remove_files("objects");
        CHECK_INT(rmdir("db"), 0);
    }
}

/* A table of the program whose context holds the library's connector. */
static tidesdb_objstore_t *holding(void)
{
    holder.held = to_wrap();
    tidesdb_objstore_t *store = malloc(sizeof *store);
    CHECK(store != NULL);
    *store = *holder.held;
    store->put = put_held;
    store->get = get_held;
    store->delete_object = delete_held;
    store->list = list_held;
    store->destroy = destroy_held;
    store->ctx = &holder;
    return store;
}

/* A copy of the library's table in memory of the program: the original is not needed any more. */
static tidesdb_objstore_t *copied(void)
{
    tidesdb_objstore_t *original = to_wrap(), *store = malloc(sizeof *store);
    CHECK(store != NULL);
    *store = *original;
    tidesdb_free(original);
    return store;
}

static void a_table_that_holds_or_copies_the_librarys(void)
{
    write_and_restore(holding);
    CHECK(wrapped.gets > 2 && wrapped.lists > 0);
    CHECK_INT(wrapped.destroyed, 1);
    write_and_restore(copied);
}

/* The library's functions refuse a context that is not theirs. */
static void a_foreign_context_of_the_librarys_functions(void)
{
    char foreign[64] = {0};
    size_t size = 0;
    tidesdb_objstore_t *store = to_wrap();
    for (int i = 0; i < 2; i++) {
        void *ctx = i == 0 ? foreign : NULL;
        CHECK(store->put(ctx, "key", "file") < 0);
        CHECK(store->get(ctx, "key", "file") < 0);
        CHECK(store->delete_object(ctx, "key") < 0);
        CHECK(store->exists(ctx, "key", &size) < 0);
        CHECK(store->list(ctx, "", NULL, NULL) < 0);
        CHECK(store->range_get(ctx, "key", 0, foreign, 1) < 0);
        store->destroy(ctx);
    }
    store->destroy(store->ctx);
    CHECK(store->list(store->ctx, "", NULL, NULL) < 0);
    store->destroy(store->ctx);
    tidesdb_free(store);
}

static db_t *closed_by_its_connector;
static int code_of_the_close;

static int put_that_closes(void *ctx, const char *key, const char *local)
{
    if (__atomic_load_n(&wrapped.puts, __ATOMIC_SEQ_CST) == 0) code_of_the_close = tidesdb_close(closed_by_its_connector);
    return put_counted(ctx, key, local);
}

/* A close from within the connector would wait for itself. */
static void a_connector_cannot_close_a_database(void)
{
    tidesdb_objstore_t *store = to_wrap();
    store->put = put_that_closes;
    db_t *db = closed_by_its_connector = open_on(store);
    fill(db, family(db, "f"), 0, ROWS);
    flush(family(db, "f"));
    while (__atomic_load_n(&wrapped.puts, __ATOMIC_SEQ_CST) == 0) sleep_ms(5);
    CHECK_INT(code_of_the_close, TDB_ERR_BUSY);
    close_db(db);
}

/* An allocator of the program: its memory is marked. */
enum { MARK_BYTES = 32, MARK = 0x71de5 };

static int live; /* allocations */

static void *marked_malloc(size_t size)
{
    char *memory = malloc(size + MARK_BYTES);
    if (memory == NULL) return NULL;
    memset(memory, 0, MARK_BYTES);
    *(int *)(void *)memory = MARK;
    __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return memory + MARK_BYTES;
}

static void *marked_calloc(size_t count, size_t size)
{
    void *memory = marked_malloc(count * size);
    return memory == NULL ? NULL : memset(memory, 0, count * size);
}

static void marked_free(void *memory)
{
    if (memory == NULL) return;
    char *begin = (char *)memory - MARK_BYTES;
    CHECK_INT(*(int *)(void *)begin, MARK);
    *(int *)(void *)begin = 0;
    __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
    free(begin);
}

static void *marked_realloc(void *memory, size_t size)
{
    void *larger = marked_malloc(size);
    if (memory != NULL && larger != NULL) {
        memcpy(larger, memory, size);
        marked_free(memory);
    }
    return larger;
}

/* Regression test: a connector that a program had allocated with malloc, as objstore.h says, was passed to the program's free_fn. */
static void a_connector_is_freed_as_it_was_allocated(void)
{
    /* Of the library, from before the program brings its functions. */
    tidesdb_objstore_t *earlier = to_wrap();
    OK(tidesdb_init(marked_malloc, marked_calloc, marked_realloc, marked_free));
    close_db(open_on(earlier));
    CHECK_INT(live, 0);
    /* Of the library, by those functions: as it is, and changed. */
    close_db(open_on(to_wrap()));
    changed = 0;
    close_db(open_on(with_one_change()));
    CHECK_INT(live, 0);
    /* Of the program, by malloc. */
    close_db(open_on(copied()));
    close_db(open_on(holding()));
    CHECK_INT(live, 0);
    /* The caller keeps the connector if the open fails. */
    tidesdb_config_t config = quiet("missing/db");
    config.object_store = to_wrap();
    db_t *db = NULL;
    CHECK(tidesdb_open(&config, &db) != TDB_SUCCESS);
    CHECK_INT(live, 1);
    config.object_store->destroy(config.object_store->ctx);
    tidesdb_free(config.object_store);
    CHECK_INT(live, 0);
    /* The functions change while the database is open. */
    db = open_on(to_wrap());
    tidesdb_finalize();
    close_db(db);
    CHECK_INT(live, 0);
}

const struct test wrapped_tests[] = {
    TEST(a_wrapper_that_encrypts),
    TEST(every_function_that_a_program_replaces_is_called),
    TEST(a_table_that_holds_or_copies_the_librarys),
    TEST(a_foreign_context_of_the_librarys_functions),
    TEST(a_connector_cannot_close_a_database),
    TEST_ALONE(a_connector_is_freed_as_it_was_allocated),
    END_OF_TESTS,
};
