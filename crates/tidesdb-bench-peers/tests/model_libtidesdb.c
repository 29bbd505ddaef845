/* A library with the interface of libtidesdb 9, implemented as a sorted array, for testing the adapter. It keeps all data in
 * memory and writes it to a file on close. It is not an engine. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = -2, NOT_FOUND = -3, IO = -4 };

typedef struct {
    char name[128];
    size_t write_buffer_size, level_size_ratio;
    int min_levels, dividing_level_offset;
    size_t klog_value_threshold;
    int compression_algorithm, enable_bloom_filter;
    double bloom_fpr;
    int enable_block_indexes, index_sample_ratio, block_index_prefix_len, sync_mode;
    uint64_t sync_interval_us;
    char comparator_name[64], comparator_ctx[256];
    void *comparator[2];
    char rest[88];
} family_config;

typedef struct {
    const char *db_path;
    int num_flush_threads, num_compaction_threads, log_level;
    size_t block_cache_size, max_open_sstables;
    char rest[88];
} db_config;

_Static_assert(sizeof(family_config) == 624, "as in version 9");
_Static_assert(sizeof(db_config) == 128, "as in version 9");

typedef struct { uint8_t *key, *value; size_t key_size, value_size; int deleted; } row;
typedef struct { row *rows; size_t count, room; } table;
typedef struct { pthread_mutex_t lock; table data; char path[4096]; int has_family; } db;
typedef struct { db *db; table writes; int active; } txn;
typedef struct { table data; size_t at; } iterator;

static uint8_t *copy(const uint8_t *bytes, size_t size) {
    uint8_t *out = malloc(size ? size : 1);
    memcpy(out, bytes, size);
    return out;
}

static int compare(const row *r, const uint8_t *key, size_t size) {
    int order = memcmp(r->key, key, r->key_size < size ? r->key_size : size);
    return order ? order : (r->key_size > size) - (r->key_size < size);
}

static size_t lower_bound(const table *t, const uint8_t *key, size_t size) {
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(&t->rows[middle], key, size) < 0) low = middle + 1; else high = middle;
    }
    return low;
}

static int is_at(const table *t, size_t at, const uint8_t *key, size_t size) {
    return at < t->count && compare(&t->rows[at], key, size) == 0;
}

static void clear(table *t) {
    for (size_t i = 0; i < t->count; i++) { free(t->rows[i].key); free(t->rows[i].value); }
    free(t->rows);
    memset(t, 0, sizeof *t);
}

static void set(table *t, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, int deleted) {
    size_t at = lower_bound(t, key, key_size);
    if (is_at(t, at, key, key_size)) {
        free(t->rows[at].value);
    } else {
        if (t->count == t->room) {
            t->room = t->room ? t->room * 2 : 16;
            t->rows = realloc(t->rows, t->room * sizeof(row));
        }
        memmove(&t->rows[at + 1], &t->rows[at], (t->count++ - at) * sizeof(row));
        t->rows[at].key = copy(key, key_size);
        t->rows[at].key_size = key_size;
    }
    t->rows[at].value = copy(value, value_size);
    t->rows[at].value_size = value_size;
    t->rows[at].deleted = deleted;
}

static void take_away(table *t, const uint8_t *key, size_t size) {
    size_t at = lower_bound(t, key, size);
    if (!is_at(t, at, key, size)) return;
    free(t->rows[at].key);
    free(t->rows[at].value);
    memmove(&t->rows[at], &t->rows[at + 1], (--t->count - at) * sizeof(row));
}

db_config tidesdb_default_config(void) {
    db_config config = {.num_flush_threads = 2, .num_compaction_threads = 2, .block_cache_size = 64 << 20};
    return config;
}

family_config tidesdb_default_column_family_config(void) {
    family_config config = {.write_buffer_size = 64 << 20, .bloom_fpr = 0.01};
    return config;
}

static void file_of(const char *path, char out[4200]) { snprintf(out, 4200, "%s/model", path); }

int tidesdb_open(const db_config *config, db **out) {
    if (!config || !config->db_path || config->num_flush_threads != 1) return INVALID;
    db *d = calloc(1, sizeof *d);
    pthread_mutex_init(&d->lock, NULL);
    snprintf(d->path, sizeof d->path, "%s", config->db_path);
    char name[4200];
    file_of(d->path, name);
    FILE *file = fopen(name, "rb");
    size_t sizes[2];
    d->has_family = file != NULL;
    while (file && fread(sizes, sizeof sizes, 1, file) == 1) {
        uint8_t *bytes = malloc(sizes[0] + sizes[1] + 1);
        if (fread(bytes, 1, sizes[0] + sizes[1], file) != sizes[0] + sizes[1]) return IO;
        set(&d->data, bytes, sizes[0], bytes + sizes[0], sizes[1], 0);
        free(bytes);
    }
    if (file) fclose(file);
    *out = d;
    return OK;
}

int tidesdb_close(db *d) {
    char name[4200];
    file_of(d->path, name);
    FILE *file = fopen(name, "wb");
    if (!file) return IO;
    for (size_t i = 0; i < d->data.count; i++) {
        const row *r = &d->data.rows[i];
        size_t sizes[2] = {r->key_size, r->value_size};
        fwrite(sizes, sizeof sizes, 1, file);
        fwrite(r->key, 1, r->key_size, file);
        fwrite(r->value, 1, r->value_size, file);
    }
    clear(&d->data);
    free(d);
    return fclose(file) ? IO : OK;
}

int tidesdb_create_column_family(db *d, const char *name, const family_config *config) {
    if (strcmp(name, "default") || config->compression_algorithm != 2) return INVALID;
    d->has_family = 1;
    return OK;
}

db *tidesdb_get_column_family(db *d, const char *name) {
    return d->has_family && !strcmp(name, "default") ? d : NULL;
}

int tidesdb_txn_begin_with_isolation(db *d, int isolation, txn **out) {
    if (isolation != 1) return INVALID;
    *out = calloc(1, sizeof **out);
    (*out)->db = d;
    (*out)->active = 1;
    return OK;
}

int tidesdb_txn_put(txn *t, db *family, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, int64_t ttl) {
    if (!t->active || family != t->db || ttl > 0) return INVALID;
    set(&t->writes, key, key_size, value, value_size, 0);
    return OK;
}

int tidesdb_txn_delete(txn *t, db *family, const uint8_t *key, size_t key_size) {
    if (!t->active || family != t->db) return INVALID;
    set(&t->writes, key, key_size, (const uint8_t *)"", 0, 1);
    return OK;
}

int tidesdb_txn_get(txn *t, db *family, const uint8_t *key, size_t key_size, uint8_t **value, size_t *value_size) {
    if (!t->active || family != t->db) return INVALID;
    pthread_mutex_lock(&t->db->lock);
    size_t at = lower_bound(&t->db->data, key, key_size);
    int found = is_at(&t->db->data, at, key, key_size);
    if (found) {
        *value = copy(t->db->data.rows[at].value, t->db->data.rows[at].value_size);
        *value_size = t->db->data.rows[at].value_size;
    }
    pthread_mutex_unlock(&t->db->lock);
    return found ? OK : NOT_FOUND;
}

int tidesdb_txn_commit(txn *t) {
    if (!t->active) return INVALID;
    pthread_mutex_lock(&t->db->lock);
    for (size_t i = 0; i < t->writes.count; i++) {
        const row *r = &t->writes.rows[i];
        if (r->deleted) take_away(&t->db->data, r->key, r->key_size);
        else set(&t->db->data, r->key, r->key_size, r->value, r->value_size, 0);
    }
    pthread_mutex_unlock(&t->db->lock);
    t->active = 0;
    return OK;
}

int tidesdb_txn_reset(txn *t, int isolation) {
    if (t->active || isolation != 1) return INVALID;
    clear(&t->writes);
    t->active = 1;
    return OK;
}

void tidesdb_txn_free(txn *t) { clear(&t->writes); free(t); }

int tidesdb_iter_new(txn *t, db *family, iterator **out) {
    if (family != t->db) return INVALID;
    *out = calloc(1, sizeof **out);
    pthread_mutex_lock(&family->lock);
    for (size_t i = 0; i < family->data.count; i++) {
        const row *r = &family->data.rows[i];
        set(&(*out)->data, r->key, r->key_size, r->value, r->value_size, 0);
    }
    pthread_mutex_unlock(&family->lock);
    return OK;
}

static int state(const iterator *i) { return i->at < i->data.count ? OK : NOT_FOUND; }

int tidesdb_iter_seek(iterator *i, const uint8_t *key, size_t size) { i->at = lower_bound(&i->data, key, size); return state(i); }
int tidesdb_iter_seek_to_first(iterator *i) { i->at = 0; return state(i); }
int tidesdb_iter_next(iterator *i) { i->at++; return state(i); }

int tidesdb_iter_key(iterator *i, uint8_t **key, size_t *key_size) {
    *key = i->data.rows[i->at].key; *key_size = i->data.rows[i->at].key_size;
    return OK;
}

int tidesdb_iter_key_value(iterator *i, uint8_t **key, size_t *key_size, uint8_t **value, size_t *value_size) {
    const row *r = &i->data.rows[i->at];
    *key = r->key; *key_size = r->key_size; *value = r->value; *value_size = r->value_size;
    return OK;
}

void tidesdb_iter_free(iterator *i) { clear(&i->data); free(i); }
int tidesdb_flush_memtable(db *family) { return family ? OK : INVALID; }
int tidesdb_is_flushing(db *family) { (void)family; return 0; }
int tidesdb_is_compacting(db *family) { (void)family; return 0; }
int tidesdb_sync_wal(db *family) { return family ? OK : INVALID; }
int tidesdb_purge_cf(db *family) { return family ? OK : INVALID; }
void tidesdb_free(void *pointer) { free(pointer); }
