//! Options, arrays and tuples: one component after the other. Only the last component of a whole key may extend to its
//! end.

use super::{Key, take};
use crate::error::Malformed;

impl<T: Key> Key for Option<T> {
    type Ref<'a> = Option<T::Ref<'a>>;

    fn name() -> String {
        format!("Option<{}>", T::name())
    }

    fn encode(key: Self::Ref<'_>, last: bool, out: &mut Vec<u8>) {
        out.push(key.is_some().into());
        if let Some(key) = key {
            T::encode(key, last, out);
        }
    }

    fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> {
        match take(bytes)? {
            [0] => Ok(None),
            [1] => T::decode(bytes, last).map(Some),
            _ => Err(Malformed::new("an Option begins with 0 or 1")),
        }
    }

    fn to_ref(&self) -> Self::Ref<'_> {
        self.as_ref().map(T::to_ref)
    }
}

impl<T: Key, const N: usize> Key for [T; N] {
    type Ref<'a> = [T::Ref<'a>; N];

    fn name() -> String {
        format!("[{}; {N}]", T::name())
    }

    fn encode(key: Self::Ref<'_>, last: bool, out: &mut Vec<u8>) {
        for (at, part) in key.into_iter().enumerate() {
            T::encode(part, last && at + 1 == N, out);
        }
    }

    fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> {
        let parts = (1..=N).map(|at| T::decode(bytes, last && at == N));
        let parts = parts.collect::<Result<Vec<T>, _>>()?;
        parts.try_into().map_err(|_| Malformed::new("an array has another length"))
    }

    fn to_ref(&self) -> Self::Ref<'_> {
        self.each_ref().map(T::to_ref)
    }
}

impl Key for () {
    type Ref<'a> = ();

    fn name() -> String {
        "()".to_owned()
    }

    fn encode((): (), _last: bool, _out: &mut Vec<u8>) {}

    fn decode(_bytes: &mut &[u8], _last: bool) -> Result<Self, Malformed> {
        Ok(())
    }

    fn to_ref(&self) {}
}

macro_rules! tuple {
    ($($part:ident)* - $end:ident) => {
        #[expect(non_snake_case, reason = "each component has the name of its type")]
        impl<$($part: Key,)* $end: Key> Key for ($($part,)* $end,) {
            type Ref<'a> = ($($part::Ref<'a>,)* $end::Ref<'a>,);

            fn name() -> String {
                format!("({})", [$($part::name(),)* $end::name()].join(", "))
            }

            fn encode(key: Self::Ref<'_>, last: bool, out: &mut Vec<u8>) {
                let ($($part,)* $end,) = key;
                $($part::encode($part, false, out);)*
                $end::encode($end, last, out);
            }

            fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> {
                Ok(($($part::decode(bytes, false)?,)* $end::decode(bytes, last)?,))
            }

            fn to_ref(&self) -> Self::Ref<'_> {
                let ($($part,)* $end,) = self;
                ($($part.to_ref(),)* $end.to_ref(),)
            }
        }
    };
}

tuple!(-A);
tuple!(A - B);
tuple!(A B - C);
tuple!(A B C - D);
tuple!(A B C D - E);
tuple!(A B C D E - F);
