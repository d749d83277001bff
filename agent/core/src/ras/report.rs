//! Points from the status of a job.
//!
//! Every process answers for its whole job, but each agent reports only the ranks of its own host:
//! a rank has one reporter, which knows the name of its node, as with probes. A rank that never
//! answered, or whose host the answer does not name, is reported by one agent: that on the host of
//! the lowest rank that answered.

use std::collections::{BTreeMap, BTreeSet};

use fleet_proto::metric;

use crate::batch::{Resource, ResourcePoints};
use crate::ras::agreement::Agreement;
use crate::ras::homes::{Home, Homes};
use crate::ras::{CommStatus, Member, MemberProcess, Status};
use crate::signal::{Block, CommId, Point, Source, Value};

/// Node of a rank whose host the answer does not name.
const UNKNOWN_NODE: &str = "unknown";

/// Communicators remembered before others than those of the latest answer are forgotten: answers
/// alternate between the jobs of a host, which listen on the same port.
const MAX_COMMS: usize = 4096;

/// Knowledge of the agent about its own host.
pub trait LocalHost {
    /// Cluster of the host.
    fn cluster(&self) -> &str;
    /// Name of the host.
    fn node(&self) -> &str;
    /// Returns whether an address is one of this host's.
    fn is_local(&self, address: &str) -> bool;
    /// Returns whether probes report the progress of this rank in a communicator of `size`.
    fn is_probed(&self, process: &MemberProcess, rank: u32, size: u32) -> bool;
    /// Returns the job of a process of this host, if known.
    fn job(&self, process: &MemberProcess) -> Option<String>;
}

/// Reporter of the ranks of one host.
#[derive(Debug, Default)]
pub struct Reporter {
    first_ns: BTreeMap<CommId, u64>,
    /// Latest progress of each rank: a rank that ceases to answer stays where it was.
    progress: BTreeMap<(CommId, u32), u64>,
}

/// Answer that is being reported.
struct Answer<'s> {
    homes: Homes<'s>,
    host: &'s dyn LocalHost,
    job: Option<String>,
    now_ns: u64,
}

/// Communicator that is being reported.
struct AnsweredComm<'s> {
    status: &'s CommStatus,
    id: CommId,
    agreement: Agreement,
    start_ns: u64,
}

impl Reporter {
    /// Returns the points of the ranks that this host reports, at `now_ns`, Unix nanoseconds.
    pub fn report(
        &mut self,
        status: &Status,
        host: &dyn LocalHost,
        now_ns: u64,
    ) -> Vec<ResourcePoints> {
        let answer = Answer {
            homes: Homes::new(status),
            host,
            job: job(status, host),
            now_ns,
        };
        let mut reported = Vec::new();
        for comm in &status.comms {
            self.report_comm(comm, &answer, &mut reported);
        }
        if self.first_ns.len() > MAX_COMMS {
            let comms = status.comms.iter().map(|comm| answer.homes.comm_id(comm));
            let comms: BTreeSet<CommId> = comms.collect();
            self.first_ns.retain(|comm, _| comms.contains(comm));
            self.progress.retain(|(comm, _), _| comms.contains(comm));
        }
        reported
    }

    fn report_comm(
        &mut self,
        status: &CommStatus,
        answer: &Answer<'_>,
        reported: &mut Vec<ResourcePoints>,
    ) {
        let Some(agreement) = Agreement::new(status) else {
            return;
        };
        let id = answer.homes.comm_id(status);
        let comm = AnsweredComm {
            status,
            id,
            agreement,
            start_ns: *self.first_ns.entry(id).or_insert(answer.now_ns),
        };
        let answers_for_others = answer.answers_for_others(status);
        for rank in status.active() {
            let total = comm.agreement.progress(rank);
            self.progress.insert((id, rank.member.rank), total);
            let reports = match &rank.member.process {
                Some(process) => answer.reports_own(process, &comm, rank.member.rank),
                None => answers_for_others,
            };
            if reports {
                reported.push(answer.points(&comm, &rank.member, total));
            }
        }
        for member in &status.missing {
            let known = self.progress.get(&(id, member.rank)).copied();
            let is_own = member
                .process
                .as_ref()
                .is_some_and(|process| answer.reports_own(process, &comm, member.rank));
            // Its own agent has reported a rank that answered before; the server sees its silence.
            if is_own || (known.is_none() && answers_for_others) {
                reported.push(answer.points(&comm, member, known.unwrap_or(0)));
            }
        }
    }
}

impl Answer<'_> {
    /// Returns whether this host reports the rank.
    fn reports_own(&self, process: &MemberProcess, comm: &AnsweredComm<'_>, rank: u32) -> bool {
        let is_probed = || self.host.is_probed(process, rank, comm.status.size);
        self.host.is_local(&process.host) && !is_probed()
    }

    /// Returns whether this host reports ranks for which no other host answers: it has the lowest
    /// rank that answered, and probes do not report that one.
    fn answers_for_others(&self, comm: &CommStatus) -> bool {
        let answered = comm.active().filter_map(|rank| {
            let process = rank.member.process.as_ref()?;
            Some((rank.member.rank, process))
        });
        let lowest = answered.min_by_key(|(rank, _)| *rank);
        lowest.is_some_and(|(rank, process)| {
            let is_probed = || self.host.is_probed(process, rank, comm.size);
            self.host.is_local(&process.host) && !is_probed()
        })
    }

    fn points(&self, comm: &AnsweredComm<'_>, member: &Member, total: u64) -> ResourcePoints {
        let seq = total.saturating_sub(1);
        let point = Point {
            metric: metric::ISSUED,
            start_ns: comm.start_ns,
            time_ns: self.now_ns,
            block: Block {
                comm: comm.id,
                comm_rank: member.rank,
                comm_nranks: comm.status.size,
                source: Source::Ras,
                op: comm.agreement.op,
                seq_first: seq,
                seq_last: seq,
                iterations: None,
                role: None,
            },
            value: Value::Issued {
                total,
                age_ms: None,
                waiting_ms: 0.0,
                is_stopped: false,
                running: None,
                exit: None,
            },
        };
        ResourcePoints {
            resource: self.resource(comm.status, member),
            points: vec![point],
        }
    }

    fn resource(&self, comm: &CommStatus, member: &Member) -> Resource {
        let Home {
            comm: home,
            rank,
            size,
        } = self.homes.home(comm, member);
        // A launcher's name stands for one job, in which each rank occurs once.
        let is_largest = self.homes.largest == Some(home);
        let named = self.job.clone().filter(|_| is_largest);
        let process = member.process.as_ref();
        let address = process.map_or(UNKNOWN_NODE, |process| process.host.as_str());
        let is_local = process.is_some() && self.host.is_local(address);
        let node = if is_local { self.host.node() } else { address };
        Resource {
            cluster: self.host.cluster().to_owned(),
            node: node.to_owned(),
            job: Some(named.unwrap_or_else(|| home.to_string())),
            gpu_model: None,
            gpu_uuid: None,
            pod: None,
            namespace: None,
            rank: Some(rank),
            world_size: Some(size),
            pid: process.map_or(0, |process| process.pid),
        }
    }
}

/// Returns the name of the job from a process of this host.
fn job(status: &Status, host: &dyn LocalHost) -> Option<String> {
    let ranks = status.comms.iter().flat_map(CommStatus::active);
    let mut processes = ranks.filter_map(|rank| rank.member.process.as_ref());
    processes.find_map(|process| {
        let job = || host.job(process);
        host.is_local(&process.host).then(job).flatten()
    })
}

#[cfg(test)]
mod tests;
