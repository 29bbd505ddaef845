//! Writes the cells of a buffer to a terminal. It knows the styles that `draw` uses: colours of the text, bold, dim.

use std::io::{self, Write};

use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType as Part};
use crossterm::{cursor, queue, terminal};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color as Drawn, Modifier};

/// A terminal behind `to`.
#[derive(Debug)]
pub(super) struct Cells<W: Write> {
    to: W,
}

impl<W: Write> Cells<W> {
    pub(super) fn new(to: W) -> Self {
        crossterm::style::force_color_output(true); // who draws has asked the environment
        Self { to }
    }

    /// Begins the style of a cell.
    fn begin(&mut self, (colour, modifier): (Drawn, Modifier)) -> io::Result<()> {
        queue!(self.to, SetAttribute(Attribute::Reset))?;
        let colour = match colour {
            Drawn::Cyan => Some(Color::DarkCyan), // the names of crossterm for the eight colours that every terminal has
            Drawn::Green => Some(Color::DarkGreen),
            Drawn::Red => Some(Color::DarkRed),
            _ => None,
        };
        if let Some(colour) = colour {
            queue!(self.to, SetForegroundColor(colour))?;
        }
        for (bit, attribute) in [(Modifier::BOLD, Attribute::Bold), (Modifier::DIM, Attribute::Dim)] {
            if modifier.contains(bit) {
                queue!(self.to, SetAttribute(attribute))?;
            }
        }
        Ok(())
    }
}

impl<W: Write> Backend for Cells<W> {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        let (mut next, mut style) = (None, (Drawn::Reset, Modifier::empty()));
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                queue!(self.to, cursor::MoveTo(x, y))?;
            }
            next = x.checked_add(1).map(|x| (x, y)); // a wide character is followed by a cell that is not drawn
            if (cell.fg, cell.modifier) != style {
                style = (cell.fg, cell.modifier);
                self.begin(style)?;
            }
            queue!(self.to, Print(cell.symbol()))?;
        }
        queue!(self.to, ResetColor, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.to, cursor::Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.to, cursor::Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        cursor::position().map(|(x, y)| Position { x, y })
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.to, cursor::MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, part: ClearType) -> io::Result<()> {
        let part = match part {
            ClearType::All => Part::All,
            ClearType::AfterCursor => Part::FromCursorDown,
            ClearType::BeforeCursor => Part::FromCursorUp,
            ClearType::CurrentLine => Part::CurrentLine,
            ClearType::UntilNewLine => Part::UntilNewLine,
        };
        queue!(self.to, Clear(part))
    }

    fn size(&self) -> io::Result<Size> {
        terminal::size().map(|(width, height)| Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size { width: 0, height: 0 } }) // nothing draws by the pixel
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_follow_each_other_share_their_place_and_style() {
        let mut bytes = Vec::new();
        let cell = |symbol: &'static str, colour, modifier| {
            let mut cell = Cell::new(symbol);
            (cell.fg, cell.modifier) = (colour, modifier);
            cell
        };
        let bold = Modifier::BOLD;
        let cells = [
            (3, 1, cell("a", Drawn::Reset, Modifier::empty())),
            (4, 1, cell("b", Drawn::Red, bold)),
            (5, 1, cell("c", Drawn::Red, bold)),
            (0, 2, cell("\u{4e2d}", Drawn::Reset, Modifier::DIM)),
            (2, 2, cell("d", Drawn::Reset, Modifier::DIM)),
        ];
        Cells::new(&mut bytes).draw(cells.iter().map(|(x, y, cell)| (*x, *y, cell))).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let red = "\u{1b}[0m\u{1b}[38;5;1m\u{1b}[1m";
        let wanted =
            format!("\u{1b}[2;4Ha{red}bc\u{1b}[3;1H\u{1b}[0m\u{1b}[2m\u{4e2d}\u{1b}[3;3Hd\u{1b}[0m\u{1b}[0m");
        assert_eq!(text, wanted);
    }
}
