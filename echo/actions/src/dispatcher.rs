//! Dispatcher: keeps the state on disk, sends what is due, and records what happened.
//!
//! The state is saved before an attempt and after its result. A state that cannot be saved stops
//! all sending: without it, a restart could send twice.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use echo_core::clock::Clock;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;

use crate::agents::{AgentNotices, agent_notices};
use crate::consumer::{Consumer, DeliveryError};
use crate::consumers::sender;
use crate::counts::ActionCounts;
use crate::journal::Journal;
use crate::planner::plan;
use crate::policy::{Destination, Policy};
use crate::queue::{begin_due, complete};
use crate::record::{Outcome, Record};
use crate::selection::Snapshot;
use crate::state::{Delivery, State};

/// Shortest and longest time before the next attempt, before jitter.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

/// Longest wait for attempts in flight at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Receives every record, for the log and the audit log. The text is what a delivery does.
pub type Recorder = Box<dyn Fn(&Record, Option<&str>) + Send + Sync>;

/// Settings and surroundings.
pub struct Surroundings {
    /// Policy, replaced when its file changes.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// File with the state.
    pub journal: Journal,
    /// Usual file whose existence turns the kill switch on.
    pub kill_switch_file: PathBuf,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Receives every record.
    pub recorder: Recorder,
    /// Counts.
    pub counts: ActionCounts,
}

/// Result of a task that makes an attempt.
type Attempted = Result<(Id, Result<String, DeliveryError>), JoinError>;

/// Keeps the state and sends.
pub struct Dispatcher {
    surroundings: Surroundings,
    state: State,
    /// State as it is on disk.
    saved: State,
    senders: BTreeMap<String, (Destination, Arc<dyn Consumer>)>,
    attempts: JoinSet<Result<String, DeliveryError>>,
    /// Keys of the deliveries of these attempts.
    keys: HashMap<Id, String>,
    is_killed: bool,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Loads the state.
    pub fn load(surroundings: Surroundings) -> io::Result<Self> {
        let state = surroundings.journal.load()?;
        Ok(Self {
            saved: state.clone(),
            state,
            surroundings,
            senders: BTreeMap::new(),
            attempts: JoinSet::new(),
            keys: HashMap::new(),
            is_killed: false,
        })
    }

    /// Compares the open incidents with the actions in force, and begins what is due.
    pub fn observe(&mut self, mut snapshot: Snapshot) -> io::Result<()> {
        let policy = Arc::clone(&self.surroundings.policy.borrow_and_update());
        snapshot.is_killed = self.is_kill_switch_on(&policy);
        self.is_killed = snapshot.is_killed;
        self.update_senders(&policy);
        let now = self.surroundings.clock.now();
        let records = plan(&mut self.state, &policy, &snapshot, now);
        self.save()?;
        for record in &records {
            self.record(record);
        }
        self.begin()?;
        self.surroundings
            .counts
            .observe(&policy, &self.state, self.is_killed);
        Ok(())
    }

    /// Returns the report to the agents of the hosts: empty while the kill switch is on.
    pub fn agent_notices(&self) -> AgentNotices {
        if self.is_killed {
            return AgentNotices::default();
        }
        agent_notices(&self.surroundings.policy.borrow(), &self.state)
    }

    /// Waits for the result of an attempt, records it, and begins what is due. Never returns while
    /// none is in flight.
    pub async fn attempted(&mut self) -> io::Result<()> {
        match self.attempts.join_next_with_id().await {
            Some(attempted) => self.finish(attempted)?,
            None => std::future::pending().await,
        }
        self.begin()
    }

    /// Waits some seconds for attempts in flight. Those without a result are made again by the next
    /// start, with the same key.
    pub async fn stop(mut self) -> io::Result<()> {
        while let Ok(Some(attempted)) =
            timeout(STOP_TIMEOUT, self.attempts.join_next_with_id()).await
        {
            self.finish(attempted)?;
        }
        self.attempts.detach_all();
        Ok(())
    }

    fn finish(&mut self, attempted: Attempted) -> io::Result<()> {
        let (id, result) = match attempted {
            Ok(attempted) => attempted,
            Err(error) => {
                let failed = DeliveryError::transient(format!("the sender failed: {error}"));
                (error.id(), Err(failed))
            }
        };
        let Some(key) = self.keys.remove(&id) else {
            return Ok(());
        };
        let now = self.surroundings.clock.now();
        let queued = self.state.queue.iter().find(|one| one.key == key);
        let delay = delay(queued.map_or(0, |one| one.attempts));
        let record = complete(&mut self.state, &key, result, delay, now);
        self.save()?;
        if let Some(record) = record {
            self.record(&record);
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.is_killed {
            return Ok(());
        }
        let now = self.surroundings.clock.now();
        let due = begin_due(&mut self.state, now);
        if due.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.save() {
            for delivery in &mut self.state.queue {
                let is_begun = due.iter().any(|one| one.key == delivery.key);
                delivery.is_in_flight &= !is_begun;
            }
            return Err(error);
        }
        for delivery in due {
            let Some((_, sender)) = self.senders.get(&delivery.consumer) else {
                continue;
            };
            let sender = Arc::clone(sender);
            let key = delivery.key.clone();
            let attempt = self
                .attempts
                .spawn_blocking(move || sender.deliver(&delivery, now));
            self.keys.insert(attempt.id(), key);
        }
        Ok(())
    }

    fn update_senders(&mut self, policy: &Policy) {
        self.senders
            .retain(|name, _| policy.consumers.contains_key(name));
        for (name, consumer) in &policy.consumers {
            let known = self.senders.get(name);
            if known.is_none_or(|(destination, _)| *destination != consumer.destination) {
                let destination = consumer.destination.clone();
                let made = sender(&destination);
                self.senders.insert(name.clone(), (destination, made));
            }
        }
    }

    /// A file that cannot be looked at counts as present.
    fn is_kill_switch_on(&self, policy: &Policy) -> bool {
        let usual = &self.surroundings.kill_switch_file;
        let file = policy.kill_switch_file.as_ref().unwrap_or(usual);
        policy.kill_switch || file.try_exists().unwrap_or(true)
    }

    fn save(&mut self) -> io::Result<()> {
        if self.state != self.saved {
            self.surroundings.journal.save(&self.state)?;
            self.saved = self.state.clone();
        }
        Ok(())
    }

    fn record(&self, record: &Record) {
        self.surroundings.counts.count(record);
        let described = record
            .delivery
            .as_deref()
            .filter(|_| record.outcome == Outcome::Shadow);
        let described = described.and_then(|delivery| self.describe(delivery));
        (self.surroundings.recorder)(record, described.as_deref());
    }

    fn describe(&self, delivery: &Delivery) -> Option<String> {
        let (_, sender) = self.senders.get(&delivery.consumer)?;
        Some(sender.describe(delivery))
    }
}

/// Time before the next attempt, longer after each one, with jitter.
fn delay(attempts: u32) -> Duration {
    let delays = ExponentialBuilder::default()
        .with_min_delay(RETRY.0)
        .with_max_delay(RETRY.1)
        .with_jitter()
        // Without a seed, each process would wait equally long.
        .with_jitter_seed(RandomState::new().hash_one(attempts))
        .without_max_times()
        .build();
    let index = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    delays.take(64).nth(index.min(63)).unwrap_or(RETRY.1)
}

#[cfg(test)]
mod tests;
