//! Enums whose numbers are stored on disk: one list holds the variants and their numbers, and both directions come from it.

/// Defines an enum of one byte, the list of its variants, and the way from a number to its variant.
macro_rules! numbered {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $number,)+ }

        impl $name {
            /// Each variant, in the order of the definition.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the variant with the number `n`.
            #[inline]
            pub const fn of_number(n: u8) -> Option<Self> {
                match n {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use numbered;
