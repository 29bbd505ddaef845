//! Object stores: part of the interface, not built. Whoever asks for one is told so.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use crate::abi::{ObjstoreConfig, S3Config};
use crate::failure::{Failure, answer_or, invalid};
use crate::pointer::In;

/// A connector; there is none.
type Connector = *mut std::ffi::c_void;

const NOT_BUILT: Failure = invalid!("object stores are not built: databases live in a local directory");

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_default_config() -> ObjstoreConfig {
    ObjstoreConfig::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_fs_create(_: In<c_char>) -> Connector {
    answer_or(null_mut(), || Err(NOT_BUILT))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_s3_create(
    _endpoint: In<c_char>,
    _bucket: In<c_char>,
    _prefix: In<c_char>,
    _access_key: In<c_char>,
    _secret_key: In<c_char>,
    _region: In<c_char>,
    _use_ssl: c_int,
    _use_path_style: c_int,
) -> Connector {
    answer_or(null_mut(), || Err(NOT_BUILT))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_s3_create_config(_: In<S3Config>) -> Connector {
    answer_or(null_mut(), || Err(NOT_BUILT))
}
