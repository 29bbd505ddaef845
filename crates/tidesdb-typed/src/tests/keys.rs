//! Encoded keys sort as their types do, and decode to what was encoded.

use std::cmp::Ordering;
use std::fmt::Debug;

use proptest::prelude::*;
use tidesdb::Db;

use crate::{Error, IndexDefinition, Key, Prefix, TableDefinition, decode, encode};

/// Checks two keys: order and round trip, as a whole and with something behind them.
fn check<K: Key + Debug>(a: &K, b: &K, order: Ordering) -> Result<(), TestCaseError> {
    let (left, right) = (encode::<K>(a.to_ref()), encode::<K>(b.to_ref()));
    prop_assert_eq!(left.cmp(&right), order, "{:?} and {:?}", a, b);
    let followed = |key: &K, next: u8| encode::<(K, u8)>((key.to_ref(), next));
    for (next, other) in [(0, 255), (255, 0)] {
        let wanted = order.then(next.cmp(&other));
        prop_assert_eq!(followed(a, next).cmp(&followed(b, other)), wanted, "{:?} and {:?}", a, b);
    }
    for key in [a, b] {
        let again = decode::<K>(&encode::<K>(key.to_ref())).unwrap();
        prop_assert_eq!(format!("{again:?}"), format!("{key:?}"));
        let (again, next) = decode::<(K, u8)>(&followed(key, 7)).unwrap();
        prop_assert_eq!((format!("{again:?}"), next), (format!("{key:?}"), 7));
    }
    Ok(())
}

/// Strings of few bytes, the smallest, the largest and the escaped ones among them: pairs often share a beginning.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!['\0', '\x01', '\x02', 'a', '\u{ff}']), 0..4)
        .prop_map(|letters| letters.into_iter().collect())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, 2, 3, 254, 255]), 0..4)
}

macro_rules! sorted {
    ($($name:ident: $key:ty = $values:expr;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(2000))]
            $(#[test]
            fn $name(a in $values, b in $values) {
                check::<$key>(&a, &b, a.cmp(&b))?;
            })*
        }
    };
}

sorted! {
    u8_keys: u8 = any::<u8>();
    u16_keys: u16 = any::<u16>();
    u64_keys: u64 = any::<u64>();
    u128_keys: u128 = any::<u128>();
    i8_keys: i8 = any::<i8>();
    i32_keys: i32 = -3..3;
    i64_keys: i64 = any::<i64>();
    i128_keys: i128 = any::<i128>();
    bool_keys: bool = any::<bool>();
    string_keys: String = text();
    byte_keys: Vec<u8> = bytes();
    option_keys: Option<String> = prop::option::of(text());
    nested_option_keys: Option<Option<i8>> = prop::option::of(prop::option::of(any::<i8>()));
    array_keys: [u8; 3] = any::<[u8; 3]>();
    arrays_of_strings: [String; 2] = [text(), text()];
    pair_keys: (String, String) = (text(), text());
    mixed_keys: (Vec<u8>, i16, Option<String>, bool) = (bytes(), -2i16..2, prop::option::of(text()), any::<bool>());
    nested_keys: ((String, u8), (Vec<u8>, String)) = ((text(), 0u8..2), (bytes(), text()));
    long_keys: (u8, String, u8, String, u8, String) = (0u8..2, text(), 0u8..2, text(), 0u8..2, text());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn floats_sort_as_total_cmp(a in any::<u64>(), b in any::<u64>(), c in any::<u32>(), d in any::<u32>()) {
        let (a, b, c, d) = (f64::from_bits(a), f64::from_bits(b), f32::from_bits(c), f32::from_bits(d));
        check(&a, &b, a.total_cmp(&b))?;
        check(&c, &d, c.total_cmp(&d))?;
        prop_assert_eq!(decode::<f64>(&encode::<f64>(a)).unwrap().to_bits(), a.to_bits());
    }

    #[test]
    fn no_bytes_make_a_decoder_panic_and_what_it_accepts_is_canonical(bytes in bytes(), more in any::<Vec<u8>>()) {
        canonical::<(String, Option<i16>, Vec<u8>)>(&bytes)?;
        canonical::<(String, Option<i16>, Vec<u8>)>(&more)?;
        canonical::<[(bool, String); 2]>(&bytes)?;
        canonical::<f64>(&more)?;
    }

    #[test]
    fn a_prefix_selects_the_keys_that_begin_with_it(first in text(), other in text(), number in any::<u8>()) {
        let mut prefix = Vec::new();
        <(&str,) as Prefix<(String, u8)>>::encode(&(&first,), &mut prefix);
        let key = encode::<(String, u8)>((&other, number));
        prop_assert_eq!(key.starts_with(&prefix), first == other);
    }
}

/// Checks that bytes that can be decoded are those that the encoder writes.
fn canonical<K: Key>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(key) = decode::<K>(bytes) {
        prop_assert_eq!(encode::<K>(key.to_ref()), bytes);
    }
    Ok(())
}

#[test]
fn floats_with_signs_zeros_and_infinities_are_in_order() {
    let numbers =
        [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, f64::MIN_POSITIVE, 1.5, f64::INFINITY];
    assert!(numbers.is_sorted_by(|a, b| encode::<f64>(*a) < encode::<f64>(*b)));
    let numbers = numbers.map(|n| n as f32);
    assert!(numbers.is_sorted_by(|a, b| encode::<f32>(*a) <= encode::<f32>(*b)));
}

#[test]
fn a_string_key_is_stored_as_its_bytes() {
    assert_eq!(encode::<String>("user\0:1"), b"user\0:1");
    assert_eq!(encode::<(u8, String)>((7, "\x01")), b"\x07\x01");
    assert_eq!(encode::<(String, u8)>(("a\0\x01", 7)), b"a\x01\x01\x01\x02\0\x07");
}

#[test]
fn malformed_keys_are_described() {
    let what = |error: crate::Malformed| error.to_string();
    assert_eq!(what(decode::<u32>(b"abc").unwrap_err()), "it ends too early");
    assert_eq!(what(decode::<u8>(b"ab").unwrap_err()), "bytes are left over");
    assert_eq!(what(decode::<bool>(b"\x02").unwrap_err()), "a bool is 0 or 1");
    assert_eq!(what(decode::<String>(b"\xff").unwrap_err()), "it is not UTF-8");
    assert_eq!(what(decode::<(String, u8)>(b"abc").unwrap_err()), "a string has no end");
    assert_eq!(what(decode::<(String, u8)>(b"\x01\x05\0a").unwrap_err()), "a string has an unknown escape");
    assert_eq!(what(decode::<Option<u8>>(b"\x05").unwrap_err()), "an Option begins with 0 or 1");
}

/// The database has no empty keys. A type with one value needs none.
#[test]
fn a_table_may_have_one_row() {
    const BY_ALL: IndexDefinition<String, ()> = IndexDefinition::unique("all", |_, keys| keys.add(()));
    const SETTINGS: TableDefinition<(), String> = TableDefinition::new("settings").indexes(&[&BY_ALL]);
    const LEADER: TableDefinition<u8, String> = TableDefinition::new("leader").indexes(&[&BY_ALL]);
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let settings = SETTINGS.open(&db).unwrap();
    assert_eq!(settings.get(()).unwrap(), None);
    settings.put((), "dark").unwrap();
    settings.put((), "light").unwrap();
    assert_eq!(settings.get(()).unwrap().as_deref(), Some("light"));
    assert_eq!(settings.iter().unwrap().map(Result::unwrap).collect::<Vec<_>>(), [((), "light".to_owned())]);
    assert_eq!(settings.range(()..).unwrap().count(), 1);
    assert_eq!(settings.by(&BY_ALL).get(()).unwrap(), Some(((), "light".to_owned())));
    assert_eq!(settings.check_indexes().unwrap(), 1);
    settings.delete(()).unwrap();
    assert!(!settings.contains(()).unwrap() && !settings.by(&BY_ALL).contains(()).unwrap());
    assert_eq!(decode::<()>(&encode::<()>(())), Ok(()));
    assert_eq!(decode::<[u8; 0]>(&encode::<[u8; 0]>([])), Ok([]));

    // At most one row has the only key of a unique index.
    let leader = LEADER.open(&db).unwrap();
    leader.put(3, "ann").unwrap();
    assert!(matches!(leader.put(4, "ben"), Err(Error::Duplicate { index: "all", .. })));
    assert_eq!(leader.by(&BY_ALL).get(()).unwrap(), Some((3, "ann".to_owned())));
    assert_eq!(leader.by(&BY_ALL).range(()..=()).unwrap().count(), 1);
    leader.put(3, "cid").unwrap();
    leader.delete(3).unwrap();
    leader.put(4, "ben").unwrap();
    assert_eq!(leader.check_indexes().unwrap(), 1);
}

/// No byte string sorts before all others, except the empty one, which no database stores.
#[test]
fn an_empty_string_is_no_key_and_says_so() {
    const WORDS: TableDefinition<String, u8> = TableDefinition::new("words");
    const PAIRS: TableDefinition<Option<String>, u8> = TableDefinition::new("pairs");
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let words = WORDS.open(&db).unwrap();
    let said = words.put("", 1).unwrap_err().to_string();
    assert!(said.starts_with("table words: an empty key cannot be stored; Option<String>"), "{said}");
    for refused in [
        words.put_with_ttl("", 1, std::time::Duration::from_secs(9)),
        words.delete(""),
        words.replace("", 1).map(drop),
        words.take("").map(drop),
        words.update("", |_| Some(1)).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::EmptyKey { table: "words", .. })), "{refused:?}");
    }
    assert_eq!((words.get("").unwrap(), words.contains("").unwrap()), (None, false));
    words.put("\0", 1).unwrap();
    assert_eq!(words.range("".."b").unwrap().count(), 1);
    words.delete_range(""..).unwrap();
    assert_eq!(words.first().unwrap(), None);
    let pairs = PAIRS.open(&db).unwrap();
    for (n, key) in [None, Some(""), Some("\0"), Some("a")].into_iter().enumerate() {
        pairs.put(key, n as u8).unwrap();
    }
    assert!(pairs.iter().unwrap().map(|row| row.unwrap().1).eq(0..4), "in the order of the type");
    assert_eq!(pairs.get(Some("")).unwrap(), Some(1));
}
