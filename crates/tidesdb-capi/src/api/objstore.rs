//! Object stores: directories are built in, S3 is in a library that is loaded on request.

use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

use tidesdb_objects::library::{Settings, Text};

use crate::abi::{Objstore, ObjstoreConfig, S3Config};
use crate::connector;
use crate::failure::{Answer, answer_or, invalid};
use crate::pointer::In;

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
    endpoint: In<c_char>,
    bucket: In<c_char>,
    prefix: In<c_char>,
    access_key: In<c_char>,
    secret_key: In<c_char>,
    region: In<c_char>,
    use_ssl: c_int,
    use_path_style: c_int,
) -> *mut Objstore {
    answer_or(null_mut(), || {
        s3(&S3Config {
            endpoint: endpoint.pointer(),
            bucket: bucket.pointer(),
            prefix: prefix.pointer(),
            access_key: access_key.pointer(),
            secret_key: secret_key.pointer(),
            region: region.pointer(),
            use_ssl,
            use_path_style,
            tls_ca_path: null(),
            tls_insecure_skip_verify: 0,
            multipart_threshold: 0,
            multipart_part_size: 0,
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_s3_create_config(config: In<S3Config>) -> *mut Objstore {
    answer_or(null_mut(), || s3(config.get()?))
}

fn s3(config: &S3Config) -> Answer<*mut Objstore> {
    let text = |at: *const c_char| match at.is_null() {
        true => Ok(""),
        false => In::from_caller(at).text(),
    };
    let lent =
        |at: *const c_char| text(at).map(|text| if text.is_empty() { Text::NONE } else { Text::of(text) });
    if text(config.bucket)?.is_empty() {
        return Err(invalid!("the store needs a bucket"));
    }
    let is_open = config.use_ssl == 0;
    let endpoint = match (text(config.endpoint)?, is_open) {
        ("", false) => String::new(),
        ("", true) => return Err(invalid!("without an endpoint, use_ssl must be 1")),
        (given, _) if given.starts_with("https://") && is_open => {
            return Err(invalid!("the endpoint is https://, and use_ssl is 0"));
        }
        (given, _) if given.starts_with("http://") && !is_open => {
            return Err(invalid!("the endpoint is http://, and use_ssl is not 0"));
        }
        (given, _) if given.contains("://") => given.to_owned(),
        (host, true) => format!("http://{host}"),
        (host, false) => format!("https://{host}"),
    };
    connector::s3(&Settings {
        endpoint: if endpoint.is_empty() { Text::NONE } else { Text::of(&endpoint) },
        bucket: lent(config.bucket)?,
        prefix: lent(config.prefix)?,
        key: lent(config.access_key)?,
        secret: lent(config.secret_key)?,
        region: lent(config.region)?,
        ca_file: lent(config.tls_ca_path)?,
        allow_http: u32::from(is_open),
        virtual_host: u32::from(config.use_path_style == 0),
        skip_verify: u32::from(config.tls_insecure_skip_verify != 0),
        multipart_from: config.multipart_threshold as u64,
        part_bytes: config.multipart_part_size as u64,
    })
}
