//! Tab completion: commands at the beginning of a line, options and names of families after it.

use clap::CommandFactory;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::Line;

/// The commands and the existing families.
pub(super) struct Completion {
    line: clap::Command,
    families: Vec<String>,
}

impl Completion {
    pub(super) fn new(mut families: Vec<String>) -> Self {
        let mut line = Line::command();
        line.build();
        // A terminal would act on them, and nobody can type them.
        families.retain(|name| !name.contains(char::is_control));
        Self { line, families }
    }

    /// Returns the start of the last word of `text` and its completions.
    fn candidates(&self, text: &str) -> (usize, Vec<String>) {
        let start = text.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let (before, word) = text.split_at(start);
        let words: Vec<&str> = before.split_whitespace().collect();
        let mut found: Vec<String> = match words.as_slice() {
            [] => names(&self.line).collect(),
            [first, rest @ ..] => match self.line.find_subcommand(first) {
                Some(command) => self.after(command, rest),
                None => Vec::new(),
            },
        };
        found.retain(|candidate| candidate.starts_with(word));
        found.sort_unstable();
        (start, found)
    }

    /// Returns what can follow `command` and the words after it.
    fn after(&self, command: &clap::Command, words: &[&str]) -> Vec<String> {
        let wants_family = matches!(words.last(), Some(&"--family" | &"-f"))
            || command.get_name() == "use"
            || (command.get_name() == "families" && matches!(words, ["drop" | "rename" | "clone"]));
        if wants_family {
            return self.families.clone();
        }
        if let [first, ..] = words
            && let Some(deeper) = command.find_subcommand(first)
        {
            return options(deeper).collect();
        }
        names(command).chain(options(command)).collect()
    }
}

fn names(command: &clap::Command) -> impl Iterator<Item = String> {
    command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned())
}

fn options(command: &clap::Command) -> impl Iterator<Item = String> {
    command.get_arguments().filter_map(|a| a.get_long()).map(|long| format!("--{long}"))
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.candidates(line.get(..pos).unwrap_or(line));
        let pair = |name: String| Pair { replacement: format!("{name} "), display: name };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(text: &str) -> Vec<String> {
        Completion::new(vec!["default".to_owned(), "users".to_owned()]).candidates(text).1
    }

    #[test]
    fn commands_options_and_families() {
        assert_eq!(offered("sc"), ["scan"]);
        assert!(offered("").len() > 10);
        assert_eq!(offered("scan --pre"), ["--prefix"]);
        assert_eq!(offered("get --family us"), ["users"]);
        assert_eq!(offered("use "), ["default", "users"]);
        assert_eq!(offered("families dr"), ["drop"]);
        assert_eq!(offered("families drop u"), ["users"]);
        assert_eq!(offered("families create --comp"), ["--compression"]);
        assert!(offered("nothing ").is_empty());
    }
}
