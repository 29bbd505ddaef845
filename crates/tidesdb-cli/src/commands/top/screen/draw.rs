//! Draws the lines into a buffer of any size.

use std::time::Duration;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style as Look};

use super::super::page::{self, Line, Piece};
use super::Found;
use super::view::View;
use crate::look;
use crate::look::model::Model;
use crate::output::Style;
use crate::text::span;

/// From this width on, jobs and families are beside the rest.
const WIDE: u16 = 170;
/// Columns of the left half then.
const LEFT: u16 = 100;

/// The keys, for a wide line and a narrow one.
const HINTS: [&str; 2] = [
    "q quit   ? help   space pause   s sort   r reverse   up/down scroll   left/right a second back/forth   [ ] a minute",
    "q quit  ? help  space pause  s sort  up/down scroll  left/right time",
];

const HELP: &str = "\
The figures are those that the process which writes the database publishes once a second. Rates are of the last 10 s, or of as many \
seconds as the table says; percentiles are those of the second in the middle of these, the slowest is that of all. \
One operation in 256 is measured; all syncs, flushes and merges are. What is not known is a dash.

q  Ctrl-C    quit
space  p     pause, and go on
up  down     scroll; also j and k, Page Up, Page Down
s            sort the families by the next column
r            reverse the order
left  right  a second back or forth: what the history recorded of it
[  ]         a minute back or forth
Home  End    the begin of the history; now
?  Esc       leave this help

waits for    what commits waited for; times are summed over all threads
  memtables  flushes are behind        tables  merges of level 1 are behind
  memory     memory_limit is reached   values  value logs hold much garbage
  log        the log has no blocks     device  the disk took bytes late
  lock       another commit
amplified    bytes written for each byte of users; bytes of tables and value
             logs for each byte that is live
to merge     bytes above the capacity of their level
fill         bytes of each level in percent of its capacity
log, waits   of the last hour, or of what is recorded of it: from . to @,
             for waits @ is one thread that waits all of the time

What was slow, and why: tidesdb why. What to do: tidesdb doctor.";

/// What is drawn.
#[derive(Debug)]
pub(super) struct Shown {
    path: String,
    pub(super) look: look::Look,
    /// Why the last look failed.
    trouble: Option<String>,
    /// For how long the thread that looks has found nothing.
    pub(super) silent_for: Option<Duration>,
    colours: bool,
}

impl Shown {
    pub(super) fn new(path: String, look: look::Look, colours: bool) -> Self {
        Self { path, look, trouble: None, silent_for: None, colours }
    }

    /// Takes what was found. A failure leaves what was there.
    pub(super) fn take(&mut self, found: Found) {
        match found {
            Ok(look) => (self.look, self.trouble) = (look, None),
            Err(trouble) => self.trouble = Some(trouble.lines().next().unwrap_or_default().to_owned()),
        }
    }

    /// How a style is drawn. Without colours bold and dim text remain.
    fn style(&self, style: Option<Style>) -> Look {
        let plain = Look::default();
        let colour = |look: Look, colour| if self.colours { look.fg(colour) } else { look };
        match style {
            None => plain,
            Some(Style::Title) => colour(plain.add_modifier(Modifier::BOLD), Color::Cyan),
            Some(Style::Strong) => plain.add_modifier(Modifier::BOLD),
            Some(Style::Good) => colour(plain, Color::Green),
            Some(Style::Bad) => colour(plain.add_modifier(Modifier::BOLD), Color::Red),
            Some(Style::Faint) => plain.add_modifier(Modifier::DIM),
        }
    }

    /// What is wrong with the looks.
    fn remarks(&self, view: &View) -> Vec<Line> {
        let line = |text: String| Line(vec![Piece { text, style: Some(Style::Bad) }]);
        let mut lines = Vec::new();
        if let Some(silence) = self.silent_for {
            let text =
                format!("the disk has not answered for {}: this is older", span(silence.as_secs_f64()));
            lines.push(line(text));
        }
        lines.extend(self.trouble.iter().map(|trouble| line(format!("the last look failed, {trouble}"))));
        lines.extend(view.is_paused.then(|| line("PAUSED: space goes on".to_owned())));
        lines
    }
}

/// Draws the figures into `area`, and corrects in `view` what does not fit into it.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, shown: &Shown, view: &mut View) {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return;
    }
    let model = match view.at(&shown.look.seconds) {
        Some(at) => Model::past(&shown.look, at),
        None => Model::last(&shown.look),
    };
    let width = usize::from(area.width);
    let mut head = page::head(&shown.look, &model, &shown.path, width);
    head.extend(shown.remarks(view));
    let hints = u16::from(area.height >= 4);
    let head_rows = (head.len() as u16).min((area.height - hints).div_ceil(2));
    paint(buffer, Rect { height: head_rows, ..area }, &head, shown);
    let rows = area.height - hints - head_rows;
    let body = Rect { y: area.y + head_rows, height: rows, ..area };
    let columns = columns(body, shown, &model, view);
    let longest = columns.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0);
    view.page = usize::from(rows);
    view.scroll = view.scroll.min(longest.saturating_sub(view.page));
    for (place, lines) in &columns {
        paint(buffer, *place, lines.get(view.scroll..).unwrap_or_default(), shown);
    }
    if hints > 0 {
        let below = longest.saturating_sub(view.scroll + view.page);
        let more = if below > 0 { format!("{below} more lines  ") } else { String::new() };
        let hints = HINTS.into_iter().find(|hints| more.len() + hints.len() <= width).unwrap_or(HINTS[1]);
        let line = Line(vec![Piece { text: format!("{more}{hints}"), style: Some(Style::Faint) }]);
        paint(buffer, Rect { y: area.bottom() - 1, height: 1, ..area }, &[line], shown);
    }
}

/// The lines of the body, and where they are drawn: beside each other if there is room.
fn columns(body: Rect, shown: &Shown, model: &Model, view: &View) -> Vec<(Rect, Vec<Line>)> {
    let width = usize::from(body.width);
    if view.is_help {
        return vec![(body, HELP.lines().flat_map(|line| page::wrapped_help(line, width)).collect())];
    }
    if body.width < WIDE {
        let mut lines = page::summary(&shown.look, model, width);
        lines.extend(page::details(&shown.look, model, view.order, width));
        return vec![(body, lines)];
    }
    let left = Rect { width: LEFT, ..body };
    let right = Rect { x: body.x + LEFT + 2, width: body.width - LEFT - 2, ..body };
    vec![
        (left, page::summary(&shown.look, model, usize::from(LEFT))),
        (right, page::details(&shown.look, model, view.order, usize::from(right.width))),
    ]
}

/// Draws lines from the top of `area` on, and cuts what does not fit.
fn paint(buffer: &mut Buffer, area: Rect, lines: &[Line], shown: &Shown) {
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        let mut x = area.left();
        for piece in &line.0 {
            let room = usize::from(area.right().saturating_sub(x));
            (x, _) = buffer.set_stringn(x, y, &piece.text, room, shown.style(piece.style));
        }
    }
}
