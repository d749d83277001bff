//! Which rank waits for which, and the ranks at the ends of these chains.
//!
//! A rank that has not joined an operation may itself be blocked: in an operation that another rank
//! has not joined, or behind one on a GPU that is blocked. Programs enqueue the operations of all
//! groups in one order, so the chain leads to ever earlier operations and ends at the rank that
//! holds back all others. If it leads back to itself, ranks use communicators in different orders,
//! and none of them can continue.

use std::collections::{BTreeMap, BTreeSet};

use crate::front::Front;
use crate::graph::{Graph, Node};
use crate::job::{Job, LastOperation, Process, Transfer};

/// Waits of the ranks of a job.
#[derive(Debug)]
pub(crate) struct Waits(Graph);

/// Ranks that are behind in some operation.
#[derive(Debug)]
pub(crate) struct Behind {
    /// Ranks that hold back the others.
    pub(crate) sources: BTreeSet<u32>,
    /// Sources that wait for each other, in a circle.
    pub(crate) in_circle: BTreeSet<u32>,
    /// Ranks that are behind because they wait.
    pub(crate) links: BTreeSet<u32>,
}

impl Waits {
    /// Derives the waits from the operations that do not end.
    pub(crate) fn new(job: &Job, fronts: &[Front<'_>], transfers: &[&Transfer]) -> Self {
        let mut graph = Graph::default();
        for front in fronts.iter().filter(|front| front.is_blocked()) {
            for rank in front.waiting() {
                graph.add(Node::Rank(rank), Node::Behind(front.index));
            }
            for rank in front.behind.iter().chain(&front.unobserved) {
                graph.add(Node::Behind(front.index), Node::Rank(*rank));
            }
        }
        for transfer in transfers {
            graph.add(Node::Rank(transfer.rank), Node::Rank(transfer.peer));
        }
        add_waits_of_gpus(&mut graph, fronts);
        for (rank, last) in &job.last {
            restrict(&mut graph, *rank, *last, fronts, transfers);
        }
        Self(graph)
    }

    /// Divides ranks that are behind into those that hold back the others, and those that are behind
    /// because they wait.
    pub(crate) fn divide(
        &self,
        behind: &BTreeSet<u32>,
        processes: &BTreeMap<u32, Process>,
    ) -> Behind {
        let ends = self.0.ends();
        let is_end = |rank: &&u32| ends.contains(&Node::Rank(**rank));
        let ends: BTreeSet<u32> = behind.iter().filter(is_end).copied().collect();
        // A host that is blocked in a synchronisation waits, though it is not known for whom.
        let waits = |rank: &&u32| processes.get(rank) == Some(&Process::Waits);
        let active: BTreeSet<u32> = ends.iter().filter(|rank| !waits(rank)).copied().collect();
        let sources = if active.is_empty() { ends } else { active };
        let waits = |rank: &&u32| self.0.has_edges(Node::Rank(**rank));
        Behind {
            in_circle: sources.iter().filter(waits).copied().collect(),
            links: behind - &sources,
            sources,
        }
    }
}

/// Adds the waits in operations that all ranks have joined: for ranks whose GPUs are blocked in an
/// earlier one, and if there are none, for the operation itself.
fn add_waits_of_gpus(graph: &mut Graph, fronts: &[Front<'_>]) {
    let earliest = earliest_positions(fronts);
    for front in fronts.iter().filter(|front| front.is_joined_by_all()) {
        let is_held = |rank: &u32| match (earliest.get(rank), front.position(*rank)) {
            (Some(earliest), Some(position)) => *earliest < position,
            _ => graph.has_edges(Node::Rank(*rank)),
        };
        let (held, free): (Vec<u32>, Vec<u32>) = front.waiting().partition(is_held);
        for rank in held {
            graph.add(Node::Joined(front.index), Node::Rank(rank));
        }
        for rank in free {
            graph.add(Node::Rank(rank), Node::Joined(front.index));
        }
    }
}

/// Keeps the waits of a rank that the last operation of its host allows.
fn restrict(
    graph: &mut Graph,
    rank: u32,
    last: LastOperation,
    fronts: &[Front<'_>],
    transfers: &[&Transfer],
) {
    if !last.is_pending {
        graph.replace(Node::Rank(rank), BTreeSet::new());
        return;
    }
    let front = fronts.iter().find(|front| Some(front.index) == last.group);
    let is_blocked = |front: &&Front<'_>| front.entered.contains(&rank) && front.is_blocked();
    if let Some(front) = front.filter(is_blocked) {
        graph.replace(
            Node::Rank(rank),
            BTreeSet::from([Node::Behind(front.index)]),
        );
        return;
    }
    let of_last = transfers
        .iter()
        .filter(|own| own.rank == rank && own.is_last);
    let peers: BTreeSet<Node> = of_last.map(|own| Node::Rank(own.peer)).collect();
    if !peers.is_empty() {
        graph.replace(Node::Rank(rank), peers);
    }
}

/// Returns the position of the first pending operation of each rank of which positions are known.
pub(crate) fn earliest_positions<'f>(
    fronts: impl IntoIterator<Item = &'f Front<'f>>,
) -> BTreeMap<u32, u64> {
    let mut earliest: BTreeMap<u32, u64> = BTreeMap::new();
    for front in fronts {
        for rank in front.waiting() {
            if let Some(position) = front.position(rank) {
                let known = earliest.entry(rank).or_insert(position);
                *known = (*known).min(position);
            }
        }
    }
    earliest
}
