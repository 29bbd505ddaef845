//! Snapshots.

use crate::abi::Code;
use crate::failure::answer;
use crate::handle::Handle;
use crate::pointer::Out;
use crate::state::snapshot;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_snapshot_new(db: Handle, out: Out<Handle>) -> Code {
    answer(|| {
        out.check()?;
        out.set(snapshot::new(db, None)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_snapshot_at(db: Handle, seq: u64, out: Out<Handle>) -> Code {
    answer(|| {
        out.check()?;
        out.set(snapshot::new(db, Some(seq))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_snapshot_seq(handle: Handle, seq: Out<u64>) -> Code {
    answer(|| {
        seq.check()?;
        seq.set(snapshot::shot(handle)?.engine().seq());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_snapshot_free(handle: Handle) {
    if handle != Handle::NULL {
        answer(|| snapshot::free(handle));
    }
}
