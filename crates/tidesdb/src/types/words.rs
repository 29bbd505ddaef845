//! Short keys, compared and copied word by word: for them a call into the C library takes longer than its work.

use std::cmp::Ordering;

/// Words compared before the rest of the keys is left to a call. Most keys differ in these, or are no longer.
const WORDS: usize = 2;
/// Longest bytes that are copied word by word.
const SHORT: usize = 32;

/// Orders two keys by their bytes.
#[inline]
pub(super) fn compare_bytes(a: &[u8], b: &[u8]) -> Ordering {
    let (x, y) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (x, y) in x.iter().zip(y).take(WORDS) {
        if x != y {
            return in_byte_order(*x).cmp(&in_byte_order(*y));
        }
    }
    let equal = 8 * x.len().min(y.len()).min(WORDS);
    match (&a[equal..], &b[equal..]) {
        ([], []) => Ordering::Equal,
        (a, b) => a.cmp(b),
    }
}

/// A number with the order of the bytes.
#[inline]
fn in_byte_order(word: [u8; 8]) -> u64 {
    u64::from_le_bytes(word).swap_bytes()
}

/// Returns the first eight bytes, zero-padded, as a number with the same order as the bytes.
#[inline]
pub fn head_of(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(head) => in_byte_order(*head),
        None => short_head_of(suffix),
    }
}

fn short_head_of(suffix: &[u8]) -> u64 {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(suffix) {
        *to = *from;
    }
    in_byte_order(head)
}

/// Appends `bytes`, which are usually short.
#[inline]
pub fn append_short(to: &mut Vec<u8>, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    if bytes.len() > SHORT || !rest.is_empty() {
        return to.extend_from_slice(bytes);
    }
    for word in words {
        to.extend_from_slice(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of all lengths up to 40 with one of three bytes at each place, in some order.
    fn keys() -> Vec<Vec<u8>> {
        let mut random = 1u64;
        let mut byte = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            [0, 127, 255][(random >> 33) as usize % 3]
        };
        let mut keys: Vec<Vec<u8>> = (0..=40).map(|len| (0..len).map(|_| byte()).collect()).collect();
        // Long common prefixes: they differ in one byte, or in length.
        for len in 0..=40 {
            keys.push(vec![7; len]);
            for at in 0..len {
                let mut key = vec![7; len];
                key[at] = byte();
                keys.push(key);
            }
        }
        keys
    }

    #[test]
    fn keys_are_ordered_as_slices_are() {
        let keys = keys();
        for a in &keys {
            for b in &keys {
                assert_eq!(compare_bytes(a, b), a.as_slice().cmp(b), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn appended_bytes_are_whole() {
        for key in keys() {
            let mut to = vec![1, 2, 3];
            append_short(&mut to, &key);
            assert!(to[..3] == [1, 2, 3] && to[3..] == key[..]);
        }
    }
}
