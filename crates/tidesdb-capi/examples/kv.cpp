// Example in C++17, with handles that are freed automatically.
//
//   c++ -std=c++17 kv.cpp $(pkg-config --cflags --libs tidesdb) -o kv && ./kv shop

#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <tidesdb/tidesdb.h>

namespace tides {

inline void check(int code)
{
    if (code != TDB_SUCCESS) throw std::runtime_error(std::to_string(code) + ": " + tidesdb_last_error());
}

inline const uint8_t *bytes(std::string_view text)
{
    return reinterpret_cast<const uint8_t *>(text.data());
}

inline std::string_view view(const uint8_t *data, size_t size)
{
    return {reinterpret_cast<const char *>(data), size};
}

// Owns a handle; calls Free with it once.
template <typename T, auto Free> class Handle {
public:
    Handle() = default;
    Handle(Handle &&other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept
    {
        std::swap(raw, other.raw);
        return *this;
    }
    ~Handle() { Free(raw); }
    T *get() const { return raw; }
    T **out() { return &raw; }

private:
    T *raw = nullptr;
};

inline void close(tidesdb_t *db)
{
    if (db != nullptr) tidesdb_close(db);
}

using Iterator = Handle<tidesdb_iter_t, tidesdb_iter_free>;

class Transaction : Handle<tidesdb_txn_t, tidesdb_txn_free> {
public:
    Transaction(tidesdb_t *db, tidesdb_isolation_level_t level)
    {
        check(tidesdb_txn_begin_with_isolation(db, level, out()));
    }

    void put(tidesdb_column_family_t *cf, std::string_view key, std::string_view value)
    {
        check(tidesdb_txn_put(get(), cf, bytes(key), key.size(), bytes(value), value.size(), 0));
    }

    std::optional<std::string> find(tidesdb_column_family_t *cf, std::string_view key)
    {
        uint8_t *value;
        size_t size;
        int code = tidesdb_txn_get(get(), cf, bytes(key), key.size(), &value, &size);
        if (code == TDB_ERR_NOT_FOUND) return std::nullopt;
        check(code);
        std::string found(view(value, size));
        tidesdb_free(value);
        return found;
    }

    // Calls f with every pair.
    template <typename F> void for_each(tidesdb_column_family_t *cf, F f)
    {
        Iterator iter;
        check(tidesdb_iter_new(get(), cf, iter.out()));
        for (int code = tidesdb_iter_seek_to_first(iter.get()); code == TDB_SUCCESS;
             code = tidesdb_iter_next(iter.get())) {
            uint8_t *key, *value;
            size_t key_size, value_size;
            check(tidesdb_iter_key_value(iter.get(), &key, &key_size, &value, &value_size));
            f(view(key, key_size), view(value, value_size));
        }
    }

    void commit() { check(tidesdb_txn_commit(get())); }
};

class Database : Handle<tidesdb_t, close> {
public:
    explicit Database(const std::string &path)
    {
        tidesdb_config_t config = tidesdb_default_config();
        config.db_path = path.c_str();
        config.log_level = TDB_LOG_NONE;
        check(tidesdb_open(&config, out()));
    }

    tidesdb_column_family_t *family(const std::string &name)
    {
        tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
        int code = tidesdb_create_column_family(get(), name.c_str(), &settings);
        if (code != TDB_ERR_EXISTS) check(code);
        return tidesdb_get_column_family(get(), name.c_str());
    }

    Transaction begin(tidesdb_isolation_level_t level = TDB_ISOLATION_SNAPSHOT) { return {get(), level}; }
};

} // namespace tides

int main(int argc, char **argv)
try {
    tides::Database db(argc > 1 ? argv[1] : "shop");
    auto *fruit = db.family("fruit");

    auto writes = db.begin();
    writes.put(fruit, "apple", "red");
    writes.put(fruit, "banana", "yellow");
    writes.commit();

    auto undone = db.begin();
    undone.put(fruit, "carrot", "no fruit");
    undone = db.begin();

    std::cout << "apple is " << undone.find(fruit, "apple").value_or("not there") << "\n";
    std::cout << "carrot is " << undone.find(fruit, "carrot").value_or("not there") << "\n";
    std::cout << "all:\n";
    undone.for_each(fruit, [](auto key, auto value) { std::cout << "  " << key << " = " << value << "\n"; });
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
