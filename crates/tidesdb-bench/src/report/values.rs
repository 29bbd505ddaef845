//! Targets of the suite `values`: rates against a rival, and bytes written per byte of keys and values.

use crate::suite::values::{HALF, NONE};

use super::lines::Line;
use super::steady::{Bound, Figure, compared, per_second, times};
use super::targets::Target;

const MEAN: fn(&Line) -> Option<f64> = |l| Some(l.rate.median);
const WRITTEN: fn(&Line) -> Option<f64> = |l| Some(l.write_amp.median);

/// Returns the targets against a rival; empty if the suite has not run.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    let read =
        |times_as_fast| -> [Figure; 1] { [("rate", MEAN, per_second, Bound::AtLeastTimes(times_as_fast))] };
    let mut all = Vec::new();
    for (name, times_as_fast, written) in [(HALF, 3.0, Bound::Free), (NONE, 1.5, Bound::AtMost(1.2))] {
        let puts: [Figure; 2] = [
            ("put", MEAN, per_second, Bound::AtLeastTimes(times_as_fast)),
            ("written / raw", WRITTEN, times, written),
        ];
        for stage in ["write", "overwrite"] {
            all.extend(compared(lines, (&format!("values_{name}_{stage}"), "PUT"), rival, &puts));
        }
        all.extend(compared(lines, (&format!("values_{name}_scan"), "ITER"), rival, &read(1.2)));
        for (operation, wanted) in [("GET", 1.0), ("ITER", 1.2)] {
            all.extend(compared(lines, (&format!("values_{name}_get"), operation), rival, &read(wanted)));
        }
    }
    all
}
