//! Memory limits of running statements.
//!
//! The engine does not count all memory: neither values of expressions nor states of some
//! aggregates. So the limit applies to the memory of the whole process, without cached pages of the
//! database file. The total does not show which statement uses the memory: statements share their
//! budgets, and the newest is stopped first when these are exhausted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use duckdb::Connection;

use crate::timings::Stopwatch;

/// Memory of cached pages of the database file, which is freed on demand.
const CACHED: &str = "SELECT coalesce(sum(memory_usage_bytes), 0)::BIGINT FROM duckdb_memory() WHERE tag = 'BASE_TABLE'";

/// Time after which the allocator has returned the memory of the last statement, and growth per
/// second that is allowed before that, bytes: Echo itself grows, too.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
const GROWTH_PER_S: f64 = 1_048_576.0;

/// Longest wait for the memory of earlier statements, and the interval of checks: threads of the
/// engine return memory when they have been idle for half a second, and a check wakes them.
const MAX_WAIT: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(700);

/// Measures the memory in use.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    connection: Arc<Mutex<Connection>>,
    running: Arc<Mutex<Running>>,
    budget_bytes: u64,
}

/// Running statements.
#[derive(Debug, Default)]
struct Running {
    /// Budgets by statement number, bytes; numbers increase.
    budgets: BTreeMap<u64, u64>,
    latest: u64,
    /// Memory in use before the first of them began, bytes.
    before: u64,
    /// Time since which none is running.
    idle: Option<Stopwatch>,
}

/// Share of a running statement, returned on drop.
#[derive(Debug)]
pub(super) struct Share<'a> {
    memory: &'a Memory,
    number: u64,
}

impl Memory {
    /// Measures memory through `connection`, with a budget per statement.
    pub(super) fn new(connection: Connection, budget_bytes: u64) -> Self {
        Self {
            connection: Arc::new(Mutex::new(connection)),
            running: Arc::default(),
            budget_bytes,
        }
    }

    /// The same with a budget of at most `bytes`.
    pub(super) fn limited_to(self, bytes: u64) -> Self {
        let budget_bytes = self.budget_bytes.min(bytes);
        Self {
            budget_bytes,
            ..self
        }
    }

    /// Registers a statement with its deadline. Waits for the memory of earlier statements; the
    /// wait counts as run time.
    pub(super) fn share(&self, deadline: Duration) -> Share<'_> {
        // Measured before the statement allocates.
        let in_use = self.in_use().unwrap_or(0);
        let number = lock(&self.running).begin(self.budget_bytes, in_use);
        let share = Share {
            memory: self,
            number,
        };
        let begun = Stopwatch::start();
        while let Some(pause) = pause(begun.elapsed(), deadline)
            && share.is_half_spent()
        {
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread that may block, and there is no event for returned memory"
            )]
            thread::sleep(pause);
        }
        share
    }

    /// Memory in use, bytes; `None` if unknown.
    fn in_use(&self) -> Option<u64> {
        let cached_bytes = lock(&self.connection).query_row(CACHED, [], |row| row.get::<_, i64>(0));
        let cached = cached_bytes
            .ok()
            .and_then(|bytes| u64::try_from(bytes).ok())?;
        resident().map(|bytes| bytes.saturating_sub(cached))
    }
}

impl Running {
    fn begin(&mut self, budget_bytes: u64, in_use: u64) -> u64 {
        if self.budgets.is_empty() {
            let idle = self.idle.map_or(SETTLED_AFTER, Stopwatch::elapsed);
            self.before = self.before(in_use, idle);
        }
        self.latest += 1;
        self.budgets.insert(self.latest, budget_bytes);
        self.latest
    }

    /// Memory in use without statements, if none has run for `idle`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few seconds of growth"
    )]
    fn before(&self, in_use: u64, idle: Duration) -> u64 {
        if idle >= SETTLED_AFTER {
            return in_use;
        }
        let growth = (idle.as_secs_f64() * GROWTH_PER_S) as u64;
        in_use.min(self.before.saturating_add(growth))
    }

    /// Memory used by the statements, and their total budget, bytes.
    fn used_and_budget(&self, in_use: u64) -> (u64, u64) {
        (
            in_use.saturating_sub(self.before),
            self.budgets.values().sum(),
        )
    }

    fn end(&mut self, number: u64) {
        self.budgets.remove(&number);
        if self.budgets.is_empty() {
            self.idle = Some(Stopwatch::start());
        }
    }

    /// Returns true if the statement must end when `in_use` bytes are in use.
    fn must_end(&self, number: u64, in_use: u64) -> bool {
        let (used, budget) = self.used_and_budget(in_use);
        let last = self.budgets.last_key_value().map(|(last, _)| *last);
        last == Some(number) && used > budget
    }
}

impl Share<'_> {
    fn is_half_spent(&self) -> bool {
        let in_use = self.memory.in_use().unwrap_or(0);
        let (used, budget) = lock(&self.memory.running).used_and_budget(in_use);
        used > budget / 2
    }

    /// Returns true if the statement must end because too much memory is in use.
    pub(super) fn is_spent(&self) -> bool {
        let Some(in_use) = self.memory.in_use() else {
            return false;
        };
        lock(&self.memory.running).must_end(self.number, in_use)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        lock(&self.memory.running).end(self.number);
    }
}

/// Time until the next check of the memory of earlier statements; `None` if the wait is over.
fn pause(waited: Duration, deadline: Duration) -> Option<Duration> {
    let left = MAX_WAIT.min(deadline).saturating_sub(waited);
    (!left.is_zero()).then(|| POLL_EVERY.min(left))
}

/// Resident memory of the process without mapped files, bytes.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

// No code that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_WAIT, POLL_EVERY, Running, pause, resident};

    #[test]
    fn a_statement_waits_for_memory_no_longer_than_its_deadline() {
        let (short, long) = (POLL_EVERY / 2, MAX_WAIT * 5);
        assert_eq!(pause(Duration::ZERO, short), Some(short));
        assert_eq!(pause(short, short), None);
        assert_eq!(pause(Duration::ZERO, long), Some(POLL_EVERY));
        let late = MAX_WAIT.saturating_sub(short);
        assert_eq!(pause(late, long), Some(short));
        assert_eq!(pause(MAX_WAIT, long), None);
    }

    #[test]
    fn two_statements_share_two_budgets_and_the_later_one_ends_first() {
        let mut running = Running::default();
        let first = running.begin(512, 100);
        let second = running.begin(256, 400);
        assert!(!running.must_end(first, 850) && !running.must_end(second, 850));
        assert!(running.must_end(second, 900));
        assert!(!running.must_end(first, 900), "the other ends first");
        running.end(second);
        assert!(running.must_end(first, 700));
        assert!(!running.must_end(first, 600));
    }

    #[test]
    fn unreturned_memory_of_a_statement_counts_for_the_next_one() {
        let mut running = Running::default();
        let first = running.begin(512, 100);
        running.end(first);
        let second = running.begin(512, 600);
        assert!(running.must_end(second, 700_000));
        running.end(second);
        let before = |in_use, idle_s| running.before(in_use, Duration::from_secs(idle_s));
        assert_eq!(before(50, 1), 50, "it gave back more");
        assert!(
            (1_000_000..3_000_000).contains(&before(9_000_000, 2)),
            "Echo may have grown"
        );
        assert_eq!(
            before(9_000_000, 3),
            9_000_000,
            "by now it is something else"
        );
    }

    #[test]
    fn resident_memory_is_measured() {
        let before = resident().unwrap();
        let held = vec![1_u8; 64 << 20];
        assert!(resident().unwrap() >= before + held.len() as u64 / 2);
    }
}
