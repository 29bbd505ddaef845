//! `tidesdb top`: what a process that writes a database does at this moment.
//!
//! ```text
//! page      the figures as lines of text
//! json      the same as JSON
//! screen    the lines on a terminal, drawn again each second, and the keys (feature `top`)
//! ```

mod page;
mod json;
#[cfg(feature = "top")]
mod screen;

use std::path::Path;

use crate::failure::{Exit, Outcome};
use crate::look::model::Model;
use crate::look::{Look, Watcher, on_one_line};
use crate::output::Out;
use crate::session::{Common, Place, Target};

/// Columns of a page.
const PAGE_COLUMNS: usize = 100;

/// Show what the process that writes a database does, each second
///
/// Operations with their rates and durations, what writers wait for, bytes, memory, cache, disk, jobs and families: from the figures that the
/// process publishes once a second and from their history of an hour. Opens nothing, and costs the process nothing. Of a process that has ended
/// it shows the last figures, and says so. Keys: q quits, ? shows the others. Without a terminal it prints one page, as with --once; with --json,
/// one object.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Top {
    #[command(flatten)]
    target: Target,
    /// Print the figures of now as one page, and end
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(crate) fn run(&self, place: &Place, common: &Common, out: &mut Out<'_>) -> Outcome {
        let place = place.or_at(self.target.dir.as_ref());
        let path = place.path()?;
        let mut watcher = Watcher::new(path);
        let look = watcher.look()?;
        if common.json {
            out.json(&json::object(&look, &Model::last(&look)))?;
            return Ok(Exit::Done);
        }
        #[cfg(feature = "top")]
        if !self.once && screen::is_possible(out.is_terminal()) {
            return screen::run(path, look, out.has_colours());
        }
        #[cfg(not(feature = "top"))]
        if !self.once && out.is_terminal() {
            crate::output::tell(
                "note: this build shows one page only; the packages have the screen, from source it is the feature `top`\n",
            );
        }
        print(&look, path, out)?;
        Ok(Exit::Done)
    }
}

/// Prints all figures.
fn print(look: &Look, path: &Path, out: &mut Out<'_>) -> Outcome<()> {
    let model = Model::last(look);
    let head = page::head(look, &model, &named(path), PAGE_COLUMNS);
    let summary = page::summary(look, &model, PAGE_COLUMNS);
    let details = page::details(look, &model, page::Order::default(), PAGE_COLUMNS);
    for line in head.iter().chain(&summary).chain(&details) {
        let paint = |piece: &page::Piece| match piece.style {
            Some(style) => out.paint(style, &piece.text),
            None => piece.text.clone(),
        };
        let text: String = line.0.iter().map(paint).collect();
        out.line(text.trim_end())?;
    }
    Ok(())
}

/// The database as the first line names it.
fn named(path: &Path) -> String {
    on_one_line(&path.display().to_string())
}
