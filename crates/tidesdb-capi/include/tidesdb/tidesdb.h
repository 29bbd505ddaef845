/*
 * TidesDB for C and C++: everything of db.h, the version and the sizes that the defaults start from.
 */
#ifndef TIDESDB_H
#define TIDESDB_H

#include "db.h"
#include "tidesdb_version.h"

/** What tidesdb_default_column_family_config() sets as write_buffer_size, in bytes. */
#define TDB_DEFAULT_WRITE_BUFFER_SIZE (64 * 1024 * 1024)

/** What tidesdb_default_config() sets as block_cache_size, in bytes. */
#define TDB_DEFAULT_BLOCK_CACHE_SIZE (64 * 1024 * 1024)

#endif
