/*
 * Makes twenty commits in one thread, between two marker calls in a trace of the process, to count their syncs. Arguments: a
 * directory, unified_memtable, its sync mode, and the sync mode of the family.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <tidesdb/db.h>

#define CHECK(what) \
    ((what) ? (void)0 : (printf("%s:%d: %s [%s]\n", __FILE__, __LINE__, #what, tidesdb_last_error()), exit(1)))

static void mark(const char *path)
{
    CHECK(access(path, F_OK) != 0);
}

static void commit_one(tidesdb_t *db, tidesdb_column_family_t *cf, int i)
{
    tidesdb_txn_t *txn = NULL;
    CHECK(tidesdb_txn_begin(db, &txn) == TDB_SUCCESS);
    CHECK(tidesdb_txn_put(txn, cf, (const uint8_t *)&i, sizeof i, (const uint8_t *)"v", 1, 0) == TDB_SUCCESS);
    CHECK(tidesdb_txn_commit(txn) == TDB_SUCCESS);
    tidesdb_txn_free(txn);
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = argv[1];
    config.log_level = TDB_LOG_NONE;
    config.unified_memtable = atoi(argv[2]);
    config.unified_memtable_sync_mode = atoi(argv[3]);
    tidesdb_t *db = NULL;
    CHECK(tidesdb_open(&config, &db) == TDB_SUCCESS);
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    settings.sync_mode = atoi(argv[4]);
    CHECK(tidesdb_create_column_family(db, "f", &settings) == TDB_SUCCESS);
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
    CHECK(cf != NULL);
    mark("/the-first-commit");
    for (int i = 0; i < 20; i++) commit_one(db, cf, i);
    mark("/the-last-commit");
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    return 0;
}
