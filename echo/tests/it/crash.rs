//! Killed, or without power, at random moments under load, round after round on the same files: what was acknowledged is stored,
//! nothing is stored twice, and no batch in part. `make crash-test ROUNDS=200` runs more rounds than `make test`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::load::{Sent, mixed, request, send, sender, stored};
use crate::testbed::Echo;
use crate::volume::Mounted;

/// Rounds when nobody says otherwise.
const ROUNDS: u64 = 5;

/// Rounds after which a new database is taken, so that looking at all of it stays cheap.
const ROUNDS_OF_A_DATABASE: usize = 40;

/// Agents that send at the same time.
const AGENTS: u64 = 4;

/// Batches that one agent can send in all rounds.
const BATCHES: u64 = 1_000_000;

/// What one agent knows.
#[derive(Debug, Default)]
struct Agent {
    /// Number and points of the batch that was sent and not acknowledged, to be sent again.
    open: Option<u64>,
    next: u64,
    acknowledged: Vec<u64>,
}

#[expect(clippy::disallowed_methods, reason = "the only setting of a test")]
fn rounds() -> u64 {
    match std::env::var("FLEET_ECHO_CRASH_ROUNDS") {
        Ok(rounds) => rounds.parse().unwrap(),
        Err(_not_said) => ROUNDS,
    }
}

/// The points of a batch, by chance between one and two thousand.
const fn size_of(batch: u64) -> u64 {
    1 + mixed(batch) % 2_000
}

/// A moment between two agents' acknowledgements.
#[derive(Debug, Default)]
struct Moment {
    pause: Mutex<()>,
    never: Condvar,
}

impl Moment {
    fn wait(&self, micros: u64) {
        let pause = self.pause.lock().unwrap();
        let time = Duration::from_micros(micros);
        drop(self.never.wait_timeout(pause, time).unwrap());
    }
}

/// Sends until Echo is gone.
fn send_all(
    agent: &mut Agent,
    id: u64,
    address: &str,
    (acknowledged, gone): (&AtomicU64, &AtomicBool),
) {
    let sender = sender();
    let instance = format!("agent-{id}");
    while !gone.load(Ordering::Acquire) {
        let number = agent.open.take().unwrap_or_else(|| {
            agent.next += 1;
            agent.next
        });
        let batch = id * BATCHES + number;
        let body = request(batch, size_of(batch));
        match send(&sender, address, (&instance, number), &body) {
            Sent::Acknowledged => {
                agent.acknowledged.push(batch);
                acknowledged.fetch_add(1, Ordering::AcqRel);
            }
            Sent::Refused(..) | Sent::Unknown => agent.open = Some(number),
        }
    }
}

#[test]
fn what_was_acknowledged_is_stored_once_however_often_echo_is_killed() {
    let seed = u64::from(std::process::id());
    let rounds = rounds();
    let (mut acknowledged, mut unanswered) = (0, 0);
    let first_rounds = (0..rounds).step_by(ROUNDS_OF_A_DATABASE);
    for first in first_rounds {
        let last = rounds.min(first + ROUNDS_OF_A_DATABASE as u64);
        let chances = (first..last).map(|round| mixed(seed.wrapping_mul(1_000_000) + round));
        let (told, untold) = with_one_database(chances);
        acknowledged += told;
        unanswered += untold;
        println!("{last} of {rounds} rounds (seed {seed})");
    }
    println!(
        "{acknowledged} batches acknowledged, all stored once; {unanswered} more stored whose answer was cut off"
    );
}

#[test]
fn what_was_acknowledged_is_there_after_the_power_failed() {
    let Some(mut volume) = Mounted::ext4(512) else {
        return;
    };
    let seed = u64::from(std::process::id());
    let mut agents: Vec<Agent> = (0..AGENTS).map(|_| Agent::default()).collect();
    for round in 0..rounds() {
        let echo = Echo::serve_with(&volume.db(), &["--ballast", "off", "--min-free", "1"]);
        one_round(echo, &mut agents, mixed(seed + round));
        volume = volume.after_power_failure();
        let round = usize::try_from(round).unwrap();
        check(&agents, &stored(&volume.db()), round);
    }
}

/// Rounds on the same files. Returns how many batches were acknowledged, and how many are stored without that.
fn with_one_database(chances: impl Iterator<Item = u64>) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let mut agents: Vec<Agent> = (0..AGENTS).map(|_| Agent::default()).collect();
    let mut untold = 0;
    for (round, chance) in chances.enumerate() {
        let echo = Echo::serve_with(&db, &["--ballast", "off"]);
        one_round(echo, &mut agents, chance);
        untold += check(&agents, &stored(&db), round);
    }
    let acknowledged = agents.iter().map(|agent| agent.acknowledged.len() as u64);
    (acknowledged.sum(), untold)
}

/// Load on Echo until it is killed, some acknowledgements and some moments later.
fn one_round(echo: Echo, agents: &mut [Agent], chance: u64) {
    let address = echo.otlp_http.clone();
    let acknowledged = AtomicU64::new(0);
    let gone = AtomicBool::new(false);
    let moment = Arc::new(Moment::default());
    thread::scope(|scope| {
        for (id, agent) in (0..).zip(agents) {
            let (address, acknowledged, gone) = (&address, &acknowledged, &gone);
            scope.spawn(move || send_all(agent, id, address, (acknowledged, gone)));
        }
        while acknowledged.load(Ordering::Acquire) < chance % 60 {
            moment.wait(500);
        }
        moment.wait(chance >> 32 & 0x3fff);
        echo.kill();
        gone.store(true, Ordering::Release);
    });
}

/// Compares what agents know with what is stored. Returns how many batches are stored that nobody was told of.
fn check(agents: &[Agent], stored: &BTreeMap<u64, (u64, u64)>, round: usize) -> u64 {
    for (batch, counts) in stored {
        let whole = (size_of(*batch), size_of(*batch));
        assert_eq!(
            *counts, whole,
            "batch {batch} in part or twice, round {round}"
        );
    }
    let mut told = 0;
    for batch in agents.iter().flat_map(|agent| &agent.acknowledged) {
        assert!(
            stored.contains_key(batch),
            "batch {batch} is lost, round {round}"
        );
        told += 1;
    }
    stored.len() as u64 - told
}
