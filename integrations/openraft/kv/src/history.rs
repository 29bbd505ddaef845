//! What the clients saw, and whether one order of the operations explains it: decided by `WGLChecker` of the crate `todc-utils`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use todc_utils::{Action, History, Specification, WGLChecker};

/// How long the checker may take for one key.
const LIMIT: Duration = Duration::from_secs(120);

/// The value of a key; each write has its own.
pub type Value = u64;

/// An operation with its result.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A read, and what it found.
    Read(Option<Value>),
    /// A write.
    Write(Value),
    /// A comparison that succeeded; one that failed is a read of what it found.
    Swap(Option<Value>, Value),
    /// A comparison without an answer: it was done if it could be.
    MaybeSwap(Option<Value>, Value),
}

/// One key.
struct Register;

impl Specification for Register {
    type State = Option<Value>;
    type Operation = Operation;

    fn init() -> Option<Value> {
        None
    }

    fn apply(operation: &Operation, state: &Option<Value>) -> (bool, Option<Value>) {
        match operation {
            Operation::Read(found) => (found == state, *state),
            Operation::Write(value) => (true, Some(*value)),
            Operation::Swap(expected, value) => (expected == state, Some(*value)),
            Operation::MaybeSwap(expected, value) if expected == state => (true, Some(*value)),
            Operation::MaybeSwap(..) => (true, *state),
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug)]
enum End {
    Running,
    /// It had no effect.
    Failed,
    Done(Operation),
    Unknown(Operation),
}

#[derive(Debug, Default)]
struct Events {
    /// Calls and ends of operations, in the order in which they happened.
    order: Vec<(usize, bool)>,
    ends: Vec<End>,
}

/// The history of one key.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Events>>);

/// An operation that runs. If it is dropped, it had no effect.
#[derive(Debug)]
pub struct Running {
    recorder: Recorder,
    number: usize,
    end: End,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut events = self.recorder.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.order.push((self.number, false));
        events.ends[self.number] = std::mem::replace(&mut self.end, End::Failed);
    }
}

impl Running {
    /// It was done.
    pub fn done(mut self, operation: Operation) {
        self.end = End::Done(operation);
    }

    /// It may have happened, and may still happen.
    pub fn unknown(mut self, operation: Operation) {
        self.end = End::Unknown(operation);
    }
}

/// What the checker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order of the operations explains the history.
    Linearizable,
    /// No order does.
    Violated,
    /// It took too long.
    Undecided,
}

impl Recorder {
    /// Begins an operation.
    pub fn call(&self) -> Running {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = events.ends.len();
        events.ends.push(End::Running);
        events.order.push((number, true));
        Running { recorder: self.clone(), number, end: End::Failed }
    }

    /// Returns the operations that were done, and those with an unknown end.
    pub fn counts(&self) -> (usize, usize) {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |wanted: fn(&End) -> bool| events.ends.iter().filter(|end| wanted(end)).count();
        (count(|end| matches!(end, End::Done(_))), count(|end| matches!(end, End::Unknown(_))))
    }

    /// Returns the history for the checker. Each operation is a process of its own.
    fn actions(&self) -> Vec<(usize, Action<Operation>)> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let observed: BTreeSet<Value> = events.ends.iter().filter_map(observed).collect();
        let (mut actions, mut unknown) = (Vec::new(), Vec::new());
        for &(number, is_call) in &events.order {
            let (operation, known) = match &events.ends[number] {
                End::Done(operation) => (operation.clone(), true),
                // A write that nobody has seen may be behind everything, so it says nothing.
                End::Unknown(Operation::Write(value) | Operation::MaybeSwap(_, value))
                    if !observed.contains(value) =>
                {
                    continue;
                }
                End::Unknown(operation) => (operation.clone(), false),
                End::Running | End::Failed => continue,
            };
            match (is_call, known) {
                (true, _) => actions.push((number, Action::Call(operation))),
                (false, true) => actions.push((number, Action::Response(operation))),
                // It may happen until the end.
                (false, false) => unknown.push((number, Action::Response(operation))),
            }
        }
        actions.extend(unknown);
        actions
    }

    /// Asks the checker.
    pub fn check(&self) -> Verdict {
        let actions = self.actions();
        if actions.is_empty() {
            return Verdict::Linearizable;
        }
        let (answer, verdict) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = answer.send(WGLChecker::<Register>::is_linearizable(History::from_actions(actions)));
        });
        match verdict.recv_timeout(LIMIT) {
            Ok(true) => Verdict::Linearizable,
            Ok(false) => Verdict::Violated,
            Err(_) => Verdict::Undecided,
        }
    }

    /// Returns the history as text, a line for each event.
    pub fn text(&self) -> String {
        let line = |(number, action): &(usize, Action<Operation>)| match action {
            Action::Call(operation) => format!("{number:>5} calls   {operation:?}\n"),
            Action::Response(operation) => format!("{number:>5} returns {operation:?}\n"),
        };
        self.actions().iter().map(line).collect()
    }
}

/// Returns the value that an operation has seen.
fn observed(end: &End) -> Option<Value> {
    match end {
        End::Done(Operation::Read(found)) => *found,
        End::Done(Operation::Swap(expected, _)) => *expected,
        // One that may have happened may have seen it.
        End::Unknown(Operation::MaybeSwap(expected, _)) => *expected,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records operations that overlap nothing.
    fn history(operations: &[Operation]) -> Recorder {
        let recorder = Recorder::default();
        operations.iter().for_each(|operation| recorder.call().done(operation.clone()));
        recorder
    }

    #[test]
    fn a_read_of_an_older_value_is_a_violation() {
        use Operation::{Read, Swap, Write};
        let good = history(&[Read(None), Write(1), Read(Some(1)), Swap(Some(1), 2), Read(Some(2))]);
        assert_eq!(good.check(), Verdict::Linearizable);
        for bad in [
            [Write(1), Write(2), Read(Some(1))],
            [Write(1), Read(None), Read(Some(1))],
            [Write(1), Swap(None, 2), Read(Some(2))],
        ] {
            assert_eq!(history(&bad).check(), Verdict::Violated, "{bad:?}");
        }
    }

    #[test]
    fn a_write_without_an_answer_may_come_late_but_only_once() {
        use Operation::{Read, Write};
        let recorder = Recorder::default();
        recorder.call().unknown(Write(1));
        recorder.call().unknown(Write(9)); // nobody sees it
        for operation in [Read(None), Write(2), Read(Some(2)), Read(Some(1))] {
            recorder.call().done(operation);
        }
        assert_eq!(recorder.check(), Verdict::Linearizable);
        assert_eq!(recorder.counts(), (4, 2));
        recorder.call().done(Read(Some(2)));
        assert_eq!(recorder.check(), Verdict::Violated);
    }

    #[test]
    fn an_operation_that_had_no_effect_is_not_in_the_history() {
        let recorder = Recorder::default();
        drop(recorder.call());
        recorder.call().done(Operation::Read(None));
        assert_eq!(recorder.actions().len(), 2);
    }
}
