//! How much memory the statements that run may take, all together.
//!
//! The engine says what is in use, not who uses it. So the statements share one budget, and the one that began last goes
//! first when it is spent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duckdb::Connection;

/// Memory in use but for what only keeps the database file at hand and is given up at once.
const IN_USE: &str =
    "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory() WHERE tag <> 'BASE_TABLE'";

/// Looks how much memory is in use.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    looking: Arc<Mutex<Connection>>,
    running: Arc<Mutex<Running>>,
    budget_bytes: u64,
}

/// The statements that run.
#[derive(Debug, Default)]
struct Running {
    /// Their numbers, growing.
    numbers: BTreeSet<u64>,
    latest: u64,
    /// What was in use before the first of them began, bytes.
    before: u64,
}

/// A statement that takes memory, until this is dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    memory: &'a Memory,
    number: u64,
}

impl Memory {
    /// Looks through a connection whether the statements take more than so many bytes each.
    pub(super) fn new(looking: Connection, budget_bytes: u64) -> Self {
        Self {
            looking: Arc::new(Mutex::new(looking)),
            running: Arc::default(),
            budget_bytes,
        }
    }

    /// A statement begins.
    pub(super) fn share(&self) -> Share<'_> {
        // Before it takes anything.
        let in_use = self.in_use();
        let number = lock(&self.running).begin(in_use.unwrap_or(0));
        Share {
            memory: self,
            number,
        }
    }

    /// Bytes in use; nothing when that cannot be said.
    fn in_use(&self) -> Option<u64> {
        let asked = lock(&self.looking).query_row(IN_USE, [], |row| row.get::<_, i64>(0));
        asked.ok().and_then(|bytes| u64::try_from(bytes).ok())
    }
}

impl Running {
    fn begin(&mut self, in_use: u64) -> u64 {
        if self.numbers.is_empty() {
            self.before = in_use;
        }
        self.latest += 1;
        self.numbers.insert(self.latest);
        self.latest
    }

    /// Whether the statement has to end with so many bytes in use.
    fn has_to_end(&self, number: u64, (in_use, budget_bytes): (u64, u64)) -> bool {
        let budget = budget_bytes.saturating_mul(self.numbers.len() as u64);
        let is_last = self.numbers.last() == Some(&number);
        is_last && in_use.saturating_sub(self.before) > budget
    }
}

impl Share<'_> {
    /// Whether the statement has to end because too much memory is in use.
    pub(super) fn is_spent(&self) -> bool {
        let Some(in_use) = self.memory.in_use() else {
            return false;
        };
        let budget = self.memory.budget_bytes;
        lock(&self.memory.running).has_to_end(self.number, (in_use, budget))
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        lock(&self.memory.running).numbers.remove(&self.number);
    }
}

// Nothing that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Running;

    #[test]
    fn two_statements_share_two_budgets_and_the_later_one_ends_first() {
        let mut running = Running::default();
        let first = running.begin(100);
        let second = running.begin(400);
        let is_over = |running: &Running, number, in_use| running.has_to_end(number, (in_use, 512));
        assert!(!is_over(&running, first, 1_100) && !is_over(&running, second, 1_100));
        assert!(is_over(&running, second, 1_200));
        assert!(!is_over(&running, first, 1_200), "the other ends first");
        running.numbers.remove(&second);
        assert!(is_over(&running, first, 700));
        assert!(!is_over(&running, first, 600));
        running.numbers.remove(&first);
        let third = running.begin(5_000);
        assert!(!is_over(&running, third, 5_500), "others took the rest");
    }
}
