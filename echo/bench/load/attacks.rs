//! Effect of attacks on Echo, seen by its regular agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::generator::{Generator, Load, Tally};
use crate::measure::Timing;
use crate::message::Shape;
use crate::process::Memory;
use crate::programs::Programs;
use crate::table::{Table, megabytes, millis, whole};
use crate::wire::Target;

mod bombs;
mod connections;
mod line;
mod site;
mod tokens;

use site::Site;

/// Load of the regular agents: 1,280 nodes of 8 ranks, each with a request of 40 points per second.
const LOAD: Load = Load {
    nodes: 1_280,
    connections: 64,
    rate: Some(51_200.0),
    ..Load::closed(Shape::Blocks, 40)
};

/// Attack.
#[derive(Debug, Clone, Copy)]
enum Attack {
    None,
    HalfOpenHandshakes,
    IdleConnections,
    SlowHeaders,
    SlowBodies,
    BadTokens,
    OversizedBodies,
    Bombs,
}

impl Attack {
    const ALL: [Self; 8] = [
        Self::None,
        Self::HalfOpenHandshakes,
        Self::IdleConnections,
        Self::SlowHeaders,
        Self::SlowBodies,
        Self::BadTokens,
        Self::OversizedBodies,
        Self::Bombs,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::HalfOpenHandshakes => {
                "1,000 connections with an incomplete handshake, opened again when they are closed"
            }
            Self::IdleConnections => {
                "1,000 idle connections after their handshake, opened again when they are closed"
            }
            Self::SlowHeaders => "500 requests whose headers arrive one line per second",
            Self::SlowBodies => {
                "500 requests with a valid token whose bodies arrive one byte per second"
            }
            Self::BadTokens => "1,000 queries and metric requests per second with invalid tokens",
            Self::OversizedBodies => {
                "10 endless bodies per second, with a valid token, to OTLP/HTTP, API and MCP"
            }
            Self::Bombs => {
                "8 requests per second with an agent's token that decompress to 1 GiB: gzip and zstd, gRPC and HTTP"
            }
        }
    }

    fn start(self, site: &Arc<Site>) -> Attackers {
        let mut attackers = Attackers::default();
        match self {
            Self::None => {}
            Self::HalfOpenHandshakes => connections::half_open(&mut attackers, site),
            Self::IdleConnections => connections::idle(&mut attackers, site),
            Self::SlowHeaders => connections::slow_headers(&mut attackers, site),
            Self::SlowBodies => connections::slow_bodies(&mut attackers, site),
            Self::BadTokens => tokens::bad(&mut attackers, site),
            Self::OversizedBodies => bombs::oversized(&mut attackers, site),
            Self::Bombs => bombs::compressed(&mut attackers, site),
        }
        attackers
    }
}

/// Tasks that attack until they are dropped.
#[derive(Debug, Default)]
struct Attackers {
    tasks: JoinSet<()>,
    attempts: Arc<AtomicU64>,
}

impl Attackers {
    /// Starts an attacker, which counts its attempts.
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        attack: impl FnOnce(Attempts) -> F,
    ) {
        let attempts = Attempts(Arc::clone(&self.attempts));
        self.tasks.spawn(attack(attempts));
    }
}

/// Counter of attempts.
#[derive(Debug)]
struct Attempts(Arc<AtomicU64>);

impl Attempts {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Result of one attack.
struct Outcome {
    tally: Tally,
    points_per_s: f64,
    attempts: u64,
    memory: Memory,
}

/// Measures the same agents under one attack after the other.
pub(crate) async fn table(
    programs: &Programs,
    timing: Timing,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let columns = [
        "attack",
        "attempts",
        "points/s of the agents",
        "ack p50",
        "ack p99",
        "RSS",
        "peak RSS",
        "problems of the agents",
    ];
    let description = "1,280 nodes of 8 ranks send 40 points each second over TLS with a token, on 64 connections, under \
        attack. Agents, attackers and Echo share the machine's cores, so times are worse than where the attackers have \
        their own. A new instance for each row.";
    let mut table = Table::new("Under attack", description, &columns);
    for attack in Attack::ALL {
        progress.set_message(format!("Under attack: {}", attack.name()));
        let outcome = measure(attack, programs, timing).await;
        let outcome = outcome.with_context(|| attack.name())?;
        table.row(&[
            attack.name().to_owned(),
            whole(as_float(outcome.attempts)),
            whole(outcome.points_per_s),
            millis(&outcome.tally.acks, 0.5),
            millis(&outcome.tally.acks, 0.99),
            megabytes(outcome.memory.resident),
            megabytes(outcome.memory.peak),
            outcome.tally.problems(),
        ]);
    }
    Ok(table.end(""))
}

async fn measure(attack: Attack, programs: &Programs, timing: Timing) -> anyhow::Result<Outcome> {
    let site = Arc::new(Site::start(&programs.echo()?)?);
    let target = Target::with_token(&site.otlp, site.http2(), &site.agent_token)?;
    let agents = Generator::start(LOAD, &target).await?;
    let attackers = attack.start(&site);
    sleep(timing.warm_up).await;
    let _warm_up = agents.take_tally()?;
    sleep(timing.measured).await;
    let tally = agents.take_tally()?;
    let attempts = attackers.attempts.load(Ordering::Relaxed);
    let memory = site.process.memory()?;
    drop(attackers);
    agents.stop().await?;
    Ok(Outcome {
        points_per_s: as_float(tally.points) / timing.measured.as_secs_f64(),
        tally,
        attempts,
        memory,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
const fn as_float(count: u64) -> f64 {
    count as f64
}
