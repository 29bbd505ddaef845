/* Backups by generations. */
#include <stdlib.h>

#include "extended.h"

struct seen {
    int calls;
    uint64_t done, total;
};

static void show(uint64_t done, uint64_t total, void *ctx)
{
    struct seen *seen = ctx;
    seen->calls++;
    seen->done = done;
    seen->total = total;
}

static void a_generation_is_made_proven_and_restored(void)
{
    struct shop shop = open_shop();
    tidesdb_x_backups_t *backups = NULL;
    struct seen seen = {0, 0, 0};
    const tidesdb_x_backup_options_t proven = {
        .size = sizeof proven, .scratch = "scratch", .bytes_per_second = 1 << 30, .progress = show, .ctx = &seen};
    uint64_t first = 0, second = 0;
    for (int n = 0; n < 1000; n++) {
        char key[16];
        snprintf(key, sizeof key, "k%04d", n);
        x_put(shop.cf, key, "first");
    }
    flush(shop.cf);
    OK(tidesdb_x_backups_open("backups", &backups));
    OK(tidesdb_x_backups_create(backups, shop.db, &proven, &first));
    CHECK(seen.calls > 0 && seen.done == seen.total && seen.total > 0);
    x_put(shop.cf, "k0001", "second");
    OK(tidesdb_x_backups_create(backups, shop.db, NULL, &second));
    CHECK(second > first);

    tidesdb_x_generation_t *all = NULL;
    size_t count = 0;
    OK(tidesdb_x_backups_list(backups, &all, &count));
    CHECK_INT(count, 2);
    CHECK_INT(all[0].number, first);
    CHECK(all[0].is_proven == 1 && all[0].proven_ms >= all[0].created_ms && all[0].created_ms > 0);
    CHECK(all[1].is_proven == 0 && all[1].proven_ms == 0);
    CHECK_STR(all[0].database, all[1].database);
    CHECK(all[1].bytes_copied < all[1].bytes && all[1].seq > all[0].seq && all[1].files > 0);
    tidesdb_free(all);

    uint64_t faults = 9;
    char *text = NULL;
    OK(tidesdb_x_backups_verify(backups, second, &faults, &text));
    CHECK_INT(faults, 0);
    CHECK_STR(text, "");
    tidesdb_free(text);
    CHECK_RC(tidesdb_x_backups_verify(backups, 99, &faults, NULL), TDB_ERR_NOT_FOUND);
    close_db(shop.db);

    const struct { uint64_t number; const char *path, *want; } restored[] = {{first, "then", "first"}, {second, "now", "second"}};
    for (int i = 0; i < 2; i++) {
        OK(tidesdb_x_backups_restore(backups, restored[i].number, restored[i].path));
        db_t *db = open_at(restored[i].path);
        X_GET(family(db, "f"), NULL, "k0001", restored[i].want);
        X_GET(family(db, "f"), NULL, "k0999", "first");
        close_db(db);
    }
    CHECK_RC(tidesdb_x_backups_restore(backups, first, "now"), TDB_ERR_EXISTS);
    tidesdb_x_backups_free(backups);
}

static void generations_are_removed(void)
{
    struct shop shop = open_shop();
    tidesdb_x_backups_t *backups = NULL;
    uint64_t numbers[4];
    size_t removed = 0, found = 0;
    OK(tidesdb_x_backups_open("backups", &backups));
    for (int n = 0; n < 4; n++) {
        x_put(shop.cf, "key", "value");
        OK(tidesdb_x_backups_create(backups, shop.db, NULL, &numbers[n]));
    }
    CHECK_RC(tidesdb_x_backups_prune(backups, 0, 0, &removed), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_backups_prune(backups, 3, 0, &removed));
    CHECK_INT(removed, 1);
    OK(tidesdb_x_backups_delete(backups, numbers[1]));
    CHECK_RC(tidesdb_x_backups_delete(backups, numbers[0]), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_x_backups_repair(backups, &found), TDB_ERR_EXISTS);
    tidesdb_x_backups_free(backups);
    CHECK_RC(tidesdb_x_backups_delete(backups, numbers[2]), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
}

/* Each call ends with the piece at which the function says so, and leaves nothing that was begun. */
struct ending {
    struct seen seen;
    uint64_t at;
    int asked;
};

static void note(uint64_t done, uint64_t total, void *ctx)
{
    struct ending *ending = ctx;
    show(done, total, &ending->seen);
}

static int is_over(void *ctx)
{
    struct ending *ending = ctx;
    ending->asked++;
    return ending->seen.done >= ending->at ? 4 : 0;
}

static int always(void *ctx)
{
    (void)ctx;
    return -1;
}

static void calls_on_backups_are_stopped(void)
{
    enum { MIB = 1 << 20, LONG = 5 * MIB };
    struct shop shop = open_shop();
    tidesdb_x_backups_t *backups = NULL;
    struct ending ending = {{0, 0, 0}, MIB, 0};
    tidesdb_x_backup_options_t options = {.size = sizeof options, .progress = note, .ctx = &ending, .stop = is_over};
    const tidesdb_x_backup_options_t at_once = {.size = sizeof at_once, .stop = always};
    uint64_t number = 0, faults = 9;
    uint8_t *value = malloc(LONG);
    uint32_t noise = 7;
    CHECK(value != NULL);
    for (size_t i = 0; i < LONG; i++) {
        noise = noise * 1664525 + 1013904223;
        value[i] = (uint8_t)(noise >> 24);
    }
    OK(tidesdb_x_put(shop.cf, (const uint8_t *)"long", 4, value, LONG, NULL, NULL));
    free(value);
    OK(tidesdb_x_backups_open("backups", &backups));
    CHECK_RC(tidesdb_x_backups_create(backups, shop.db, &options, NULL), TDB_ERR_BUSY);
    CHECK(ending.seen.done >= MIB && ending.seen.done < 3 * MIB && ending.asked == ending.seen.calls);
    CHECK_RC(tidesdb_x_backups_create(backups, shop.db, &at_once, NULL), TDB_ERR_BUSY);
    OK(tidesdb_x_backups_create(backups, shop.db, NULL, &number));
    close_db(shop.db);

    ending.seen.done = 0;
    CHECK_RC(tidesdb_x_backups_verify_with(backups, number, &options, &faults, NULL), TDB_ERR_BUSY);
    CHECK(faults == 9 && ending.seen.done >= MIB && ending.seen.done < 3 * MIB && ending.seen.total > LONG);
    ending.seen.done = 0;
    CHECK_RC(tidesdb_x_backups_restore_with(backups, number, "restored", &options), TDB_ERR_BUSY);
    CHECK(ending.seen.done >= MIB && ending.seen.done < 3 * MIB);
    CHECK_RC(tidesdb_x_backups_restore_with(backups, number, "restored", &at_once), TDB_ERR_BUSY);

    ending.at = UINT64_MAX;
    OK(tidesdb_x_backups_verify_with(backups, number, &options, &faults, NULL));
    CHECK(faults == 0 && ending.seen.done == ending.seen.total);
    OK(tidesdb_x_backups_restore_with(backups, number, "restored", &options));
    CHECK_RC(tidesdb_x_backups_restore_with(backups, number, "restored", NULL), TDB_ERR_EXISTS);
    options.scratch = "scratch";
    CHECK_RC(tidesdb_x_backups_verify_with(backups, number, &options, &faults, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_backups_restore_with(backups, number, "other", &options), TDB_ERR_INVALID_ARGS);
    close_db(open_at("restored"));
    tidesdb_x_backups_free(backups);
}

/* A connector of the library is taken over, any other is not. */
static void generations_are_kept_in_a_connector(void)
{
    struct shop shop = open_shop();
    tidesdb_x_backups_t *backups = NULL;
    uint64_t number = 0;
    tidesdb_objstore_t *store = tidesdb_objstore_fs_create("objects"), changed = {0}, *none = NULL;
    CHECK(store != NULL);
    changed = *store;
    changed.list = NULL;
    CHECK_RC(tidesdb_x_backups_open_store(&changed, &backups), TDB_ERR_INVALID_ARGS);
    changed = *store;
    changed.exists = NULL;
    CHECK_RC(tidesdb_x_backups_open_store(&changed, &backups), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_backups_open_store(none, &backups), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_backups_open_store(store, NULL), TDB_ERR_INVALID_ARGS);
    /* Regression test: one that a database uses was taken, too, and freed twice. */
    tidesdb_config_t config = quiet("copied");
    db_t *copied = NULL, *second = NULL;
    tidesdb_objstore_t *used = tidesdb_objstore_fs_create("used");
    config.object_store = used;
    OK(tidesdb_open(&config, &copied));
    CHECK_RC(tidesdb_x_backups_open_store(used, &backups), TDB_ERR_INVALID_ARGS);
    tidesdb_config_t other = quiet("other");
    other.object_store = used;
    CHECK_RC(tidesdb_open(&other, &second), TDB_ERR_INVALID_ARGS);
    close_db(copied);
    OK(tidesdb_x_backups_open_store(store, &backups));
    x_put(shop.cf, "key", "first");
    OK(tidesdb_x_backups_create(backups, shop.db, NULL, &number));
    close_db(shop.db);
    OK(tidesdb_x_backups_restore(backups, number, "restored"));
    tidesdb_x_backups_free(backups);
}

const struct test backup_tests[] = {
    TEST(a_generation_is_made_proven_and_restored),
    TEST(generations_are_removed),
    TEST(calls_on_backups_are_stopped),
    TEST(generations_are_kept_in_a_connector),
    END_OF_TESTS,
};
