//! A reader beside the process that writes.

use std::sync::Arc;

use tidesdb::Db;

use crate::abi::Code;
use crate::abi::extended::OpenOptions;
use crate::failure::answer;
use crate::handle::Handle;
use crate::log;
use crate::pointer::{In, Out};
use crate::state::beside;

use super::open::more;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_reader_open(options: In<OpenOptions>, reader: Out<Handle>) -> Code {
    answer(|| {
        reader.check()?;
        let options = options.growing()?;
        let config = In::from_caller(options.config).get()?;
        let path = In::from_caller(config.db_path).path()?;
        let more = more(&options)?;
        let mut open = Db::options(path)
            .memory_limit(config.max_memory_usage as u64)
            .cache_bytes(config.block_cache_size as u64)
            .allow_unknown(true);
        for order in &more.orders {
            open = open.comparator(order.comparator());
        }
        for operator in &more.operators {
            open = open.merge_operator(operator.clone());
        }
        let messages = Arc::new(log::open(config.log_level, None, 0));
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        reader.set(beside::open(open, path, more.operators, config.block_cache_size > 0, messages)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_reader_refresh(reader: Handle, view: Out<Handle>) -> Code {
    answer(|| {
        view.check()?;
        view.set(beside::refresh(reader)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_reader_close(reader: Handle) -> Code {
    answer(|| beside::close(reader))
}
