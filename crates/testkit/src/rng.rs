//! A small reproducible random number generator (xorshift64*, Vigna 2016).

/// The generator. A seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    /// Choices that are left, the next one last: two bytes each.
    choices: Vec<[u8; 2]>,
}

impl Rng {
    /// Creates a generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, choices: Vec::new() }
    }

    /// Creates a generator whose first numbers `bytes` decide, two bytes each: a small change of them is a small change of what is drawn.
    pub fn of_choices(bytes: &[u8]) -> Self {
        Self { choices: bytes.as_chunks().0.iter().rev().copied().collect(), ..Self::new(0) }
    }

    /// Returns the number of choices that are left.
    pub fn choices_left(&self) -> usize {
        self.choices.len()
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let drawn = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D);
        match self.choices.pop() {
            Some(choice) => u64::from(u16::from_le_bytes(choice)) << 48 | drawn >> 16, // `below` looks at the high bits
            None => drawn,
        }
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns true with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `choices`, which are not empty.
    pub fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns `len` bytes; half of the time they compress well.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        if self.one_in(2) {
            let b = self.next_u64() as u8;
            return vec![b; len];
        }
        (0..len).map(|_| self.next_u64() as u8).collect()
    }
}
