//! Splits Rust source into tokens, including comments.
//!
//! Supports only what the checks need: identifiers, single punctuation characters, literals as opaque spans,
//! lifetimes and comments, each with its line. Every input is accepted; an unterminated literal extends to the
//! end of the text. Macro bodies are tokens like all others, so the checks cover them.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word: keyword, name or raw name (`r#type`).
    Ident,
    /// One punctuation character; `::` is two tokens.
    Punct,
    /// A string, byte string, C string or character literal.
    Text,
    /// A number with its suffix.
    Number,
    /// A lifetime or a loop label.
    Lifetime,
    /// A comment, documentation or not, with its markers.
    Comment,
}

/// A token as a span of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// The kind.
    pub kind: Kind,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Line of the first byte, from 1.
    pub line: usize,
    /// Line of the last byte, from 1.
    pub end_line: usize,
}

/// Splits `text` into tokens. White space is dropped.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { bytes: text.as_bytes(), at: 0 };
    let mut out = Vec::new();
    let (mut line, mut counted) = (1, 0);
    let newlines = |from: usize, to: usize| text.as_bytes()[from..to].iter().filter(|&&b| b == b'\n').count();
    while lexer.at < lexer.bytes.len() {
        let start = lexer.at;
        let Some(kind) = lexer.step() else { continue };
        line += newlines(counted, start);
        let end_line = line + newlines(start, lexer.at);
        out.push(Token { kind, start, end: lexer.at, line, end_line });
        (line, counted) = (end_line, lexer.at);
    }
    out
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    /// Consumes one token, or one byte of white space, for which it returns `None`.
    fn step(&mut self) -> Option<Kind> {
        let byte = self.bytes[self.at];
        let next = self.peek(1);
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                self.at += 1;
                return None;
            }
            b'/' if next == b'/' => self.skip_while(|b| b != b'\n'),
            b'/' if next == b'*' => self.block_comment(),
            b'"' => return Some(self.string()),
            b'\'' => return Some(self.quote()),
            b'0'..=b'9' => return Some(self.number()),
            _ if is_word(byte) => return Some(self.word()),
            _ => {
                self.at += 1;
                return Some(Kind::Punct);
            }
        }
        Some(Kind::Comment)
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && wanted(self.bytes[self.at]) {
            self.at += 1;
        }
    }

    fn skip(&mut self, count: usize) {
        self.at = (self.at + count).min(self.bytes.len());
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.skip(2);
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.skip(2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn string(&mut self) -> Kind {
        self.skip(1);
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b'\\' => self.skip(2),
                b'"' => {
                    self.at += 1;
                    break;
                }
                _ => self.at += 1,
            }
        }
        Kind::Text
    }

    /// Reads a character literal or a lifetime: a lifetime has no closing quote after its first character.
    fn quote(&mut self) -> Kind {
        if self.peek(1) == b'\\' {
            self.skip(3);
            self.skip_while(|b| b != b'\'');
            self.skip(1);
            return Kind::Text;
        }
        let width = char_width(self.peek(1));
        if self.peek(1 + width) == b'\'' {
            self.skip(width + 2);
            return Kind::Text;
        }
        self.skip(1);
        self.skip_while(is_word);
        Kind::Lifetime
    }

    fn number(&mut self) -> Kind {
        self.skip_while(is_word);
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            self.skip(1);
            self.skip_while(is_word);
        }
        Kind::Number
    }

    /// Reads a word, or the literal of which the word is the prefix (`b".."`, `r#".."#`, `b'x'`).
    fn word(&mut self) -> Kind {
        let start = self.at;
        self.skip_while(is_word);
        let word = &self.bytes[start..self.at];
        let raw = matches!(word, b"r" | b"br" | b"cr");
        match self.peek(0) {
            b'"' if raw => self.raw_string(0),
            b'"' if matches!(word, b"b" | b"c") => self.string(),
            b'\'' if word == b"b" => self.quote(),
            b'#' if raw => self.after_raw_mark(),
            _ => Kind::Ident,
        }
    }

    /// Reads what follows `r#`: a raw string with some number of marks, or a raw name.
    fn after_raw_mark(&mut self) -> Kind {
        let marks = self.bytes[self.at..].iter().take_while(|&&b| b == b'#').count();
        if self.peek(marks) == b'"' {
            return self.raw_string(marks);
        }
        if marks == 1 && is_word(self.peek(1)) {
            self.skip(1);
            self.skip_while(is_word);
        }
        Kind::Ident
    }

    fn raw_string(&mut self, marks: usize) -> Kind {
        self.skip(marks + 1);
        while self.at < self.bytes.len() {
            let tail = &self.bytes[self.at + 1..];
            let closes =
                self.bytes[self.at] == b'"' && tail.iter().take_while(|&&b| b == b'#').count() >= marks;
            self.at += 1;
            if closes {
                self.skip(marks);
                break;
            }
        }
        Kind::Text
    }
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn char_width(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        tokens(text).iter().map(|t| (t.kind, &text[t.start..t.end])).collect()
    }

    #[test]
    fn quotes_are_distinguished_from_lifetimes() {
        assert_eq!(
            kinds("'a' 'a '\\n' '\\'' b'x' '\u{e9}'"),
            [
                (Kind::Text, "'a'"),
                (Kind::Lifetime, "'a"),
                (Kind::Text, "'\\n'"),
                (Kind::Text, "'\\''"),
                (Kind::Text, "b'x'"),
                (Kind::Text, "'\u{e9}'"),
            ]
        );
    }

    #[test]
    fn raw_strings_end_at_their_own_mark() {
        assert_eq!(
            kinds("r#\"a\"b\"# r\"\\\" br##\"\"#\"## r#type x"),
            [
                (Kind::Text, "r#\"a\"b\"#"),
                (Kind::Text, "r\"\\\""),
                (Kind::Text, "br##\"\"#\"##"),
                (Kind::Ident, "r#type"),
                (Kind::Ident, "x"),
            ]
        );
    }

    #[test]
    fn comments_nest_and_strings_hide_them() {
        let found = kinds("/* a /* b */ c */ \"// no\" // yes");
        assert_eq!(found[0], (Kind::Comment, "/* a /* b */ c */"));
        assert_eq!(found[1], (Kind::Text, "\"// no\""));
        assert_eq!(found[2], (Kind::Comment, "// yes"));
    }

    #[test]
    fn numbers_leave_ranges_and_fields_alone() {
        let found: Vec<_> = kinds("0..9 1.5e3 x.0.y").into_iter().map(|(_, text)| text).collect();
        assert_eq!(found, ["0", ".", ".", "9", "1.5e3", "x", ".", "0", ".", "y"]);
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let text = "a\n\"x\ny\"\nb /* \n */ c";
        let lines: Vec<_> = tokens(text).iter().map(|t| (t.line, t.end_line)).collect();
        assert_eq!(lines, [(1, 1), (2, 3), (4, 4), (4, 5), (5, 5)]);
    }

    #[test]
    fn broken_input_ends() {
        for text in ["\"abc", "'", "'\\", "r#\"", "/* x", "b'", "r###", "\"\\"] {
            tokens(text);
        }
    }
}
