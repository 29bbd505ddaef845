/*
 * TidesDB for C++20: most of tidesdb/extended.h with objects that free themselves, in one header. docs/how-to/c.md names what it lacks.
 *
 * Calls that fail throw tidesdb::Error, with the code and the text of tidesdb_last_error(); what may be missing is std::optional or bool. Keys and
 * values are tidesdb::Bytes, which anything with contiguous bytes converts to, and come back as std::string, or as std::string_view where the header
 * says how long they live. Exceptions of the program's own functions do not pass through the library: they become failures of the call that needed
 * the function.
 *
 * The rules of handles and threads are those of extended.h. An object must be destroyed before its database is: a Database that is destroyed
 * closes, after which other objects only free themselves.
 */
#ifndef TIDESDB_EXTENDED_HPP
#define TIDESDB_EXTENDED_HPP

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "extended.h"

namespace tidesdb {

/** A failure: code() is one of the TDB_ERR_ codes. */
class Error : public std::runtime_error {
public:
    Error(int code, const char *text) : std::runtime_error(text), number(code) {}
    [[nodiscard]] int code() const noexcept { return number; }

private:
    int number;
};

/** Bytes that somebody else owns. */
class Bytes {
public:
    constexpr Bytes() = default;
    Bytes(std::string_view text) : at(reinterpret_cast<const std::uint8_t *>(text.data())), length(text.size()) {}
    Bytes(const std::string &text) : Bytes(std::string_view(text)) {}
    Bytes(const char *text) : Bytes(std::string_view(text)) {}
    /** A span, vector or array of one-byte elements. */
    template <std::ranges::contiguous_range Range>
        requires(sizeof(std::ranges::range_value_t<Range>) == 1 && !std::is_array_v<std::remove_cvref_t<Range>> &&
                 !std::convertible_to<const Range &, std::string_view> && std::ranges::sized_range<Range>)
    Bytes(const Range &range)
        : at(reinterpret_cast<const std::uint8_t *>(std::ranges::data(range))), length(std::ranges::size(range))
    {
    }
    [[nodiscard]] constexpr const std::uint8_t *data() const noexcept { return at; }
    [[nodiscard]] constexpr std::size_t size() const noexcept { return length; }

private:
    const std::uint8_t *at = nullptr;
    std::size_t length = 0;
};

/** A row. How long it lives is said where it comes from. */
struct Row {
    std::string_view key, value;
    [[nodiscard]] std::span<const std::byte> key_bytes() const { return std::as_bytes(std::span(key)); }
    [[nodiscard]] std::span<const std::byte> value_bytes() const { return std::as_bytes(std::span(value)); }
};

namespace detail {

inline void check(int code)
{
    if (code != TDB_SUCCESS) throw Error(code, tidesdb_last_error());
}

/** Returns false for TDB_ERR_NOT_FOUND. */
inline bool found(int code)
{
    if (code == TDB_ERR_NOT_FOUND) return false;
    check(code);
    return true;
}

inline std::string_view view(const std::uint8_t *at, std::size_t size)
{
    return {reinterpret_cast<const char *>(at), size};
}

inline std::uint8_t *room(std::string &text)
{
    return reinterpret_cast<std::uint8_t *>(text.data());
}

/** An address that is not NULL, where NULL means that there is nothing. */
inline const std::uint8_t *some(Bytes bytes)
{
    static const std::uint8_t empty = 0;
    return bytes.data() == nullptr ? &empty : bytes.data();
}

/** Owns a handle of C. */
template <typename T, auto Free> class Handle {
public:
    Handle() = default;
    Handle(Handle &&other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept
    {
        std::swap(raw, other.raw);
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle()
    {
        if (raw != nullptr) static_cast<void>(Free(raw));
    }
    [[nodiscard]] T *get() const noexcept { return raw; }
    [[nodiscard]] T **out() noexcept { return &raw; }
    [[nodiscard]] T *release() noexcept { return std::exchange(raw, nullptr); }

private:
    T *raw = nullptr;
};

/** Memory of the library. */
template <typename T> void free_array(T *memory)
{
    tidesdb_free(const_cast<void *>(static_cast<const void *>(memory)));
}

template <typename T> struct Array : Handle<T, free_array<T>> {
    std::size_t count = 0;
};

/** Reads a value or a row whose size is not known: again with the size that the library asks for. */
template <typename Call> int grow(std::string &buffer, Call call)
{
    for (;;) {
        std::size_t needed = 0;
        int code = call(room(buffer), buffer.size(), &needed);
        if (code != TDB_ERR_TOO_LARGE || needed <= buffer.size()) {
            if (code == TDB_SUCCESS) buffer.resize(needed);
            return code;
        }
        buffer.resize(needed);
    }
}

/** Reads a row into one string, and divides it. */
template <typename Call> std::optional<std::pair<std::string, std::string>> row(Call call)
{
    std::string buffer(128, '\0');
    tidesdb_x_row_t place{};
    const auto sized = [&](std::uint8_t *at, std::size_t capacity, std::size_t *needed) {
        const int code = call(at, capacity, &place);
        *needed = place.key_size + place.value_size;
        return code;
    };
    if (!found(grow(buffer, sized))) return std::nullopt;
    return std::pair(buffer.substr(0, place.key_size), buffer.substr(place.key_size, place.value_size));
}

} // namespace detail

/** When a commit is durable. */
enum class Sync { of_families = TDB_X_SYNC_DEFAULT, none = TDB_X_SYNC_NONE, full = TDB_X_SYNC_FULL };

/** How to write. Of ttl, expires_at_ms and never_expires one at most, for puts. */
struct WriteOptions {
    Sync sync = Sync::of_families;
    /** If not 0, the commit is durable after this time at the latest, and sync does not count. */
    std::chrono::microseconds sync_interval{0};
    std::chrono::milliseconds ttl{0};
    std::uint64_t expires_at_ms = 0;
    bool never_expires = false;

    [[nodiscard]] tidesdb_x_write_options_t raw() const
    {
        tidesdb_x_write_options_t raw{};
        raw.size = sizeof raw;
        raw.sync_mode = sync_interval.count() > 0 ? static_cast<int>(TDB_X_SYNC_INTERVAL) : static_cast<int>(sync);
        raw.sync_interval_us = static_cast<std::uint64_t>(sync_interval.count());
        raw.ttl_ms = static_cast<std::uint64_t>(ttl.count());
        raw.expires_at_ms = expires_at_ms;
        if (never_expires) raw.flags |= TDB_X_NEVER_EXPIRES;
        return raw;
    }
};

/** Shows a moment of all families. Any number of threads may use it. */
class Snapshot {
public:
    [[nodiscard]] std::uint64_t seq() const
    {
        std::uint64_t seq = 0;
        detail::check(tidesdb_x_snapshot_seq(handle.get(), &seq));
        return seq;
    }
    [[nodiscard]] tidesdb_x_snapshot_t *raw() const { return handle.get(); }

private:
    friend class Database;
    detail::Handle<tidesdb_x_snapshot_t, tidesdb_x_snapshot_free> handle;
};

class Transaction;

/** What a read sees: the newest commits, or a transaction with its own writes, or a snapshot. */
struct ReadOptions {
    const Transaction *transaction = nullptr;
    const Snapshot *snapshot = nullptr;
    /** For rows(), descending(), with_prefix(), first() and last(), whose values are empty then. Reads that return a value alone refuse it. */
    bool keys_only = false;
    /** The commit of the transaction does not depend on this read. For get(), get_into() and contains(); other reads refuse it. */
    bool untracked = false;

    [[nodiscard]] inline tidesdb_x_read_options_t raw() const;
};

/** The rows of a range, in order: an input range of Row, each valid until the iterator moves to the next. A call of the library brings many of them.
 * They are as they were when this was created. In a transaction they include its writes before; later ones, and at TDB_ISOLATION_READ_UNCOMMITTED
 * commits of others, may or may not be shown. */
class Rows {
public:
    class Iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = Row;
        using difference_type = std::ptrdiff_t;
        Iterator() = default;
        explicit Iterator(Rows *owner) : rows(owner) { settle(); }
        Row operator*() const { return rows->here(); }
        Iterator &operator++()
        {
            rows->at++;
            settle();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator &it, std::default_sentinel_t) { return it.rows == nullptr; }

    private:
        void settle()
        {
            if (!rows->load()) rows = nullptr;
        }
        Rows *rows = nullptr;
    };

    /** Goes on from where it stands. */
    [[nodiscard]] Iterator begin() { return Iterator(this); }
    [[nodiscard]] std::default_sentinel_t end() const { return {}; }

    /** Goes to the first key at or after key; for descending rows to the last one at or before it. */
    void seek(Bytes key)
    {
        at = count = 0;
        detail::check(descends ? tidesdb_x_iter_seek_for_prev(handle.get(), key.data(), key.size())
                               : tidesdb_x_iter_seek(handle.get(), key.data(), key.size()));
    }

private:
    friend class Family;
    static constexpr std::size_t ROWS_MAX = 1024, BYTES_MAX = 256 << 10;

    bool load()
    {
        if (at < count) return true;
        at = count = 0;
        const auto lend = descends ? tidesdb_x_iter_lend_prev : tidesdb_x_iter_lend_next;
        return detail::found(lend(handle.get(), ROWS_MAX, BYTES_MAX, &bytes, &places, &count));
    }
    [[nodiscard]] Row here() const
    {
        const tidesdb_x_row_t &place = places[at];
        const std::uint8_t *key = bytes + place.offset;
        return {detail::view(key, place.key_size), detail::view(key + place.key_size, place.value_size)};
    }

    detail::Handle<tidesdb_x_iter_t, tidesdb_x_iter_free> handle;
    bool descends = false;
    const std::uint8_t *bytes = nullptr;
    const tidesdb_x_row_t *places = nullptr;
    std::size_t at = 0, count = 0;
};

/** A range of keys: from start, included, to end, not included; an empty one is no limit. */
struct Range {
    Bytes start{}, end{};
};

/** Writes a value of any length piece by piece. One that is not committed is discarded. */
class ValueWriter {
public:
    void write(Bytes piece) { detail::check(tidesdb_x_value_writer_write(handle.get(), piece.data(), piece.size())); }
    std::uint64_t commit()
    {
        std::uint64_t seq = 0;
        detail::check(tidesdb_x_value_writer_commit(handle.get(), &seq));
        return seq;
    }
    inline void join(Transaction &transaction);

private:
    friend class Family;
    detail::Handle<tidesdb_x_value_writer_t, tidesdb_x_value_writer_free> handle;
};

/** Reads a value of any length, as it was when the reader was created. */
class ValueReader {
public:
    [[nodiscard]] std::uint64_t size() const { return length; }
    /** Fills buffer as far as there are bytes; returns how many, 0 at the end. */
    std::size_t read(std::span<std::byte> buffer)
    {
        std::size_t size = 0;
        detail::check(tidesdb_x_value_reader_read(handle.get(), reinterpret_cast<std::uint8_t *>(buffer.data()), buffer.size(), &size));
        return size;
    }
    std::size_t read_at(std::uint64_t offset, std::span<std::byte> buffer)
    {
        std::size_t size = 0;
        auto *at = reinterpret_cast<std::uint8_t *>(buffer.data());
        detail::check(tidesdb_x_value_reader_read_at(handle.get(), offset, at, buffer.size(), &size));
        return size;
    }

private:
    friend class Family;
    detail::Handle<tidesdb_x_value_reader_t, tidesdb_x_value_reader_free> handle;
    std::uint64_t length = 0;
};

/** What an ingest has taken. */
struct Ingested {
    std::uint64_t seq, tables, rows, bytes;
};

/** Writes sorted rows to tables, past the log. */
class Builder {
public:
    void put(Bytes key, Bytes value, const WriteOptions &options = {})
    {
        const auto raw = options.raw();
        detail::check(tidesdb_x_builder_put(handle.get(), key.data(), key.size(), value.data(), value.size(), &raw));
    }
    void erase(Bytes key) { add(TDB_X_OP_DELETE, key, {}); }
    void merge(Bytes key, Bytes operand) { add(TDB_X_OP_MERGE, key, operand); }
    void erase_range(Range range) { add(TDB_X_OP_DELETE_RANGE, range.start, range.end); }

    /** Takes the rows as one commit; for a builder without a stem. */
    Ingested commit(const WriteOptions &options = {})
    {
        const auto raw = options.raw();
        tidesdb_x_ingested_t taken{};
        taken.size = sizeof taken;
        detail::check(tidesdb_x_builder_commit(handle.get(), &raw, &taken));
        return {taken.seq, taken.tables, taken.rows, taken.bytes};
    }
    /** Completes the files of a builder with a stem; returns their paths. */
    std::vector<std::string> finish()
    {
        detail::Array<const char *> paths;
        detail::check(tidesdb_x_builder_finish(handle.get(), paths.out(), &paths.count));
        return {paths.get(), paths.get() + paths.count};
    }

private:
    friend class Family;
    void add(int kind, Bytes key, Bytes value)
    {
        const auto kinds = static_cast<std::uint8_t>(kind);
        const std::size_t sizes[] = {key.size(), value.size()};
        std::string both(detail::view(key.data(), key.size()));
        both += detail::view(value.data(), value.size());
        detail::check(tidesdb_x_builder_add(handle.get(), &kinds, detail::some(Bytes(both)), sizes, 1, nullptr));
    }
    detail::Handle<tidesdb_x_builder_t, tidesdb_x_builder_free> handle;
};

/** A column family. Copies are the same family; all of them belong to their database. */
class Family {
public:
    explicit Family(tidesdb_column_family_t *raw) : handle(raw) {}
    [[nodiscard]] tidesdb_column_family_t *raw() const { return handle; }

    std::uint64_t put(Bytes key, Bytes value, const WriteOptions &options = {}) const
    {
        return write(options, [&](const auto *how, auto *seq) {
            return tidesdb_x_put(handle, key.data(), key.size(), value.data(), value.size(), how, seq);
        });
    }
    std::uint64_t erase(Bytes key, const WriteOptions &options = {}) const
    {
        return write(options, [&](const auto *how, auto *seq) { return tidesdb_x_delete(handle, key.data(), key.size(), how, seq); });
    }
    std::uint64_t single_erase(Bytes key, const WriteOptions &options = {}) const
    {
        return write(options, [&](const auto *how, auto *seq) {
            return tidesdb_x_single_delete(handle, key.data(), key.size(), how, seq);
        });
    }
    std::uint64_t merge(Bytes key, Bytes operand, const WriteOptions &options = {}) const
    {
        return write(options, [&](const auto *how, auto *seq) {
            return tidesdb_x_merge(handle, key.data(), key.size(), operand.data(), operand.size(), how, seq);
        });
    }
    std::uint64_t erase_range(Range range, const WriteOptions &options = {}) const
    {
        return write(options, [&](const auto *how, auto *seq) {
            return tidesdb_x_delete_range(handle, range.start.data(), range.start.size(), range.end.data(), range.end.size(), how, seq);
        });
    }
    std::uint64_t erase_prefix(Bytes prefix, const WriteOptions &options = {}) const
    {
        return write(options, [&](const auto *how, auto *seq) {
            return tidesdb_x_delete_prefix(handle, prefix.data(), prefix.size(), how, seq);
        });
    }

    /** Sets the value to next if it is expected; nullopt stands for a key that is missing. Returns whether it was. */
    bool compare_and_swap(Bytes key, std::optional<Bytes> expected, std::optional<Bytes> next, const WriteOptions &options = {}) const
    {
        const auto raw = options.raw();
        const auto at = [](const std::optional<Bytes> &bytes) { return bytes ? detail::some(*bytes) : nullptr; };
        const auto size = [](const std::optional<Bytes> &bytes) { return bytes ? bytes->size() : 0; };
        int swapped = 0;
        detail::check(tidesdb_x_compare_and_swap(handle, key.data(), key.size(), at(expected), size(expected), at(next), size(next), &raw,
                                                 &swapped));
        return swapped != 0;
    }
    /** Deletes the first row and returns it; threads that do so at once get different rows. */
    std::optional<std::pair<std::string, std::string>> pop_first(const WriteOptions &options = {}) const
    {
        const auto raw = options.raw();
        return detail::row([&](auto *at, auto room, auto *row) { return tidesdb_x_pop_first(handle, &raw, at, room, row); });
    }
    std::optional<std::pair<std::string, std::string>> pop_last(const WriteOptions &options = {}) const
    {
        const auto raw = options.raw();
        return detail::row([&](auto *at, auto room, auto *row) { return tidesdb_x_pop_last(handle, &raw, at, room, row); });
    }

    [[nodiscard]] std::optional<std::string> get(Bytes key, const ReadOptions &options = {}) const
    {
        std::string value;
        if (get_into(key, value, options)) return value;
        return std::nullopt;
    }
    /** Reads the value into a string whose memory is used again. Returns false, and leaves the string in any state, if there is no such key. */
    bool get_into(Bytes key, std::string &value, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        value.resize(value.capacity());
        return detail::found(detail::grow(value, [&](auto *at, auto room, auto *size) {
            return tidesdb_x_get(handle, key.data(), key.size(), &raw, at, room, size);
        }));
    }
    [[nodiscard]] bool contains(Bytes key, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        return detail::found(tidesdb_x_contains(handle, key.data(), key.size(), &raw));
    }
    /** The values of many keys, of one moment, with one call. */
    [[nodiscard]] std::vector<std::optional<std::string>> multi_get(std::span<const Bytes> keys, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        std::string all, buffer(4096, '\0');
        std::vector<std::size_t> sizes;
        for (const Bytes &key : keys) {
            all += detail::view(key.data(), key.size());
            sizes.push_back(key.size());
        }
        std::vector<tidesdb_x_span_t> spans(keys.size());
        detail::check(detail::grow(buffer, [&](auto *at, auto room, auto *needed) {
            return tidesdb_x_multi_get(handle, detail::some(Bytes(all)), sizes.data(), sizes.size(), &raw, at, room, spans.data(), needed);
        }));
        std::vector<std::optional<std::string>> values;
        for (const auto &span : spans) {
            if (span.offset == TDB_X_NONE) values.emplace_back();
            else values.emplace_back(buffer.substr(span.offset, span.size));
        }
        return values;
    }
    [[nodiscard]] std::optional<std::pair<std::string, std::string>> first(const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        return detail::row([&](auto *at, auto room, auto *row) { return tidesdb_x_first(handle, &raw, at, room, row); });
    }
    [[nodiscard]] std::optional<std::pair<std::string, std::string>> last(const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        return detail::row([&](auto *at, auto room, auto *row) { return tidesdb_x_last(handle, &raw, at, room, row); });
    }
    /** When the row expires, in UNIX milliseconds; 0: never; nullopt: there is no such key. */
    [[nodiscard]] std::optional<std::uint64_t> expiry(Bytes key, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        std::uint64_t moment = 0;
        if (detail::found(tidesdb_x_expiry(handle, key.data(), key.size(), &raw, &moment))) return moment;
        return std::nullopt;
    }

    /** The rows of a range, ascending. */
    [[nodiscard]] Rows rows(Range range = {}, const ReadOptions &options = {}) const { return walk(range, options, false); }
    /** The rows of a range, descending. */
    [[nodiscard]] Rows descending(Range range = {}, const ReadOptions &options = {}) const { return walk(range, options, true); }
    /** The rows whose keys begin with prefix, ascending. */
    [[nodiscard]] Rows with_prefix(Bytes prefix, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        Rows rows;
        detail::check(tidesdb_x_iter_new_prefix(handle, &raw, prefix.data(), prefix.size(), rows.handle.out()));
        return rows;
    }

    [[nodiscard]] ValueWriter write_value(Bytes key, const WriteOptions &options = {}) const
    {
        const auto raw = options.raw();
        ValueWriter writer;
        detail::check(tidesdb_x_value_writer_new(handle, key.data(), key.size(), &raw, writer.handle.out()));
        return writer;
    }
    [[nodiscard]] std::optional<ValueReader> read_value(Bytes key, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        ValueReader reader;
        const int code = tidesdb_x_value_reader_new(handle, key.data(), key.size(), &raw, reader.handle.out(), &reader.length);
        if (!detail::found(code)) return std::nullopt;
        return reader;
    }

    /** Builds tables of sorted rows: to files whose names begin with stem, or for a commit of this database. */
    [[nodiscard]] Builder builder(const char *stem = nullptr) const
    {
        Builder builder;
        detail::check(tidesdb_x_builder_new(handle, stem, builder.handle.out()));
        return builder;
    }

    void flush() const { detail::check(tidesdb_x_flush(handle)); }
    void compact(Range range = {}) const
    {
        detail::check(tidesdb_x_compact_range(handle, range.start.data(), range.start.size(), range.end.data(), range.end.size()));
    }
    [[nodiscard]] std::uint64_t setting(const char *name) const
    {
        std::uint64_t value = 0;
        detail::check(tidesdb_x_family_get(handle, name, &value));
        return value;
    }
    void set(const char *name, std::uint64_t value, bool persist = true) const
    {
        detail::check(tidesdb_x_family_set(handle, name, value, persist ? 1 : 0));
    }
    /** Why a read costs what it costs. */
    [[nodiscard]] std::string explain(Bytes key, const ReadOptions &options = {}) const
    {
        const auto raw = options.raw();
        detail::Array<char> text;
        detail::check(tidesdb_x_explain(handle, key.data(), key.size(), &raw, text.out()));
        return text.get();
    }

private:
    template <typename Call> static std::uint64_t write(const WriteOptions &options, Call call)
    {
        const auto raw = options.raw();
        std::uint64_t seq = 0;
        detail::check(call(&raw, &seq));
        return seq;
    }
    [[nodiscard]] Rows walk(Range range, const ReadOptions &options, bool descends) const
    {
        const auto raw = options.raw();
        Rows rows;
        rows.descends = descends;
        detail::check(tidesdb_x_iter_new(handle, &raw, range.start.data(), range.start.size(), range.end.data(), range.end.size(),
                                         rows.handle.out()));
        return rows;
    }
    tidesdb_column_family_t *handle;
};

/** Writes to any families, committed as a whole. */
class Batch {
public:
    void put(const Family &family, Bytes key, Bytes value, const WriteOptions &options = {})
    {
        const auto raw = options.raw();
        detail::check(tidesdb_x_batch_put(handle.get(), family.raw(), key.data(), key.size(), value.data(), value.size(), &raw));
    }
    void erase(const Family &family, Bytes key) { detail::check(tidesdb_x_batch_delete(handle.get(), family.raw(), key.data(), key.size())); }
    void merge(const Family &family, Bytes key, Bytes operand)
    {
        detail::check(tidesdb_x_batch_merge(handle.get(), family.raw(), key.data(), key.size(), operand.data(), operand.size()));
    }
    void erase_range(const Family &family, Range range)
    {
        detail::check(tidesdb_x_batch_delete_range(handle.get(), family.raw(), range.start.data(), range.start.size(), range.end.data(),
                                                   range.end.size()));
    }
    [[nodiscard]] std::size_t size() const
    {
        std::size_t count = 0;
        detail::check(tidesdb_x_batch_size(handle.get(), &count, nullptr));
        return count;
    }
    void clear() { detail::check(tidesdb_x_batch_clear(handle.get())); }
    /** Commits the batch, which is empty afterwards. */
    std::uint64_t write(const WriteOptions &options = {})
    {
        const auto raw = options.raw();
        std::uint64_t seq = 0;
        detail::check(tidesdb_x_batch_write(handle.get(), &raw, &seq));
        return seq;
    }

private:
    friend class Database;
    detail::Handle<tidesdb_x_batch_t, tidesdb_x_batch_free> handle;
};

/** A transaction. One that is not committed is rolled back. */
class Transaction {
public:
    [[nodiscard]] tidesdb_txn_t *raw() const { return handle.get(); }
    void put(const Family &family, Bytes key, Bytes value, const WriteOptions &options = {})
    {
        const auto raw = options.raw();
        detail::check(tidesdb_x_txn_put(handle.get(), family.raw(), key.data(), key.size(), value.data(), value.size(), &raw));
    }
    void erase(const Family &family, Bytes key) { detail::check(tidesdb_txn_delete(handle.get(), family.raw(), key.data(), key.size())); }
    void merge(const Family &family, Bytes key, Bytes operand)
    {
        detail::check(tidesdb_x_txn_merge(handle.get(), family.raw(), key.data(), key.size(), operand.data(), operand.size()));
    }
    void erase_range(const Family &family, Range range)
    {
        detail::check(tidesdb_x_txn_delete_range(handle.get(), family.raw(), range.start.data(), range.start.size(), range.end.data(),
                                                 range.end.size()));
    }
    [[nodiscard]] std::optional<std::string> get(const Family &family, Bytes key) const
    {
        return family.get(key, ReadOptions{.transaction = this});
    }
    /** Throws an Error with TDB_ERR_CONFLICT if another commit is in the way. */
    std::uint64_t commit(const WriteOptions &options = {})
    {
        const auto raw = options.raw();
        std::uint64_t seq = 0;
        detail::check(tidesdb_x_txn_commit(handle.get(), &raw, &seq));
        return seq;
    }
    void rollback() { detail::check(tidesdb_txn_rollback(handle.get())); }

private:
    friend class Database;
    detail::Handle<tidesdb_txn_t, tidesdb_txn_free> handle;
};

inline tidesdb_x_read_options_t ReadOptions::raw() const
{
    tidesdb_x_read_options_t raw{};
    raw.size = sizeof raw;
    raw.txn = transaction == nullptr ? nullptr : transaction->raw();
    raw.snapshot = snapshot == nullptr ? nullptr : snapshot->raw();
    if (keys_only) raw.flags |= TDB_X_KEYS_ONLY;
    if (untracked) raw.flags |= TDB_X_UNTRACKED;
    return raw;
}

inline void ValueWriter::join(Transaction &transaction)
{
    detail::check(tidesdb_x_value_writer_join(handle.get(), transaction.raw()));
}

/** Combines a value with an operand: changes value, or throws, and then reads of the key throw. It must be associative. */
using Merge = std::function<void(std::string &value, std::string_view operand)>;

/** A merge operator of the program. */
struct MergeOperator {
    std::string name;
    Merge merge;
};

/** A figure: see tidesdb_x_figure_t. */
struct Figure {
    std::string group, of, name, unit;
    int level;
    double value;
};

/** A generation of a backup: see tidesdb_x_generation_t. */
struct Generation {
    std::uint64_t number, created_ms, seq, files, bytes, bytes_copied, proven_ms;
    bool is_proven;
    std::string database;
};

/** What several databases share: a limit for their memory, a block cache and threads. Any number of threads may use it. */
class Resources {
public:
    /** With defaults for what is 0. */
    explicit Resources(std::uint64_t memory_limit = 0, std::uint64_t cache_bytes = 0, std::uint64_t threads = 0)
    {
        tidesdb_x_resources_options_t options{};
        options.size = sizeof options;
        options.memory_limit = memory_limit;
        options.cache_bytes = cache_bytes;
        options.threads = threads;
        detail::check(tidesdb_x_resources_new(&options, handle.out()));
    }
    [[nodiscard]] tidesdb_x_resources_t *raw() const { return handle.get(); }
    [[nodiscard]] tidesdb_x_resources_use_t use() const
    {
        tidesdb_x_resources_use_t use{};
        use.size = sizeof use;
        detail::check(tidesdb_x_resources_use(handle.get(), &use));
        return use;
    }
    /** Bytes per second that the merges of all databases may write; 0: no limit. */
    void set_compaction_rate(std::uint64_t bytes_per_second) const
    {
        detail::check(tidesdb_x_resources_set_compaction_rate(handle.get(), bytes_per_second));
    }

private:
    detail::Handle<tidesdb_x_resources_t, tidesdb_x_resources_free> handle;
};

/** How to open a database. */
struct OpenOptions {
    std::string path;
    tidesdb_config_t config = tidesdb_default_config();
    std::vector<MergeOperator> merge_operators{};
    std::uint64_t history_bytes = 0;
    bool read_only = false;
    bool must_exist = false;
    /** Shared with other databases. It may go before them. */
    const Resources *resources = nullptr;
    bool must_be_new = false;
};

/** Tables for a family, for Database::ingest(). */
struct Tables {
    Family family;
    std::vector<std::string> paths;
};

/** An open database. */
class Database {
public:
    explicit Database(const std::string &path) : Database(OpenOptions{.path = path}) {}
    explicit Database(OpenOptions options) : operators(std::make_unique<std::vector<MergeOperator>>(std::move(options.merge_operators)))
    {
        options.config.db_path = const_cast<char *>(options.path.c_str());
        std::vector<tidesdb_x_merge_operator_t> raw;
        for (auto &one : *operators) raw.push_back({sizeof raw[0], one.name.c_str(), call_merge, nullptr, &one});
        tidesdb_x_open_options_t how{};
        how.size = sizeof how;
        how.config = &options.config;
        how.merge_operators = raw.data();
        how.merge_operator_count = raw.size();
        how.history_bytes = options.history_bytes;
        if (options.read_only) how.flags |= TDB_X_READ_ONLY;
        if (options.must_exist) how.flags |= TDB_X_MUST_EXIST;
        how.resources = options.resources == nullptr ? nullptr : options.resources->raw();
        if (options.must_be_new) how.flags |= TDB_X_MUST_BE_NEW;
        detail::check(tidesdb_x_open(&how, handle.out()));
    }
    /** Closes the database. In a function that the library calls it cannot: the database stays open, with its merge operators. */
    ~Database()
    {
        if (handle.get() != nullptr && tidesdb_close(handle.release()) == TDB_ERR_BUSY) static_cast<void>(operators.release());
    }
    Database(Database &&) noexcept = default;
    Database &operator=(Database &&other) noexcept
    {
        std::swap(operators, other.operators); // each stays with its handle
        handle = std::move(other.handle);
        return *this;
    }
    [[nodiscard]] tidesdb_t *raw() const { return handle.get(); }

    /** Removes the database at path: its own files, and the folder, if nothing else is in it. */
    static void destroy(const std::string &path) { detail::check(tidesdb_x_destroy(path.c_str())); }

    /** Closes the database, and tells of a failure, which the destructor cannot. In a function that the library calls it is TDB_ERR_BUSY, and the
     * database stays open. */
    void close()
    {
        const int code = tidesdb_close(handle.get());
        if (code != TDB_ERR_BUSY) static_cast<void>(handle.release());
        detail::check(code);
    }

    /** The family of this name; nullopt if there is none. Throws if it cannot be opened. */
    [[nodiscard]] std::optional<Family> family(const std::string &name) const
    {
        auto *raw = tidesdb_get_column_family(handle.get(), name.c_str());
        if (raw == nullptr && exists(name)) {
            // NULL has no code. A rename to the same name changes nothing, and fails for the same reason.
            detail::check(tidesdb_rename_column_family(handle.get(), name.c_str(), name.c_str()));
            raw = tidesdb_get_column_family(handle.get(), name.c_str()); // it was created meanwhile
            if (raw == nullptr) detail::check(TDB_ERR_UNKNOWN);
        }
        if (raw == nullptr) return std::nullopt;
        return Family(raw);
    }
    /** Creates a family, with a merge operator and a time after which rows expire, if they are given. */
    Family create_family(const std::string &name, const char *merge_operator = nullptr, std::chrono::milliseconds ttl = {}) const
    {
        tidesdb_x_family_options_t options{};
        options.size = sizeof options;
        options.merge_operator = merge_operator;
        options.default_ttl_ms = static_cast<std::uint64_t>(ttl.count());
        tidesdb_column_family_t *raw = nullptr;
        detail::check(tidesdb_x_create_family(handle.get(), name.c_str(), &options, &raw));
        return Family(raw);
    }
    Family family_or_create(const std::string &name) const
    {
        const auto found = family(name);
        return found ? *found : create_family(name);
    }

    [[nodiscard]] Snapshot snapshot() const
    {
        Snapshot snapshot;
        detail::check(tidesdb_x_snapshot_new(handle.get(), snapshot.handle.out()));
        return snapshot;
    }
    [[nodiscard]] Snapshot snapshot_at(std::uint64_t seq) const
    {
        Snapshot snapshot;
        detail::check(tidesdb_x_snapshot_at(handle.get(), seq, snapshot.handle.out()));
        return snapshot;
    }
    [[nodiscard]] Batch batch() const
    {
        Batch batch;
        detail::check(tidesdb_x_batch_new(handle.get(), batch.handle.out()));
        return batch;
    }
    [[nodiscard]] Transaction begin(tidesdb_isolation_level_t level = TDB_ISOLATION_SNAPSHOT) const
    {
        Transaction transaction;
        detail::check(tidesdb_txn_begin_with_isolation(handle.get(), level, transaction.handle.out()));
        return transaction;
    }

    /** Takes tables as one commit. transfer is TDB_X_COPY, TDB_X_LINK or TDB_X_MOVE. */
    Ingested ingest(std::span<const Tables> tables, int transfer = TDB_X_COPY, const WriteOptions &options = {}) const
    {
        std::vector<std::vector<const char *>> paths;
        std::vector<tidesdb_x_tables_t> raw;
        for (const auto &part : tables) {
            auto &own = paths.emplace_back();
            for (const auto &path : part.paths) own.push_back(path.c_str());
        }
        for (std::size_t at = 0; at < tables.size(); at++) raw.push_back({tables[at].family.raw(), paths[at].data(), paths[at].size()});
        const auto how = options.raw();
        tidesdb_x_ingested_t taken{};
        taken.size = sizeof taken;
        detail::check(tidesdb_x_ingest(handle.get(), raw.data(), raw.size(), transfer, &how, &taken));
        return {taken.seq, taken.tables, taken.rows, taken.bytes};
    }

    [[nodiscard]] std::vector<Figure> figures() const
    {
        detail::Array<tidesdb_x_figure_t> raw;
        detail::check(tidesdb_x_figures(handle.get(), raw.out(), &raw.count));
        std::vector<Figure> all;
        for (const auto &one : std::span(raw.get(), raw.count))
            all.push_back({one.group, one.of, one.name, one.unit, one.level, one.real});
        return all;
    }
    /** All figures, as Prometheus reads them. */
    [[nodiscard]] std::string metrics() const
    {
        detail::Array<char> text;
        detail::check(tidesdb_x_metrics(handle.get(), text.out()));
        return text.get();
    }

private:
    [[nodiscard]] bool exists(const std::string &name) const
    {
        detail::Array<char *> names;
        int count = 0;
        detail::check(tidesdb_list_column_families(handle.get(), names.out(), &count));
        bool is_there = false;
        for (char *one : std::span(names.get(), static_cast<std::size_t>(count))) {
            is_there |= name == one;
            tidesdb_free(one);
        }
        return is_there;
    }
    static int call_merge(const std::uint8_t *value, std::size_t value_size, const std::uint8_t *operand, std::size_t operand_size,
                          void *context) noexcept
    {
        try {
            std::string result(detail::view(value, value_size));
            static_cast<MergeOperator *>(context)->merge(result, detail::view(operand, operand_size));
            return tidesdb_x_result_append(Bytes(result).data(), result.size()) == TDB_SUCCESS ? 0 : 1;
        } catch (...) {
            return 1;
        }
    }
    /** Functions that the library may call until the database is closed: at addresses that stay, and freed after the handle. */
    std::unique_ptr<std::vector<MergeOperator>> operators;
    detail::Handle<tidesdb_t, tidesdb_close> handle;
};

/** Backups by generations, in a directory or a store. Any number of threads may use it. */
class Backups {
public:
    explicit Backups(const std::string &directory) { detail::check(tidesdb_x_backups_open(directory.c_str(), handle.out())); }

    /** In a result of tidesdb_objstore_fs_create() or _s3_create(), which belongs to this object afterwards. */
    explicit Backups(tidesdb_objstore_t *store) { detail::check(tidesdb_x_backups_open_store(store, handle.out())); }

    /** Makes a generation and returns its number. With scratch, a new or empty folder, it is proven by a restore. Once stop is true, the call ends
     * with TDB_ERR_BUSY. */
    std::uint64_t create(const Database &database, const char *scratch = nullptr, std::uint64_t bytes_per_second = 0,
                         const std::atomic<bool> *stop = nullptr) const
    {
        tidesdb_x_backup_options_t options = until(stop, bytes_per_second);
        options.scratch = scratch;
        std::uint64_t number = 0;
        detail::check(tidesdb_x_backups_create(handle.get(), database.raw(), &options, &number));
        return number;
    }
    [[nodiscard]] std::vector<Generation> list() const
    {
        detail::Array<tidesdb_x_generation_t> raw;
        detail::check(tidesdb_x_backups_list(handle.get(), raw.out(), &raw.count));
        std::vector<Generation> all;
        for (const auto &one : std::span(raw.get(), raw.count))
            all.push_back({one.number, one.created_ms, one.seq, one.files, one.bytes, one.bytes_copied, one.proven_ms, one.is_proven != 0,
                           one.database});
        return all;
    }
    /** Reads every byte of a generation; returns what is wrong, one fault a line. */
    [[nodiscard]] std::string verify(std::uint64_t number, std::uint64_t bytes_per_second = 0, const std::atomic<bool> *stop = nullptr) const
    {
        detail::Array<char> text;
        std::uint64_t faults = 0;
        const tidesdb_x_backup_options_t options = until(stop, bytes_per_second);
        detail::check(tidesdb_x_backups_verify_with(handle.get(), number, &options, &faults, text.out()));
        return text.get();
    }
    void restore(std::uint64_t number, const std::string &path, std::uint64_t bytes_per_second = 0,
                 const std::atomic<bool> *stop = nullptr) const
    {
        const tidesdb_x_backup_options_t options = until(stop, bytes_per_second);
        detail::check(tidesdb_x_backups_restore_with(handle.get(), number, path.c_str(), &options));
    }
    void erase(std::uint64_t number) const { detail::check(tidesdb_x_backups_delete(handle.get(), number)); }
    /** Keeps the last generations of each database, young ones, and the newest that is proven. Returns how many were removed. */
    std::size_t prune(std::uint64_t keep_last, std::chrono::milliseconds keep_younger = {}) const
    {
        std::size_t removed = 0;
        detail::check(tidesdb_x_backups_prune(handle.get(), keep_last, static_cast<std::uint64_t>(keep_younger.count()), &removed));
        return removed;
    }

private:
    /** Options of a call that ends once the flag is true. */
    static tidesdb_x_backup_options_t until(const std::atomic<bool> *stop, std::uint64_t bytes_per_second)
    {
        tidesdb_x_backup_options_t options{};
        options.size = sizeof options;
        options.bytes_per_second = bytes_per_second;
        if (stop != nullptr) {
            options.ctx = const_cast<std::atomic<bool> *>(stop);
            options.stop = [](void *ctx) { return static_cast<int>(static_cast<const std::atomic<bool> *>(ctx)->load()); };
        }
        return options;
    }

    detail::Handle<tidesdb_x_backups_t, tidesdb_x_backups_free> handle;
};

} // namespace tidesdb

#endif
