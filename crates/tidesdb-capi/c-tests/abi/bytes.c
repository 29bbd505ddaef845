/* Every byte value in every string of a caller must survive a reopening, or be refused at once with TDB_ERR_INVALID_ARGS. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kit/store.h"

typedef tidesdb_column_family_config_t settings_t;

/* Step between byte values; larger for slow tools. */
static int stride(void)
{
    return 255 / scaled(255, 5);
}

/* Writes a text with the byte at its beginning, in its middle and at its end, and with mark. */
static char *around(char *text, int byte, const char *mark)
{
    sprintf(text, "%c%s%c%s%c", byte, mark, byte, mark, byte);
    return text;
}

/* Returns whether texts with this byte are UTF-8: single bytes from 0x80 on are not. */
static int is_text(int byte)
{
    return byte < 0x80;
}

/* Texts of ordinary bytes with a special meaning in some format. */
static const char *const strange[] = {
    "a\nwrite_buffer_size=7777777",
    "a\r\nwrite_buffer_size=7777777",
    "a\rwrite_buffer_size=7777777",
    "\n[family]\nmin_levels=9",
    "a]\n[other]",
    "a=b:c",
    "a ; b # c",
    "; a comment",
    "[family]",
    "\\n \\x41 \\ \\",
    "%0a \"quoted\" 'twice'",
    " blanks ",
    "\ttabs\t",
    "\xc2\x85 a line end of Unicode \xc2\x85",
    "\xc2\xa0\xe2\x80\xa8\xe2\x80\xa9\xe3\x80\x80\xef\xbb\xbf",
    "\xf0\x9f\x90\x8b",
};
enum { STRANGE = sizeof strange / sizeof strange[0] };

static int backwards(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    (void)ctx;
    return tidesdb_comparator_reverse_memcmp(a, na, b, nb, NULL);
}

/* Creates a family whose comparator has this name and context, with three keys. Returns 0 if the name is refused. */
static int make_ordered(db_t *db, const char *name, const char *context, int number)
{
    char family_name[32];
    snprintf(family_name, sizeof family_name, "family%d", number);
    int rc = tidesdb_register_comparator(db, name, backwards, context, NULL);
    if (rc != TDB_SUCCESS) {
        CHECK_INT(rc, TDB_ERR_INVALID_ARGS);
        return 0;
    }
    settings_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, name);
    cf_t *cf = family_with(db, family_name, &config);
    config.write_buffer_size = 1234567; /* stored when the settings are written a second time */
    OK(tidesdb_cf_update_runtime_config(cf, &config, 1));
    for (const char *key = "bac"; *key != '\0'; key++) put(db, cf, (char[]){*key, '\0'}, "x");
    return 1;
}

static void register_again(db_t *db, const char *name, const char *context)
{
    CHECK(tidesdb_get_column_family(db, "family1000") == NULL);
    OK(tidesdb_register_comparator(db, name, backwards, context, NULL));
}

static void check_ordered(db_t *db, const char *name, const char *context, int number)
{
    char family_name[32];
    snprintf(family_name, sizeof family_name, "family%d", number);
    cf_t *cf = tidesdb_get_column_family(db, family_name);
    if (cf == NULL) fail(__FILE__, __LINE__, "the family with the comparator \"%s\" is missing", name);
    WALK(db, cf, "c b a ");
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    CHECK_STR(stats->config->name, family_name);
    CHECK_STR(stats->config->comparator_name, name);
    CHECK_STR(stats->config->comparator_ctx_str, context);
    CHECK_INT(stats->config->write_buffer_size, 1234567);
    CHECK_INT(stats->config->min_levels, 1);
    tidesdb_free_stats(stats);
}

/* Regression test: a line end in the name or context of a comparator ended its line in the stored settings. Families with
 * that comparator could not be reopened, or the text after the line end was read as another setting. */
static void names_and_contexts_of_comparators(void)
{
    char name[64], context[64];
    int made = 0;
    db_t *db = NULL;
    for (int round = 0; round < 3; round++) {
        if (round < 2) db = open_at("db");
        for (int byte = 1; byte < 256; byte += stride()) {
            around(name, byte, "name");
            around(context, byte, "context");
            int there = is_text(byte);
            if (!there) CHECK_RC(tidesdb_register_comparator(db, name, backwards, "", NULL), TDB_ERR_INVALID_ARGS);
            if (!there) snprintf(name, sizeof name, "name %d", byte); /* the context may contain it */
            if (round == 0) made += make_ordered(db, name, context, byte);
            else if (round == 1) register_again(db, name, context);
            else check_ordered(db, name, context, byte);
        }
        for (int i = 0; i < STRANGE; i++) {
            if (round == 0) made += make_ordered(db, strange[i], strange[STRANGE - 1 - i], 1000 + i);
            else if (round == 1) register_again(db, strange[i], strange[STRANGE - 1 - i]);
            else check_ordered(db, strange[i], strange[STRANGE - 1 - i], 1000 + i);
        }
        if (round != 1) close_db(db);
    }
    CHECK_INT(made, (254 + stride()) / stride() + STRANGE);
}

/* A text that cannot be stored is refused or cut, and the log has a warning. */
static void what_is_refused_is_in_the_log(void)
{
    tidesdb_config_t config = quiet("db");
    config.log_level = TDB_LOG_WARN;
    config.log_to_file = 1;
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    char longest[400];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    CHECK_RC(tidesdb_register_comparator(db, longest, backwards, "", NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_register_comparator(db, "\xff", backwards, "", NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_register_comparator(db, "name", backwards, longest, NULL));
    settings_t settings = tidesdb_default_column_family_config();
    CHECK_RC(tidesdb_cf_config_save_to_ini("f.ini", "a\nb", &settings), TDB_ERR_INVALID_ARGS);
    close_db(db);
    char *log = read_file("db/LOG");
    static const char *const lines[] = {"does not have 1 to 63 bytes", "not UTF-8", "is cut to 255 bytes", "settings not saved"};
    for (int i = 0; i < 4; i++)
        if (strstr(log, lines[i]) == NULL) fail(__FILE__, __LINE__, "no \"%s\" in the log: %s", lines[i], log);
    CHECK(strstr(log, "a\nb") == NULL);
    free(log);
}

/* The context in settings with a built-in comparator, given directly in the settings. */
static void contexts_in_settings(void)
{
    settings_t config = tidesdb_default_column_family_config();
    for (int round = 0; round < 2; round++) {
        db_t *db = open_at("db");
        for (int byte = 1; byte < 256; byte += stride()) {
            char name[32], context[64];
            snprintf(name, sizeof name, "f%d", byte);
            around(context, byte, "context");
            strcpy(config.comparator_ctx_str, context);
            if (round == 0) OK(tidesdb_create_column_family(db, name, &config));
            cf_t *cf = tidesdb_get_column_family(db, name);
            if (cf == NULL) fail(__FILE__, __LINE__, "the family with byte %d is missing", byte);
            tidesdb_stats_t *stats = NULL;
            OK(tidesdb_get_stats(cf, &stats));
            CHECK_STR(stats->config->comparator_ctx_str, context);
            tidesdb_free_stats(stats);
        }
        close_db(db);
    }
}

static void check_saved(const char *file, const char *section, const char *name, const char *context)
{
    settings_t saved = tidesdb_default_column_family_config(), loaded;
    saved.write_buffer_size = 1234567;
    strcpy(saved.comparator_name, name);
    strcpy(saved.comparator_ctx_str, context);
    int rc = tidesdb_cf_config_save_to_ini(file, section, &saved);
    if (rc != TDB_SUCCESS) {
        CHECK(rc == TDB_ERR_INVALID_ARGS || (rc == TDB_ERR_IO && strchr(file, '/') != NULL));
        return;
    }
    OK(tidesdb_cf_config_load_from_ini(file, section, &loaded));
    CHECK_STR(loaded.comparator_name, name);
    CHECK_STR(loaded.comparator_ctx_str, context);
    CHECK_INT(loaded.write_buffer_size, 1234567);
    CHECK_INT(loaded.min_levels, 1);
    unlink(file);
}

static void ini_files(void)
{
    for (int byte = 1; byte < 256; byte += stride()) {
        char text[64];
        around(text, byte, "x");
        check_saved("f.ini", "f", text, "");
        check_saved("f.ini", "f", "", text);
        check_saved("f.ini", text, "a", "b");
        check_saved(text, "f", "a", "b");
    }
    for (int i = 0; i < STRANGE; i++) {
        check_saved("f.ini", "f", strange[i], strange[i]);
        check_saved("f.ini", strange[i], "a", "b");
        check_saved(strange[i], "f", "a", "b");
    }
    check_saved("f.ini", "default", "a", "b");
}

/* Regression test: the section "default" was written without its header, so other programs did not find it. */
static void the_section_default_has_a_head(void)
{
    settings_t config = tidesdb_default_column_family_config(), loaded;
    config.min_levels = 7;
    OK(tidesdb_cf_config_save_to_ini("f.ini", "default", &config));
    char *text = read_file("f.ini");
    CHECK(strstr(text, "[default]") != NULL);
    free(text);
    write_file("f.ini", "min_levels = 5\n");
    OK(tidesdb_cf_config_load_from_ini("f.ini", "default", &loaded));
    CHECK_INT(loaded.min_levels, 5);
}

/* Ordinary values keep their form; other values have their own key, which other programs skip. */
static void ordinary_values_are_plain(void)
{
    settings_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "c:\\order = [1]; #2");
    strcpy(config.comparator_ctx_str, "");
    OK(tidesdb_cf_config_save_to_ini("f.ini", "f", &config));
    char *text = read_file("f.ini");
    CHECK(strstr(text, "\ncomparator_name=c:\\order = [1]; #2\n") != NULL);
    CHECK(strstr(text, "_hex") == NULL);
    free(text);
    strcpy(config.comparator_name, "a\nb");
    OK(tidesdb_cf_config_save_to_ini("f.ini", "f", &config));
    text = read_file("f.ini");
    CHECK(strstr(text, "\ncomparator_name_hex=610a62\n") != NULL);
    CHECK(strstr(text, "\ncomparator_name=") == NULL);
    free(text);
    settings_t loaded;
    static const char *const broken[] = {"6", "6g", "610", "00", "6100", "+1", " "};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "[f]\ncomparator_name_hex=%s\n", broken[i]);
        write_file("f.ini", line);
        CHECK_RC(tidesdb_cf_config_load_from_ini("f.ini", "f", &loaded), TDB_ERR_CORRUPTION);
    }
}

static int listed(db_t *db, const char *name)
{
    char **names = NULL;
    int count = 0, found = 0;
    OK(tidesdb_list_column_families(db, &names, &count));
    for (int i = 0; i < count; i++) {
        found += strcmp(names[i], name) == 0;
        tidesdb_free(names[i]);
    }
    tidesdb_free(names);
    return found;
}

/* Creates the families "created", "renamed" and "cloned" with this text in their names, or finds them. */
static void check_family_names(db_t *db, const char *text, int wanted, int round)
{
    static const char *const ways[] = {"c", "r", "d"};
    settings_t config = tidesdb_default_column_family_config();
    for (int way = 0; way < 3; way++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s%s", text, ways[way], text);
        if (round == 0) {
            int rc = TDB_ERR_UNKNOWN;
            if (way == 0) rc = tidesdb_create_column_family(db, name, &config);
            if (way == 1) {
                OK(tidesdb_create_column_family(db, "to rename", &config));
                rc = tidesdb_rename_column_family(db, "to rename", name);
                if (rc != TDB_SUCCESS) OK(tidesdb_drop_column_family(db, "to rename"));
            }
            if (way == 2) rc = tidesdb_clone_column_family(db, "source", name);
            CHECK_INT(rc, wanted ? TDB_SUCCESS : TDB_ERR_INVALID_ARGS);
            if (rc == TDB_SUCCESS) put(db, tidesdb_get_column_family(db, name), "key", name);
        }
        CHECK_INT(listed(db, name), wanted);
        cf_t *cf = tidesdb_get_column_family(db, name);
        CHECK((cf != NULL) == wanted);
        if (wanted) STORED(db, cf, "key", name);
        if (wanted && round == 1) OK(tidesdb_drop_column_family(db, name));
    }
}

static void names_of_families(void)
{
    for (int round = 0; round < 2; round++) {
        db_t *db = open_at("db");
        family(db, "source");
        for (int byte = 1; byte < 256; byte += stride()) {
            char text[64];
            around(text, byte, "x");
            check_family_names(db, text, is_text(byte), round);
        }
        for (int i = 0; i < STRANGE; i++) check_family_names(db, strange[i], 1, round);
        close_db(db);
    }
}

static void names_of_savepoints(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    for (int byte = 1; byte < 256; byte += stride()) {
        char name[64], other[64];
        around(name, byte, "x");
        around(other, byte == 255 ? 1 : byte + 1, "x");
        txn_t *txn = begin(db);
        OK(tidesdb_txn_put(txn, cf, B("before"), B(name), 0));
        OK(tidesdb_txn_savepoint(txn, name));
        OK(tidesdb_txn_put(txn, cf, B("after"), B(name), 0));
        CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, other), TDB_ERR_NOT_FOUND);
        CHECK_RC(tidesdb_txn_release_savepoint(txn, other), TDB_ERR_NOT_FOUND);
        OK(tidesdb_txn_rollback_to_savepoint(txn, name));
        OK(tidesdb_txn_savepoint(txn, name));
        OK(tidesdb_txn_release_savepoint(txn, name));
        commit(txn);
        STORED(db, cf, "before", name);
        STORED(db, cf, "after", NULL);
    }
    close_db(db);
}

/* Creates a database with a log file, a checkpoint and a backup, in directories with this text in their names. */
static void check_paths(const char *name)
{
    static const char *const kinds[] = {"", "checkpoint", "backup"};
    char path[3][160];
    for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s%s%s", name, kinds[i], name);
    tidesdb_config_t config = quiet(path[0]);
    config.log_level = TDB_LOG_DEBUG;
    config.log_to_file = 1;
    db_t *db = NULL;
    int rc = tidesdb_open(&config, &db);
    if (rc != TDB_SUCCESS) {
        CHECK(rc == TDB_ERR_INVALID_ARGS || (rc == TDB_ERR_IO && strchr(name, '/') != NULL));
        return;
    }
    put(db, family(db, "f"), "key", name);
    OK(tidesdb_checkpoint(db, path[1]));
    OK(tidesdb_backup(db, path[2]));
    close_db(db);
    char log[192];
    snprintf(log, sizeof log, "%s/LOG", path[0]);
    CHECK(access(log, F_OK) == 0);
    for (int i = 0; i < 3; i++) {
        db = open_at(path[i]);
        STORED(db, tidesdb_get_column_family(db, "f"), "key", name);
        close_db(db);
    }
}

static void paths(void)
{
    enum { AT_ONCE = 64 };
    for (int first = 0; first < 256; first += AT_ONCE) {
        char name[AT_ONCE + 1];
        int size = 0;
        for (int byte = first; byte < first + AT_ONCE; byte++)
            if (byte != 0 && byte != '/') name[size++] = (char)byte;
        name[size] = '\0';
        check_paths(name);
    }
    /* At the ends, bytes with a special meaning. */
    for (const char *byte = "\n\t \\/.%\xff"; *byte != '\0'; byte++) {
        char name[64];
        check_paths(around(name, *byte, "y"));
    }
}

const struct test byte_tests[] = {
    TEST(names_and_contexts_of_comparators),
    TEST(what_is_refused_is_in_the_log),
    TEST(contexts_in_settings),
    TEST(ini_files),
    TEST(the_section_default_has_a_head),
    TEST(ordinary_values_are_plain),
    TEST(names_of_families),
    TEST(names_of_savepoints),
    TEST(paths),
    END_OF_TESTS,
};
