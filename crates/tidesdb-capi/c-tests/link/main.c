/*
 * A program with copy relocations of the library's data symbols, like programs compiled against the engine headers of
 * libtidesdb 9.3: inline functions there use `tidesdb_allocator` and the log symbols. Such a program did not start when the
 * symbols were missing. The library must use the copies in the program.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tidesdb/tidesdb.h>

#define CHECK(what) \
    ((what) ? (void)checks++ : (printf("%s:%d: %s [%s]\n", __FILE__, __LINE__, #what, tidesdb_last_error()), exit(1)))

static int checks;

/* ---- inline functions of those headers ---- */

static inline void *engine_malloc(size_t size)
{
    return tidesdb_allocator.malloc_fn(size);
}

static inline void *engine_calloc(size_t n, size_t size)
{
    return tidesdb_allocator.calloc_fn(n, size);
}

static inline void *engine_realloc(void *old, size_t size)
{
    return tidesdb_allocator.realloc_fn(old, size);
}

static inline void engine_free(void *memory)
{
    tidesdb_allocator.free_fn(memory);
}

#define ENGINE_LOG(level, ...) \
    ((level) >= _tidesdb_log_level ? tidesdb_log_write((level), __FILE__, __LINE__, __VA_ARGS__) : (void)0)

/* A macro that writes to the stream itself. */
static void engine_print(const char *text)
{
    fprintf(_tidesdb_log_file == NULL ? stderr : _tidesdb_log_file, "printed: %s\n", text);
}

/* ---- functions that count ---- */

static atomic_int taken, given;

static void *count_malloc(size_t size)
{
    taken++;
    return malloc(size);
}

static void *count_calloc(size_t n, size_t size)
{
    taken++;
    return calloc(n, size);
}

static void *count_realloc(void *old, size_t size)
{
    taken += old == NULL;
    return realloc(old, size);
}

static void count_free(void *memory)
{
    given += memory != NULL;
    free(memory);
}

/* ---- a database ---- */

static char home[4096];

static tidesdb_t *open_at(const char *name, tidesdb_log_level_t level, int to_file)
{
    static char path[5000];
    snprintf(path, sizeof path, "%s/%s", home, name);
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = path;
    config.log_level = level;
    config.log_to_file = to_file;
    tidesdb_t *db = NULL;
    CHECK(tidesdb_open(&config, &db) == TDB_SUCCESS);
    return db;
}

static tidesdb_column_family_t *family(tidesdb_t *db)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
    if (cf == NULL) {
        CHECK(tidesdb_create_column_family(db, "f", &config) == TDB_SUCCESS);
        cf = tidesdb_get_column_family(db, "f");
    }
    CHECK(cf != NULL);
    return cf;
}

/* Returns a value allocated by the library. */
static uint8_t *value_of(tidesdb_t *db)
{
    tidesdb_column_family_t *cf = family(db);
    tidesdb_txn_t *txn = NULL;
    CHECK(tidesdb_txn_begin(db, &txn) == TDB_SUCCESS);
    CHECK(tidesdb_txn_put(txn, cf, (const uint8_t *)"key", 3, (const uint8_t *)"value", 5, 0) == TDB_SUCCESS);
    uint8_t *value = NULL;
    size_t size = 0;
    CHECK(tidesdb_txn_get(txn, cf, (const uint8_t *)"key", 3, &value, &size) == TDB_SUCCESS);
    CHECK(size == 5 && memcmp(value, "value", 5) == 0);
    CHECK(tidesdb_txn_commit(txn) == TDB_SUCCESS);
    tidesdb_txn_free(txn);
    return value;
}

/* Returns whether the LOG of a database contains a text. */
static int logged(const char *name, const char *text)
{
    static char path[5000], all[1 << 16];
    snprintf(path, sizeof path, "%s/%s/LOG", home, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    size_t size = fread(all, 1, sizeof all - 1, file);
    all[size] = 0;
    fclose(file);
    return strstr(all, text) != NULL;
}

/* ---- the tests, in this order ---- */

static char *early;

static void memory_before_any_call_is_of_libc(void)
{
    CHECK(tidesdb_allocator.malloc_fn == malloc && tidesdb_allocator.calloc_fn == calloc);
    CHECK(tidesdb_allocator.realloc_fn == realloc && tidesdb_allocator.free_fn == free);
    CHECK(tidesdb_initialized == 0);
    CHECK(_tidesdb_log_level == TDB_LOG_INFO && _tidesdb_log_file == NULL);
    early = engine_malloc(6);
    CHECK(early != NULL);
    memcpy(early, "early", 6);
    char *zeros = engine_calloc(2, 8);
    CHECK(zeros != NULL && zeros[15] == 0);
    zeros = engine_realloc(zeros, 4096);
    CHECK(zeros != NULL && zeros[15] == 0);
    engine_free(zeros);
}

static void an_open_settles_the_functions(void)
{
    tidesdb_t *db = open_at("settled", TDB_LOG_NONE, 0);
    CHECK(tidesdb_initialized == 1);
    CHECK(tidesdb_allocator.malloc_fn == malloc && tidesdb_allocator.free_fn == free);
    CHECK(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free) == TDB_ERR_MEMORY);
    uint8_t *values[3] = {value_of(db), value_of(db), value_of(db)};
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    tidesdb_finalize();
    CHECK(tidesdb_initialized == 0);
    engine_free(values[0]);
    free(values[1]);
    tidesdb_free(values[2]);
}

static void init_sets_the_programs_copy(void)
{
    CHECK(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free) == TDB_SUCCESS);
    CHECK(tidesdb_initialized == 1);
    CHECK(tidesdb_allocator.malloc_fn == count_malloc && tidesdb_allocator.calloc_fn == count_calloc);
    CHECK(tidesdb_allocator.realloc_fn == count_realloc && tidesdb_allocator.free_fn == count_free);
    tidesdb_t *db = open_at("counted", TDB_LOG_NONE, 0);
    int before = taken;
    engine_free(value_of(db));
    CHECK(taken > before && given == taken);
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    tidesdb_finalize();
    CHECK(tidesdb_initialized == 0);
    CHECK(tidesdb_allocator.malloc_fn == malloc && tidesdb_allocator.free_fn == free);
    CHECK(given == taken);
}

static void the_library_calls_what_the_program_wrote(void)
{
    tidesdb_allocator.malloc_fn = count_malloc;
    tidesdb_allocator.free_fn = count_free;
    tidesdb_ensure_initialized();
    CHECK(tidesdb_initialized == 1 && tidesdb_allocator.malloc_fn == count_malloc);
    tidesdb_t *db = open_at("written", TDB_LOG_NONE, 0);
    int before = taken;
    tidesdb_free(value_of(db));
    CHECK(taken > before && given == taken);
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    tidesdb_finalize();
    CHECK(tidesdb_allocator.malloc_fn == malloc && tidesdb_initialized == 0);
}

static void the_log_symbols_follow_the_open_databases(void)
{
    tidesdb_t *warn = open_at("warn", TDB_LOG_WARN, 1);
    CHECK(_tidesdb_log_level == TDB_LOG_WARN && _tidesdb_log_file != NULL);
    FILE *first = _tidesdb_log_file;
    ENGINE_LOG(TDB_LOG_INFO, "not %s", "wanted");
    ENGINE_LOG(TDB_LOG_WARN, "%d %s %.2f %d %d %d %.1f %ld\n", 1, "two", 3.0, 4, 5, 6, 7.5, 8L);
    ENGINE_LOG(TDB_LOG_ERROR, "%%");
    engine_print("by a macro");
    CHECK(logged("warn", "1 two 3.00 4 5 6 7.5 8\n") && logged("warn", "printed: by a macro\n"));
    CHECK(logged("warn", "main.c:") && logged("warn", ": %\n") && !logged("warn", "wanted"));
    tidesdb_t *debug = open_at("debug", TDB_LOG_DEBUG, 1);
    CHECK(_tidesdb_log_level == TDB_LOG_DEBUG && _tidesdb_log_file != first);
    ENGINE_LOG(TDB_LOG_DEBUG, "for the second");
    CHECK(logged("debug", "for the second") && !logged("warn", "for the second"));
    CHECK(tidesdb_close(debug) == TDB_SUCCESS);
    CHECK(_tidesdb_log_level == TDB_LOG_WARN && _tidesdb_log_file == first);
    ENGINE_LOG(TDB_LOG_ERROR, "for the first again");
    CHECK(logged("warn", "for the first again"));
    CHECK(tidesdb_close(warn) == TDB_SUCCESS);
    CHECK(_tidesdb_log_file == NULL);
    fprintf(first, "a late line goes nowhere\n");
    CHECK(!logged("warn", "late"));
    tidesdb_t *none = open_at("none", TDB_LOG_NONE, 0);
    CHECK(_tidesdb_log_level == TDB_LOG_NONE && _tidesdb_log_file == NULL);
    CHECK(tidesdb_close(none) == TDB_SUCCESS);
}

static void the_library_writes_to_the_programs_file(void)
{
    char text[256] = "";
    FILE *own = tmpfile();
    CHECK(own != NULL);
    tidesdb_t *db = open_at("own", TDB_LOG_INFO, 1);
    _tidesdb_log_file = own;
    tidesdb_log_write(TDB_LOG_INFO, "there.c", 7, "to the file of the %s", "program");
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    CHECK(_tidesdb_log_file == own);
    _tidesdb_log_file = NULL;
    rewind(own);
    CHECK(fgets(text, sizeof text, own) != NULL);
    CHECK(strstr(text, "INFO") != NULL && strstr(text, "there.c:7: to the file of the program\n") != NULL);
    CHECK(!logged("own", "to the file"));
    fclose(own);
}

static void memory_from_before_is_freed_after_finalize(void)
{
    tidesdb_finalize();
    CHECK(strcmp(early, "early") == 0);
    engine_free(early);
}

int main(int argc, char **argv)
{
    if (argc != 2 || mkdir(argv[1], 0700) != 0) return 2;
    snprintf(home, sizeof home, "%s", argv[1]);
    memory_before_any_call_is_of_libc();
    an_open_settles_the_functions();
    init_sets_the_programs_copy();
    the_library_calls_what_the_program_wrote();
    the_log_symbols_follow_the_open_databases();
    the_library_writes_to_the_programs_file();
    memory_from_before_is_freed_after_finalize();
    printf("link: checks=%d\n", checks);
    return 0;
}
