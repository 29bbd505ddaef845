//! The figures on a terminal. One thread looks once a second, so that a disk that hangs holds up no key; another one draws and reads the keys.
//! However the program ends, the terminal is as it was before.

mod backend;
mod view;
mod draw;

use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEventKind};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui_core::terminal::Terminal;

use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::look::{Look, Watcher};
use backend::Cells;
use draw::Shown;
use view::View;

/// How often the database is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the keys are waited for before the thread that looks is asked again.
const PATIENCE: Duration = Duration::from_millis(100);
/// A look that takes longer is shown as one that waits.
const LATE: Duration = Duration::from_secs(3);

/// Returns whether figures can be drawn again and again on the standard output, and keys read from the standard input.
pub(super) fn is_possible(is_terminal: bool) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb" || term.is_empty());
    is_terminal && stdin().is_terminal() && !is_dumb
}

/// Shows `look` and the looks after it until a key ends it.
///
/// # Errors
/// If the terminal cannot be used.
pub(super) fn run(path: &Path, look: Look, colours: bool) -> Outcome {
    let panicked = Arc::new(Mutex::new(None));
    let before = std::panic::take_hook();
    let message = Arc::clone(&panicked);
    // The message of a panic would be drawn over: it is told after the terminal is as before.
    std::panic::set_hook(Box::new(move |info| {
        *message.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
    }));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _raw = Raw::begin()?;
        watch(path, look, colours)
    }));
    std::panic::set_hook(before);
    let told = panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (ended, told) {
        (Ok(ended), None) => ended.map(|()| Exit::Done).map_err(|e| terminal_failed(&e)),
        (_, told) => Err(Failure::failed(format!("a bug of this program: {}", told.unwrap_or_default()))
            .next("please report it; `tidesdb top --once` may work")),
    }
}

fn terminal_failed(error: &io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be used: {error}")).next("`tidesdb top --once` needs none")
}

/// The terminal in the state in which it is drawn on. Dropping it brings back the state before.
struct Raw;

impl Raw {
    fn begin() -> io::Result<Self> {
        enable_raw_mode()?;
        let this = Self;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(this)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that has gone needs neither.
        let _ = execute!(stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// What a look has found; the text of its failure.
type Found = Result<Look, String>;

/// Starts the thread that looks. It ends when nobody takes what it finds.
#[expect(clippy::disallowed_methods, reason = "it does nothing with a database that a test would simulate")]
fn start_looking(path: &Path) -> Receiver<Found> {
    let (to, from) = sync_channel(1);
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut watcher = Watcher::new(&path);
        loop {
            std::thread::sleep(PERIOD);
            let found = watcher.look().map_err(|failure| failure.message());
            if to.send(found).is_err() {
                return;
            }
        }
    });
    from
}

/// Returns what is set when another process asks this one to end. A terminal that hangs up ends it at once, as by default: there is nothing to bring
/// back, and reading from it would never end.
fn asked_to_end() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Signals by which another process asks this one to end. The keys of the terminal for them send none while it is raw.
const ENDING: [i32; 2] = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT];

/// Draws, reads the keys and takes what the other thread finds.
fn watch(path: &Path, look: Look, colours: bool) -> io::Result<()> {
    let mut terminal: Terminal<Cells<Stdout>> = Terminal::new(Cells::new(stdout()))?;
    let (looks, asked) = (start_looking(path), asked_to_end()?);
    let mut shown = Shown::new(super::named(path), look, colours);
    let mut view = View::default();
    let mut heard: Instant = host::now();
    let mut is_drawn = false;
    while !asked.load(Ordering::Relaxed) {
        match looks.try_recv() {
            Ok(found) => {
                heard = host::now();
                if !view.is_paused {
                    shown.take(found);
                    is_drawn = false;
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()), // it has panicked, which is told
        }
        let silence = host::now().duration_since(heard);
        let silence = (silence > LATE).then_some(silence.as_secs());
        is_drawn &= shown.silent_for == silence;
        shown.silent_for = silence;
        if !is_drawn {
            terminal.draw(|frame| {
                let area = frame.area();
                draw::draw(frame.buffer_mut(), area, &shown, &mut view);
            })?;
            is_drawn = true;
        }
        if !event::poll(PATIENCE)? {
            continue;
        }
        // All that is there, so that a held key does not draw each time.
        while event::poll(Duration::ZERO)? {
            is_drawn = false; // also after a change of the size
            match event::read()? {
                Event::Key(key)
                    if key.kind != KeyEventKind::Release
                        && !view.key(key.code, key.modifiers, &shown.look.seconds) =>
                {
                    return Ok(());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By default each of them ends the process, which leaves the terminal raw.
    #[test]
    fn signals_that_ask_to_end_are_told() {
        let asked = asked_to_end().unwrap();
        for signal in ENDING {
            signal_hook::low_level::raise(signal).unwrap();
            assert!(asked.swap(false, Ordering::Relaxed), "{signal}");
        }
    }
}
