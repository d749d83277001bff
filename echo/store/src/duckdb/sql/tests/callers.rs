//! Callers that harm on purpose beside callers that do not.

use std::env;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use echo_core::model::event::Reading;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::json;

use super::corpus::statements;
use super::fuzz::{CpuWaits, LATEST_STOP};
use super::limits::wait_for_no_process;
use super::{Lab, long, query};
use crate::EventStore;
use crate::contract::sample::{batch, gauge, origin};
use crate::sql::{SqlError, SqlQuery};

/// Number of callers of attacks: as many as statements may take long.
const ATTACKERS: u64 = 4;
/// Deadline of attacks.
const DEADLINE: Duration = Duration::from_secs(2);
/// Longest time to an answer for others.
const PROMISED: Duration = Duration::from_secs(1);
/// Interval of their requests.
const EVERY: Duration = Duration::from_millis(100);

/// Times to the answers of one kind of request.
#[derive(Debug, Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Adds the time of an answer, which is at most the one promised and the waits for a CPU.
    #[expect(
        clippy::disallowed_methods,
        reason = "a time to the answer is promised"
    )]
    async fn add<T>(&mut self, answer: impl Future<Output = T>) -> T {
        let (begun, waits) = (Instant::now(), CpuWaits::now());
        let answered = answer.await;
        let took = begun.elapsed();
        assert!(took < PROMISED + waits.longest_since(), "{took:?}");
        self.0.push(took);
        answered
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = |share: usize| sorted[(sorted.len() - 1) * share / 100];
        let (median, late, last) = (at(50), at(99), at(100));
        write!(f, "{} answers, {median:?} {late:?} {last:?}", sorted.len())
    }
}

/// Runs attacks in an order of their own until it is over. Returns their number.
async fn attack(lab: &Lab, is_over: &AtomicBool, seed: u64) -> u64 {
    let files = ["attacks.sql", "queries.sql"].into_iter();
    let mut corpus: Vec<_> = files.flat_map(statements).chain(long::attacks()).collect();
    corpus.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut n_attacks = 0;
    for (_, text) in corpus.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let query = SqlQuery {
            deadline: DEADLINE,
            ..query(text)
        };
        let answer = lab.store.run_sql(query).await;
        let is_failure = matches!(answer, Err(SqlError::Store(_)));
        assert!(!is_failure, "{answer:?} {text}");
        n_attacks += 1;
    }
    n_attacks
}

/// Runs for `FLEET_FUZZ_SECONDS` (default 10). Prints numbers of answers with median, 99th percentile and longest time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a time, not for a number of cases"
)]
async fn fuzz_sql_of_four_callers_leaves_sql_queries_and_ingest_to_others() {
    let configured = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = configured.and_then(|text| text.parse().ok()).unwrap_or(10);
    let lab = Lab::new().await;
    let is_over = AtomicBool::new(false);
    let others = async {
        let (mut sql, mut queries, mut appends) = <(Times, Times, Times)>::default();
        let rank = origin("prod", "node-1", 1);
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(EVERY);
        for number in 2_u64.. {
            ticks.tick().await;
            if begun.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
            let times = (0..1_000).map(|event| (number * 1_000 + event).cast_signed());
            let reading = Reading::Double(40.0);
            let events = times.map(|time| gauge(&rank, "fleet.rank.period_ms", time, reading));
            let events = events.collect();
            appends
                .add(lab.store.append(batch(number, events)))
                .await
                .unwrap();
            let one = sql.add(lab.run("SELECT 1")).await.unwrap();
            assert_eq!(one.rows, [[json!(1)]]);
            queries.add(lab.names("SELECT node_id FROM ranks")).await;
        }
        is_over.store(true, Ordering::Relaxed);
        (sql, queries, appends)
    };
    let attacks = async {
        let attack = |seed| attack(&lab, &is_over, seed);
        let (a, b, c, d) = tokio::join!(attack(1), attack(2), attack(3), attack(4));
        a + b + c + d
    };
    let ((sql, queries, appends), statements) = tokio::join!(others, attacks);
    let ended = tokio::time::timeout(LATEST_STOP, wait_for_no_process()).await;
    assert!(ended.is_ok(), "a process is left");
    println!("{statements} attacks of {ATTACKERS} callers in {seconds} s; others:");
    println!("SQL {sql}; queries {queries}; appends {appends}");
}
