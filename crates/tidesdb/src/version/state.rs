//! The state that the manifest records: families, the tables and value logs of each, counters and marks.
//!
//! Pure data. It changes only through [`State::apply`], which checks each change against the current state. The same
//! code runs when an edit is installed and when the manifest is replayed, so both refuse the same edits. Families are
//! shared by `Arc`: a clone of the state costs one pointer per family. The cost of an edit depends on the families that it changes, not on
//! how many there are: an install takes an edit that fails back ([`State::take_back`]) instead of trying it on a clone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::sync::Arc;

use super::chunks::Chunks;
use super::edit::{Change, LEVEL_MAX, VersionEdit};
use crate::codec::Salt;
use crate::files::{self, FileKind};
use crate::options::{COMPARATOR_NAME_BYTES_MAX, check_operator_change};
use crate::order::Gather;
use crate::ranges::RangeTombstone;
use crate::sst::TableMeta;
use crate::types::{FAMILY_NAME_BYTES_MAX, FamilyId, SeqNo, TableId, VlogId, WalId};
use crate::vlog::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES};
use crate::{Error, FamilyOptions, Result};

/// Bytes of the disk that a family is expected to need for its first flush, however little it holds.
pub const FAMILY_BYTES: u64 = 32 << 10;

/// A value log of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlogState {
    /// Salt of its file.
    pub salt: Salt,
    /// Final length in bytes; 0 while it is being written.
    pub bytes: u64,
    /// No commit after this one refers to the value log; `None` while it is being written.
    pub sealed_at: Option<SeqNo>,
    /// Bytes that installed tables refer to.
    pub live_bytes: u64,
    /// Values that installed tables refer to.
    pub live_count: u64,
}

impl VlogState {
    /// Bytes of the file that are its header or records that tables refer to.
    pub fn used(&self) -> u64 {
        let records =
            self.live_count.saturating_mul(RECORD_HEADER_BYTES as u64).saturating_add(self.live_bytes);
        records.saturating_add(FILE_HEADER_BYTES as u64)
    }

    fn is_obsolete(&self, flushed_to: SeqNo) -> bool {
        self.live_count == 0 && self.live_bytes == 0 && self.sealed_at.is_some_and(|seq| seq <= flushed_to)
    }

    /// Bytes of a sealed file that nothing refers to; 0 while it is being written.
    pub fn garbage(&self) -> u64 {
        self.bytes.saturating_sub(self.used())
    }
}

/// A table and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedTable {
    /// Its level, 1 for L1.
    pub level: u8,
    /// See [`Change::AddTable`].
    pub generation: u32,
    /// Its description.
    pub meta: Arc<TableMeta>,
}

/// The tables of a family, by number. A clone shares them: see `chunks.rs`.
#[derive(Clone, Debug, Default)]
pub struct Tables(Chunks<PlacedTable>);

impl Tables {
    /// The table numbered `id`.
    pub fn get(&self, id: TableId) -> Option<&PlacedTable> {
        self.0.get(self.0.find(|table| table.meta.id < id)).filter(|table| table.meta.id == id)
    }

    /// All tables, by number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PlacedTable> + Clone {
        self.0.iter()
    }

    /// The numbers of all tables.
    pub fn ids(&self) -> impl Iterator<Item = TableId> {
        self.iter().map(|table| table.meta.id)
    }

    /// Adds a table. Returns false if there is one of this number.
    fn insert(&mut self, table: PlacedTable) -> bool {
        let position = self.0.find(|other| other.meta.id < table.meta.id);
        let is_new = self.0.get(position).is_none_or(|other| other.meta.id != table.meta.id);
        if is_new {
            self.0.insert(position, table);
        }
        is_new
    }

    /// Removes the table numbered `id`.
    fn remove(&mut self, id: TableId) -> Option<PlacedTable> {
        let position = self.0.find(|table| table.meta.id < id);
        let is_there = self.0.get(position).is_some_and(|table| table.meta.id == id);
        is_there.then(|| self.0.remove(position))
    }
}

/// Recorded facts of one family.
#[derive(Clone, Debug)]
pub struct FamilyState {
    /// Its number.
    pub id: FamilyId,
    /// Its name.
    pub name: Arc<str>,
    /// Its options.
    pub options: FamilyOptions,
    /// Its tables.
    pub tables: Tables,
    /// Its value logs.
    pub vlogs: BTreeMap<VlogId, VlogState>,
    /// Range tombstones of flushed commits, by sequence number.
    pub ranges: Arc<BTreeMap<SeqNo, Arc<RangeTombstone>>>,
    /// All its commits up to this one are in tables.
    pub flushed_to: SeqNo,
}

/// Everything that the manifest records.
#[derive(Clone, Debug)]
pub struct State {
    /// The families.
    pub families: BTreeMap<FamilyId, Arc<FamilyState>>,
    names: Arc<BTreeMap<Arc<str>, FamilyId>>,
    /// The family of each table and value log.
    owners: Arc<BTreeMap<FileKind, FamilyId>>,
    /// Next number of a table.
    pub next_table: TableId,
    /// Next number of a value log.
    pub next_vlog: VlogId,
    /// Next number of a family.
    pub next_family: FamilyId,
    /// Log segments below this one are obsolete.
    pub log_start: WalId,
    /// A commit at least this new exists.
    pub last_seq: SeqNo,
    /// The log was durable at least up to this commit.
    pub durable_mark: SeqNo,
    /// Wall clock of the newest edit that recorded it, in seconds since the UNIX epoch.
    pub clock_mark: u64,
    /// Whether the log may have commits that take tables.
    pub log_takes_tables: bool,
    /// Whether the database was closed cleanly after the last edit.
    pub clean: bool,
    /// Facts written by newer versions, by tag.
    pub unknown: BTreeMap<u8, Arc<[u8]>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            families: BTreeMap::new(),
            names: Arc::default(),
            owners: Arc::default(),
            next_table: TableId(1),
            next_vlog: VlogId(1),
            next_family: FamilyId(1),
            log_start: WalId(0),
            last_seq: 0,
            durable_mark: 0,
            clock_mark: 0,
            log_takes_tables: false,
            clean: false,
            unknown: BTreeMap::new(),
        }
    }
}

impl FamilyState {
    /// Returns the value logs that nothing can refer to any more. Each is sealed, no table has live values in it, and
    /// every commit that may refer to it is flushed, once the family is flushed up to `flushed_to`.
    pub fn obsolete_vlogs_at(&self, flushed_to: SeqNo) -> impl Iterator<Item = VlogId> {
        self.vlogs.iter().filter(move |(_, vlog)| vlog.is_obsolete(flushed_to)).map(|(id, _)| *id)
    }

    pub(super) fn add_table(&mut self, level: u8, generation: u32, meta: &Arc<TableMeta>) -> Result<()> {
        if level == 0 || level > LEVEL_MAX {
            return Err(Error::internal(format!("table {} in level {level}", meta.id.0)));
        }
        self.change_live(meta, add)?;
        match self.tables.insert(PlacedTable { level, generation, meta: Arc::clone(meta) }) {
            true => Ok(()),
            false => Err(Error::internal(format!("table {} is there already", meta.id.0))),
        }
    }

    fn remove_table(&mut self, level: u8, table: TableId) -> Result<()> {
        let PlacedTable { level: found, meta, .. } =
            self.tables.remove(table).ok_or_else(|| missing("table", table.0))?;
        if found != level {
            return Err(Error::internal(format!("table {} is in level {found}, not {level}", table.0)));
        }
        self.change_live(&meta, sub)
    }

    /// Changes the live bytes and values of value logs by those that a table refers to.
    fn change_live(&mut self, table: &TableMeta, change: fn(u64, u64) -> Result<u64>) -> Result<()> {
        for r in &table.vlog_refs {
            let live = self.vlogs.get_mut(&r.vlog).ok_or_else(|| missing("value log", r.vlog.0.into()))?;
            live.live_bytes = change(live.live_bytes, r.bytes)?;
            live.live_count = change(live.live_count, r.count)?;
        }
        Ok(())
    }

    fn seal_vlog(&mut self, vlog: VlogId, bytes: u64, sealed_at: SeqNo) -> Result<()> {
        let info = self.vlogs.get_mut(&vlog).ok_or_else(|| missing("value log", vlog.0.into()))?;
        if info.sealed_at.is_some() {
            return Err(Error::internal(format!("value log {} is complete already", vlog.0)));
        }
        info.bytes = bytes;
        info.sealed_at = Some(sealed_at);
        Ok(())
    }

    fn remove_vlog(&mut self, vlog: VlogId) -> Result<()> {
        let info = self.vlogs.get(&vlog).ok_or_else(|| missing("value log", vlog.0.into()))?;
        if !info.is_obsolete(self.flushed_to) {
            return Err(Error::internal(format!("value log {} is still needed", vlog.0)));
        }
        self.vlogs.remove(&vlog);
        Ok(())
    }

    fn add_range(&mut self, range: &Arc<RangeTombstone>) -> Result<()> {
        match Arc::make_mut(&mut self.ranges).insert(range.seq, Arc::clone(range)) {
            None => Ok(()),
            Some(_) => Err(Error::internal(format!("range tombstone {} is there already", range.seq))),
        }
    }

    fn remove_range(&mut self, seq: SeqNo) -> Result<()> {
        let removed = Arc::make_mut(&mut self.ranges).remove(&seq);
        removed.map(|_| ()).ok_or_else(|| missing("range tombstone", seq))
    }

    /// Its tables and value logs.
    fn files(&self) -> impl Iterator<Item = FileKind> {
        let tables = self.tables.ids().map(FileKind::Table);
        tables.chain(self.vlogs.keys().map(|id| FileKind::Vlog(*id)))
    }

    /// Returns the changes that turn the tables of `prev` into those of this state.
    pub(super) fn tables_since<'a>(&'a self, prev: Option<&'a Self>) -> impl Iterator<Item = Change> + 'a {
        let family = self.id;
        let is_in = |of: &Self, table: &PlacedTable| of.tables.get(table.meta.id) == Some(table);
        let gone = prev.into_iter().flat_map(|prev| prev.tables.iter()).filter(move |t| !is_in(self, t));
        let new = self.tables.iter().filter(move |t| !prev.is_some_and(|prev| is_in(prev, t)));
        let gone = gone.map(move |t| Change::RemoveTable { family, level: t.level, table: t.meta.id });
        gone.chain(new.map(move |&PlacedTable { level, generation, ref meta }| Change::AddTable {
            family,
            level,
            generation,
            meta: Arc::clone(meta),
        }))
    }

    fn changes(&self, out: &mut Vec<Change>) {
        let family = self.id;
        out.push(Change::CreateFamily {
            family,
            name: Arc::clone(&self.name),
            options: self.options.clone(),
        });
        for (&vlog, info) in &self.vlogs {
            out.push(Change::AddVlog { family, vlog, salt: info.salt });
            if let Some(sealed_at) = info.sealed_at {
                out.push(Change::SealVlog { family, vlog, bytes: info.bytes, sealed_at });
            }
        }
        out.extend(self.tables_since(None));
        out.extend(self.ranges.values().map(|range| Change::AddRange { family, range: Arc::clone(range) }));
        if self.flushed_to > 0 {
            out.push(Change::FlushedTo { family, seq: self.flushed_to });
        }
    }
}

impl State {
    /// Returns the family called `name`.
    pub fn family_by_name(&self, name: &str) -> Option<&Arc<FamilyState>> {
        self.names.get(name).and_then(|id| self.families.get(id))
    }

    /// Returns the highest sequence number that was assigned, as far as this state knows.
    pub fn newest_seq(&self) -> SeqNo {
        let of_families = self.families.values().flat_map(|family| {
            let sealed = family.vlogs.values().filter_map(|vlog| vlog.sealed_at);
            sealed.chain([family.flushed_to])
        });
        of_families.fold(self.last_seq.max(self.durable_mark), SeqNo::max)
    }

    /// Names of the tables and value logs of all families.
    pub fn file_names(&self) -> impl Iterator<Item = String> {
        let tables = self.families.values().flat_map(|family| family.tables.ids().map(files::table));
        let vlogs = self.families.values().flat_map(|family| family.vlogs.keys().map(|id| files::vlog(*id)));
        tables.chain(vlogs)
    }

    /// Bytes of the tables and value logs of all families, and what each family needs for its next flush. A value log that is being written
    /// counts with what tables refer to.
    pub fn data_bytes(&self) -> u64 {
        let of_family = |family: &Arc<FamilyState>| {
            let tables = family.tables.iter().map(|table| table.meta.file_bytes);
            let vlogs = family.vlogs.values().map(|vlog| vlog.bytes.max(vlog.used()));
            tables.chain(vlogs).fold(FAMILY_BYTES, u64::saturating_add)
        };
        self.families.values().map(of_family).fold(0, u64::saturating_add)
    }

    /// Returns one edit that produces this state from an empty one.
    pub fn snapshot(&self) -> VersionEdit {
        let mut out =
            vec![Change::NextIds { table: self.next_table, vlog: self.next_vlog, family: self.next_family }];
        self.families.values().for_each(|f| f.changes(&mut out));
        out.push(Change::LogStart { wal: self.log_start });
        out.push(Change::LastSeq { seq: self.last_seq });
        out.push(Change::DurableMark { seq: self.durable_mark });
        out.push(Change::ClockMark { wall_secs: self.clock_mark });
        out.extend(self.log_takes_tables.then_some(Change::LogTakesTables));
        out.extend(self.unknown.iter().map(|(&tag, body)| Change::Unknown { tag, body: Arc::clone(body) }));
        out.into_iter().collect()
    }

    /// Applies the changes in order, and raises the counters above the numbers that they use. After an error the state is partly changed:
    /// see [`State::take_back`].
    ///
    /// # Errors
    /// `Exists`, `NotFound` and `InvalidArgument` for invalid requests of a user; `Internal` for an edit that no
    /// correct engine makes.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        self.clean = false;
        edit.changes.iter().try_for_each(|change| self.apply_one(change))
    }

    fn apply_one(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::CreateFamily { family, name, options } => self.create_family(*family, name, options)?,
            Change::DropFamily { family } => {
                let dropped =
                    self.families.remove(family).ok_or_else(|| missing("family", family.0.into()))?;
                Arc::make_mut(&mut self.names).remove(&dropped.name);
                let owners = Arc::make_mut(&mut self.owners);
                for file in dropped.files() {
                    owners.remove(&file);
                }
            }
            Change::RenameFamily { family, name } => self.rename_family(*family, name)?,
            Change::SetOptions { family, options } => {
                let f = self.family_mut(*family)?;
                if f.options.comparator.name() != options.comparator.name() {
                    return Err(Error::invalid("the key order of a family cannot change"));
                }
                check_options(options)?;
                check_operator_change(
                    &f.name,
                    f.options.merge_operator.as_ref(),
                    options.merge_operator.as_ref(),
                )?;
                let old = std::mem::replace(&mut f.options, options.clone());
                f.options.comparator = old.comparator;
                f.options.merge_operator = old.merge_operator.or(f.options.merge_operator.take());
                if f.options.unknown.is_empty() {
                    f.options.unknown = old.unknown;
                }
            }
            Change::AddTable { family, level, generation, meta } => {
                self.next_table = self.next_table.max(TableId(meta.id.0.checked_add(1).ok_or_else(used_up)?));
                self.family_mut(*family)?.add_table(*level, *generation, meta)?;
                self.add_owner(*family, FileKind::Table(meta.id))?;
            }
            Change::RemoveTable { family, level, table } => {
                self.family_mut(*family)?.remove_table(*level, *table)?;
                Arc::make_mut(&mut self.owners).remove(&FileKind::Table(*table));
            }
            Change::AddVlog { family, vlog, salt } => {
                self.next_vlog = self.next_vlog.max(VlogId(vlog.0.checked_add(1).ok_or_else(used_up)?));
                let info = VlogState { salt: *salt, bytes: 0, sealed_at: None, live_bytes: 0, live_count: 0 };
                if self.family_mut(*family)?.vlogs.insert(*vlog, info).is_some() {
                    return Err(Error::internal(format!("value log {} is there already", vlog.0)));
                }
                self.add_owner(*family, FileKind::Vlog(*vlog))?;
            }
            Change::SealVlog { family, vlog, bytes, sealed_at } => {
                self.family_mut(*family)?.seal_vlog(*vlog, *bytes, *sealed_at)?;
            }
            Change::RemoveVlog { family, vlog } => {
                self.family_mut(*family)?.remove_vlog(*vlog)?;
                Arc::make_mut(&mut self.owners).remove(&FileKind::Vlog(*vlog));
            }
            Change::AddRange { family, range } => self.family_mut(*family)?.add_range(range)?,
            Change::RemoveRange { family, seq } => self.family_mut(*family)?.remove_range(*seq)?,
            Change::FlushedTo { family, seq } => {
                let f = self.family_mut(*family)?;
                f.flushed_to = f.flushed_to.max(*seq);
            }
            _ => self.apply_mark(change),
        }
        Ok(())
    }

    /// Applies changes that concern no family. Counters and marks only grow, so their order does not matter. The clock
    /// mark and unknown changes take the newest value.
    fn apply_mark(&mut self, change: &Change) {
        match change {
            Change::NextIds { table, vlog, family } => {
                self.next_table = self.next_table.max(*table);
                self.next_vlog = self.next_vlog.max(*vlog);
                self.next_family = self.next_family.max(*family);
            }
            Change::LogStart { wal } => self.log_start = self.log_start.max(*wal),
            Change::LastSeq { seq } => self.last_seq = self.last_seq.max(*seq),
            Change::DurableMark { seq } => self.durable_mark = self.durable_mark.max(*seq),
            Change::ClockMark { wall_secs } => self.clock_mark = *wall_secs,
            Change::LogTakesTables => self.log_takes_tables = true,
            Change::CleanShutdown => self.clean = true,
            Change::Unknown { tag, body } => {
                self.unknown.insert(*tag, Arc::clone(body));
            }
            _ => {}
        }
    }

    fn create_family(&mut self, id: FamilyId, name: &Arc<str>, options: &FamilyOptions) -> Result<()> {
        check_name(name)?;
        check_options(options)?;
        if options.comparator.name().len() > COMPARATOR_NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the name of the key order is longer than {COMPARATOR_NAME_BYTES_MAX} bytes"
            )));
        }
        if self.family_by_name(name).is_some() {
            return Err(taken(name));
        }
        let family = FamilyState {
            id,
            name: Arc::clone(name),
            options: options.clone(),
            tables: Tables::default(),
            vlogs: BTreeMap::new(),
            ranges: Arc::default(),
            flushed_to: 0,
        };
        self.next_family = self.next_family.max(FamilyId(id.0.checked_add(1).ok_or_else(used_up)?));
        Arc::make_mut(&mut self.names).insert(Arc::clone(name), id);
        match self.families.insert(id, Arc::new(family)) {
            None => Ok(()),
            Some(_) => Err(Error::internal(format!("family {} is there already", id.0))),
        }
    }

    fn rename_family(&mut self, id: FamilyId, name: &Arc<str>) -> Result<()> {
        check_name(name)?;
        if self.names.get(name).is_some_and(|other| *other != id) {
            return Err(taken(name));
        }
        let old = std::mem::replace(&mut self.family_mut(id)?.name, Arc::clone(name));
        let names = Arc::make_mut(&mut self.names);
        names.remove(&old);
        names.insert(Arc::clone(name), id);
        Ok(())
    }

    fn family_mut(&mut self, id: FamilyId) -> Result<&mut FamilyState> {
        self.families.get_mut(&id).map(Arc::make_mut).ok_or_else(|| missing("family", id.0.into()))
    }

    fn add_owner(&mut self, family: FamilyId, file: FileKind) -> Result<()> {
        match self.owners.contains_key(&file) {
            true => Err(Error::internal("a file would belong to two families")),
            false => {
                Arc::make_mut(&mut self.owners).insert(file, family);
                Ok(())
            }
        }
    }

    /// Returns what `edit` may change, as it is now, for [`State::take_back`].
    pub(super) fn before(&mut self, edit: &VersionEdit) -> Self {
        let maps = (take(&mut self.families), take(&mut self.names), take(&mut self.owners));
        let marks = self.clone(); // cheap without the maps
        (self.families, self.names, self.owners) = maps;
        let touched = edit.changes.iter().filter_map(Change::family);
        let families = touched.filter_map(|id| Some((id, Arc::clone(self.families.get(&id)?)))).collect();
        Self { families, ..marks }
    }

    /// Takes `edit` back, of which any part may have been applied since [`State::before`].
    pub(super) fn take_back(&mut self, edit: &VersionEdit, before: Self) {
        let (mut families, mut names, mut owners) =
            (take(&mut self.families), take(&mut self.names), take(&mut self.owners));
        let (name_of, owner_of) = (Arc::make_mut(&mut names), Arc::make_mut(&mut owners));
        let touched: BTreeSet<FamilyId> = edit.changes.iter().filter_map(Change::family).gather();
        for family in touched.iter().filter_map(|id| families.remove(id)) {
            name_of.remove(&family.name);
            for file in family.files() {
                if owner_of.get(&file) == Some(&family.id) {
                    owner_of.remove(&file);
                }
            }
        }
        for (id, family) in &before.families {
            name_of.insert(Arc::clone(&family.name), *id);
            owner_of.extend(family.files().map(|file| (file, *id)));
            families.insert(*id, Arc::clone(family));
        }
        *self = Self { families, names, owners, ..before };
    }

    /// Checks the invariants between families: names and numbers are unique, and numbers are below their counters.
    ///
    /// # Errors
    /// `Internal`, naming the violated invariant.
    pub fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        let mut tables = HashSet::new();
        let mut vlogs = HashSet::new();
        for (id, family) in &self.families {
            let counted = *id < self.next_family
                && family.tables.ids().all(|t| t < self.next_table)
                && family.vlogs.keys().all(|v| *v < self.next_vlog);
            let unique = names.insert(&family.name)
                && self.names.get(&family.name) == Some(id)
                && family.tables.ids().all(|t| tables.insert(t))
                && family.vlogs.keys().all(|v| vlogs.insert(*v))
                && family.files().all(|file| self.owners.get(&file) == Some(id));
            if !counted || !unique || *id != family.id {
                return Err(Error::internal(format!("family {}: a number or name is used twice", id.0)));
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<()> {
    match name.len() {
        0 => Err(Error::invalid("the name of a family is empty")),
        n if n > FAMILY_NAME_BYTES_MAX => {
            Err(Error::invalid(format!("the name of a family is {n} bytes, at most {FAMILY_NAME_BYTES_MAX}")))
        }
        _ => Ok(()),
    }
}

fn check_options(options: &FamilyOptions) -> Result<()> {
    options.outside().map_or(Ok(()), |what| Err(Error::invalid(what)))
}

fn taken(name: &str) -> Error {
    Error::Exists { what: format!("family {name:?}").into() }
}

fn missing(what: &str, id: u64) -> Error {
    Error::NotFound { what: format!("{what} {id}").into() }
}

fn used_up() -> Error {
    Error::internal("all numbers are used")
}

fn add(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or_else(|| Error::internal("live bytes of a value log overflow"))
}

/// Law: the live bytes of a value log never fall below zero. An error and no `assert!`, because a hostile manifest can break it.
/// Cost: two subtractions for each value log of a removed table.
fn sub(a: u64, b: u64) -> Result<u64> {
    a.checked_sub(b).ok_or_else(|| Error::internal("live bytes of a value log below zero"))
}
