/*
 * The version of the C interface of TidesDB. It is the version of the ABI, not of the engine: programs linked against
 * this major version keep working. The patch number matters too: tidesdb_db_stats_t grew in 9.3.4 and in 9.3.8, and
 * bindings choose its layout by this version.
 */
#ifndef TIDESDB_VERSION_H
#define TIDESDB_VERSION_H

#define TIDESDB_VERSION_MAJOR 9
#define TIDESDB_VERSION_MINOR 3
#define TIDESDB_VERSION_PATCH 14
#define TIDESDB_VERSION "9.3.14"

#endif
