//! A completely full disk. Runs alone in its process: readers of other tests would keep files alive, and with them disk space.

use tidesdb::{Error, SyncMode, WriteBatch};
use tidesdb_io::sim::alone;

use crate::common::{DB, Sim, contents};

/// Deletes may use the reserve of a full disk, but not its last piece: a database killed during such deletes could not be opened.
#[test]
fn deletes_leave_room_for_the_next_open() {
    alone(|| {
        let sim = Sim::new();
        let reserve = |o: &mut tidesdb::DbOptions| o.disk_reserve_bytes = Some(2 << 20);
        let db = sim.options().sync(SyncMode::None).with(reserve).open().unwrap();
        sim.disk.limit_space(Some(4 << 20));
        let mut stored = 0u32;
        while db.put(&stored.to_be_bytes(), &[1; 400]).is_ok() {
            stored += 1;
        }
        // No merge has disk space, so tombstones only add to the existing data.
        db.cancel_compactions().unwrap();
        let mut deleted = 0u32;
        let e = loop {
            let mut batch = WriteBatch::new();
            for i in 0..100u32 {
                batch.delete(db.default_family(), &u64::from(deleted + i).to_be_bytes()).unwrap();
            }
            match db.write(&mut batch) {
                Ok(_) => deleted += 100,
                Err(e) => break e,
            }
            assert!(deleted < 3_000_000, "a full disk accepted every delete");
        };
        assert!(matches!(e, Error::NoSpace { .. }), "{e}");
        assert!(deleted > 1000);
        let killed = sim.killed();
        killed.disk.limit_space(Some(free(&sim)));
        let again = killed.options().with(reserve).open().unwrap();
        assert_eq!(contents(again.default_family()).len(), stored as usize);
        // The piece is also there for the next open.
        let killed = killed.killed();
        drop(again);
        killed.options().with(reserve).open().unwrap();
    });
}

fn free(sim: &Sim) -> u64 {
    let dir = sim.env.disk.open_dir(std::path::Path::new(DB), false).unwrap();
    dir.space().unwrap().free
}
