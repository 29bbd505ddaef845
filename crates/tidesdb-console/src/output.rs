//! Output of commands: rows, JSON and lines of text, to one buffered stream that may be a terminal.

use std::io::{self, Write};

use serde_json::{Map, Value};
use tidesdb::{StatInfo, StatValue};

use crate::failure::Outcome;
use crate::terminal;
use crate::text::{self, Escape};

/// The output of a command.
pub struct Out<'a> {
    to: &'a mut dyn Write,
    terminal: bool,
    colours: bool,
    scratch: Vec<u8>,
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

impl<'a> Out<'a> {
    /// Creates output to `to`.
    pub fn new(to: &'a mut dyn Write, terminal: bool) -> Self {
        Self { to, terminal, colours: terminal::colours(terminal), scratch: Vec::new() }
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
        self.to.write_all(text.as_ref().as_bytes())?;
        Ok(self.to.write_all(b"\n")?)
    }

    /// Returns `text` in a style, if the terminal has colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Title => "1;36",
            Style::Strong => "1",
            Style::Good => "32",
            Style::Bad => "1;31",
            Style::Faint => "2",
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes one JSON value on its own line.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn json(&mut self, value: &Value) -> Outcome<()> {
        self.line(value.to_string())
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

    /// Writes only a value: unchanged, or on a terminal escaped and with a line feed.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn value(&mut self, value: &[u8]) -> Outcome<()> {
        if self.terminal {
            return self.line(text::printable(value));
        }
        Ok(self.to.write_all(value)?)
    }
}

impl Write for Out<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.to.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
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
    fn json_rows_keep_all_bytes() {
        assert_eq!(row_json(b"k", Some(b"\xff")).to_string(), r#"{"key":"k","value_base64":"/w=="}"#);
        assert_eq!(row_json(b"k", None).to_string(), r#"{"key":"k"}"#);
    }
}
