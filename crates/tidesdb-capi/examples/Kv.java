// Example in Java, with JNA: put, get, iterate, a transaction with a conflict, expiry, a backup.
//
//   java -cp jna-5.14.0.jar -Djna.library.path=/opt/tidesdb/lib Kv.java shop

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import com.sun.jna.Structure.FieldOrder;
import com.sun.jna.ptr.LongByReference;
import com.sun.jna.ptr.PointerByReference;

public final class Kv {
    static final int SNAPSHOT = 3, NOT_FOUND = -3, EXISTS = -6, CONFLICT = -7;

    /** tidesdb_config_t; the fields after the path and the log level keep their defaults. */
    @FieldOrder({"dbPath", "threads", "logLevel", "rest"})
    public static class Config extends Structure {
        public Pointer dbPath;
        public int[] threads = new int[2];
        public int logLevel;
        public byte[] rest = new byte[108];

        public static class ByValue extends Config implements Structure.ByValue {}
    }

    /** tidesdb_column_family_config_t with default values. */
    @FieldOrder({"name", "writeBufferSize", "rest"})
    public static class FamilyConfig extends Structure {
        public byte[] name = new byte[128];
        public long writeBufferSize;
        public byte[] rest = new byte[488];

        public static class ByValue extends FamilyConfig implements Structure.ByValue {}
    }

    /** The functions used by this program; size_t and time_t have 64 bits. */
    interface TidesDb extends Library {
        Config.ByValue tidesdb_default_config();
        FamilyConfig.ByValue tidesdb_default_column_family_config();
        int tidesdb_open(Config config, PointerByReference db);
        int tidesdb_close(Pointer db);
        int tidesdb_create_column_family(Pointer db, String name, FamilyConfig config);
        Pointer tidesdb_get_column_family(Pointer db, String name);
        int tidesdb_txn_begin_with_isolation(Pointer db, int isolation, PointerByReference txn);
        int tidesdb_txn_put(Pointer txn, Pointer family, byte[] key, long keySize, byte[] value, long size, long ttl);
        int tidesdb_txn_get(Pointer txn, Pointer family, byte[] key, long keySize, PointerByReference value, LongByReference size);
        int tidesdb_txn_commit(Pointer txn);
        void tidesdb_txn_free(Pointer txn);
        int tidesdb_iter_new(Pointer txn, Pointer family, PointerByReference iter);
        int tidesdb_iter_seek_to_first(Pointer iter);
        int tidesdb_iter_next(Pointer iter);
        int tidesdb_iter_key_value(
                Pointer iter, PointerByReference key, LongByReference keySize, PointerByReference value, LongByReference size);
        void tidesdb_iter_free(Pointer iter);
        int tidesdb_backup(Pointer db, String path);
        void tidesdb_free(Pointer memory);
        String tidesdb_last_error();
    }

    static final TidesDb LIB = Native.load("tidesdb", TidesDb.class);

    /** Throws the library's message unless the code is 0 or the accepted one. */
    static int check(int code, int fine) {
        if (code != 0 && code != fine) {
            throw new IllegalStateException(code + ": " + LIB.tidesdb_last_error());
        }
        return code;
    }

    static void check(int code) {
        check(code, 0);
    }

    static String text(PointerByReference at, LongByReference size) {
        return new String(at.getValue().getByteArray(0, (int) size.getValue()), UTF_8);
    }

    /** A transaction at snapshot isolation. */
    record Txn(Pointer txn, Pointer family) implements AutoCloseable {
        void put(String key, String value, long expires) {
            byte[] k = key.getBytes(UTF_8), v = value.getBytes(UTF_8);
            check(LIB.tidesdb_txn_put(txn, family, k, k.length, v, v.length, expires));
        }

        String get(String key) {
            byte[] k = key.getBytes(UTF_8);
            var value = new PointerByReference();
            var size = new LongByReference();
            if (check(LIB.tidesdb_txn_get(txn, family, k, k.length, value, size), NOT_FOUND) != 0) {
                return "not there";
            }
            String found = text(value, size);
            LIB.tidesdb_free(value.getValue());
            return found;
        }

        int commit() {
            return check(LIB.tidesdb_txn_commit(txn), CONFLICT);
        }

        void print() {
            var iter = new PointerByReference();
            check(LIB.tidesdb_iter_new(txn, family, iter));
            PointerByReference key = new PointerByReference(), value = new PointerByReference();
            LongByReference keySize = new LongByReference(), size = new LongByReference();
            int code = LIB.tidesdb_iter_seek_to_first(iter.getValue());
            for (; check(code, NOT_FOUND) == 0; code = LIB.tidesdb_iter_next(iter.getValue())) {
                check(LIB.tidesdb_iter_key_value(iter.getValue(), key, keySize, value, size));
                System.out.println("  " + text(key, keySize) + " = " + text(value, size));
            }
            LIB.tidesdb_iter_free(iter.getValue());
        }

        @Override
        public void close() {
            LIB.tidesdb_txn_free(txn);
        }
    }

    /** An open database with one column family. */
    record Store(Pointer db, Pointer family) implements AutoCloseable {
        static Store open(String path) {
            Config config = LIB.tidesdb_default_config();
            var name = new com.sun.jna.Memory(path.getBytes(UTF_8).length + 1L);
            name.setString(0, path, "UTF-8");
            config.dbPath = name;
            config.logLevel = 99;
            var db = new PointerByReference();
            check(LIB.tidesdb_open(config, db));
            check(LIB.tidesdb_create_column_family(db.getValue(), "fruit", LIB.tidesdb_default_column_family_config()), EXISTS);
            return new Store(db.getValue(), LIB.tidesdb_get_column_family(db.getValue(), "fruit"));
        }

        Txn begin() {
            var txn = new PointerByReference();
            check(LIB.tidesdb_txn_begin_with_isolation(db, SNAPSHOT, txn));
            return new Txn(txn.getValue(), family);
        }

        void print(String title) {
            System.out.println(title);
            try (Txn txn = begin()) {
                txn.print();
            }
        }

        @Override
        public void close() {
            check(LIB.tidesdb_close(db));
        }
    }

    public static void main(String[] args) {
        String path = args.length > 0 ? args[0] : "shop";
        long now = System.currentTimeMillis() / 1000;
        try (Store store = Store.open(path)) {
            try (Txn txn = store.begin()) {
                txn.put("banana", "yellow", 0);
                txn.put("apple", "red", now + 3600);
                txn.put("old", "gone", now - 3600);
                check(txn.commit());
            }
            try (Txn first = store.begin(); Txn second = store.begin()) {
                first.put("apple", "green", 0);
                second.put("apple", "brown", 0);
                check(first.commit());
                System.out.println("second: " + (second.commit() == CONFLICT ? "refused" : "committed"));
            }
            try (Txn txn = store.begin()) {
                System.out.println("apple is " + txn.get("apple"));
                System.out.println("old is " + txn.get("old"));
            }
            store.print("all:");
            check(LIB.tidesdb_backup(store.db(), path + "-copy"));
        }
        try (Store copy = Store.open(path + "-copy")) {
            copy.print("copy:");
        }
    }
}
