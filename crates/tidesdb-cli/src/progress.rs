//! A progress bar on the standard error stream, with percentage and remaining time if the total is known. Nothing is
//! drawn unless that stream is a terminal, and nothing for work that takes less than a second.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::host;
use crate::output::Out;
use crate::text::{grouped, size};

/// Progress bar of a command.
pub(crate) struct Progress {
    bar: ProgressBar,
    drawer: Option<Drawer>,
}

/// The thread that draws a bar.
struct Drawer {
    /// The thread ends when this is dropped.
    _work: Sender<()>,
    thread: JoinHandle<()>,
}

/// What a bar shows of work that does not report itself.
pub(crate) struct Seen {
    /// The part of the total that is done.
    pub(crate) done: u64,
    /// The text next to the bar.
    pub(crate) text: String,
}

const KNOWN: &str = "{bar:30} {percent:>3} %  {msg}, {elapsed} elapsed, {eta} left";
const UNKNOWN: &str = "{spinner} {msg}, {elapsed} elapsed";
#[cfg(feature = "bench")]
const STEPS: &str = "{bar:30} {msg}";

/// Rows between two updates of a progress bar.
pub(crate) const ROWS_PER_UPDATE: u64 = 4096;
/// A bar appears after this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two drawings.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// Starts a progress bar for `total` bytes, if known.
    pub(crate) fn new(total: Option<u64>) -> Self {
        Self::start(bar(total), || None)
    }

    /// Starts a progress bar of rows for `out`. If that is a terminal, the rows themselves show the progress.
    pub(crate) fn of_rows(out: &Out<'_>) -> Self {
        if out.is_terminal() { Self::hidden() } else { Self::new(None) }
    }

    /// Starts a progress bar for steps, whose text is given by [`Self::say`].
    #[cfg(feature = "bench")]
    pub(crate) fn of_steps(steps: u64) -> Self {
        Self::start(
            styled(ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden()), STEPS),
            || None,
        )
    }

    /// Starts a progress bar for work that does not report itself: `look` is called for each drawing.
    pub(crate) fn watch(total: Option<u64>, look: impl Fn() -> Seen + Send + 'static) -> Self {
        Self::start(bar(total), move || Some(look()))
    }

    /// Shows `text` while `work` runs.
    pub(crate) fn during<T>(text: impl Into<String>, work: impl FnOnce() -> T) -> T {
        let progress = Self::new(None);
        progress.say(text);
        work()
    }

    /// Returns a progress bar that is never drawn.
    pub(crate) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), drawer: None }
    }

    fn start(bar: ProgressBar, look: impl Fn() -> Option<Seen> + Send + 'static) -> Self {
        if !host::can_redraw() {
            return Self { bar, drawer: None };
        }
        Self::draw(bar, ProgressDrawTarget::stderr(), PATIENCE, look)
    }

    /// Draws `bar` on `target`, from `patience` on until the result is dropped.
    fn draw(
        bar: ProgressBar,
        target: ProgressDrawTarget,
        patience: Duration,
        look: impl Fn() -> Option<Seen> + Send + 'static,
    ) -> Self {
        let (work, ended) = channel();
        let drawn = bar.clone();
        let thread = host::spawn(move || {
            if goes_on(&ended, patience) {
                drawn.set_draw_target(target);
                redraw(&drawn, &ended, look);
            }
        });
        Self { bar, drawer: Some(Drawer { _work: work, thread }) }
    }

    /// Shows a text instead of rows and rates.
    pub(crate) fn say(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }

    /// Shows that `steps` are done.
    #[cfg(feature = "bench")]
    pub(crate) fn step(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// Prints a line above the bar, at once. Without a terminal, prints nothing.
    #[cfg(feature = "bench")]
    pub(crate) fn line(&self, line: &str) {
        if self.drawer.is_some() {
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }

    /// Shows that `bytes` of one value are done.
    pub(crate) fn stream(&self, bytes: u64) {
        if self.drawer.is_none() {
            return;
        }
        let secs = self.bar.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{}, {}/s", size(bytes), size((bytes as f64 / secs) as u64)));
    }

    /// Shows that `rows` and `bytes` are done.
    pub(crate) fn update(&self, rows: u64, bytes: u64) {
        if self.drawer.is_none() {
            return;
        }
        let secs = self.bar.elapsed().as_secs_f64().max(1e-3);
        let per_second = (rows as f64 / secs) as u64;
        let speed = size((bytes as f64 / secs) as u64);
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{} rows, {} rows/s, {speed}/s", grouped(rows), grouped(per_second)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Drawer { _work, thread }) = self.drawer.take() {
            drop(_work);
            let _ = thread.join(); // a panic while drawing does not matter to the work
        }
        self.bar.finish_and_clear();
    }
}

/// Returns a bar that is not drawn yet.
fn bar(total: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
    styled(bar, if total.is_some() { KNOWN } else { UNKNOWN })
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("#>-")),
        Err(_) => bar,
    }
}

/// Waits for `time`, or until the work ends; returns whether it goes on.
fn goes_on(ended: &Receiver<()>, time: Duration) -> bool {
    ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

/// Draws `bar` until the work ends.
fn redraw(bar: &ProgressBar, ended: &Receiver<()>, look: impl Fn() -> Option<Seen>) {
    loop {
        if let Some(Seen { done, text }) = look() {
            bar.set_position(done);
            bar.set_message(text);
        }
        bar.tick();
        if !goes_on(ended, TICK) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what is drawn.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn target(&self) -> ProgressDrawTarget {
            ProgressDrawTarget::term_like(Box::new(self.clone()))
        }
        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }
        fn add(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.add("<clear>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn wait_for(screen: &Screen, text: &str) {
        let found = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            screen.text().contains(text)
        });
        assert!(found, "{text:?} is never drawn: {:?}", screen.text());
    }

    #[test]
    fn short_work_draws_nothing() {
        let screen = Screen::default();
        let progress = Progress::draw(bar(Some(10)), screen.target(), Duration::from_secs(600), || None);
        progress.update(3, 5);
        progress.say("working");
        drop(progress);
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn long_work_is_drawn_and_then_cleared() {
        let screen = Screen::default();
        let progress = Progress::draw(bar(Some(8)), screen.target(), Duration::ZERO, || None);
        progress.say("said before it was drawn");
        wait_for(&screen, "said before it was drawn");
        progress.update(1234, 4);
        wait_for(&screen, " 50 %  1,234 rows");
        drop(progress);
        assert!(screen.text().ends_with("<clear>"), "{}", screen.text());
    }

    #[test]
    fn work_that_does_not_report_itself_is_looked_at() {
        let screen = Screen::default();
        let look = || Some(Seen { done: 3, text: "looked".to_owned() });
        let _progress = Progress::draw(bar(Some(4)), screen.target(), Duration::ZERO, look);
        wait_for(&screen, " 75 %  looked");
    }

    #[test]
    fn without_a_terminal_there_is_no_thread() {
        assert_eq!(Progress::new(None).drawer.is_some(), host::can_redraw());
        assert!(Progress::hidden().drawer.is_none());
    }
}
