//! Prints the steps of the tour and counts the checked promises.

use std::io::Write;

use crate::failure::{Failure, Outcome};
use crate::output::{Out, Style};

/// Output of the tour.
pub(super) struct Guide<'a, 'b> {
    out: &'a mut Out<'b>,
    step: u32,
    promises: u32,
}

impl<'a, 'b> Guide<'a, 'b> {
    pub(super) fn new(out: &'a mut Out<'b>) -> Self {
        Self { out, step: 0, promises: 0 }
    }

    /// Prints the title of a step.
    pub(super) fn title(&mut self, text: &str) -> Outcome<()> {
        self.step += 1;
        let title = self.out.paint(Style::Title, &format!("{}. {text}", self.step));
        self.out.line(format!("\n{title}"))
    }

    /// Prints a line and flushes it.
    pub(super) fn say(&mut self, text: impl AsRef<str>) -> Outcome<()> {
        self.out.line(format!("   {}", text.as_ref()))?;
        Ok(self.out.flush()?)
    }

    /// Prints an excerpt of the data.
    pub(super) fn show(&mut self, text: impl AsRef<str>) -> Outcome<()> {
        let text = self.out.paint(Style::Strong, text.as_ref());
        self.say(format!("  {text}"))
    }

    /// Checks a promise: prints it if it is kept, otherwise ends the tour.
    pub(super) fn promise(&mut self, kept: bool, text: impl AsRef<str>) -> Outcome<()> {
        let text = text.as_ref();
        self.promises += 1;
        if kept {
            let mark = self.out.paint(Style::Good, "ok");
            return self.say(format!("{mark} {text}"));
        }
        self.say(self.out.paint(Style::Bad, &format!("BROKEN: {text}")))?;
        Err(Failure::no(format!("a promise does not hold: {text}"))
            .next("please report this with the output above; `tidesdb tour --dir PATH` keeps the files"))
    }

    /// Returns the number of promises kept.
    pub(super) fn promises(&self) -> u32 {
        self.promises
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_broken_promise_ends_the_tour() {
        let mut bytes = Vec::new();
        let mut out = Out::new(&mut bytes, false);
        let mut guide = Guide::new(&mut out);
        guide.title("Sums").unwrap();
        guide.promise(true, "one and one is two").unwrap();
        let failure = guide.promise(false, "two and two is five").unwrap_err();
        assert_eq!((failure.exit, guide.promises()), (Exit::No, 2));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, "\n1. Sums\n   ok one and one is two\n   BROKEN: two and two is five\n");
    }
}
