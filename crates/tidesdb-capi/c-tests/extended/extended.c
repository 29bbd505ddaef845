#include "extended.h"

#include <stdlib.h>
#include <unistd.h>

struct shop open_shop(void)
{
    struct shop shop;
    shop.db = open_at("db");
    shop.cf = family(shop.db, "f");
    return shop;
}

void x_put(cf_t *cf, const char *key, const char *value)
{
    OK(tidesdb_x_put(cf, B(key), B(value), NULL, NULL));
}

void x_get(const char *file, int line, cf_t *cf, const tidesdb_x_read_options_t *options, const char *key, const char *want)
{
    char value[256];
    size_t size = 0;
    int rc = tidesdb_x_get(cf, B(key), options, (uint8_t *)value, sizeof value - 1, &size);
    check_rc(file, line, key, rc, want == NULL ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
    if (want == NULL) return;
    value[size] = '\0';
    check_str(file, line, key, value, want);
}

static size_t append(char *text, size_t used, size_t room, const uint8_t *bytes, const tidesdb_x_row_t *row)
{
    const char *key = (const char *)bytes + row->offset;
    int n = snprintf(text + used, room - used, "%.*s=%.*s ", (int)row->key_size, key, (int)row->value_size,
                     key + row->key_size);
    return used + (size_t)n;
}

void x_walk(const char *file, int line, tidesdb_x_iter_t *iter, int forwards, size_t rows_max, const char *want)
{
    uint8_t buffer[4096];
    tidesdb_x_row_t rows[64];
    char text[8192] = "";
    size_t used = 0;
    for (;;) {
        size_t count = 0, needed = 0;
        int rc = forwards ? tidesdb_x_iter_next(iter, buffer, sizeof buffer, rows, rows_max, &count, &needed)
                          : tidesdb_x_iter_prev(iter, buffer, sizeof buffer, rows, rows_max, &count, &needed);
        if (rc == TDB_ERR_NOT_FOUND) break;
        check_rc(file, line, "the next rows", rc, TDB_SUCCESS);
        if (count == 0 || count > rows_max) fail(file, line, "%zu rows of at most %zu", count, rows_max);
        for (size_t i = 0; i < count; i++) used = append(text, used, sizeof text, buffer, &rows[i]);
    }
    check_str(file, line, "the rows", text, want);
}

void x_rows(const char *file, int line, cf_t *cf, const tidesdb_x_read_options_t *options, const char *want)
{
    tidesdb_x_iter_t *iter = NULL;
    check_rc(file, line, "an iterator", tidesdb_x_iter_new(cf, options, NULL, 0, NULL, 0, &iter), TDB_SUCCESS);
    x_walk(file, line, iter, 1, 64, want);
    tidesdb_x_iter_free(iter);
}

uint64_t figure(db_t *db, const char *name)
{
    tidesdb_x_figure_t *all = NULL;
    size_t count = 0;
    OK(tidesdb_x_figures(db, &all, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(all[i].group, "database") != 0 || strcmp(all[i].name, name) != 0) continue;
        uint64_t number = all[i].number;
        tidesdb_free(all);
        return number;
    }
    fail(__FILE__, __LINE__, "no figure %s", name);
}

long anonymous_memory(void)
{
    char *text = read_file("/proc/self/statm");
    long total, resident, shared;
    if (sscanf(text, "%ld %ld %ld", &total, &resident, &shared) != 3) fail(__FILE__, __LINE__, "statm: %s", text);
    free(text);
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}
