/*
 * The version of the C interface of TidesDB. It is the version of the ABI that the library keeps, which is not the
 * version of the engine behind it: programs linked against this major version go on working. The patch counts, too:
 * tidesdb_db_stats_t is longer since 9.3.4 and since 9.3.8, and bindings choose its form by this version.
 */
#ifndef TIDESDB_VERSION_H
#define TIDESDB_VERSION_H

#define TIDESDB_VERSION_MAJOR 9
#define TIDESDB_VERSION_MINOR 3
#define TIDESDB_VERSION_PATCH 14
#define TIDESDB_VERSION "9.3.14"

#endif
