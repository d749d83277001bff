//! Queries of a live agent to NCCL's RAS subsystem, in a task of their own: a slow answer delays
//! nothing else.

mod local_host;
mod pace;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use fleet_agent_core::batch::Batch;
use fleet_agent_core::host::{Host, Identity};
use fleet_agent_core::ras::{Reporter, Status};
use fleet_agent_sources::placement::Placement;
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::now_ns;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::ras::{RasError, RasLimits, default_address, local_address, query};
use crate::run::ras::local_host::AgentHost;
use crate::run::ras::pace::{Outcome, Pace};

/// Maximum number of addresses: a host has a few jobs, and most use the default.
const MAX_ADDRESSES: usize = 16;

/// Status that a task received, and where to return whether it was of use.
#[derive(Debug)]
pub(super) struct Answer {
    status: Status,
    is_of_use: oneshot::Sender<bool>,
}

/// The agent's side of the queries.
#[derive(Debug)]
pub(super) struct RasQueries {
    identity: Identity,
    processes: Processes,
    /// Process id in its own namespace, by process.
    namespace_pids: BTreeMap<u32, u32>,
    addresses: mpsc::Sender<SocketAddr>,
    answers: mpsc::Receiver<Answer>,
    reporter: Reporter,
    missing: BTreeSet<(u64, u32)>,
    is_reporting: bool,
}

/// The task's side of the queries.
#[derive(Debug)]
pub(super) struct RasTask {
    addresses: mpsc::Receiver<SocketAddr>,
    answers: mpsc::Sender<Answer>,
    targets: BTreeMap<SocketAddr, Pace>,
    limits: RasLimits,
}

/// Creates the queries of an agent and the task that sends them.
pub(super) fn ras_queries(identity: Identity, processes: Processes) -> (RasQueries, RasTask) {
    let (add_address, addresses) = mpsc::channel(MAX_ADDRESSES);
    let (add_answer, answers) = mpsc::channel(1);
    let queries = RasQueries {
        identity,
        processes,
        namespace_pids: BTreeMap::new(),
        addresses: add_address,
        answers,
        reporter: Reporter::default(),
        missing: BTreeSet::new(),
        is_reporting: false,
    };
    let task = RasTask {
        addresses,
        answers: add_answer,
        targets: BTreeMap::from([(default_address(), Pace::new(now_ns()))]),
        limits: RasLimits::default(),
    };
    (queries, task)
}

impl RasQueries {
    /// Adds a traced process, which may listen at an address of its own.
    pub(super) fn add_process(&mut self, pid: u32, place: &Placement) {
        let inside = self.processes.namespace_pid(pid).unwrap_or(pid);
        self.namespace_pids.insert(pid, inside);
        let address = place.ras_address.as_deref().and_then(local_address);
        if let Some(address) = address
            && self.addresses.try_send(address).is_err()
        {
            tracing::debug!(%address, "too many addresses of NCCL RAS at a time");
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
        let local = AgentHost::new(&self.identity, host, &self.processes, &self.namespace_pids);
        let reported = self.reporter.report(&answer.status, &local, now_ns);
        if !reported.is_empty() && !self.is_reporting {
            tracing::info!(
                ranks = reported.len(),
                "NCCL RAS reports ranks that no probe follows"
            );
        }
        self.is_reporting = !reported.is_empty();
        // The task may have ended meanwhile.
        let _ended = answer.is_of_use.send(!reported.is_empty());
        self.log_missing(&answer.status);
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
    /// Queries each address when it is due, until the agent ends.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.targets.iter().min_by_key(|(_, pace)| pace.due_ns());
            let Some((&address, due_ns)) = next.map(|(at, pace)| (at, pace.due_ns())) else {
                return;
            };
            tokio::select! {
                () = self.answers.closed() => return,
                Some(added) = self.addresses.recv() => self.add(added),
                () = sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns()))) => {
                    let outcome = self.query(address).await;
                    if let Some(pace) = self.targets.get_mut(&address) {
                        pace.record(outcome, now_ns());
                    }
                }
            }
        }
    }

    /// Adds an address, or queries a known one soon: a job has started there.
    fn add(&mut self, address: SocketAddr) {
        if self.targets.len() < MAX_ADDRESSES || self.targets.contains_key(&address) {
            self.targets.insert(address, Pace::new(now_ns()));
        }
    }

    async fn query(&self, address: SocketAddr) -> Outcome {
        let status = match query(address, self.limits).await {
            Ok(status) => status,
            Err(error) => {
                log_failure(address, &error);
                return Outcome::Failed;
            }
        };
        let hosts = status.n_hosts();
        let (is_of_use, replied) = oneshot::channel();
        let answer = Answer { status, is_of_use };
        if self.answers.send(answer).await.is_ok() && replied.await == Ok(true) {
            Outcome::Reported { hosts }
        } else {
            Outcome::Unneeded
        }
    }
}

/// Logs why there is no answer. Most hosts have no job with RAS, which is no event.
fn log_failure(address: SocketAddr, error: &RasError) {
    if matches!(error, RasError::Connection(_)) {
        tracing::debug!(%address, "no NCCL RAS: {error}");
    } else {
        tracing::warn!(%address, "cannot use the answer of NCCL RAS: {error}");
    }
}

#[cfg(test)]
mod tests;
