// Tests of tidesdb/extended.hpp: each class, what is missing, failures, exceptions of the program's functions.
#include <tidesdb/extended.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ranges>

using namespace tidesdb;

static int failures = 0;

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition " is false\n";    \
            failures++;                                                                   \
        }                                                                                 \
    } while (0)

template <typename Call> static int code_of(Call call)
{
    try {
        call();
        return TDB_SUCCESS;
    } catch (const Error &error) {
        CHECK(std::string_view(error.what()).size() > 3);
        return error.code();
    }
}

static OpenOptions quiet(const std::string &path)
{
    OpenOptions options{.path = path};
    options.config.log_level = TDB_LOG_NONE;
    return options;
}

static void rows_are_written_and_read()
{
    Database db(quiet("rows"));
    const Family family = db.family_or_create("f");
    CHECK(!db.family("none"));
    CHECK(family.put("a", "1") > 0);
    const std::array<std::uint8_t, 2> key{0, 255};
    const std::array<std::byte, 3> value{std::byte{1}, std::byte{0}, std::byte{2}};
    family.put(std::span(key), std::span(value));
    CHECK(family.get(std::span(key)) == std::string("\1\0\2", 3));
    CHECK(family.get("a") == "1" && !family.get("b"));
    family.put("empty", "");
    CHECK(family.get("empty") == "" && family.contains("empty") && !family.contains("b"));
    const std::string longer(100000, 'x');
    family.put("long", longer);
    std::string again;
    CHECK(family.get_into("long", again) && again == longer && family.get_into("a", again) && again == "1");
    const std::array<Bytes, 3> keys{Bytes("a"), Bytes("b"), Bytes("long")};
    const auto values = family.multi_get(keys);
    CHECK(values.size() == 3 && values[0] == "1" && !values[1] && values[2] == longer);
    CHECK(family.multi_get({}).empty());
    CHECK(family.first()->first == std::string("\0\377", 2) && family.last()->first == "long");
    family.put("later", "v", {.ttl = std::chrono::hours(1)});
    CHECK(*family.expiry("later") > 0 && family.expiry("a") == 0 && !family.expiry("none"));
    CHECK(code_of([&] { family.put("", "v"); }) == TDB_ERR_INVALID_ARGS);
    CHECK(family.compare_and_swap("cas", std::nullopt, "one") && !family.compare_and_swap("cas", "two", "three"));
    CHECK(family.compare_and_swap("cas", "one", "") && family.compare_and_swap("cas", "", std::nullopt) && !family.contains("cas"));
    family.erase("a");
    family.single_erase("empty");
    family.erase_range({"l", "m"});
    CHECK(family.pop_first()->second == std::string("\1\0\2", 3) && !family.pop_last());
    CHECK(family.explain("a").size() > 10);
    family.set("table_bytes", 32 << 20);
    CHECK(family.setting("table_bytes") == 32 << 20);
    family.flush();
    family.compact();
    CHECK(db.metrics().find("tidesdb_") != std::string::npos);
    CHECK(std::ranges::any_of(db.figures(), [](const Figure &figure) { return figure.of == "f"; }));
    db.close();
    CHECK(code_of([&] { family.put("a", "1"); }) == TDB_ERR_INVALID_ARGS);
}

static void ranges_are_ranges()
{
    Database db(quiet("ranges"));
    const Family family = db.family_or_create("f");
    Batch batch = db.batch();
    for (int n = 0; n < 5000; n++) {
        std::string digits = std::to_string(n);
        batch.put(family, "k" + std::string(4 - digits.size(), '0') + digits, digits);
    }
    CHECK(batch.size() == 5000);
    batch.write({.sync = Sync::full});
    CHECK(batch.size() == 0);
    static_assert(std::ranges::input_range<Rows>);
    int n = 0;
    for (const Row row : family.rows()) CHECK(row.value == std::to_string(n++) && row.key_bytes().size() == 5);
    CHECK(n == 5000);
    Rows rows = family.rows({"k0100", "k0200"});
    CHECK(std::ranges::distance(rows | std::views::filter([](const Row &row) { return row.key.ends_with('7'); })) == 10);
    std::string keys;
    Rows descending = family.descending({"k0010", "k0013"});
    for (const Row row : descending) keys += std::string(row.key) + " ";
    CHECK(keys == "k0012 k0011 k0010 ");
    descending.seek("k0011");
    CHECK((*descending.begin()).key == "k0011");
    Rows few = family.with_prefix("k49", {.keys_only = true});
    CHECK((*few.begin()).value.empty());
    few.seek("k4999");
    CHECK(std::ranges::distance(few) == 1);
}

static void moments_and_transactions()
{
    Database db(quiet("moments"));
    const Family family = db.family_or_create("f");
    family.put("a", "1");
    const Snapshot before = db.snapshot();
    family.put("a", "2");
    CHECK(family.get("a", {.snapshot = &before}) == "1" && before.seq() > 0);
    Transaction first = db.begin(), second = db.begin();
    first.put(family, "a", "3");
    second.put(family, "a", "4");
    CHECK(first.get(family, "a") == "3" && family.get("a") == "2");
    first.commit();
    CHECK(code_of([&] { second.commit(); }) == TDB_ERR_CONFLICT);
    {
        Transaction dropped = db.begin();
        dropped.erase(family, "a");
    }
    CHECK(family.get("a") == "3");
    ValueWriter writer = family.write_value("stream");
    writer.write("one ");
    writer.write("two");
    writer.commit();
    auto reader = family.read_value("stream");
    std::array<std::byte, 4> piece{};
    CHECK(reader && reader->size() == 7 && reader->read(piece) == 4 && reader->read_at(4, piece) == 3 && !family.read_value("none"));
}

static void operators_may_throw()
{
    OpenOptions options = quiet("operators");
    options.merge_operators.push_back({"longest", [](std::string &value, std::string_view operand) {
                                           if (operand == "throw") throw std::runtime_error("no");
                                           if (operand.size() > value.size()) value = operand;
                                       }});
    Database db(std::move(options));
    const Family family = db.create_family("f", "longest");
    family.put("a", "xx");
    family.merge("a", "x");
    family.merge("a", "xxx");
    CHECK(family.get("a") == "xxx");
    family.merge("a", "throw");
    CHECK(code_of([&] { (void)family.get("a"); }) == TDB_X_ERR_MERGE);
    CHECK(code_of([&] { (void)db.create_family("g", "unknown"); }) == TDB_ERR_NOT_FOUND);
    Database moved = std::move(db);
    family.put("a", "x");
    family.merge("a", "xx");
    CHECK(family.get("a") == "xx");
}

// A family that cannot be opened is not a missing one.
static void a_damaged_family_is_not_missing()
{
    Database db(quiet("damaged"));
    db.create_family("f");
    db.close();
    CHECK(code_of([&] { (void)db.family("f"); }) == TDB_ERR_INVALID_ARGS);
    CHECK(code_of([&] { (void)db.family_or_create("f"); }) == TDB_ERR_INVALID_ARGS);
    int spoiled = 0;
    for (const auto &entry : std::filesystem::directory_iterator("damaged")) {
        if (entry.path().extension() != ".vlog") continue; // it has the settings, as there are no rows
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        const auto within = static_cast<std::streamoff>(entry.file_size() / 4 * 3);
        const int byte = file.seekg(within).get();
        file.seekp(within).put(static_cast<char>(byte ^ 1));
        spoiled++;
    }
    CHECK(spoiled == 1);
    const Database again(quiet("damaged"));
    CHECK(code_of([&] { (void)again.family("f"); }) == TDB_ERR_CORRUPTION);
    CHECK(code_of([&] { (void)again.family_or_create("f"); }) == TDB_ERR_CORRUPTION);
    CHECK(!again.family("none"));
}

// A function cannot close the database that calls it. It stays open, with its operators, until somebody else closes it.
static void operators_close_nothing()
{
    std::optional<Database> db;
    int refused = 0;
    OpenOptions options = quiet("closing");
    options.merge_operators.push_back({"closes", [&](std::string &value, std::string_view operand) {
                                           if (db) refused += code_of([&] { db->close(); }) == TDB_ERR_BUSY;
                                           value = operand;
                                       }});
    db.emplace(std::move(options));
    const Family family = db->create_family("f", "closes");
    family.put("a", "1");
    family.flush();
    family.merge("a", "2");
    CHECK(family.get("a") == "2" && refused > 0);
    db->close();
    CHECK(code_of([&] { family.put("a", "3"); }) == TDB_ERR_INVALID_ARGS);
}

static void tables_and_backups()
{
    Database db(quiet("tables"));
    const Family family = db.family_or_create("f");
    family.put("gone", "1");
    Builder builder = family.builder();
    builder.put("a", "1");
    builder.erase("gone");
    builder.erase_range({"x", "y"});
    CHECK(code_of([&] { builder.put("b", "late"); }) == TDB_ERR_INVALID_ARGS);
    CHECK(builder.commit().rows == 2 && !family.get("gone"));
    Builder files = family.builder("files");
    files.put("b", "2");
    const std::vector<Tables> tables{{family, files.finish()}};
    CHECK(tables[0].paths.size() == 1 && db.ingest(tables, TDB_X_MOVE).rows == 1 && family.get("b") == "2");

    const Backups backups("backups");
    const std::uint64_t number = backups.create(db, "scratch");
    const auto all = backups.list();
    CHECK(all.size() == 1 && all[0].number == number && all[0].is_proven && !all[0].database.empty());
    CHECK(backups.verify(number).empty());
    family.put("b", "3");
    std::atomic<bool> stop = true;
    CHECK(code_of([&] { (void)backups.verify(number, 0, &stop); }) == TDB_ERR_BUSY);
    CHECK(code_of([&] { backups.restore(number, "restored", 0, &stop); }) == TDB_ERR_BUSY);
    CHECK(code_of([&] { (void)backups.create(db, nullptr, 0, &stop); }) == TDB_ERR_BUSY && backups.list().size() == 1);
    stop = false;
    backups.restore(number, "restored", 0, &stop);
    Database restored(quiet("restored"));
    CHECK(restored.family("f")->get("b") == "2");
    CHECK(backups.prune(1) == 0);
    backups.create(db, "scratch");
    CHECK(backups.prune(1) == 1 && code_of([&] { backups.erase(number); }) == TDB_ERR_NOT_FOUND);
}

static void databases_share_resources()
{
    auto resources = std::make_unique<Resources>(64 << 20, 1 << 20, 2);
    OpenOptions first = quiet("shared1"), second = quiet("shared2");
    first.resources = second.resources = resources.get();
    const Database one(std::move(first)), two(std::move(second));
    CHECK(resources->use().databases == 2 && resources->use().memory_limit == 64 << 20);
    resources->set_compaction_rate(1 << 30);
    resources.reset();
    one.create_family("f").put("key", "value");
    CHECK(one.family("f")->get("key") == "value");
}

int main()
{
    CHECK(code_of([] { Database db(OpenOptions{.path = "missing", .must_exist = true}); }) == TDB_ERR_NOT_FOUND);
    Database(OpenOptions{.path = "once", .must_be_new = true}).close();
    CHECK(code_of([] { Database db(OpenOptions{.path = "once", .must_be_new = true}); }) == TDB_ERR_EXISTS);
    Database::destroy("once");
    CHECK(code_of([] { Database::destroy("once"); }) == TDB_ERR_NOT_FOUND);
    rows_are_written_and_read();
    ranges_are_ranges();
    moments_and_transactions();
    a_damaged_family_is_not_missing();
    operators_may_throw();
    operators_close_nothing();
    tables_and_backups();
    databases_share_resources();
    std::cout << (failures == 0 ? "ok\n" : "failed\n");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
