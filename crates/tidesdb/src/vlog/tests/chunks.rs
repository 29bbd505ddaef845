//! Chunk indexes: what they encode, and that impossible ones are rejected although their checksums are right.

use super::super::{ChunkIndex, ChunkedPlace, ValuePlace};
use super::*;
use crate::Error;

fn sample(vlogs: &VlogSet) -> (ChunkIndex, ChunkedPlace) {
    let mut index = ChunkIndex::new(1000);
    for (n, len) in [1000, 1000, 1000, 7].into_iter().enumerate() {
        index.push(vlogs.append(&noise(n as u64, len), Compression::Lz4).unwrap());
    }
    let place = vlogs.append_index(&index, Compression::None, &mut Vec::new()).unwrap();
    (index, place)
}

#[test]
fn an_index_and_its_place_come_back() {
    let (env, _disk) = world();
    let vlogs = set(&env, 1, 4096); // a file for every few chunks
    let (index, place) = sample(&vlogs);
    assert_eq!(vlogs.read_index(&place).unwrap(), index);
    assert_eq!(ChunkedPlace::decode(&place.encode()), Some(place.clone()));
    assert_eq!(ValuePlace::decode(&place.encode()), Some(ValuePlace::Chunks(place.clone())));
    assert!(
        ValuePlace::is_length(place.encode().len())
            && !ValuePlace::is_length(25)
            && !ValuePlace::is_length(32)
    );
    assert_eq!(index.find(0), Some((0, 0)));
    assert_eq!(index.find(2999), Some((2, 2000)));
    assert_eq!((index.find(3006), index.find(3007)), (Some((3, 3000)), None));
    // What is counted in each file is what the records take there.
    let mut counted = std::collections::BTreeMap::new();
    ValuePlace::Chunks(place.clone()).each_part(|vlog, bytes| counted.extend([(vlog, bytes + 18)]));
    let mut taken = std::collections::BTreeMap::new();
    for p in index.chunks().iter().chain([&place.index]) {
        *taken.entry(p.vlog).or_insert(0) += p.record_bytes();
    }
    assert_eq!(counted, taken);
    let mut value = Vec::new();
    let add = |chunk: &[u8]| {
        value.extend_from_slice(chunk);
        Ok(())
    };
    vlogs.read_chunks(&place, add).unwrap();
    assert_eq!(value.len(), 3007);
}

#[test]
fn impossible_indexes_with_valid_checksums_are_rejected() {
    let (env, _disk) = world();
    let vlogs = set(&env, 1, 1 << 20);
    let (index, place) = sample(&vlogs);
    let good = index.encode();
    let forge = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    let mut forged = vec![
        forge(0, &0u32.to_le_bytes()),
        forge(0, &u32::MAX.to_le_bytes()),
        forge(0, &999u32.to_le_bytes()),
        forge(4, &u32::MAX.to_le_bytes()),
        forge(4, &0u32.to_le_bytes()),
        forge(8, &u64::MAX.to_le_bytes()),
        forge(8, &0u64.to_le_bytes()),
        good[..good.len() - 1].to_vec(),
        good[..10].to_vec(),
        [&good[..], &[0; 24]].concat(),
        Vec::new(),
    ];
    for chunk in 0..4 {
        let at = 16 + chunk * 24;
        forged.push(forge(at, &0u32.to_le_bytes())); // file
        forged.push(forge(at, &9u32.to_le_bytes()));
        forged.push(forge(at + 4, &u32::MAX.to_le_bytes())); // stored length
        forged.push(forge(at + 8, &u64::MAX.to_le_bytes())); // offset
        forged.push(forge(at + 16, &u32::MAX.to_le_bytes())); // length
        forged.push(forge(at + 16, &0u32.to_le_bytes()));
    }
    for bytes in forged {
        let pointer = vlogs.append(&bytes, Compression::None).unwrap();
        let parts = vec![super::super::Part {
            vlog: pointer.vlog,
            bytes: place.parts[0].bytes - place.index.record_bytes() + pointer.record_bytes(),
        }];
        let place = ChunkedPlace { index: pointer, len: place.len, parts };
        let error = vlogs.read_index(&place).unwrap_err();
        let Error::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
        assert_eq!((&**file, *offset), ("000001.vlog", pointer.offset + 18));
    }
    // An offset that lies in the file, but at another record: the chunk itself is rejected.
    let pointer = vlogs.append(&forge(16 + 8, &41u64.to_le_bytes()), Compression::None).unwrap();
    let parts = place.parts.clone();
    let moved = ChunkedPlace { index: pointer, len: place.len, parts };
    assert!(
        vlogs.check_chunks(&moved, false, |_| ()).is_ok() && vlogs.read_chunks(&moved, |_| Ok(())).is_err()
    );
}

#[test]
fn impossible_places_are_rejected() {
    let (env, _disk) = world();
    let vlogs = set(&env, 1, 4096);
    let place = sample(&vlogs).1.encode();
    let forge = |at: usize, bytes: &[u8]| {
        let mut bad = place.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        ChunkedPlace::decode(&bad)
    };
    for bad in [
        forge(24, &0u64.to_le_bytes()), // length
        forge(24, &u64::MAX.to_le_bytes()),
        forge(32, &0u32.to_le_bytes()), // file of the first part
        forge(32, &u32::MAX.to_le_bytes()),
        forge(36, &0u64.to_le_bytes()), // its bytes
        forge(36, &17u64.to_le_bytes()),
        forge(36, &u64::MAX.to_le_bytes()),
        forge(0, &77u32.to_le_bytes()), // a file of the index that is no part
        ChunkedPlace::decode(&place[..32]),
        ChunkedPlace::decode(&place[..place.len() - 1]),
        ChunkedPlace::decode(&[]),
    ] {
        assert_eq!(bad, None);
    }
    let mut twice = place.clone();
    twice.extend_from_slice(&place[32..44]);
    assert_eq!(ChunkedPlace::decode(&twice), None, "a part out of order");
}
