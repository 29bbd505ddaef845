//! Integers, floating-point numbers and `bool`.

use super::{Key, take};
use crate::error::Malformed;

macro_rules! integers {
    ($($int:ident)*) => {$(
        #[expect(clippy::big_endian_bytes, reason = "the byte order of keys is their sort order")]
        impl Key for $int {
            type Ref<'a> = Self;

            fn name() -> String {
                stringify!($int).to_owned()
            }

            fn encode(key: Self, _last: bool, out: &mut Vec<u8>) {
                // `MIN` is the sign bit, or 0 for unsigned numbers.
                out.extend((key ^ Self::MIN).to_be_bytes());
            }

            fn decode(bytes: &mut &[u8], _last: bool) -> Result<Self, Malformed> {
                Ok(Self::from_be_bytes(take(bytes)?) ^ Self::MIN)
            }

            fn to_ref(&self) -> Self {
                *self
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

/// The bits of a floating-point number, as a signed integer, sort as `total_cmp` does once all bits of a negative number
/// but its sign are flipped. Flipping them again restores the number.
macro_rules! floats {
    ($($float:ident $int:ident)*) => {$(
        impl Key for $float {
            type Ref<'a> = Self;

            fn name() -> String {
                stringify!($float).to_owned()
            }

            fn encode(key: Self, last: bool, out: &mut Vec<u8>) {
                let bits = key.to_bits().cast_signed();
                $int::encode(if bits < 0 { bits ^ $int::MAX } else { bits }, last, out);
            }

            fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> {
                let bits = $int::decode(bytes, last)?;
                Ok(Self::from_bits(if bits < 0 { bits ^ $int::MAX } else { bits }.cast_unsigned()))
            }

            fn to_ref(&self) -> Self {
                *self
            }
        }
    )*};
}

floats!(f32 i32 f64 i64);

impl Key for bool {
    type Ref<'a> = Self;

    fn name() -> String {
        "bool".to_owned()
    }

    fn encode(key: Self, _last: bool, out: &mut Vec<u8>) {
        out.push(key.into());
    }

    fn decode(bytes: &mut &[u8], _last: bool) -> Result<Self, Malformed> {
        match take(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed::new("a bool is 0 or 1")),
        }
    }

    fn to_ref(&self) -> Self {
        *self
    }
}
