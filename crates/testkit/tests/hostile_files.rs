//! Files whose checksums are right and whose contents mean harm: an error or the right answer, in bounded time and memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::mpsc;
use std::time::Duration;

use testkit::fuzz::base::{Base, options};
use testkit::fuzz::manifest::Manifest;
use tidesdb::version::Change;

/// What opening a database with this manifest says; panics if it panics or takes longer than any open may.
fn open(manifest: Manifest) -> Result<(), tidesdb::Error> {
    let (tell, told) = mpsc::channel();
    let opening = std::thread::spawn(move || {
        let base = Base::build().unwrap();
        let (env, _disk) = base.with_manifest(&manifest).unwrap();
        tell.send(options(&env).open().map(|db| db.abandon())).unwrap();
    });
    match told.recv_timeout(Duration::from_secs(20)) {
        Ok(result) => {
            opening.join().unwrap();
            result
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the open panicked"),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the open does not return"),
    }
}

fn refused(manifest: Manifest, case: &str) {
    let e = open(manifest).err().unwrap_or_else(|| panic!("{case}: opened"));
    assert!(e.is_corruption(), "{case}: {e}");
    assert!(e.to_string().contains(".manifest"), "{case}: {e}");
}

#[test]
fn the_forged_manifest_of_the_base_opens() {
    open(Base::build().unwrap().manifest).unwrap();
}

/// A segment length of zero in the manifest divided by zero in the open. Every length outside of the domain of the option is
/// damage.
#[test]
fn a_segment_length_outside_of_its_domain_is_damage() {
    let base = Base::build().unwrap().manifest;
    for segment_bytes in [0, 1, 8, 4096, (16 << 10) - 1, (16 << 10) + 8, (1 << 30) + 4096, 1 << 63, u64::MAX]
    {
        refused(Manifest { segment_bytes, ..base.clone() }, &format!("segments of {segment_bytes} bytes"));
    }
}

/// A last sequence number of 2^58 in the manifest made the sequencer wait for ever. A number above the maximum is damage,
/// wherever an edit holds one.
#[test]
fn a_sequence_number_above_the_maximum_is_damage() {
    let base = Base::build().unwrap().manifest;
    let family = tidesdb::types::FamilyId(1);
    for seq in [1 << 58, tidesdb::types::SEQ_MAX + 1, 1 << 61, u64::MAX] {
        for change in [
            Change::LastSeq { seq },
            Change::DurableMark { seq },
            Change::FlushedTo { family, seq },
            Change::RemoveRange { family, seq },
        ] {
            let case = format!("{change:?}");
            let mut manifest = base.clone();
            manifest.push([change]);
            refused(manifest, &case);
        }
    }
}
