//! Where tables that a commit took belong: as deep as what is there allows, without a rewrite.
//!
//! They are newer than everything in the tree. A table that overlaps nothing goes to the largest level. One that overlaps only what is in the
//! tiered level and below becomes a part of a new run there, unless it would join two partitions. All others go to level 1, to which each
//! flush writes, and so do tables that overlap each other.
//!
//! A merge that runs may write to gaps between its inputs. So the place is claimed until the tables are installed.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::plan::{picture, view};
use super::policy::{Planner, PolicySettings};
use super::run::version_of;
use crate::family::{Claim, Claimed, FamilyCore};
use crate::maintenance::MaintenanceCtx;
use crate::merge::RetainRules;
use crate::rewrite::FLUSH_LEVEL;
use crate::sources::TableVersion;
use crate::sst::TableMeta;
use crate::types::{Comparator, TableId};

/// The places of tables that a commit took, until they are installed there.
#[derive(Debug)]
pub struct TakenPlaces<'f> {
    places: HashMap<TableId, (u8, u32)>,
    _claimed: Vec<Claimed<'f>>,
}

impl TakenPlaces<'_> {
    /// Level and generation of a table.
    pub fn of(&self, table: TableId) -> (u8, u32) {
        self.places.get(&table).copied().unwrap_or((FLUSH_LEVEL, 0))
    }
}

/// A level that is no other level's way.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Largest,
    Tiered,
}

/// Finds a place for each table of `taken`.
pub fn place_taken<'f>(
    ctx: &MaintenanceCtx,
    family: &'f FamilyCore,
    taken: &TableVersion,
) -> TakenPlaces<'f> {
    let mut places = HashMap::new();
    let mut claimed = Vec::new();
    if taken.runs().len() == 1 {
        for goal in [Goal::Largest, Goal::Tiered] {
            let begun = family.claims.begin(ctx.write.env.clock.mono(), |claims| {
                let version = version_of(family);
                let left =
                    taken.tables().map(|slot| &**slot.meta()).filter(|meta| !places.contains_key(&meta.id));
                let (level, chosen) = chosen(&version, family, claims, goal, left);
                let claim = claim(version.order(), level, &chosen)?;
                let place = |meta: &&TableMeta| {
                    let generation = version.next_generation(level, &keys(meta), &HashSet::new());
                    (meta.id, (level, generation))
                };
                Some((chosen.iter().map(place).collect::<Vec<_>>(), claim))
            });
            if let Some((chosen, claim)) = begun {
                places.extend(chosen);
                claimed.push(claim);
            }
        }
    }
    TakenPlaces { places, _claimed: claimed }
}

fn keys(meta: &TableMeta) -> RangeInclusive<&[u8]> {
    &*meta.smallest..=&*meta.largest
}

/// The level of `goal`, and those of `tables` that may go there.
fn chosen<'t>(
    version: &TableVersion,
    family: &FamilyCore,
    claims: &[Claim],
    goal: Goal,
    tables: impl Iterator<Item = &'t TableMeta>,
) -> (u8, Vec<&'t TableMeta>) {
    let tree = picture(version, claims, &RetainRules::default());
    let settings = PolicySettings::of(&family.options.now());
    let planner = Planner::new(&tree, &settings);
    let shape = *planner.shape();
    let (level, upper) = match goal {
        Goal::Largest => (shape.largest, 1..shape.largest + 1),
        Goal::Tiered if shape.tiered < shape.largest => (shape.tiered, 1..shape.tiered),
        Goal::Tiered => return (shape.tiered, Vec::new()),
    };
    let ends = if matches!(goal, Goal::Tiered) { planner.partition_starts() } else { Vec::new() };
    let fits = |meta: &&TableMeta| {
        let range = view(meta, false).range();
        let is_met = |level: u8| !version.tables_meeting(level, &keys(meta)).is_empty();
        let spans = |end: &&[u8]| tree.compare(range.0, end).is_lt() && tree.compare(end, range.1).is_le();
        let runs = tree.runs_in(shape.tiered..shape.tiered + 1);
        let full = runs.filter(|run| !tree.meeting(*run, range).is_empty()).count() as u64 >= shape.runs_max;
        let is_free = !upper.clone().any(is_met) && !tree.is_busy(level, range);
        is_free && (matches!(goal, Goal::Largest) || !full && !ends.iter().any(spans))
    };
    (level, tables.filter(fits).collect())
}

/// The claim of those who write `tables` to `level`; `None` without tables.
fn claim(order: &Comparator, level: u8, tables: &[&TableMeta]) -> Option<Claim> {
    let ranges = tables.iter().map(|meta| (&*meta.smallest, &*meta.largest));
    let (smallest, largest) = ranges.reduce(|a, b| super::policy::join(order, a, b))?;
    Some(Claim { tables: Vec::new(), level, smallest: smallest.to_vec(), largest: largest.to_vec() })
}
