//! The pages of the book: which there are, and the samples in them.

pub(crate) mod summary;
pub(crate) mod samples;

/// Fenced text of a page.
pub(crate) struct Fence<'a> {
    /// Line of its beginning, from 1.
    pub line: usize,
    /// What follows the backticks: a language, and more.
    pub info: &'a str,
    /// Its lines.
    pub body: Vec<&'a str>,
}

/// Returns the fenced texts of a page.
pub(crate) fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut out: Vec<Fence<'_>> = Vec::new();
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(info), false) => out.push(Fence { line: at + 1, info: info.trim(), body: Vec::new() }),
            (None, true) => out.iter_mut().next_back().into_iter().for_each(|fence| fence.body.push(line)),
            (None, false) => continue,
            (Some(_), true) => {}
        }
        open ^= line.trim_start().starts_with("```");
    }
    out
}
