"""Example in Python, with ctypes only.

    python3 kv.py shop                    (finds the library as the system does)
    TIDESDB_LIBRARY=/opt/lib/libtidesdb.so.9 python3 kv.py shop
"""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_byte, c_char_p, c_int, c_size_t, c_uint8, c_void_p

SNAPSHOT, NOT_FOUND, EXISTS = 3, -3, -6


class Config(ctypes.Structure):
    """tidesdb_config_t; the fields after the path keep their defaults."""

    _fields_ = [("db_path", c_char_p), ("threads", c_int * 2), ("log_level", c_int), ("rest", c_byte * 108)]


class FamilyConfig(ctypes.Structure):
    """tidesdb_column_family_config_t with default values."""

    _fields_ = [("name", ctypes.c_char * 128), ("write_buffer_size", c_size_t), ("rest", c_byte * 488)]


NAME = {"win32": "tidesdb.dll", "darwin": "libtidesdb.9.dylib"}.get(sys.platform, "libtidesdb.so.9")
lib = ctypes.CDLL(os.environ.get("TIDESDB_LIBRARY", NAME))
lib.tidesdb_default_config.restype = Config
lib.tidesdb_default_column_family_config.restype = FamilyConfig
lib.tidesdb_get_column_family.restype = c_void_p
lib.tidesdb_last_error.restype = c_char_p
KEY = (c_char_p, c_size_t)
FOUND = (POINTER(c_void_p), POINTER(c_size_t))
for name, arguments in {
    "tidesdb_open": (POINTER(Config), POINTER(c_void_p)),
    "tidesdb_close": (c_void_p,),
    "tidesdb_create_column_family": (c_void_p, c_char_p, POINTER(FamilyConfig)),
    "tidesdb_get_column_family": (c_void_p, c_char_p),
    "tidesdb_txn_begin_with_isolation": (c_void_p, c_int, POINTER(c_void_p)),
    "tidesdb_txn_put": (c_void_p, c_void_p, *KEY, *KEY, ctypes.c_int64),
    "tidesdb_txn_get": (c_void_p, c_void_p, *KEY, *FOUND),
    "tidesdb_txn_commit": (c_void_p,),
    "tidesdb_txn_rollback": (c_void_p,),
    "tidesdb_txn_reset": (c_void_p, c_int),
    "tidesdb_txn_free": (c_void_p,),
    "tidesdb_iter_new": (c_void_p, c_void_p, POINTER(c_void_p)),
    "tidesdb_iter_seek_to_first": (c_void_p,),
    "tidesdb_iter_next": (c_void_p,),
    "tidesdb_iter_key_value": (c_void_p, *FOUND, *FOUND),
    "tidesdb_iter_free": (c_void_p,),
    "tidesdb_free": (c_void_p,),
}.items():
    getattr(lib, name).argtypes = arguments


def check(code, *fine):
    """Raises the message of a failed call."""
    if code != 0 and code not in fine:
        raise RuntimeError(f"{code}: {lib.tidesdb_last_error().decode()}")
    return code


def get(txn, family, key):
    """Returns the value of a key, or None."""
    value, size = c_void_p(), c_size_t()
    if check(lib.tidesdb_txn_get(txn, family, key, len(key), byref(value), byref(size)), NOT_FOUND):
        return None
    found = ctypes.string_at(value, size.value)
    lib.tidesdb_free(value)
    return found


def pairs(txn, family):
    """Returns all pairs in key order."""
    it, key, value, key_size, value_size = c_void_p(), c_void_p(), c_void_p(), c_size_t(), c_size_t()
    check(lib.tidesdb_iter_new(txn, family, byref(it)))
    try:
        code = lib.tidesdb_iter_seek_to_first(it)
        while check(code, NOT_FOUND) == 0:
            check(lib.tidesdb_iter_key_value(it, byref(key), byref(key_size), byref(value), byref(value_size)))
            yield ctypes.string_at(key, key_size.value), ctypes.string_at(value, value_size.value)
            code = lib.tidesdb_iter_next(it)
    finally:
        lib.tidesdb_iter_free(it)


def main(path):
    config = lib.tidesdb_default_config()
    config.db_path, config.log_level = path.encode(), 99
    db, txn = c_void_p(), c_void_p()
    check(lib.tidesdb_open(byref(config), byref(db)))
    settings = lib.tidesdb_default_column_family_config()
    check(lib.tidesdb_create_column_family(db, b"fruit", byref(settings)), EXISTS)
    fruit = lib.tidesdb_get_column_family(db, b"fruit")

    check(lib.tidesdb_txn_begin_with_isolation(db, SNAPSHOT, byref(txn)))
    for key, value in {b"banana": b"yellow", b"apple": b"red", b"nothing": b""}.items():
        check(lib.tidesdb_txn_put(txn, fruit, key, len(key), value, len(value), 0))
    check(lib.tidesdb_txn_commit(txn))
    check(lib.tidesdb_txn_reset(txn, SNAPSHOT))
    check(lib.tidesdb_txn_put(txn, fruit, b"carrot", 6, b"no fruit", 8, 0))
    check(lib.tidesdb_txn_rollback(txn))
    check(lib.tidesdb_txn_reset(txn, SNAPSHOT))

    print("apple is", get(txn, fruit, b"apple").decode())
    print("carrot is", "there" if get(txn, fruit, b"carrot") else "not there")
    print("all:")
    for key, value in pairs(txn, fruit):
        print(f"  {key.decode()} = {value.decode()}".rstrip())
    lib.tidesdb_txn_free(txn)
    check(lib.tidesdb_close(db))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "shop")
