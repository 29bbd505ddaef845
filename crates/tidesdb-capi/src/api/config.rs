//! Settings of families: defaults, INI files, changes while the family is open.

use std::ffi::{c_char, c_int};

use crate::abi::{Code, FamilyConfig};
use crate::callback;
use crate::failure::answer;
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::settings;
use crate::state;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_default_column_family_config() -> FamilyConfig {
    FamilyConfig::default()
}

/// Returns whether an algorithm can be used. All five are built in.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compression_available(algorithm: c_int) -> c_int {
    c_int::from((0..=4).contains(&algorithm))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cf_config_load_from_ini(
    file: In<c_char>,
    section: In<c_char>,
    config: Out<FamilyConfig>,
) -> Code {
    answer(|| {
        config.check()?;
        let loaded = settings::load(file.path()?, section.text()?)?;
        config.set(loaded);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cf_config_save_to_ini(
    file: In<c_char>,
    section: In<c_char>,
    config: In<FamilyConfig>,
) -> Code {
    answer(|| settings::save(file.path()?, section.text()?, config.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cf_update_runtime_config(
    cf: Handle,
    config: In<FamilyConfig>,
    persist: c_int,
) -> Code {
    answer(|| {
        callback::not_in_order()?;
        state::family(cf)?.update(config.get()?, persist != 0)
    })
}
