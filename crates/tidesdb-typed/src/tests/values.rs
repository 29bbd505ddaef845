//! Values come back as they were written.

use proptest::prelude::*;

use crate::{Json, Value};

proptest! {
    /// The usual way of reading decimals is off by one unit in the last place for some of them.
    #[test]
    fn floats_come_back_exactly_from_json(value in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO) {
        let mut text = Vec::new();
        Json::<f64>::encode(&value, &mut text).unwrap();
        prop_assert_eq!(Json::<f64>::decode(&text).unwrap().to_bits(), value.to_bits());
    }
}
