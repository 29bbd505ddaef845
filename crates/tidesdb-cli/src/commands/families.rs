//! `tidesdb families`: the column families of a database.

use serde_json::json;
use tidesdb::{Comparator, Compression, FamilyOptions, MergeOperator, SettingInfo, TreeStats};

use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Offer, nearest};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session};
use crate::text;

/// List, create, drop, rename or clone column families
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Families {
    #[command(subcommand)]
    action: Option<Action>,
}

/// Operations on families.
#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// List the families (the default)
    List,
    /// Create a family
    Create(Create),
    /// Drop a family with all its data
    Drop {
        /// The family
        name: String,
    },
    /// Rename a family
    Rename {
        /// The current name
        old: String,
        /// The new name
        new: String,
    },
    /// Make a copy of a family under a new name
    Clone {
        /// The family
        source: String,
        /// Name of the copy
        new: String,
    },
}

/// Settings of a new family.
#[derive(Clone, Debug, clap::Args)]
struct Create {
    /// Its name
    name: String,
    /// Compression
    #[arg(long, default_value = "lz4", value_parser = Offer::new(COMPRESSIONS, compression))]
    compression: Compression,
    /// Comparator of its keys
    #[arg(long, default_value = "bytewise", value_parser = Offer::new(ORDERS, comparator))]
    order: Comparator,
    /// A setting and its number, such as value_threshold=4096; may be repeated
    #[arg(long = "set", value_name = "NAME=NUMBER", value_parser = setting, long_help = settings_help())]
    settings: Vec<(String, u64)>,
}

const COMPRESSIONS: [&str; 5] = ["none", "snappy", "lz4", "lz4-fast", "zstd"];
const ORDERS: [&str; 6] = ["bytewise", "reverse-bytewise", "case-insensitive", "lexicographic", "u64", "i64"];

fn setting(text: &str) -> Result<(String, u64), String> {
    let (name, number) = text.split_once('=').ok_or("expected NAME=NUMBER")?;
    let number = number.parse().map_err(|_| format!("{number:?} is not a number from 0 up"))?;
    Ok((name.to_owned(), number))
}

/// Returns the help for the settings, from the engine's own table.
fn settings_help() -> String {
    let line = |info: &SettingInfo| format!("\n  {:20} {}", info.name, info.help);
    let lines: String = FamilyOptions::TABLE.iter().map(line).collect();
    format!("A setting and its number, such as value_threshold=4096; may be repeated:{lines}")
}

fn compression(name: &str) -> Result<Compression, String> {
    Compression::by_name(name).ok_or_else(|| format!("expected one of {}", COMPRESSIONS.join(", ")))
}

fn comparator(name: &str) -> Result<Comparator, String> {
    Comparator::by_name(name).ok_or_else(|| format!("expected one of {}", ORDERS.join(", ")))
}

impl Create {
    fn options(&self) -> Result<FamilyOptions, Failure> {
        let mut options =
            FamilyOptions::default().compression(self.compression).comparator(self.order.clone());
        for (name, number) in &self.settings {
            let known = || FamilyOptions::TABLE.iter().map(|info| info.name);
            let meant = || if known().any(|known| known == name) { None } else { nearest(name, known()) };
            options.set(name, *number).map_err(|e| Failure::from(e).meant(meant()))?;
        }
        Ok(options)
    }
}

impl Families {
    /// Returns the access that the operation needs: only `list` is read-only.
    pub(crate) fn access(&self) -> Access {
        match self.action {
            None | Some(Action::List) => Access::Read,
            Some(Action::Create(_)) => Access::Create,
            Some(_) => Access::Write,
        }
    }

    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        if session.common.family.is_some() {
            return Err(Failure::usage("--family cannot be used here: name the families as arguments"));
        }
        match self.action.as_ref().unwrap_or(&Action::List) {
            Action::List => list(session, out),
            action => Progress::during("changing the families", || action.run(session)),
        }
    }
}

impl Action {
    /// Changes the families.
    fn run(&self, session: &Session) -> Outcome {
        let db = &session.db;
        match self {
            Self::List => {}
            Self::Create(create) => drop(db.create_family(&create.name, create.options()?)?),
            Self::Drop { name } => db.drop_family(name).map_err(|e| session.no_family(e, name))?,
            Self::Rename { old, new } => db.rename_family(old, new).map_err(|e| session.no_family(e, old))?,
            Self::Clone { source, new } => {
                drop(db.clone_family(source, new).map_err(|e| session.no_family(e, source))?);
            }
        }
        Ok(Exit::Done)
    }
}

fn list(session: &Session, out: &mut Out<'_>) -> Outcome {
    for name in session.db.families() {
        let family = session.db.family(&name)?;
        let (stats, options) = (family.stats(), family.current_options());
        let tables: usize = stats.level_tables.iter().sum();
        let bytes: u64 = stats.level_bytes.iter().sum();
        let (compression, order) = (options.compression.name(), options.comparator.name());
        let operator = options.merge_operator.as_ref().map(MergeOperator::name);
        if session.common.json {
            let number = |info: &SettingInfo| (info.name.to_owned(), json!(options.get(info.name)));
            let settings: serde_json::Map<_, _> = FamilyOptions::TABLE.iter().map(number).collect();
            out.json(&json!({
                "name": name, "tables": tables, "bytes": bytes, "entries": stats.table_entries,
                "memtable_bytes": stats.memtable_bytes, "compression": compression, "order": order,
                "merge_operator": operator,
                "settings": settings,
            }))?;
        } else if out.is_terminal() {
            let name = out.paint(crate::output::Style::Strong, &name);
            let tables = text::count(tables as u64, "table", "tables");
            let operator =
                operator.map_or(String::new(), |operator| format!(", merges by {}", out.name(operator)));
            let order = out.name(order);
            out.line(format!("{name}  {tables}, {}, {compression}, {order}{operator}", text::size(bytes)))?;
        } else {
            out.line(name)?;
        }
    }
    session.left_out()?.iter().try_for_each(|tree| list_left_out(tree, session.common.json, out))?;
    Ok(Exit::Done)
}

/// Lists a family whose key order is not known: what the manifest says of it.
fn list_left_out(tree: &TreeStats, json: bool, out: &mut Out<'_>) -> Outcome<()> {
    let (name, order) = (&tree.family, &tree.order);
    if json {
        let entries: u64 = tree.levels.iter().map(|level| level.entries).sum();
        return out.json(&json!({
            "name": name, "tables": tree.tables, "bytes": tree.bytes, "entries": entries, "order": order,
            "order_is_known": false,
        }));
    }
    if !out.is_terminal() {
        return out.line(name);
    }
    let painted = out.paint(crate::output::Style::Strong, name);
    let (tables, order) = (text::count(tree.tables as u64, "table", "tables"), out.name(order));
    out.line(format!("{painted}  {tables}, {}, {order}, which is not known here", text::size(tree.bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn a_family_is_created_renamed_cloned_and_dropped() {
        let stage = Stage::with(&["a"]);
        stage.run(&[
            "families",
            "create",
            "one",
            "--compression",
            "zstd",
            "--order",
            "u64",
            "--set",
            "value_threshold=99",
            "--set",
            "table_bytes=1000000",
        ]);
        let options = stage.db.family("one").unwrap().current_options().clone();
        assert_eq!((options.compression, options.value_threshold), (Compression::Zstd, 99));
        assert_eq!(options.table_bytes, 1_000_000);
        assert_eq!(options.comparator.name(), "u64");
        stage.run(&["families", "rename", "one", "two"]);
        stage.run(&["families", "clone", "default", "copy"]);
        assert_eq!(stage.run(&["families"]), "copy\ndefault\ntwo\n");
        assert_eq!(stage.run(&["get", "--family", "copy", "a"]), "a");
        stage.run(&["families", "drop", "two"]);
        stage.run(&["families", "drop", "copy"]);
        assert!(stage.run(&["families", "list", "--json"]).starts_with("{\"name\":\"default\",\"tables\":"));
    }

    #[test]
    fn wrong_arguments_fail() {
        let stage = Stage::new();
        assert_eq!(stage.fails(&["families", "drop", "none"]).exit, Exit::Usage);
        assert_eq!(stage.fails(&["families", "drop", "default"]).exit, Exit::Usage);
        assert_eq!(stage.fails(&["families", "create", "default"]).exit, Exit::Usage);
        assert_eq!(stage.fails(&["families", "--family", "x"]).exit, Exit::Usage);
        for bad in ["colour=1", "table_bytes=0", "filter_bits_per_key=33"] {
            assert_eq!(stage.fails(&["families", "create", "new", "--set", bad]).exit, Exit::Usage, "{bad}");
        }
        assert_eq!(stage.run(&["families"]), "default\n");
    }
}
