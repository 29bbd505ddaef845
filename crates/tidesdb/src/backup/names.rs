//! Names of the objects in a store of backups.
//!
//! ```text
//! backup.index                        the generations that count, and who may change them
//! backup.probe                        shows that the store keeps its promise about conditional puts; its bytes mean nothing
//! backup.000003.000017.klog           a table, put by writer 3 as its 17th object
//! backup.000003.000018.vlog           a part of a value log
//! backup.000003.000019.generation     what a generation consists of
//! ```
//!
//! A name is used once: the number of a writer is its own, and it counts its objects. So an object that nothing names will never be named.

use std::fmt::{self, Display, Formatter};

use crate::types::FILE_NUMBER_MAX;

/// The object that is replaced with each change.
pub(super) const INDEX: &str = "backup.index";
/// The object on which conditional puts are tried.
pub(super) const PROBE: &str = "backup.probe";

/// What an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectKind {
    Table,
    Vlog,
    Generation,
}

impl ObjectKind {
    const ALL: [Self; 3] = [Self::Table, Self::Vlog, Self::Generation];

    fn end(self) -> &'static str {
        match self {
            Self::Table => "klog",
            Self::Vlog => "vlog",
            Self::Generation => "generation",
        }
    }
}

/// Identifies an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    /// The writer that put it.
    pub(super) writer: u64,
    /// How many objects this writer had named before.
    pub(super) number: u64,
    pub(super) kind: ObjectKind,
}

impl Display for ObjectId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "backup.{:06}.{:06}.{}", self.writer, self.number, self.kind.end())
    }
}

impl ObjectId {
    /// Parses a name; `None` for one that is not given to an object with a number.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("backup.")?.split('.');
        let mut number = || parts.next()?.parse().ok().filter(|n| *n <= FILE_NUMBER_MAX);
        let (writer, number) = (number()?, number()?);
        let end = parts.next()?;
        let kind = ObjectKind::ALL.into_iter().find(|kind| kind.end() == end)?;
        let id = Self { writer, number, kind };
        (id.to_string() == name).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written() {
        for kind in ObjectKind::ALL {
            for (writer, number) in [(1, 2), (1_234_567, 0), (FILE_NUMBER_MAX, FILE_NUMBER_MAX)] {
                let id = ObjectId { writer, number, kind };
                assert_eq!(ObjectId::parse(&id.to_string()), Some(id));
            }
        }
        for other in [INDEX, PROBE, "backup.1.000002.klog", "backup.000001.000002", "000001.klog", "backup."]
        {
            assert_eq!(ObjectId::parse(other), None, "{other}");
        }
        assert_eq!(ObjectId::parse("backup.000001.000002.klog.x"), None);
        assert_eq!(ObjectId::parse("backup.000001.99999999999999999.klog"), None);
    }
}
