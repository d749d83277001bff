//! Ranks of a job: who they are, and how one joins.

use echo_core::units::Nanos;

use super::Job;
use crate::straggler::block::{BlockSum, NodeKey, ProcessKey};
use crate::straggler::communicator::CommKey;
use crate::straggler::incident::RankOfJob;
use crate::straggler::member::{Member, heard, living};

impl Job {
    /// Number of ranks that still report.
    pub(in crate::straggler) fn len(&self) -> usize {
        living(&self.members).count()
    }

    /// Latest instant at which something was received from a rank.
    pub(in crate::straggler) fn heard(&self) -> Option<Nanos> {
        heard(&self.members)
    }

    /// Processes of the job, also of those that are gone.
    pub(in crate::straggler) fn processes(&self) -> impl Iterator<Item = ProcessKey> {
        self.members.iter().map(|member| member.process)
    }

    /// Processes of the ranks that still report.
    pub(in crate::straggler) fn living_processes(&self) -> impl Iterator<Item = ProcessKey> {
        living(&self.members).map(|member| member.process)
    }

    /// Communicators of the job.
    pub(in crate::straggler) fn comm_keys(&self) -> impl Iterator<Item = CommKey> {
        self.comms.iter().map(|comm| comm.key)
    }

    /// Identity of a rank by its index.
    pub(in crate::straggler) fn rank(&self, index: usize) -> Option<RankOfJob> {
        let member = self.members.get(index)?;
        Some(member.identity(self.len()))
    }

    /// Identity of a node by its index, with its ranks.
    pub(in crate::straggler) fn node(&self, index: usize) -> Option<(NodeKey, Vec<RankOfJob>)> {
        let node = *self.nodes.get(index)?;
        let n = self.len();
        let ranks = living(&self.members).filter(|member| member.node == node);
        Some((node, ranks.map(|member| member.identity(n)).collect()))
    }

    /// Index of the rank, which is created if it is new.
    pub(in crate::straggler) fn member(&mut self, block: &BlockSum) -> usize {
        let size = block.member.size as usize;
        let index = match self.by_process.get(&block.process) {
            Some(index) => *index,
            None => self.join(block),
        };
        if let Some(member) = self.members.get_mut(index) {
            member.largest = member.largest.max((size, block.member.rank));
        }
        index
    }

    fn join(&mut self, block: &BlockSum) -> usize {
        let index = self.members.len();
        self.by_process.insert(block.process, index);
        let known = self.nodes.iter().position(|node| *node == block.node);
        let node = known.unwrap_or_else(|| {
            self.nodes.push(block.node);
            self.nodes.len() - 1
        });
        self.node_of.push(u32::try_from(node).unwrap_or(u32::MAX));
        self.clocks.push();
        self.members.push(Member::new(block.process, block.node));
        index
    }
}
