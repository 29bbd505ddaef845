//! How far a scan reads ahead.

/// Decides how much a scan may read ahead, of blocks in bytes or of values by number. Nothing for the first `START` steps; then as
/// much again as the scan has consumed, so that the amount doubles and a scan that stops has loaded at most twice what it needed;
/// never more than `MAX`. A jump or a turn starts over, with the default.
#[derive(Debug, Default)]
pub struct Readahead<const START: u32, const MAX: u64> {
    steps: u32,
    consumed: u64,
    loaded: u64,
}

impl<const START: u32, const MAX: u64> Readahead<START, MAX> {
    /// Records a step in the direction of the scan.
    pub fn step(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }

    /// Records that the scan used `amount`.
    pub fn consume(&mut self, amount: u64) {
        self.consumed += amount;
    }

    /// Records that `amount` was read, or is being loaded.
    pub fn load(&mut self, amount: u64) {
        self.loaded += amount;
    }

    /// Returns whether the scan is long enough for read-ahead.
    pub fn is_long(&self) -> bool {
        self.steps > START
    }

    /// Returns how much more may be loaded now.
    pub fn allowance(&self) -> u64 {
        let amount = if self.is_long() { self.consumed + self.consumed.min(MAX) } else { 0 };
        amount.saturating_sub(self.loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `steps` steps, each of which uses 1, and loads all that is allowed whenever nothing is left. Returns the amounts.
    fn scan(readahead: &mut Readahead<4, 64>, steps: u64) -> Vec<u64> {
        let (mut loads, mut left) = (Vec::new(), 0);
        for _ in 0..steps {
            readahead.step();
            readahead.consume(1);
            if left == 0 {
                left = readahead.allowance().max(1);
                readahead.load(left);
                loads.push(left);
            }
            left -= 1;
        }
        loads
    }

    #[test]
    fn amounts_double_up_to_the_maximum() {
        assert_eq!(scan(&mut Readahead::default(), 150), [1, 1, 1, 1, 6, 12, 24, 48, 65]);
    }

    #[test]
    fn a_scan_that_skips_most_of_what_was_loaded_is_slowed_down() {
        let mut readahead = Readahead::<0, 64>::default();
        readahead.step();
        let mut loaded = 0;
        for _ in 0..1000 {
            readahead.consume(1);
            let load = readahead.allowance();
            readahead.load(load);
            loaded += load;
        }
        assert!(loaded <= 2000, "{loaded}");
    }
}
