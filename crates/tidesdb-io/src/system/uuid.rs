//! Boot ids that are written as UUIDs: on Linux and macOS.

/// Returns the bytes of a UUID that is written as text.
pub(super) fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = text.iter().filter(|&&c| c != b'-').map(|&c| char::from(c).to_digit(16));
    let mut out = [0; 16];
    for byte in &mut out {
        *byte = u8::try_from(digits.next()?? << 4 | digits.next()??).ok()?;
    }
    digits.next().is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_are_parsed() {
        let parsed = parse(b"1851b7da-8a7b-4a98-b971-65609a0b6fd0").unwrap();
        assert_eq!(parsed[..4], [0x18, 0x51, 0xb7, 0xda]);
        assert_eq!(parsed[15], 0xd0);
        for bad in [
            &b""[..],
            b"1851b7da",
            b"1851b7da-8a7b-4a98-b971-65609a0b6fd00",
            b"x851b7da-8a7b-4a98-b971-65609a0b6fd0",
        ] {
            assert_eq!(parse(bad), None);
        }
    }
}
