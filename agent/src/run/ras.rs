//! Queries of a live agent to NCCL's RAS subsystem, in a task of their own: a slow answer delays
//! nothing else.

mod local_host;
mod pace;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fleet_agent_core::batch::Batch;
use fleet_agent_core::host::{Host, Identity};
use fleet_agent_core::ras::{Reporter, Status};
use fleet_agent_sources::placement::Placement;
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::now_ns;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::config::{RasArgs, RasMode};
use crate::ras::{
    DEFAULT_PORT, LocalStatus, NetworkNamespace, RasError, RasLimits, default_address,
    listen_address, listening, query_in, query_local,
};
use crate::run::ras::local_host::AgentHost;
use crate::run::ras::pace::{Outcome, Pace};

/// Maximum number of addresses: a host has a few jobs, and most use the default.
const MAX_ADDRESSES: usize = 16;

/// Intervals of queries between two searches for network namespaces, which look at all processes.
const SCAN_EVERY: u32 = 6;

/// `/proc` of the host.
const PROC: &str = "/proc";

/// Place where a job listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    /// Network namespace; `None` for that of the agent.
    namespace: Option<NetworkNamespace>,
    address: SocketAddr,
}

/// Status that a task received, and where to return whether it was of use.
#[derive(Debug)]
pub(super) struct Answer {
    received: LocalStatus,
    is_of_use: oneshot::Sender<bool>,
}

/// The agent's side of the queries.
#[derive(Debug)]
pub(super) struct RasQueries {
    identity: Identity,
    processes: Processes,
    /// Process id in its own namespace, by process.
    namespace_pids: BTreeMap<u32, u32>,
    targets: mpsc::Sender<Target>,
    answers: mpsc::Receiver<Answer>,
    reporter: Reporter,
    missing: BTreeSet<(u64, u32)>,
    is_reporting: bool,
}

/// The task's side of the queries.
#[derive(Debug)]
pub(super) struct RasTask {
    added: mpsc::Receiver<Target>,
    answers: mpsc::Sender<Answer>,
    targets: BTreeMap<Target, Pace>,
    /// Address of jobs that name none, which is always queried.
    own: Target,
    limits: RasLimits,
    interval: Duration,
    /// Time of the next search for network namespaces; `None` for no search.
    scan_due_ns: Option<u64>,
    /// Whether the log says that namespaces cannot be entered.
    is_refused: bool,
}

/// Creates the queries of an agent and the task that sends them; `None` where they are switched off.
pub(super) fn ras_queries(
    args: &RasArgs,
    identity: Identity,
    processes: Processes,
) -> Option<(RasQueries, RasTask)> {
    let (address, scan_due_ns) = match args.mode {
        RasMode::Off => return None,
        RasMode::Auto => (default_address(), Some(now_ns())),
        RasMode::At(address) => (address, None),
    };
    let (add_target, added) = mpsc::channel(MAX_ADDRESSES);
    let (add_answer, answers) = mpsc::channel(1);
    let queries = RasQueries {
        identity,
        processes,
        namespace_pids: BTreeMap::new(),
        targets: add_target,
        answers,
        reporter: Reporter::default(),
        missing: BTreeSet::new(),
        is_reporting: false,
    };
    let own = Target {
        namespace: None,
        address,
    };
    let task = RasTask {
        added,
        answers: add_answer,
        targets: BTreeMap::from([(own.clone(), Pace::new(now_ns(), args.interval))]),
        own,
        limits: RasLimits::default(),
        interval: args.interval,
        scan_due_ns,
        is_refused: false,
    };
    Some((queries, task))
}

impl RasQueries {
    /// Adds a traced process, which may listen at an address or in a network namespace of its own.
    pub(super) fn add_process(&mut self, pid: u32, place: &Placement) {
        let inside = self.processes.namespace_pid(pid).unwrap_or(pid);
        self.namespace_pids.insert(pid, inside);
        let named = place.ras_address.as_deref().and_then(listen_address);
        let namespace = NetworkNamespace::other_than_own(Path::new(PROC), pid);
        let address = named.or_else(|| namespace.is_some().then(default_address));
        if let Some(address) = address {
            let target = Target { namespace, address };
            if self.targets.try_send(target).is_err() {
                tracing::debug!(%address, "too many addresses of NCCL RAS at a time");
            }
        }
    }

    /// Removes a process.
    pub(super) fn remove_process(&mut self, pid: u32) {
        self.namespace_pids.remove(&pid);
    }

    /// Waits for the next answer; `None` when the task has ended.
    pub(super) async fn next_answer(&mut self) -> Option<Answer> {
        self.answers.recv().await
    }

    /// Returns the batches that report an answer at `now_ns`, Unix nanoseconds.
    pub(super) fn batches(&mut self, answer: Answer, host: &mut Host, now_ns: u64) -> Vec<Batch> {
        let LocalStatus {
            status,
            local_hosts,
        } = answer.received;
        let local = AgentHost {
            identity: &self.identity,
            host,
            processes: &self.processes,
            namespace_pids: &self.namespace_pids,
            local_hosts: &local_hosts,
        };
        let reported = self.reporter.report(&status, &local, now_ns);
        if !reported.is_empty() && !self.is_reporting {
            tracing::info!(
                ranks = reported.len(),
                "NCCL RAS reports ranks that no probe follows"
            );
        }
        self.is_reporting = !reported.is_empty();
        // The task may have ended meanwhile.
        let _ended = answer.is_of_use.send(!reported.is_empty());
        self.log_missing(&status);
        host.batches(reported)
    }

    /// Logs each rank once when it ceases to answer.
    fn log_missing(&mut self, status: &Status) {
        let mut missing = BTreeSet::new();
        for comm in &status.comms {
            for member in &comm.missing {
                let key = (comm.hash, member.rank);
                missing.insert(key);
                if !self.missing.contains(&key) {
                    let process = member.process.as_ref();
                    tracing::warn!(
                        comm = format!("{:016x}", comm.hash),
                        rank = member.rank,
                        host = process.map(|process| process.host.as_str()),
                        pid = process.map(|process| process.pid),
                        "a rank does not answer NCCL RAS"
                    );
                }
            }
        }
        self.missing = missing;
    }
}

impl RasTask {
    /// Queries each target when it is due, until the agent ends.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.targets.iter().min_by_key(|(_, pace)| pace.due_ns());
            let next = next.map(|(target, pace)| (target.clone(), pace.due_ns()));
            let query_due_ns = next.as_ref().map(|(_, due_ns)| *due_ns);
            let Some(due_ns) = query_due_ns.into_iter().chain(self.scan_due_ns).min() else {
                return;
            };
            tokio::select! {
                () = self.answers.closed() => return,
                Some(target) = self.added.recv() => self.add(target),
                () = sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns()))) => {
                    if self.scan_due_ns.is_some_and(|scan_due_ns| scan_due_ns <= due_ns) {
                        self.scan().await;
                    } else if let Some((target, _)) = next {
                        let outcome = self.query(&target).await;
                        if let Some(pace) = self.targets.get_mut(&target) {
                            pace.record(outcome, now_ns());
                        }
                    }
                }
            }
        }
    }

    /// Adds a target, or queries a known one soon: a job has started there.
    fn add(&mut self, target: Target) {
        if self.targets.len() >= MAX_ADDRESSES && !self.targets.contains_key(&target) {
            // Its job has ended, and the next one listens at another port.
            let silent = self
                .targets
                .iter()
                .filter(|(known, pace)| pace.has_failed() && **known != self.own)
                .max_by_key(|(_, pace)| pace.due_ns());
            let Some(silent) = silent.map(|(known, _)| known.clone()) else {
                tracing::debug!(address = %target.address, "too many addresses of NCCL RAS");
                return;
            };
            self.targets.remove(&silent);
        }
        let pace = Pace::new(now_ns(), self.interval);
        self.targets.insert(target, pace);
    }

    /// Adds the network namespaces in which something listens on NCCL's port, and forgets those
    /// whose process has ended.
    async fn scan(&mut self) {
        let found = spawn_blocking(|| listening(Path::new(PROC), DEFAULT_PORT)).await;
        let is_there = |target: &Target| {
            let Some(known) = &target.namespace else {
                return true;
            };
            let now = NetworkNamespace::other_than_own(Path::new(PROC), known.pid);
            now.as_ref() == Some(known)
        };
        self.targets.retain(|target, _| is_there(target));
        for namespace in found.unwrap_or_default() {
            let target = Target {
                namespace: Some(namespace),
                address: default_address(),
            };
            if !self.targets.contains_key(&target) {
                self.add(target);
            }
        }
        let pause = self.interval.saturating_mul(SCAN_EVERY).as_nanos();
        let pause_ns = u64::try_from(pause).unwrap_or(u64::MAX);
        self.scan_due_ns = Some(now_ns().saturating_add(pause_ns));
    }

    async fn query(&mut self, target: &Target) -> Outcome {
        let address = target.address;
        let received = match &target.namespace {
            None => query_local(address, self.limits).await,
            Some(other) => query_in(other.clone(), address, self.limits, PROC.into()).await,
        };
        let received = match received {
            Ok(received) => received,
            Err(error) => {
                self.log_failure(target, &error);
                return Outcome::Failed;
            }
        };
        let hosts = received.status.n_hosts();
        let (is_of_use, replied) = oneshot::channel();
        let answer = Answer {
            received,
            is_of_use,
        };
        if self.answers.send(answer).await.is_ok() && replied.await == Ok(true) {
            Outcome::Reported { hosts }
        } else {
            Outcome::Unneeded
        }
    }

    /// Logs why there is no answer. Most hosts have no job with RAS, which is no event.
    fn log_failure(&mut self, Target { namespace, address }: &Target, error: &RasError) {
        let pid = namespace.as_ref().map(|namespace| namespace.pid);
        match error {
            RasError::Connection(refused)
                if refused.kind() == ErrorKind::PermissionDenied && namespace.is_some() =>
            {
                if !self.is_refused {
                    tracing::warn!(
                        pid,
                        "cannot query NCCL RAS in the network namespace of a container: {refused}; \
                         it needs CAP_SYS_ADMIN"
                    );
                }
                self.is_refused = true;
            }
            RasError::Connection(_) => {
                tracing::debug!(%address, pid, "no NCCL RAS: {error}");
            }
            _ => tracing::warn!(%address, pid, "cannot use the answer of NCCL RAS: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
