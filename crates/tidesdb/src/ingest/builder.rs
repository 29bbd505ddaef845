//! [`TableBuilder`]: sorted rows become table files, outside of a database.

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidesdb_io::{Dir, Env, PooledDir};

use super::name_of_values;
use crate::callback::comparing;
use crate::codec::Salt;
use crate::memory::{Charge, Memory, Use};
use crate::options::FamilyOptions;
use crate::ranges::Interval;
use crate::sst::{BUILT_RANGES_MAX, Built, TableOptions, TableWriter, UnsyncedTable};
use crate::types::{EntryRef, KEY_BYTES_MAX, KeyRange, Kind, VALUE_BYTES_MAX, expiry_after, expiry_at};
use crate::vlog::ForeignValues;
use crate::{Error, Result, files};

/// What follows the name of a table in that of its value log.
pub(super) const VALUES_SUFFIX: &str = ".vlog";
/// What follows the number of a table in its name.
const TABLE_SUFFIX: &str = ".klog";
/// Default of [`TableBuilder::memory_limit`].
const MEMORY_BYTES: u64 = 64 << 20;
/// Tables that wait for their sync while the next one is written. Their last bytes are on their way to the device meanwhile.
const UNSYNCED_MAX: usize = 2;
/// Bytes of values that the disk must have room for at each check.
const VALUES_AHEAD: u64 = 16 << 20;

/// Writes rows, in the order of their keys, to table files outside of a database. [`Db::ingest`](crate::Db::ingest) takes them: of this
/// database or of another one, on this machine or on another one.
///
/// Each key has one row at most: a put, a delete, or an operand. Range deletes may be given at any time; they delete what is older than
/// the tables, not their rows. The rows get their place in the order of commits when the tables are taken.
///
/// The tables are named `STEM-000001.klog`, and so on, each with a file of long values `STEM-000001.klog.vlog` beside it, if it has some. Several
/// builders may work at the same time, each with a stem of its own. A builder that is dropped before [`finish`](Self::finish) removes its
/// files.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path().join("db"))?;
/// use tidesdb::{FamilyOptions, Ingest, TableBuilder};
/// let mut rows = TableBuilder::create(dir.path().join("fruit"), &FamilyOptions::default())?;
/// rows.put("apple", "red")?;
/// rows.put("banana", "yellow")?;
/// let tables = rows.finish()?;
/// assert!(tables[0].ends_with("fruit-000001.klog"));
/// db.ingest(&Ingest::new().tables(db.default_family(), &tables))?;
/// assert_eq!(db.get("banana")?.as_deref(), Some(&b"yellow"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TableBuilder {
    env: Env,
    dir: Arc<dyn Dir>,
    /// With it the names of the files begin.
    stem: String,
    options: FamilyOptions,
    /// Identity of the tables of this builder.
    set: Salt,
    memory_limit: u64,
    table: Option<Table>,
    last_key: Vec<u8>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    unsynced: VecDeque<UnsyncedTable>,
    /// Names of the complete tables, and whether each has a value log.
    done: Vec<(String, bool)>,
    /// The first failure: what was written may be incomplete.
    failed: Option<Error>,
    charge: Option<(Charge, Arc<Memory>)>,
    /// Room of the disk; `None` outside of a database.
    room: Option<Room>,
}

/// Checks that the disk has room for so many bytes more.
pub(crate) type CheckRoom = Box<dyn FnMut(u64) -> Result<()> + Send>;

/// The room that a database leaves on its disk for tables and values, of builders and of clones.
pub(crate) struct Room {
    check: CheckRoom,
    /// Bytes of a table, which the disk must have room for besides.
    table: u64,
    /// Bytes that the last check has found and no value has taken.
    for_values: u64,
}

impl Room {
    /// For tables of `table` bytes.
    pub(crate) fn new(check: CheckRoom, table: u64) -> Self {
        Self { check, table, for_values: 0 }
    }

    /// Called before `bytes` of values are written.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<()> {
        if self.for_values < bytes {
            let wanted = bytes.max(VALUES_AHEAD);
            (self.check)(wanted.saturating_add(self.table))?;
            self.for_values = wanted;
        }
        self.for_values -= bytes;
        Ok(())
    }
}

/// A table that is being written.
struct Table {
    writer: TableWriter,
    name: String,
    values: Option<ForeignValues>,
    has_operands: bool,
}

/// The value of a row.
enum Value<'a> {
    Bytes(&'a [u8]),
    Stream(&'a mut dyn Read),
}

impl TableBuilder {
    /// Creates a builder of tables for a family with `options`: their key order, merge operator, compression, filter, `value_threshold`,
    /// `table_bytes` and `default_ttl` are used. The last part of `stem` begins the names of the files; its folder must exist.
    ///
    /// # Errors
    /// `InvalidArgument` if `stem` has no last part, or an option is outside of its domain; `NotBuiltIn` for a compression that this
    /// build lacks; `Io`.
    pub fn create(stem: impl AsRef<Path>, options: &FamilyOptions) -> Result<Self> {
        Self::create_in(Env::real(), stem.as_ref(), options)
    }

    /// Like [`TableBuilder::create`], in another environment.
    pub(crate) fn create_in(env: Env, stem: &Path, options: &FamilyOptions) -> Result<Self> {
        let Some(name) = stem.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::invalid(format!("{} does not end with a name for tables", stem.display())));
        };
        let folder = files::folder_of(stem);
        let dir = env.disk.open_dir(folder, false);
        let dir = dir.map_err(|e| Error::io("open", &folder.display().to_string(), e))?;
        // Files that databases of the process only read give up their descriptors for those that are written.
        let dir = PooledDir::wrap(dir, &env.descriptors);
        Self::new(env, dir, name.to_owned(), options.clone())
    }

    /// A builder of tables whose names begin with `stem` in `dir`, the directory of an open database with so much `memory`. `check`
    /// is called with the size of each table before it is begun, and before values are written.
    ///
    /// # Errors
    /// As [`TableBuilder::create`].
    pub(crate) fn within(
        env: Env,
        (dir, stem): (&Arc<dyn Dir>, String),
        options: FamilyOptions,
        memory: &Arc<Memory>,
        check: CheckRoom,
    ) -> Result<Self> {
        let mut this = Self::new(env, Arc::clone(dir), stem, options)?;
        this.charge = Some((Charge::new(Use::Jobs), Arc::clone(memory)));
        this.room = Some(Room::new(check, this.options.table_bytes));
        Ok(this.memory_limit(memory.table_max()))
    }

    fn new(env: Env, dir: Arc<dyn Dir>, stem: String, options: FamilyOptions) -> Result<Self> {
        options.compression.require()?;
        if let Some(what) = options.outside() {
            return Err(Error::invalid(what));
        }
        Ok(Self {
            set: env.entropy.salt(),
            env,
            dir,
            stem,
            options,
            memory_limit: MEMORY_BYTES,
            table: None,
            last_key: Vec::new(),
            ranges: Vec::new(),
            unsynced: VecDeque::new(),
            done: Vec::new(),
            failed: None,
            charge: None,
            room: None,
        })
    }

    /// Sets how many bytes of memory the builder may take, 64 MiB by default. A table ends when its filter and its index reach this size.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes.max(1);
        self
    }

    /// Adds a row. It expires after the `default_ttl` of the options, from now on, if they have one.
    ///
    /// # Errors
    /// `InvalidArgument` if the key is not after that of the last row, is empty or longer than 64 KiB, or the value is longer than 4 GiB:
    /// the builder is as before. `Io`, `NoSpace`: it can only be dropped.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let expiry = self.default_expiry()?;
        self.add(key.as_ref(), Kind::Put, expiry, Value::Bytes(value.as_ref()))
    }

    /// Adds a row that expires `ttl` from now on.
    ///
    /// # Errors
    /// As [`TableBuilder::put`].
    pub fn put_with_ttl(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let expiry = expiry_after(self.env.clock.wall(), ttl)?;
        self.add(key.as_ref(), Kind::Put, expiry, Value::Bytes(value.as_ref()))
    }

    /// Adds a row that expires at `expiry`; `None` = never.
    ///
    /// # Errors
    /// As [`TableBuilder::put`].
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Option<SystemTime>,
    ) -> Result<()> {
        self.add(key.as_ref(), Kind::Put, expiry_at(expiry)?, Value::Bytes(value.as_ref()))
    }

    /// Adds a row whose value `source` yields up to its end: at least one byte, at most 16 TiB. It needs 1 MiB of memory.
    ///
    /// # Errors
    /// As [`TableBuilder::put`]; `InvalidArgument` for an empty value: the builder is as before. For a longer value than 16 TiB, and if `source`
    /// fails (`Io`), it can only be dropped.
    pub fn put_stream(&mut self, key: impl AsRef<[u8]>, mut source: impl Read) -> Result<()> {
        let expiry = self.default_expiry()?;
        self.add_stream(key.as_ref(), expiry, &mut source)
    }

    /// As [`TableBuilder::put_stream`], for a row that expires at `expiry`; `None` = never.
    ///
    /// # Errors
    /// As [`TableBuilder::put_stream`].
    pub fn put_stream_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        mut source: impl Read,
        expiry: Option<SystemTime>,
    ) -> Result<()> {
        self.add_stream(key.as_ref(), expiry_at(expiry)?, &mut source)
    }

    /// Adds that `key` is deleted.
    ///
    /// # Errors
    /// As [`TableBuilder::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), Kind::Delete, 0, Value::Bytes(&[]))
    }

    /// Adds an operand of the merge operator for `key`.
    ///
    /// # Errors
    /// As [`TableBuilder::put`]; `InvalidArgument` if the options have no merge operator, or it refuses the operand.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let operand = operand.as_ref();
        let Some(operator) = &self.options.merge_operator else {
            return Err(Error::invalid("a table for a family without a merge operator takes no operands"));
        };
        if let Err(what) = operator.check(operand) {
            let name = operator.name();
            return Err(Error::invalid(format!("the merge operator {name:?} refuses an operand: {what}")));
        }
        self.add(key.as_ref(), Kind::Merge, 0, Value::Bytes(operand))
    }

    /// Adds that all keys in `range` are deleted that are older than the tables.
    ///
    /// # Errors
    /// `InvalidArgument` for bounds that the key order cannot represent, as
    /// [`WriteBatch::delete_range`](crate::WriteBatch::delete_range), and for an included end in another order than byte order.
    pub fn delete_range(&mut self, range: impl KeyRange) -> Result<()> {
        let (start, end) = range.bounds();
        let (start, end) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        let order = &self.options.comparator;
        let Some(interval) = comparing(|| Interval::new(order, start, end))? else { return Ok(()) };
        if interval.last.is_some() {
            return Err(Error::invalid("with this key order, the end of a range to delete must be excluded"));
        }
        if self.ranges.len() == BUILT_RANGES_MAX {
            return Err(Error::invalid(format!("a table deletes at most {BUILT_RANGES_MAX} ranges")));
        }
        let (start, end) = (interval.start.unwrap_or_default(), interval.end.unwrap_or_default());
        self.ranges.push((start, end));
        Ok(())
    }

    /// Completes the tables and makes them durable. Returns their paths, in the order of their keys; none if there was no row.
    ///
    /// # Errors
    /// `InvalidArgument` if there are range deletes and no row; `Io`, `NoSpace`: the files are removed.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        self.check_failed()?;
        if self.table.is_none() && !self.ranges.is_empty() {
            return Err(Error::invalid("tables that delete ranges need at least one row"));
        }
        self.finish_table()?;
        self.sync_but(0)?;
        if !self.done.is_empty() {
            self.dir.sync().map_err(|e| Error::io("sync", &self.dir.path().display().to_string(), e))?;
        }
        let folder = self.dir.path().to_path_buf();
        Ok(std::mem::take(&mut self.done).into_iter().map(|(name, _)| folder.join(name)).collect())
    }

    fn default_expiry(&self) -> Result<u64> {
        match self.options.default_ttl {
            Duration::ZERO => Ok(0),
            ttl => expiry_after(self.env.clock.wall(), ttl),
        }
    }

    fn add(&mut self, key: &[u8], kind: Kind, expiry: u64, value: Value<'_>) -> Result<()> {
        self.check_failed()?;
        self.check(key, &value)?;
        self.add_checked(key, kind, expiry, value)
    }

    fn add_stream(&mut self, key: &[u8], expiry: u64, source: &mut dyn Read) -> Result<()> {
        self.check_failed()?;
        self.check(key, &Value::Stream(&mut *source))?;
        // An empty value is refused before anything is written.
        let mut first = Vec::with_capacity(1);
        let read = (&mut *source).take(1).read_to_end(&mut first);
        self.keep_failure(read.map_err(|e| Error::io("read", "the value of a row", e)))?;
        if first.is_empty() {
            return Err(Error::invalid("a value that is read from a stream has at least one byte"));
        }
        self.add_checked(key, Kind::PutPointer, expiry, Value::Stream(&mut first.as_slice().chain(source)))
    }

    fn add_checked(&mut self, key: &[u8], kind: Kind, expiry: u64, value: Value<'_>) -> Result<()> {
        let added = match self.options.comparator.is_bytewise() {
            true => self.write(key, kind, expiry, value),
            false => comparing(|| self.write(key, kind, expiry, value)),
        };
        self.keep_failure(added)
    }

    /// Checks what can be refused without harm.
    fn check(&self, key: &[u8], value: &Value<'_>) -> Result<()> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let len = key.len();
            return Err(Error::invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one {len}")));
        }
        if matches!(value, Value::Bytes(value) if value.len() > VALUE_BYTES_MAX) {
            return Err(Error::invalid("a value is limited to 4 GiB"));
        }
        let order = &self.options.comparator;
        let is_after = || match order.is_bytewise() {
            true => Ok(&*self.last_key < key),
            false => comparing(|| Ok(order.compare(&self.last_key, key).is_lt())),
        };
        if !self.last_key.is_empty() && !is_after()? {
            let (last, key) = (self.last_key.escape_ascii(), key.escape_ascii());
            return Err(Error::invalid(format!(
                "rows out of order: \"{key}\" does not come after \"{last}\""
            )));
        }
        Ok(())
    }

    fn write(&mut self, key: &[u8], kind: Kind, expiry: u64, value: Value<'_>) -> Result<()> {
        let is_full = |table: &Table| {
            table.writer.file_bytes_estimate() >= self.options.table_bytes
                || table.writer.growing_bytes() >= self.memory_limit
        };
        if self.table.as_ref().is_some_and(is_full) {
            self.finish_table()?;
        }
        if self.table.is_none() {
            self.table = Some(self.begin_table()?);
        }
        let Self { table: Some(table), options, dir, env, room, .. } = self else { return Ok(()) };
        let mut take_room = |bytes| room.as_mut().map_or(Ok(()), |room| room.take(bytes));
        let threshold = options.value_threshold;
        match value {
            Value::Stream(source) => {
                let values = table.values(dir, env)?;
                let place = values.append_from(source, options.compression, &mut take_room)?.encode();
                table.writer.add(EntryRef { key, seq: 0, kind, expiry, value: &place })?;
            }
            Value::Bytes(value) if kind.holds_value() && value.len() >= threshold => {
                take_room(value.len() as u64)?;
                let place = table.values(dir, env)?.append(value, options.compression)?.encode();
                let kind = Kind::PutPointer;
                table.writer.add(EntryRef { key, seq: 0, kind, expiry, value: &place })?;
            }
            Value::Bytes(value) => table.writer.add(EntryRef { key, seq: 0, kind, expiry, value })?,
        }
        table.has_operands |= kind.is_operand();
        if let Some((charge, memory)) = &mut self.charge {
            charge.set(memory, table.writer.memory_bytes());
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn begin_table(&mut self) -> Result<Table> {
        if let Some(room) = &mut self.room {
            (room.check)(room.table)?;
        }
        let name = format!("{}-{:06}{TABLE_SUFFIX}", self.stem, self.done.len() + 1);
        let options = TableOptions {
            compression: self.options.compression,
            filter_bits_per_key: self.options.filter_bits_per_key,
        };
        let (salt, order) = (self.env.entropy.salt(), self.options.comparator.clone());
        let writer = TableWriter::create_built(&self.dir, name.clone(), salt, options, order)?;
        Ok(Table { writer, name, values: None, has_operands: false })
    }

    /// Completes the table that is being written, if there is one. Range deletes that came before it are in it.
    fn finish_table(&mut self) -> Result<()> {
        let Some(mut table) = self.table.take() else { return Ok(()) };
        let operator = self.options.merge_operator.as_ref().filter(|_| table.has_operands);
        // Named before the table is complete, so that a failure removes the files.
        self.done.push((table.name.clone(), table.values.is_some()));
        let values = table.values.as_ref().map(ForeignValues::finish).transpose()?;
        table.writer.set_built(Built {
            comparator: self.options.comparator.name().to_owned(),
            operator: operator.map_or_else(String::new, |operator| operator.name().to_owned()),
            set: self.set,
            values,
            ranges: std::mem::take(&mut self.ranges),
        });
        let (_, unsynced) = table.writer.complete()?;
        self.unsynced.push_back(unsynced);
        self.sync_but(UNSYNCED_MAX)
    }

    /// Makes complete tables durable, but for the last `left`.
    fn sync_but(&mut self, left: usize) -> Result<()> {
        while self.unsynced.len() > left
            && let Some(table) = self.unsynced.pop_front()
        {
            table.sync()?;
        }
        Ok(())
    }

    fn check_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep_failure<R>(&mut self, result: Result<R>) -> Result<R> {
        result.inspect_err(|e| self.failed = Some(e.clone()))
    }
}

impl Table {
    /// Its value log, which the first long value creates.
    fn values(&mut self, dir: &Arc<dyn Dir>, env: &Env) -> Result<&ForeignValues> {
        if self.values.is_none() {
            let name = name_of_values(&self.name);
            self.values = Some(ForeignValues::create(dir, name, env.entropy.salt())?);
        }
        self.values.as_ref().ok_or_else(|| Error::internal("a value log was just created"))
    }
}

impl Drop for TableBuilder {
    fn drop(&mut self) {
        if let Some(Table { writer, name, values, .. }) = self.table.take() {
            self.done.push((name, values.is_some()));
            drop(values);
            writer.abandon();
        }
        self.unsynced.clear();
        for (name, has_values) in self.done.drain(..) {
            files::remove(&*self.dir, &name);
            if has_values {
                files::remove(&*self.dir, &name_of_values(&name)); // otherwise a file of this name is somebody else's
            }
        }
    }
}

impl fmt::Debug for TableBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableBuilder")
            .field("dir", &self.dir.path())
            .field("tables", &self.done.len())
            .finish_non_exhaustive()
    }
}
