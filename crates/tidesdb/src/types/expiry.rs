//! When a row expires: milliseconds since the UNIX epoch, 0 = never. The public API says [`SystemTime`] and [`Duration`].

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Error, Result};

/// The last expiry that a row can have: 48 bits of milliseconds, in the year 10889.
pub const EXPIRY_MAX: u64 = (1 << 48) - 1;
/// Milliseconds of a second.
const SECOND: u64 = 1000;

/// Returns true if a row with this expiry has expired at `now`; one with expiry 0 never has.
#[inline]
pub fn has_passed(expiry: u64, now: u64) -> bool {
    expiry.wrapping_sub(1) < now
}

/// Returns `time` in milliseconds, rounded up.
pub fn millis_up(time: Duration) -> u64 {
    let partial = !time.subsec_nanos().is_multiple_of(1_000_000);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(partial.into())
}

/// Returns the moment of an expiry; `None` = never.
pub fn moment_of(expiry: u64) -> Option<SystemTime> {
    // Bounded, so that the sum cannot overflow on any system, whatever a damaged file says.
    (expiry != 0).then(|| UNIX_EPOCH + Duration::from_millis(expiry.min(EXPIRY_MAX)))
}

/// Returns the expiry of a row that expires at `moment`, in milliseconds, rounded up. For a moment before 1970, the expiry is that
/// of 1970.
///
/// # Errors
/// `InvalidArgument` if the moment is after [`EXPIRY_MAX`].
#[inline]
pub fn expiry_at(moment: Option<SystemTime>) -> Result<u64> {
    moment.map_or(Ok(0), expiry_at_moment)
}

fn expiry_at_moment(moment: SystemTime) -> Result<u64> {
    checked(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns the expiry of a row that is written at `now`, since the UNIX epoch, with `ttl`: the first millisecond that is not before
/// the end of `ttl`.
///
/// # Errors
/// `InvalidArgument` if that is after [`EXPIRY_MAX`].
pub fn expiry_after(now: Duration, ttl: Duration) -> Result<u64> {
    checked(now.saturating_add(ttl))
}

fn checked(end: Duration) -> Result<u64> {
    match millis_up(end) {
        expiry if expiry <= EXPIRY_MAX => Ok(expiry.max(1)), // 0 would mean never
        _ => Err(Error::invalid(
            "a row cannot expire after the year 10889; a row without an expiry never does",
        )),
    }
}

/// Shows an expiry in seconds of the UNIX epoch.
pub struct ShownExpiry(pub u64);

impl fmt::Display for ShownExpiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / SECOND, self.0 % SECOND) {
            (seconds, 0) => write!(f, "{seconds}"),
            (seconds, millis) => write!(f, "{seconds}.{millis:03}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_the_first_millisecond_that_is_not_before_the_end() {
        let now = Duration::new(5, 600_000_001);
        for (ttl, expiry) in [
            (Duration::ZERO, 5601),
            (Duration::from_nanos(1), 5601),
            (Duration::from_nanos(999_999), 5601),
            (Duration::from_millis(1), 5602),
            (Duration::from_millis(250), 5851),
            (Duration::from_secs(60), 65_601),
        ] {
            assert_eq!(expiry_after(now, ttl).unwrap(), expiry, "{ttl:?}");
        }
        assert_eq!(expiry_after(Duration::ZERO, Duration::ZERO).unwrap(), 1, "0 would mean never");
    }

    #[test]
    fn an_expiry_beyond_the_last_one_is_refused() {
        let now = Duration::from_millis(17);
        assert_eq!(expiry_after(now, Duration::from_millis(EXPIRY_MAX - 17)).unwrap(), EXPIRY_MAX);
        for ttl in [Duration::from_millis(EXPIRY_MAX - 16), Duration::from_secs(u64::MAX), Duration::MAX] {
            let error = expiry_after(now, ttl).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("10889"));
        }
        let later = Duration::from_nanos(100); // the clock of Windows has no shorter step
        assert!(expiry_at(moment_of(EXPIRY_MAX).map(|last| last + later)).is_err());
    }

    #[test]
    fn moments_and_expiries_are_the_same() {
        for expiry in [0, 1, 999, 1000, 1_800_000_000_250, EXPIRY_MAX] {
            assert_eq!(expiry_at(moment_of(expiry)).unwrap(), expiry);
        }
        assert_eq!(moment_of(u64::MAX), moment_of(EXPIRY_MAX), "of a damaged file");
        assert_eq!(expiry_at(Some(UNIX_EPOCH)).unwrap(), 1);
        assert_eq!(expiry_at(Some(UNIX_EPOCH - Duration::from_secs(9))).unwrap(), 1);
        assert_eq!(expiry_at(Some(UNIX_EPOCH + Duration::from_nanos(1))).unwrap(), 1);
    }

    #[test]
    fn only_a_row_whose_time_has_come_has_expired() {
        for (expiry, now, expected) in
            [(0, 0, false), (0, u64::MAX, false), (5, 4, false), (5, 5, true), (5, 6, true), (1, 0, false)]
        {
            assert_eq!(has_passed(expiry, now), expected, "{expiry} at {now}");
        }
        let shown = |expiry| ShownExpiry(expiry).to_string();
        assert_eq!((shown(1_800_000_000_000), shown(1_007)), ("1800000000".into(), "1.007".into()));
    }
}
