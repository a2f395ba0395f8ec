//! The rate and the budget of all connections together.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The most bytes that are moved at once.
const CHUNK: u64 = 1 << 20;

/// The fewest that are worth moving, and the shortest pause.
const LEAST: u64 = 4 << 10;
const PAUSE: Duration = Duration::from_millis(2);

/// Counts bytes against a rate and a budget.
#[derive(Debug)]
pub struct Meter {
    rate: Option<u64>,
    left: Cell<Option<u64>>,
    tokens: Cell<u64>,
    at: Cell<Instant>,
}

impl Meter {
    /// With bytes per second, and bytes in all.
    pub fn new(rate: Option<u64>, budget: Option<u64>) -> Self {
        Self { rate, left: Cell::new(budget), tokens: Cell::new(LEAST), at: Cell::new(Instant::now()) }
    }

    /// Waits until some bytes may be moved.
    pub async fn wait(&self) {
        let Some(rate) = self.rate else { return };
        loop {
            let now = Instant::now();
            let passed = now.saturating_duration_since(self.at.get());
            let new = u64::try_from(passed.as_micros() * u128::from(rate) / 1_000_000).unwrap_or(u64::MAX);
            if new > 0 {
                // At most what a tenth of a second brings, so that a pause earns no burst.
                let most = (rate / 10).max(LEAST);
                self.tokens.set(self.tokens.get().saturating_add(new).min(most));
                self.at.set(now);
            }
            if self.tokens.get() >= LEAST.min(rate) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// How many bytes may be moved now. 0 means that the budget is used up.
    pub fn may(&self) -> usize {
        let by_rate = self.rate.map_or(CHUNK, |_| self.tokens.get().max(1));
        by_rate.min(CHUNK).min(self.left.get().unwrap_or(u64::MAX)) as usize
    }

    /// Counts bytes that were moved.
    pub fn count(&self, bytes: u64) {
        self.tokens.set(self.tokens.get().saturating_sub(bytes));
        self.left.set(self.left.get().map(|left| left.saturating_sub(bytes)));
    }

    /// Whether the budget is used up.
    pub fn is_used_up(&self) -> bool {
        self.left.get() == Some(0)
    }
}
