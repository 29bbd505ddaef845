//! How a run chooses the thread that goes on, and how long its calls take.

use std::time::Duration;

/// The way in which threads are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// At some switch points, drawn at random, the next thread is drawn from those that can run. At the others the running one goes on.
    Walk {
        /// One switch point in so many is drawn; 1 = each.
        one_in: u64,
    },
    /// The thread of the highest priority runs. Priorities are random, and so many times the running thread gets the lowest one
    /// (PCT: Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010). A fault that needs d such changes is found with a probability
    /// that does not depend on what else happens.
    Priorities {
        /// Number of changes.
        changes: u32,
    },
    /// A thread runs until it waits, except that so many times the next one goes on before.
    Turns {
        /// Number of preemptions.
        preemptions: u32,
    },
}

/// The seed of a run, and all that it decides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides every choice.
    pub seed: u64,
    /// The way in which threads are chosen.
    pub strategy: Strategy,
    /// Steps within which changes of priority and preemptions happen.
    pub horizon: u64,
    /// A run with more steps fails.
    pub steps_max: u64,
    /// Virtual time that a switch point takes.
    pub step_nanos: u64,
    /// At one of so many switch points time jumps to the next deadline, although threads can run. 0 = never.
    pub jump_one_in: u64,
    /// One of so many calls of a disk takes long. 0 = none.
    pub late_one_in: u64,
    /// Virtual time that such a call takes at most.
    pub late_max: Duration,
    /// At one of so many switch points the running thread stands still, as if the system gave its processor to others. 0 = never.
    pub stall_one_in: u64,
    /// It stands still for the time of so many steps at most.
    pub stall_steps_max: u64,
    /// Whether the steps are kept as text.
    pub trace: bool,
}

impl Settings {
    /// Draws all settings from `seed`.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED_0F7E_57A1_1CE5);
        let strategy = match rng.below(8) {
            0..=3 => Strategy::Walk { one_in: [1, 2, 4, 16, 64][rng.below(5) as usize] },
            4..=6 => Strategy::Priorities { changes: 1 + rng.below(40) as u32 },
            _ => Strategy::Turns { preemptions: rng.below(60) as u32 },
        };
        Self {
            seed,
            strategy,
            horizon: 1000 << rng.below(9),
            steps_max: 20_000_000,
            step_nanos: [20, 200, 2000, 20_000][rng.below(4) as usize],
            jump_one_in: [0, 500, 5000][rng.below(3) as usize],
            late_one_in: [0, 4, 32, 256][rng.below(4) as usize],
            late_max: Duration::from_micros([50, 1000, 20_000, 300_000][rng.below(4) as usize]),
            stall_one_in: [0, 0, 3000, 30_000][rng.below(4) as usize],
            stall_steps_max: [300, 3000, 30_000][rng.below(3) as usize],
            trace: false,
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Returns true once in `n` times; never if `n` is 0.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }
}

/// Chooses the thread that goes on.
#[derive(Debug)]
pub(super) struct Chooser {
    strategy: Strategy,
    /// Steps at which a priority changes or a preemption happens, the next one last.
    changes: Vec<u64>,
    /// Priorities by thread.
    priorities: Vec<i64>,
    /// The lowest priority so far.
    lowest: i64,
}

impl Chooser {
    pub(super) fn new(settings: &Settings, rng: &mut Rng) -> Self {
        let count = match settings.strategy {
            Strategy::Walk { .. } => 0,
            Strategy::Priorities { changes } => changes,
            Strategy::Turns { preemptions } => preemptions,
        };
        let mut changes: Vec<u64> = (0..count).map(|_| rng.below(settings.horizon)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self { strategy: settings.strategy, changes, priorities: Vec::new(), lowest: 0 }
    }

    /// A thread was added.
    pub(super) fn added(&mut self, rng: &mut Rng) {
        self.priorities.push((rng.next() >> 2) as i64 + 1);
    }

    /// Gives a thread the lowest priority.
    pub(super) fn demote(&mut self, thread: u32) {
        self.lowest -= 1;
        self.priorities[thread as usize] = self.lowest;
    }

    /// Returns true if `running` may go on at this switch point without a choice.
    pub(super) fn goes_on(&mut self, running: u32, step: u64, rng: &mut Rng) -> bool {
        let is_due = self.changes.last().is_some_and(|change| *change <= step);
        if is_due {
            self.changes.pop();
        }
        match self.strategy {
            Strategy::Walk { one_in } => !rng.one_in(one_in),
            Strategy::Priorities { .. } => {
                if is_due {
                    self.demote(running);
                }
                false // a thread that was woken may have a higher priority
            }
            Strategy::Turns { .. } => !is_due,
        }
    }

    /// Chooses one of `ready`, which is sorted and not empty. `yields`: the running thread waits for another one.
    pub(super) fn choose(&mut self, ready: &[u32], running: u32, yields: bool, rng: &mut Rng) -> u32 {
        match self.strategy {
            Strategy::Walk { .. } => ready[rng.below(ready.len() as u64) as usize],
            Strategy::Priorities { .. } => {
                if yields {
                    self.demote(running);
                }
                let priority = |thread: &&u32| self.priorities[**thread as usize];
                ready.iter().max_by_key(priority).copied().unwrap_or(running)
            }
            Strategy::Turns { .. } => {
                let next = ready.iter().find(|thread| **thread > running);
                next.or(ready.first()).copied().unwrap_or(running)
            }
        }
    }
}
