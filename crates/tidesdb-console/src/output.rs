//! Output of commands: rows, JSON and lines of text, to one buffered stream that may be a terminal. A terminal gets no control character of
//! a name or a row: an escape is in its place. A file or a pipe gets them as they are; JSON has its own escapes
//! everywhere.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Map, Value};
use tidesdb::{StatInfo, StatValue};

use crate::failure::{self, Outcome};
use crate::terminal;
use crate::text::{self, Escape};

/// The output of a command.
pub struct Out<'a> {
    to: &'a mut dyn Write,
    terminal: bool,
    colours: bool,
    scratch: Vec<u8>,
    /// Beginning of a character whose end is not written yet.
    tail: Vec<u8>,
    /// Set if a value ends with a line feed in a file or pipe, too.
    ends_values: bool,
}

/// Prints a text on the standard error stream. If that is full or closed, nobody can be told.
pub fn tell(text: impl AsRef<str>) {
    let _ = io::stderr().write_all(text.as_ref().as_bytes());
}

/// Style of a piece of text on a terminal.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Headings.
    Title,
    /// Emphasized text.
    Strong,
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// Side remarks.
    Faint,
}

impl Style {
    const ALL: [Self; 5] = [Self::Title, Self::Strong, Self::Good, Self::Bad, Self::Faint];

    /// The sequence that begins the style.
    fn code(self) -> &'static str {
        match self {
            Self::Title => "\x1b[1;36m",
            Self::Strong => "\x1b[1m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[1;31m",
            Self::Faint => "\x1b[2m",
        }
    }
}

/// Ends all styles.
const RESET: &str = "\x1b[0m";

/// Returns a line of text for a terminal, with the sequences of [`Out::paint`] and of [`Failure::painted`](crate::failure::Failure::painted)
/// and without any other.
fn styled(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, from) = rest.split_at(at);
        let codes = Style::ALL.map(Style::code);
        let code = codes.into_iter().chain([RESET, failure::NEXT]).find(|code| from.starts_with(code));
        out.push_str(&text::plain(before));
        out.push_str(code.unwrap_or("\\x1b"));
        rest = &from[code.map_or(1, str::len)..];
    }
    if out.is_empty() { text::plain(text) } else { Cow::Owned(out + &text::plain(rest)) }
}

impl<'a> Out<'a> {
    /// Creates output to `to`.
    pub fn new(to: &'a mut dyn Write, terminal: bool) -> Self {
        let colours = terminal::colours(terminal);
        Self { to, terminal, colours, scratch: Vec::new(), tail: Vec::new(), ends_values: false }
    }

    /// Ends each value with a line feed, for several commands that write to one pipe.
    pub fn end_values(&mut self) {
        self.ends_values = true;
    }

    /// True if the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// True if the output has colours.
    pub fn has_colours(&self) -> bool {
        self.colours
    }

    /// Writes a line of text.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn line(&mut self, text: impl AsRef<str>) -> Outcome<()> {
        let text = text.as_ref();
        let text = match (self.terminal, self.colours) {
            (false, _) => Cow::Borrowed(text),
            (true, false) => text::plain(text),
            (true, true) => styled(text),
        };
        self.to.write_all(text.as_bytes())?;
        Ok(self.to.write_all(b"\n")?)
    }

    /// Returns `text` in a style, if the terminal has colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        let text = self.name(text);
        if self.colours { format!("{}{text}{RESET}", style.code()) } else { text.into_owned() }
    }

    /// Returns a name as it can be a part of a line: on a terminal, without control characters.
    pub fn name<'t>(&self, name: &'t str) -> Cow<'t, str> {
        if self.terminal { text::plain(name) } else { Cow::Borrowed(name) }
    }

    /// Writes one JSON value on its own line.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn json(&mut self, value: &Value) -> Outcome<()> {
        self.line(text::plain_json(value.to_string()))
    }

    /// Writes a key, and its value if given, on one line, escaped so that it stays on one line and can be read back.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn row(&mut self, key: &[u8], value: Option<&[u8]>) -> Outcome<()> {
        let (for_key, for_value) = match self.terminal {
            true => (Escape::Terminal, Escape::Terminal),
            false => (Escape::Key, Escape::Value),
        };
        self.scratch.clear();
        text::escape(key, for_key, &mut self.scratch);
        if let Some(value) = value {
            self.scratch.push(b'\t');
            text::escape(value, for_value, &mut self.scratch);
        }
        self.scratch.push(b'\n');
        Ok(self.to.write_all(&self.scratch)?)
    }

    /// Writes only a value: unchanged, or on a terminal escaped and with a line feed. After [`end_values`](Self::end_values), a line feed
    /// ends it everywhere.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn value(&mut self, value: &[u8]) -> Outcome<()> {
        if self.terminal {
            return self.line(text::printable(value));
        }
        self.to.write_all(value)?;
        let end: &[u8] = if self.ends_values { b"\n" } else { b"" };
        Ok(self.to.write_all(end)?)
    }
}

impl Write for Out<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if !self.terminal {
            return self.to.write(buf);
        }
        self.tail.extend_from_slice(buf);
        self.scratch.clear();
        let used = text::plain_bytes(&self.tail, &mut self.scratch);
        self.tail.drain(..used);
        self.to.write_all(&self.scratch)?;
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        if !self.tail.is_empty() {
            self.to.write_all(text::printable(&std::mem::take(&mut self.tail)).as_bytes())?;
        }
        self.to.flush()
    }
}

/// Adds bytes as a member of a JSON object: a string under `name` if they are UTF-8, otherwise base64 under `name_base64`.
pub fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), text::base64(bytes).into()),
    };
}

/// Returns figures as members of a JSON object.
pub fn figures_json(figures: impl Iterator<Item = (&'static StatInfo, StatValue)>) -> Map<String, Value> {
    let value = |value| match value {
        StatValue::Number(n) => n.into(),
        StatValue::Real(x) => x.into(),
        StatValue::Levels(levels) => levels.into(),
        other => format!("{other:?}").into(),
    };
    figures.map(|(info, figure)| (info.name.to_owned(), value(figure))).collect()
}

/// Returns a row as a JSON object.
pub fn row_json(key: &[u8], value: Option<&[u8]>) -> Value {
    let mut object = Map::new();
    put_bytes(&mut object, "key", key);
    if let Some(value) = value {
        put_bytes(&mut object, "value", value);
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(terminal: bool, write: impl FnOnce(&mut Out<'_>)) -> String {
        let mut bytes = Vec::new();
        write(&mut Out::new(&mut bytes, terminal));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_row_is_one_line() {
        let row = |out: &mut Out<'_>| out.row(b"a\tb", Some(b"c\td\n\x01")).unwrap();
        assert_eq!(written(false, row), "a\\tb\tc\td\\n\x01\n");
        assert_eq!(written(true, row), "a\\tb\tc\\td\\n\\x01\n");
    }

    #[test]
    fn values_are_exact_except_on_a_terminal() {
        assert_eq!(written(false, |out| out.value(b"a\nb").unwrap()), "a\nb");
        assert_eq!(written(true, |out| out.value(b"a\nb").unwrap()), "a\\nb\n");
    }

    #[test]
    fn a_terminal_gets_no_control_character_of_a_name_or_a_row() {
        let hostile = "a\u{1b}]0;title\u{7}\u{9b}2J\u{1b}[1mb";
        let shown = "a\\x1b]0;title\\x07\\xc2\\x9b2J\\x1b[1mb";
        let all = |out: &mut Out<'_>| {
            out.line(out.name(hostile)).unwrap();
            out.line(out.paint(Style::Good, hostile)).unwrap();
            out.write_all(hostile.as_bytes()).unwrap();
            out.write_all(b"\xe2\x82").unwrap(); // the rest never comes
            out.flush().unwrap();
        };
        // The environment of the test decides about colours.
        let found = written(true, all).replace(Style::Good.code(), "").replace(RESET, "");
        assert_eq!(found, format!("{shown}\n{shown}\n{shown}\\xe2\\x82"));
        assert_eq!(
            styled(&format!("{}{hostile}\n", Style::Bad.code())),
            format!("\x1b[1;31m{}\n", shown.replace("\\x1b[1m", "\x1b[1m"))
        );
        let raw = |out: &mut Out<'_>| {
            out.line(out.name(hostile)).unwrap();
            out.write_all(hostile.as_bytes()).unwrap();
        };
        assert_eq!(written(false, raw), format!("{hostile}\n{hostile}"), "a pipe gets what is there");
        let json = written(true, |out| out.json(&hostile.into()).unwrap());
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
        assert!(!json.trim_end().contains(char::is_control), "{json}");
    }

    #[test]
    fn json_rows_keep_all_bytes() {
        assert_eq!(row_json(b"k", Some(b"\xff")).to_string(), r#"{"key":"k","value_base64":"/w=="}"#);
        assert_eq!(row_json(b"k", None).to_string(), r#"{"key":"k"}"#);
    }
}
