//! A progress bar on the standard error stream, with percentage and remaining time if the total is known. Nothing is
//! drawn unless that stream is a terminal, and nothing for work that takes less than a second.
//!
//! The work reports to a state; a thread draws it.

use std::io::{Write, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::output::Out;
use crate::terminal;
use crate::text::{self, grouped, size, span};

/// Progress bar of a command.
pub struct Progress {
    state: Arc<Mutex<State>>,
    begun: Instant,
    drawer: Option<Drawer>,
}

/// What a bar shows.
struct State {
    /// Bytes or steps, if known.
    total: Option<u64>,
    done: u64,
    text: String,
    /// True if the text says all about percentage and time.
    is_of_steps: bool,
}

/// The thread that draws a bar.
struct Drawer {
    screen: Screen,
    /// The thread ends when this is dropped.
    _work: Sender<()>,
    thread: JoinHandle<()>,
}

/// A terminal.
type Screen = Arc<Mutex<dyn Write + Send>>;

/// What a bar shows of work that does not report itself.
pub struct Seen {
    /// The part of the total that is done.
    pub done: u64,
    /// The text next to the bar.
    pub text: String,
}

/// Rows between two updates of a progress bar.
pub const ROWS_PER_UPDATE: u64 = 4096;
/// A bar appears after this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two drawings.
const TICK: Duration = Duration::from_millis(100);
/// Length of a bar.
const BAR: usize = 30;
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
/// Moves to the begin of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

impl Progress {
    /// Starts a progress bar for `total` bytes, if known.
    pub fn new(total: Option<u64>) -> Self {
        Self::start(State::new(total), || None)
    }

    /// Starts a progress bar of rows for `out`. If that is a terminal, the rows themselves show the progress.
    pub fn of_rows(out: &Out<'_>) -> Self {
        if out.is_terminal() { Self::hidden() } else { Self::new(None) }
    }

    /// Starts a progress bar for steps, whose text is given by [`Self::say`].
    pub fn of_steps(steps: u64) -> Self {
        Self::start(State { is_of_steps: true, ..State::new(Some(steps)) }, || None)
    }

    /// Starts a progress bar for work that does not report itself: `look` is called for each drawing.
    pub fn watch(total: Option<u64>, look: impl Fn() -> Seen + Send + 'static) -> Self {
        Self::start(State::new(total), move || Some(look()))
    }

    /// Shows `text` while `work` runs.
    pub fn during<T>(text: impl Into<String>, work: impl FnOnce() -> T) -> T {
        let progress = Self::new(None);
        progress.say(text);
        work()
    }

    /// Returns a progress bar that is never drawn.
    pub fn hidden() -> Self {
        Self::of(State::new(None))
    }

    fn of(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), begun: terminal::now(), drawer: None }
    }

    fn start(state: State, look: impl Fn() -> Option<Seen> + Send + 'static) -> Self {
        if !terminal::can_redraw() {
            return Self::of(state);
        }
        Self::draw(state, Arc::new(Mutex::new(stderr())), PATIENCE, look)
    }

    /// Draws on `screen`, from `patience` on until the result is dropped.
    fn draw(
        state: State,
        screen: Screen,
        patience: Duration,
        look: impl Fn() -> Option<Seen> + Send + 'static,
    ) -> Self {
        let mut progress = Self::of(state);
        let (work, ended) = channel();
        let (state, begun, on) = (progress.state.clone(), progress.begun, screen.clone());
        let thread = terminal::spawn(move || {
            if goes_on(&ended, patience) {
                redraw(&state, begun, &on, &ended, look);
            }
        });
        progress.drawer = Some(Drawer { screen, _work: work, thread });
        progress
    }

    /// Shows a text instead of rows and rates.
    pub fn say(&self, text: impl Into<String>) {
        locked(&self.state).text = text.into();
    }

    /// Shows that `steps` are done.
    pub fn step(&self, steps: u64) {
        locked(&self.state).done = steps;
    }

    /// Prints a line above the bar, at once. Without a terminal, prints nothing.
    pub fn line(&self, line: &str) {
        if let Some(drawer) = &self.drawer {
            print(&drawer.screen, &format!("{CLEAR}{}\n", text::plain(line)));
        }
    }

    /// Shows that `bytes` of one value are done.
    pub fn stream(&self, bytes: u64) {
        self.report(bytes, |secs| format!("{}, {}/s", size(bytes), size((bytes as f64 / secs) as u64)));
    }

    /// Shows that `rows` and `bytes` are done.
    pub fn update(&self, rows: u64, bytes: u64) {
        self.report(bytes, |secs| {
            let per_second = (rows as f64 / secs) as u64;
            let speed = size((bytes as f64 / secs) as u64);
            format!("{} rows, {} rows/s, {speed}/s", grouped(rows), grouped(per_second))
        });
    }

    /// Shows that `done` bytes are done, and the text for the seconds that have passed.
    fn report(&self, done: u64, text: impl FnOnce(f64) -> String) {
        if self.drawer.is_some() {
            let text = text(self.begun.elapsed().as_secs_f64().max(1e-3));
            let mut state = locked(&self.state);
            (state.done, state.text) = (done, text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Drawer { _work, thread, .. }) = self.drawer.take() {
            drop(_work);
            let _ = thread.join(); // a panic while drawing does not matter to the work
        }
    }
}

impl State {
    fn new(total: Option<u64>) -> Self {
        Self { total, done: 0, text: String::new(), is_of_steps: false }
    }

    /// Returns the line after `secs` seconds, at the drawing number `n`.
    fn line(&self, secs: f64, n: usize) -> String {
        // Nothing is reported before the first rows have come.
        let text = text::plain(&self.text);
        let so_far = if text.is_empty() { String::new() } else { format!("{text}, ") };
        let Some(total) = self.total else {
            return format!("{} {so_far}{} elapsed", SPINNER[n % SPINNER.len()], span(secs));
        };
        let part = if total == 0 { 1.0 } else { (self.done as f64 / total as f64).min(1.0) };
        let filled = (part * BAR as f64) as usize;
        let mut bar = "#".repeat(filled);
        if filled < BAR {
            bar.push('>');
            bar.push_str(&"-".repeat(BAR - filled - 1));
        }
        if self.is_of_steps {
            return format!("{bar} {text}");
        }
        let left = if part > 0.0 { format!(", {} left", span(secs / part - secs)) } else { String::new() };
        let percent = (part * 100.0) as u64;
        format!("{bar} {percent:>3} %  {so_far}{} elapsed{left}", span(secs))
    }
}

/// Locks what a thread that panicked may have left as it was.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print(screen: &Screen, text: &str) {
    let mut screen = locked(screen);
    let _ = screen.write_all(text.as_bytes()).and_then(|()| screen.flush()); // nothing to draw on: the work goes on
}

/// Waits for `time`, or until the work ends; returns whether it goes on.
fn goes_on(ended: &Receiver<()>, time: Duration) -> bool {
    ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

/// Draws until the work ends, and then clears the line.
fn redraw(
    state: &Mutex<State>,
    begun: Instant,
    screen: &Screen,
    ended: &Receiver<()>,
    look: impl Fn() -> Option<Seen>,
) {
    for n in 0.. {
        let seen = look();
        let mut state = locked(state);
        if let Some(Seen { done, text }) = seen {
            (state.done, state.text) = (done, text);
        }
        let line = state.line(begun.elapsed().as_secs_f64(), n);
        drop(state);
        // A line that wraps could not be cleared.
        let line: String = line.chars().take(terminal::error_width().saturating_sub(1)).collect();
        print(screen, &format!("{CLEAR}{line}"));
        if !goes_on(ended, TICK) {
            break;
        }
    }
    print(screen, CLEAR);
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A terminal that keeps what is drawn.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        fn screen(&self) -> Screen {
            Arc::new(Mutex::new(self.clone()))
        }
        fn text(&self) -> String {
            String::from_utf8(locked(&self.0).clone()).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            locked(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn wait_for(paper: &Paper, text: &str) {
        let found = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            paper.text().contains(text)
        });
        assert!(found, "{text:?} is never drawn: {:?}", paper.text());
    }

    #[test]
    fn short_work_draws_nothing() {
        let paper = Paper::default();
        let progress =
            Progress::draw(State::new(Some(10)), paper.screen(), Duration::from_secs(600), || None);
        progress.update(3, 5);
        progress.say("working");
        drop(progress);
        assert_eq!(paper.text(), "");
    }

    #[test]
    fn long_work_is_drawn_and_then_cleared() {
        let paper = Paper::default();
        let progress = Progress::draw(State::new(Some(8)), paper.screen(), Duration::ZERO, || None);
        progress.say("said before it was drawn");
        wait_for(&paper, "said before it was drawn");
        progress.update(1234, 4);
        wait_for(&paper, " 50 %  1,234 rows");
        progress.line("above");
        drop(progress);
        let text = paper.text();
        assert!(text.contains("\x1b[2Kabove\n") && text.ends_with(CLEAR), "{text:?}");
    }

    #[test]
    fn work_that_does_not_report_itself_is_looked_at() {
        let paper = Paper::default();
        let look = || Some(Seen { done: 3, text: "looked".to_owned() });
        let _progress = Progress::draw(State::new(Some(4)), paper.screen(), Duration::ZERO, look);
        wait_for(&paper, " 75 %  looked");
    }

    #[test]
    fn a_line_says_what_is_known() {
        let state = |total, done| State { done, text: "text".to_owned(), ..State::new(total) };
        assert_eq!(state(None, 5).line(61.0, 1), "/ text, 1 min 01 s elapsed");
        let half = "###############>--------------";
        assert_eq!(state(Some(8), 4).line(10.0, 0), format!("{half}  50 %  text, 10 s elapsed, 10 s left"));
        assert_eq!(state(Some(8), 0).line(2.0, 0), format!(">{}   0 %  text, 2 s elapsed", "-".repeat(29)));
        for (total, done) in [(0, 0), (8, 8), (8, 9)] {
            let line = state(Some(total), done).line(3.0, 0);
            assert_eq!(line, format!("{} 100 %  text, 3 s elapsed, 0 s left", "#".repeat(30)));
        }
        let steps = State { is_of_steps: true, ..state(Some(8), 4) };
        assert_eq!(steps.line(10.0, 0), format!("{half} text"));
    }

    #[test]
    fn without_a_terminal_there_is_no_thread() {
        assert_eq!(Progress::new(None).drawer.is_some(), terminal::can_redraw());
        assert!(Progress::hidden().drawer.is_none());
    }
}
