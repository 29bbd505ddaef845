//! Keeps the newest data only: tables are never merged, and the oldest go when the family holds too much.

use std::cmp::Reverse;

use super::CompactionPolicy;
use super::picture::{Tree, sum_bytes};
use super::plan::{Cause, Plan};
use super::settings::PolicySettings;
use super::spooky::drop_expired;

/// The policy. It drops data that was not deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl CompactionPolicy for Fifo {
    fn pick(&self, tree: &Tree<'_>, settings: &PolicySettings) -> Option<Plan> {
        drop_expired(tree).or_else(|| drop_oldest(tree, settings.fifo_bytes))
    }
}

/// Drops the oldest tables that no reader needs until at most `bytes_max` are left.
fn drop_oldest(tree: &Tree<'_>, bytes_max: u64) -> Option<Plan> {
    let mut left = sum_bytes(tree.tables().map(|(_, t)| t));
    if bytes_max == 0 || left <= bytes_max {
        return None;
    }
    let mut tables: Vec<_> = tree.tables().filter(|(_, t)| !t.taken).collect();
    tables.sort_by_key(|(_, t)| t.max_seq);
    let mut oldest = tables.into_iter().take_while(|(_, t)| {
        let goes = left > bytes_max && t.max_seq <= tree.floor;
        left = left.saturating_sub(t.bytes);
        goes
    });
    let mut inputs: Vec<_> = oldest.by_ref().map(|(level, t)| (level, t.id)).collect();
    inputs.sort_by_key(|(level, id)| (*level, Reverse(*id)));
    Plan::dropping(Cause::Age, inputs)
}
