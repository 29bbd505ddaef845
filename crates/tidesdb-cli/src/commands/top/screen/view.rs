//! What of the figures is shown, and what the keys change.

use crossterm::event::{KeyCode, KeyModifiers};

use super::super::page::Order;
use crate::look::track::Track;

const MINUTE_MILLIS: u64 = 60_000;

/// What of the figures is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) order: Order,
    pub(super) is_paused: bool,
    pub(super) is_help: bool,
    /// Lines above the first that is shown. Drawing lowers it to what there is.
    pub(super) scroll: usize,
    /// Lines that a page has; set by drawing.
    pub(super) page: usize,
    /// The moment of the past that is shown, in milliseconds since the UNIX epoch; `None` for the last figures.
    pub(super) past: Option<u64>,
}

impl View {
    /// Acts on a key. Returns false if it ends the program.
    pub(super) fn key(&mut self, key: KeyCode, with: KeyModifiers, track: &Track) -> bool {
        let page = self.page.max(1);
        match key {
            KeyCode::Char('c' | 'd') if with.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Esc | KeyCode::Char('q' | '?') if self.is_help => self.is_help = false,
            KeyCode::Char('q') => return false,
            KeyCode::Char('?' | 'h') => (self.is_help, self.scroll) = (true, 0),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.order.by = self.order.by.next(),
            KeyCode::Char('r') => self.order.is_reversed = !self.order.is_reversed,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(page),
            KeyCode::Left => self.step(track, -1),
            KeyCode::Right => self.step(track, 1),
            KeyCode::Char('[') => self.jump(track, |millis| millis.saturating_sub(MINUTE_MILLIS)),
            KeyCode::Char(']') => self.jump(track, |millis| millis.saturating_add(MINUTE_MILLIS)),
            KeyCode::Home => self.past = (track.len() > 1).then(|| track.millis(0)),
            KeyCode::End | KeyCode::Esc => self.past = None,
            _ => {}
        }
        true
    }

    /// The sample that is shown; `None` for the last figures.
    pub(super) fn at(&self, track: &Track) -> Option<usize> {
        track.at_or_before(self.past?).or((track.len() > 0).then_some(0))
    }

    /// Goes to the sample before the one that is shown, or after it. The last one stands for the last figures.
    fn step(&mut self, track: &Track, by: isize) {
        let Some(last) = track.len().checked_sub(1) else { return };
        let to = self.at(track).unwrap_or(last).saturating_add_signed(by);
        self.past = (to < last).then(|| track.millis(to));
    }

    fn jump(&mut self, track: &Track, to: fn(u64) -> u64) {
        let Some(last) = track.len().checked_sub(1) else { return };
        let from = track.millis(self.at(track).unwrap_or(last));
        let to = track.at_or_before(to(from)).unwrap_or(0);
        self.past = (to < last).then(|| track.millis(to));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::page::Column;
    use super::*;
    use crate::look::track::tests::{BASE, track};

    fn press(view: &mut View, track: &Track, keys: &[KeyCode]) -> bool {
        keys.iter().all(|key| view.key(*key, KeyModifiers::NONE, track))
    }

    #[test]
    fn arrows_go_back_through_the_history_and_forth_to_now() {
        let track = track(&[(0, &[]), (1, &[]), (50, &[]), (70, &[])]);
        let mut view = View::default();
        assert!(press(&mut view, &track, &[KeyCode::Left]));
        assert_eq!((view.at(&track), view.past), (Some(2), Some(BASE + 50_000)));
        press(&mut view, &track, &[KeyCode::Left; 9]);
        assert_eq!(view.at(&track), Some(0), "the first stays");
        press(&mut view, &track, &[KeyCode::Char(']')]);
        assert_eq!(view.at(&track), Some(2), "the last within a minute");
        press(&mut view, &track, &[KeyCode::Right]);
        assert_eq!(view.past, None, "the last sample is now");
        press(&mut view, &track, &[KeyCode::Right]);
        assert_eq!(view.past, None);
        press(&mut view, &track, &[KeyCode::Char('[')]);
        assert_eq!(view.at(&track), Some(1));
        press(&mut view, &track, &[KeyCode::Home]);
        assert_eq!(view.at(&track), Some(0));
        press(&mut view, &track, &[KeyCode::End]);
        assert_eq!(view, View::default());
        let none = self::track(&[]);
        let all = [KeyCode::Left, KeyCode::Right, KeyCode::Home, KeyCode::Char('['), KeyCode::Char(']')];
        press(&mut view, &none, &all);
        assert_eq!((view.past, view.at(&none)), (None, None), "there is no history");
        view.past = Some(5);
        assert_eq!(view.at(&track), Some(0), "the ring has dropped that second meanwhile");
    }

    #[test]
    fn keys_sort_pause_scroll_and_end() {
        let track = track(&[]);
        let mut view = View { page: 10, ..View::default() };
        press(&mut view, &track, &[KeyCode::Char('s'), KeyCode::Char('r'), KeyCode::Char(' ')]);
        assert!(view.order.by == Column::Memory && view.order.is_reversed && view.is_paused);
        press(&mut view, &track, &[KeyCode::Char('s'); 5]);
        assert_eq!(view.order.by, Column::Written, "after the last comes the first");
        press(&mut view, &track, &[KeyCode::PageDown, KeyCode::Down, KeyCode::Down, KeyCode::Up]);
        assert_eq!(view.scroll, 11);
        press(&mut view, &track, &[KeyCode::PageUp, KeyCode::PageUp]);
        assert_eq!(view.scroll, 0);
        assert!(press(&mut view, &track, &[KeyCode::Char('?')]) && view.is_help);
        assert!(press(&mut view, &track, &[KeyCode::Char('q')]) && !view.is_help, "q leaves the help first");
        assert!(!press(&mut view, &track, &[KeyCode::Char('q')]));
        assert!(!view.key(KeyCode::Char('c'), KeyModifiers::CONTROL, &track));
        assert!(view.key(KeyCode::Char('c'), KeyModifiers::NONE, &track));
    }
}
