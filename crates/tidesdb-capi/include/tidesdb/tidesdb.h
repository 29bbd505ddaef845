/*
 * TidesDB for C and C++: includes db.h and the version; declares default sizes and the library's data symbols.
 */
#ifndef TIDESDB_H
#define TIDESDB_H

#include <stdio.h>

#include "db.h"
#include "tidesdb_version.h"

/** Default write_buffer_size, set by tidesdb_default_column_family_config(), in bytes. */
#define TDB_DEFAULT_WRITE_BUFFER_SIZE (64 * 1024 * 1024)

/** Default block_cache_size, set by tidesdb_default_config(), in bytes. */
#define TDB_DEFAULT_BLOCK_CACHE_SIZE (64 * 1024 * 1024)

/** Declares data of the library. On Windows it is in the DLL; define TIDESDB_STATIC for the static library. */
#if defined(_WIN32) && !defined(TIDESDB_STATIC)
#define TDB_DATA extern __declspec(dllimport)
#else
#define TDB_DATA extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data of the library, for programs that allocate and log through it ---- */

/** Four memory functions that are used together. */
typedef struct tidesdb_allocator_t {
    void *(*malloc_fn)(size_t size);
    void *(*calloc_fn)(size_t count, size_t size);
    void *(*realloc_fn)(void *memory, size_t size);
    void (*free_fn)(void *memory);
} tidesdb_allocator_t;

/** The functions that manage all memory that callers free. They are libc's from load time on; tidesdb_init() sets them and
 * tidesdb_finalize() restores libc's. */
TDB_DATA tidesdb_allocator_t tidesdb_allocator;

/** 1 from tidesdb_init(), tidesdb_ensure_initialized() or tidesdb_open() until tidesdb_finalize(), else 0. Changes atomically. */
TDB_DATA int tidesdb_initialized;

/** The lowest level that any open database logs, a tidesdb_log_level_t. TDB_LOG_INFO until the first tidesdb_open(). */
TDB_DATA int _tidesdb_log_level;

/** The log file of the database that was opened last with log_to_file; NULL (stderr) if there is none. The stream stays
 * valid: after its database is closed, messages written to it are discarded. On Windows only a program with the C library of the DLL,
 * msvcrt, may write to it; others call tidesdb_log_write(). */
TDB_DATA FILE *_tidesdb_log_file;

/** Fixes the functions in tidesdb_allocator, as tidesdb_open() does: later calls of tidesdb_init() fail. */
void tidesdb_ensure_initialized(void);

/** Writes one line to _tidesdb_log_file, whatever its level: callers compare the level with _tidesdb_log_level. format is
 * that of printf; the text is cut after 4095 bytes. file may be NULL; a NULL format writes nothing. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
void tidesdb_log_write(int level, const char *file, int line, const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
