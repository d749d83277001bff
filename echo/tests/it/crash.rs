//! SIGKILL and power failures at random times under load, in many rounds on the same files: every
//! acknowledged batch is stored once and completely. `make crash-test ROUNDS=200` runs more rounds
//! than `make test`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use fleet_test_harness::MOUNTS;

use crate::load::{Sent, mixed, request_of, send, sender, stored};
use crate::testbed::Echo;
use crate::volume::Mounted;

/// Default number of rounds.
const ROUNDS: u64 = 5;

/// Number of rounds per database, which limits the time to read all of it.
const ROUNDS_PER_DATABASE: usize = 40;

/// Number of agents that send concurrently.
pub(crate) const AGENTS: u64 = 4;

/// Maximum number of batches of one agent in all rounds.
const BATCHES: u64 = 1_000_000;

/// State of one agent.
#[derive(Debug)]
pub(crate) struct Agent {
    cluster: &'static str,
    /// Distinguishes its batches from those of others.
    id: u64,
    /// Number of the batch that was sent and not acknowledged; it is sent again.
    open: Option<u64>,
    next: u64,
    /// Batches that were acknowledged.
    pub(crate) acknowledged: Vec<u64>,
}

/// Returns agents of a cluster.
pub(crate) fn agents(cluster: &'static str, ids: Range<u64>) -> Vec<Agent> {
    let agent = |id| Agent {
        cluster,
        id,
        open: None,
        next: 0,
        acknowledged: Vec::new(),
    };
    ids.map(agent).collect()
}

#[expect(clippy::disallowed_methods, reason = "the only setting of a test")]
fn rounds() -> u64 {
    match std::env::var("FLEET_ECHO_CRASH_ROUNDS") {
        Ok(rounds) => rounds.parse().unwrap(),
        Err(_unset) => ROUNDS,
    }
}

/// Returns the number of points of a batch, a pseudorandom number from 1 to 2,000.
const fn size_of(batch: u64) -> u64 {
    1 + mixed(batch) % 2_000
}

/// A pause between acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    pause: Mutex<()>,
    never: Condvar,
}

impl Moment {
    pub(crate) fn wait(&self, micros: u64) {
        let pause = self.pause.lock().unwrap();
        let time = Duration::from_micros(micros);
        drop(self.never.wait_timeout(pause, time).unwrap());
    }
}

/// Sends batches until Echo has been killed.
fn send_all(agent: &mut Agent, address: &str, acknowledged: &AtomicU64, gone: &AtomicBool) {
    let sender = sender();
    let instance = format!("agent-{}", agent.id);
    while !gone.load(Ordering::Acquire) {
        let number = agent.open.take().unwrap_or_else(|| {
            agent.next += 1;
            agent.next
        });
        let batch = agent.id * BATCHES + number;
        let body = request_of(agent.cluster, batch, size_of(batch));
        match send(&sender, address, &instance, number, &body) {
            Sent::Acknowledged => {
                agent.acknowledged.push(batch);
                acknowledged.fetch_add(1, Ordering::AcqRel);
            }
            Sent::Refused(..) | Sent::Unknown => agent.open = Some(number),
        }
    }
}

#[test]
fn acknowledged_batches_are_stored_once_after_repeated_kills() {
    let seed = u64::from(std::process::id());
    let rounds = rounds();
    let (mut acknowledged, mut unanswered) = (0, 0);
    let first_rounds = (0..rounds).step_by(ROUNDS_PER_DATABASE);
    for first in first_rounds {
        let last = rounds.min(first + ROUNDS_PER_DATABASE as u64);
        let chances = (first..last).map(|round| mixed(seed.wrapping_mul(1_000_000) + round));
        let counts = with_one_database(chances);
        acknowledged += counts.acknowledged;
        unanswered += counts.unanswered;
        println!("{last} of {rounds} rounds (seed {seed})");
    }
    println!(
        "{acknowledged} batches acknowledged, all stored once; {unanswered} more stored without a response"
    );
}

#[test]
#[needs(MOUNTS)]
fn acknowledged_batches_survive_a_power_failure() {
    let mut volume = Mounted::ext4(512);
    let seed = u64::from(std::process::id());
    let mut agents = agents("load", 0..AGENTS);
    for round in 0..rounds() {
        let echo = Echo::serve_with(&volume.db(), &["--ballast", "off", "--min-free", "1"]);
        one_round(echo, &mut agents, mixed(seed + round));
        volume = volume.after_power_failure();
        let round = usize::try_from(round).unwrap();
        check(&agents, &stored(&volume.db()), round);
    }
}

/// Numbers of stored batches.
struct Counts {
    acknowledged: u64,
    /// Stored without an acknowledgement.
    unanswered: u64,
}

/// Runs rounds on the same files.
fn with_one_database(chances: impl Iterator<Item = u64>) -> Counts {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let mut agents = agents("load", 0..AGENTS);
    let mut unanswered = 0;
    for (round, chance) in chances.enumerate() {
        let echo = Echo::serve_with(&db, &["--ballast", "off"]);
        one_round(echo, &mut agents, chance);
        unanswered += check(&agents, &stored(&db), round);
    }
    let acknowledged = agents.iter().map(|agent| agent.acknowledged.len() as u64);
    Counts {
        acknowledged: acknowledged.sum(),
        unanswered,
    }
}

/// Sends batches to Echo and kills it after a random number of acknowledgements and a random pause.
pub(crate) fn one_round(echo: Echo, agents: &mut [Agent], chance: u64) {
    kill_under_load(echo, agents, |_, acknowledged| {
        let moment = Moment::default();
        while acknowledged.load(Ordering::Acquire) < chance % 60 {
            moment.wait(500);
        }
        moment.wait(chance >> 32 & 0x3fff);
    });
}

/// Ends the senders on drop, also when a test has failed.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends batches to Echo and kills it when `wait` returns, which gets the number of
/// acknowledgements.
pub(crate) fn kill_under_load(
    echo: Echo,
    agents: &mut [Agent],
    wait: impl FnOnce(&Echo, &AtomicU64),
) {
    let address = echo.otlp_http.clone();
    let acknowledged = AtomicU64::new(0);
    let gone = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&gone);
        for agent in agents {
            let (address, acknowledged, gone) = (&address, &acknowledged, &gone);
            scope.spawn(move || send_all(agent, address, acknowledged, gone));
        }
        wait(&echo, &acknowledged);
        echo.kill();
    });
}

/// Compares acknowledged with stored batches. Returns the number of batches that are stored without
/// an acknowledgement.
pub(crate) fn check(agents: &[Agent], stored: &BTreeMap<u64, (u64, u64)>, round: usize) -> u64 {
    for (batch, counts) in stored {
        let whole = (size_of(*batch), size_of(*batch));
        assert_eq!(
            *counts, whole,
            "batch {batch} in part or twice, round {round}"
        );
    }
    let mut acknowledged = 0;
    for batch in agents.iter().flat_map(|agent| &agent.acknowledged) {
        assert!(
            stored.contains_key(batch),
            "batch {batch} is lost, round {round}"
        );
        acknowledged += 1;
    }
    stored.len() as u64 - acknowledged
}
