//! Object stores: directories are built in. S3 is not, and asking for it fails with a message.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use crate::abi::{Objstore, ObjstoreConfig, S3Config};
use crate::connector;
use crate::failure::{Failure, answer_or, invalid};
use crate::pointer::In;

const NOT_BUILT: Failure = invalid!("S3 object stores are not supported: use tidesdb_objstore_fs_create");

fn refuse_s3() -> *mut Objstore {
    tracing::error!("tidesdb_objstore_s3_create: S3 object stores are not supported");
    answer_or(null_mut(), || Err(NOT_BUILT))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_default_config() -> ObjstoreConfig {
    ObjstoreConfig::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_fs_create(root_dir: In<c_char>) -> *mut Objstore {
    answer_or(null_mut(), || connector::directory(root_dir.path()?))
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
) -> *mut Objstore {
    refuse_s3()
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_s3_create_config(_: In<S3Config>) -> *mut Objstore {
    refuse_s3()
}
