//! Simulation of the agents of a whole cluster in one process: real hosts, batches and deliveries,
//! fed with the calls of a simulated job. Spawns tasks, as `replay` does.

mod agent;
mod clock;
mod counters;
mod steps;
pub mod summary;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_agent_core::host::{Host, Identity, WallClock};
use fleet_agent_core::pipeline::BlockRule;
use fleet_agent_export::Export;
use fleet_agent_export::delivery::report::Report;
use fleet_agent_export::delivery::{Delivery, Unreachable, WhenFull};
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::interval;

use crate::config::{SimulateArgs, Speed, StartAt};
use crate::job::calls::{ORIGIN_NS, SimulatedRank};
use crate::job::layout::Layout;
use crate::job::steps::Job;
use crate::simulate::agent::{Agent, Timing};
use crate::simulate::clock::Clock;
use crate::simulate::counters::{Counters, CountingExporter, UnackedBatches};
use crate::simulate::steps::{Steps, Totals};
use crate::simulate::summary::Summary;
use crate::simulate::worker::Worker;

/// Interval of the progress display.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Error of a simulation.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// Points or verdicts were lost or refused.
    #[error("{endpoint}: {} were lost or refused ({reason})", amount(*points, *verdicts))]
    Lost {
        /// The endpoint.
        endpoint: String,
        /// Points dropped, refused, or never acknowledged.
        points: u64,
        /// Verdicts dropped, refused, or never acknowledged.
        verdicts: u64,
        /// Reason of the first loss.
        reason: String,
    },
    /// A task of the simulation panicked.
    #[error("internal error: a task of the simulation failed ({0}); its points were not delivered")]
    TaskFailed(#[source] JoinError),
}

/// Runs the job to its end or until `stop` resolves, and waits for the last acknowledgement.
///
/// `exporter` creates the exporter of an agent from the agent's name, and counts the connections
/// that it opens.
pub async fn simulate<E, F, S>(
    args: &SimulateArgs,
    layout: Layout,
    mut exporter: F,
    stop: S,
    progress: &ProgressBar,
) -> (Summary, Result<(), SimulateError>)
where
    E: Export,
    F: FnMut(&str, &Arc<AtomicU64>) -> E,
    S: Future<Output = ()>,
{
    let connections = Arc::default();
    let mut fleet = Fleet::new(args, layout);
    for number in 0..fleet.n_agents() {
        let exporter = |name: &str| exporter(name, &connections);
        fleet.add(number, exporter);
    }
    let mut summary = Summary {
        nodes: args.nodes,
        agents: fleet.n_agents(),
        ranks: layout.n_ranks,
        ..Summary::default()
    };
    let counters = Arc::clone(&fleet.counters);
    let clock = Clock::start(args.speed);
    let result = fleet.run(clock, stop, progress, &mut summary).await;
    summary.took = clock.elapsed();
    let opened = connections.load(Ordering::Relaxed);
    summary.reconnects = opened.saturating_sub(summary.agents.into());
    counters.fill(&mut summary);
    let result = match result {
        Ok(gave_up) => lost(args, &summary, gave_up.as_ref()),
        Err(error) => Err(SimulateError::TaskFailed(error)),
    };
    (summary, result)
}

/// Progress bar over the time of the job, for a terminal.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("simulating {wide_bar} {percent}% {msg}") {
        bar.set_style(style);
    }
    bar
}

fn lost(
    args: &SimulateArgs,
    summary: &Summary,
    gave_up: Option<&Unreachable>,
) -> Result<(), SimulateError> {
    let (points, verdicts) = (summary.points_lost(), summary.verdicts_lost());
    if summary.is_all_safe() {
        return Ok(());
    }
    let delivery = &summary.delivery;
    let refused = || delivery.reasons.keys().next().cloned();
    let verdict_refusal = || delivery.verdicts.refusal.clone();
    let reason = match gave_up {
        Some(gave_up) => gave_up.to_string(),
        None => refused()
            .or_else(verdict_refusal)
            .unwrap_or_else(|| "the queues of agents were full".to_owned()),
    };
    Err(SimulateError::Lost {
        endpoint: args.endpoint.clone(),
        points,
        verdicts,
        reason,
    })
}

/// Numbers of points and verdicts as text; zeros are left out.
fn amount(points: u64, verdicts: u64) -> String {
    match (points, verdicts) {
        (points, 0) => format!("{points} points"),
        (0, verdicts) => format!("{verdicts} verdicts"),
        (points, verdicts) => format!("{points} points and {verdicts} verdicts"),
    }
}

type Delivered = (Report, Option<Unreachable>);

/// All agents, before and while they run.
struct Fleet<'a> {
    args: &'a SimulateArgs,
    layout: Layout,
    timing: Timing,
    unix_ns: i128,
    counters: Arc<Counters>,
    deliveries: JoinSet<Delivered>,
    agents: Vec<Agent>,
}

impl<'a> Fleet<'a> {
    fn new(args: &'a SimulateArgs, layout: Layout) -> Self {
        Self {
            args,
            layout,
            timing: Timing::new(args),
            unix_ns: StartAt::Now.unix_ns(),
            counters: Arc::default(),
            deliveries: JoinSet::new(),
            agents: Vec::new(),
        }
    }

    fn n_agents(&self) -> u32 {
        self.args
            .nodes
            .saturating_mul(self.args.connections_per_node)
    }

    /// Adds an agent and starts its delivery.
    fn add<E: Export>(&mut self, number: u32, exporter: impl FnOnce(&str) -> E) {
        let (args, layout) = (self.args, self.layout);
        let (node, part) = (
            number / args.connections_per_node,
            number % args.connections_per_node,
        );
        let unacked = Arc::new(UnackedBatches::default());
        let counting = CountingExporter {
            inner: exporter(&format!("node-{node}/{part}")),
            counters: Arc::clone(&self.counters),
            unacked: Arc::clone(&unacked),
        };
        // Blocking on the collector would distort the timing of a job that follows a clock, so only
        // an unpaced job blocks.
        let when_full = match args.speed {
            Speed::Max => WhenFull::Wait,
            Speed::Times(_) => WhenFull::Drop,
        };
        let (outbox, delivery) =
            Delivery::new(counting, args.queue_points, when_full, args.give_up_after);
        self.deliveries.spawn(delivery.run());
        let first = node * layout.ranks_per_node;
        let job = u64::try_from(self.unix_ns).unwrap_or(0);
        let callers: Vec<SimulatedRank> = (first..first + layout.ranks_per_node)
            .filter(|rank| rank % args.connections_per_node == part)
            .map(|rank| SimulatedRank::new(&layout, rank, job))
            .collect();
        let identity = Identity {
            cluster: args.cluster.clone(),
            node: format!("node-{node}"),
            job: None,
            gpu_model: args.gpu_model.clone(),
        };
        let phase_ns = self.timing.phase_ns(number);
        let mut host = Host::new(identity, self.timing.flush_every_ns());
        let processes: Vec<_> = callers.iter().map(SimulatedRank::process).collect();
        // The intervals of an agent start at its own start, some time before the start of the job.
        let before_ns = self.timing.flush_every_ns().saturating_sub(phase_ns);
        let clock = WallClock {
            origin_ns: ORIGIN_NS.saturating_sub(before_ns),
            unix_ns: self.unix_ns - i128::from(before_ns),
        };
        let rule = BlockRule {
            target_ns: args.interval.as_secs_f64() * 1e9,
            exponent: None,
        };
        host.trace(&processes, clock, rule);
        let counters = Arc::clone(&self.counters);
        self.agents
            .push(Agent::new(host, outbox, callers, unacked, counters));
    }

    /// Runs all agents; returns the first failure to reach the collector.
    async fn run<S: Future<Output = ()>>(
        mut self,
        clock: Clock,
        stop: S,
        progress: &ProgressBar,
        summary: &mut Summary,
    ) -> Result<Option<Unreachable>, JoinError> {
        let (stopping, stopped) = watch::channel(false);
        let mut workers = self.workers(clock, &stopped);
        progress.set_length(self.timing.duration_ns());
        let mut totals = Totals::default();
        let (mut gave_up, mut broken) = (None, None);
        let mut ticks = interval(PROGRESS_INTERVAL);
        let mut stop = Box::pin(stop);
        loop {
            tokio::select! {
                Some(joined) = workers.join_next() => match joined {
                    Ok(done) => totals.add(&done),
                    Err(error) => broken = Some(error),
                },
                Some(joined) = self.deliveries.join_next() => match joined {
                    Ok((report, unreachable)) => {
                        summary.delivery.add(&report);
                        gave_up = gave_up.or(unreachable);
                    }
                    Err(error) => broken = Some(error),
                },
                () = &mut stop, if !*stopped.borrow() => {
                    stopping.send_replace(true);
                }
                _ = ticks.tick() => self.counters.show(progress),
                else => break,
            }
            if workers.is_empty() && self.deliveries.is_empty() {
                break;
            }
        }
        summary.simulated = totals.simulated;
        summary.behind = totals.behind;
        summary.blocks = totals.blocks;
        summary.delivery.points_dropped += totals.points_dropped;
        summary.delivery.batches_dropped += totals.batches_dropped;
        summary.delivery.verdicts.dropped += totals.verdicts_dropped;
        broken.map_or(Ok(gave_up), Err)
    }

    /// Spreads the agents over the threads of the runtime. Each worker computes the job for itself,
    /// which costs less than sharing it.
    fn workers(&mut self, clock: Clock, stopped: &watch::Receiver<bool>) -> JoinSet<Totals> {
        let mut workers = JoinSet::new();
        let n_workers = Handle::current().metrics().num_workers().max(1);
        let mut parts: Vec<Vec<(u64, Agent)>> = Vec::new();
        parts.resize_with(n_workers, Vec::new);
        for (agent, number) in std::mem::take(&mut self.agents).into_iter().zip(0..) {
            let phase_ns = self.timing.phase_ns(number);
            if let Some(part) = parts.get_mut(number as usize % n_workers) {
                part.push((phase_ns, agent));
            }
        }
        for agents in parts.into_iter().filter(|part| !part.is_empty()) {
            let job = Job::new(
                self.layout,
                self.args.job_params(),
                self.args.faults.clone(),
            );
            let worker = Worker::new(agents, Steps::new(job), self.timing, clock);
            workers.spawn(worker.run(stopped.clone()));
        }
        workers
    }
}
