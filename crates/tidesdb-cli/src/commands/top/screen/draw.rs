//! Draws the lines into a buffer of any size.

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
    /// For how many seconds the thread that looks has found nothing, if that is long.
    pub(super) silent_for: Option<u64>,
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
            let text = format!("the disk has not answered for {}: this is older", span(silence as f64));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;
    use tidesdb::{HealthState, WriterState};

    use super::super::super::page::{Column, Order};
    use super::*;
    use crate::look::tests::look;
    use crate::look::track::tests::{BASE, track};

    /// A database with hostile names that has done everything.
    fn shown() -> Shown {
        let hostile = "a\u{1b}]0;t\u{7}\n\u{9b}2J\u{202e}b\u{4e2d}\u{6587}".repeat(3);
        let name = format!("family.{hostile}.user_bytes");
        let before = [("puts.count", 1), ("wal_bytes", 5), (name.as_str(), 1), ("stall.tables.time", 1)];
        let after =
            [("puts.count", 9), ("wal_bytes", 900), (name.as_str(), 99), ("stall.tables.time", 1 << 30)];
        let mut look = look(track(&[(0, &before), (1, &after), (2, &after)]));
        let stats = &mut look.figures.stats;
        stats.families[0].name.clone_from(&hostile);
        stats.trees[0].family.clone_from(&hostile);
        stats.puts.count = 9;
        stats.stalled[1].time = Duration::from_secs(3);
        stats.stalled[1].delayed_now = 2;
        look.figures.health.causes = vec![hostile.clone()];
        look.figures.health.state = HealthState::Degraded;
        look.figures.version = hostile;
        Shown::new("/tmp/shop.db".to_owned(), look, true)
    }

    /// The rows of a terminal of this size, without blanks at their ends.
    fn rows(shown: &Shown, view: &mut View, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| {
                let area = frame.area();
                draw(frame.buffer_mut(), area, shown, view);
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let row = |cells: &[ratatui_core::buffer::Cell]| {
            cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        };
        buffer.content().chunks(usize::from(width)).map(row).collect()
    }

    fn at(rows: &[String], text: &str) -> Option<usize> {
        rows.iter().position(|row| row.contains(text))
    }

    #[test]
    fn a_common_terminal_shows_whose_figures_and_of_when_first() {
        let mut shown = shown();
        let rows = rows(&shown, &mut View::default(), (80, 24));
        let text = rows.join("\n");
        assert!(
            rows[0].starts_with("/tmp/shop.db: process 4711 runs; figures of 1.0 s ago, 12:00:00 UTC"),
            "{text}"
        );
        assert!(rows[1].starts_with("degraded:"), "{text}");
        for wanted in
            ["puts", "2 commits", "bytes/s     from users", "hits", "free 25.0 GiB of 100.0 GiB (25.0 %)"]
        {
            assert!(at(&rows, wanted).is_some(), "{wanted}: {text}");
        }
        assert!(rows[23].contains("q quit"), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        for (state, says) in [
            (WriterState::Ended, "NO PROCESS WRITES THE DATABASE: it was killed"),
            (WriterState::Closed, "NO PROCESS WRITES THE DATABASE: it was closed in order"),
            (WriterState::Stopped, "(kill -CONT 4711)"),
        ] {
            shown.look.figures.state = state;
            let text = self::rows(&shown, &mut View::default(), (80, 24)).join(" ");
            assert!(text.contains(says) && text.contains("last figures of"), "{text}");
        }
        (shown.look.figures.state, shown.look.figures.age) = (WriterState::Running, Duration::from_secs(20));
        assert!(
            self::rows(&shown, &mut View::default(), (80, 24)).join("\n").contains("THE FIGURES ARE OLD")
        );
    }

    #[test]
    fn a_wide_terminal_shows_jobs_and_families_beside_the_rest() {
        let shown = shown();
        let rows = rows(&shown, &mut View::default(), (200, 60));
        let line = at(&rows, "jobs").unwrap();
        assert!(
            rows[line].contains("a second") && rows[line].find("jobs") > Some(usize::from(LEFT)),
            "{rows:?}"
        );
        assert!(at(&rows, "written/s v").is_some() && at(&rows, "more lines").is_none(), "{rows:?}");
    }

    /// The first lines matter most, and nothing panics down to one cell.
    #[test]
    fn any_size_is_drawn_in_any_view() {
        let mut shown = shown();
        shown.take(Err("error: gone\n next: nothing".to_owned()));
        shown.silent_for = Some(75);
        let mut views = vec![View::default(), View { is_help: true, is_paused: true, ..View::default() }];
        views.push(View { past: Some(BASE), scroll: usize::MAX, ..View::default() });
        views.push(View {
            order: Order { by: Column::Name, is_reversed: true },
            scroll: 7,
            ..View::default()
        });
        for view in views {
            for width in (1..30).chain([79, 80, 81, LEFT, WIDE - 1, WIDE, WIDE + 1, 300]) {
                for height in (1..8).chain([24, 60, 200]) {
                    let rows = rows(&shown, &mut view.clone(), (width, height));
                    assert_eq!(rows.len(), usize::from(height));
                }
            }
        }
        assert_eq!(rows(&shown, &mut View::default(), (1, 1)), ["/"]);
        let rows = rows(&shown, &mut View::default(), (20, 5));
        assert!(
            rows[0] == "/tmp/shop.db:" && rows[4].starts_with("2") && rows[4].contains("more lines"),
            "{rows:?}"
        );
        let mut outside = Buffer::empty(Rect::new(0, 0, 3, 3));
        draw(&mut outside, Rect::new(2, 2, 80, 24), &shown, &mut View::default());
        draw(&mut outside, Rect::new(9, 9, 80, 24), &shown, &mut View::default());
    }

    #[test]
    fn scrolling_ends_at_the_last_line() {
        let shown = shown();
        let mut view = View { scroll: 1000, ..View::default() };
        let rows = rows(&shown, &mut view, (80, 24));
        assert!(view.scroll < 60 && at(&rows, "more lines").is_none(), "{}: {rows:?}", view.scroll);
        assert!(at(&rows, "family").is_some(), "{rows:?}");
    }

    #[test]
    fn a_moment_of_the_past_says_so_and_what_is_not_recorded() {
        let shown = shown();
        let rows = rows(&shown, &mut View { past: Some(BASE + 1000), ..View::default() }, (100, 60));
        assert!(at(&rows, "shown: 12:00:01 UTC").is_some(), "{rows:?}");
        assert!(at(&rows, "free -").is_some() && at(&rows, "not recorded").is_some(), "{rows:?}");
        assert!(at(&rows, "puts               2,048").is_some(), "one in 256 is measured: {rows:?}");
    }

    #[test]
    fn a_look_that_fails_is_shown_over_the_last_figures() {
        let mut shown = shown();
        shown.take(Err("error: the folder is gone\n next: look".to_owned()));
        let rows = rows(&shown, &mut View::default(), (80, 24));
        assert!(at(&rows, "the last look failed, error: the folder is gone").is_some(), "{rows:?}");
        assert!(at(&rows, "puts").is_some(), "{rows:?}");
    }

    #[test]
    fn without_colours_nothing_is_coloured() {
        let mut shown = shown();
        let coloured = |shown: &Shown| {
            let area = Rect::new(0, 0, 80, 24);
            let mut buffer = Buffer::empty(area);
            draw(&mut buffer, area, shown, &mut View::default());
            buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
        };
        assert!(coloured(&shown) > 0);
        shown.colours = false;
        assert_eq!(coloured(&shown), 0);
    }
}
