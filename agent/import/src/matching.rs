//! Operations of a group matched across its ranks, by their numbers or by their order.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::event::Op;

use crate::trace::{Collective, RankTrace};

/// Operations of one group that all its present ranks have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MatchedGroup<'t> {
    /// Name.
    pub(crate) name: &'t str,
    /// Ranks with a trace.
    pub(crate) ranks: Vec<u32>,
    /// Ranks of the group without a trace.
    pub(crate) missing: Vec<u32>,
    /// Operations in order; one per rank, in the order of `ranks`.
    pub(crate) ops: Vec<(u64, Vec<&'t Collective>)>,
}

impl MatchedGroup<'_> {
    /// Returns whether its ranks can be compared: at least two, and at most an eighth are missing.
    pub(crate) fn is_comparable(&self) -> bool {
        let n_all = self.ranks.len() + self.missing.len();
        self.ranks.len() >= 2 && self.missing.len() <= (n_all / 8).max(1) && !self.ops.is_empty()
    }

    /// Operations of each kind and size; one per rank, in the order of `ranks`. Ranks may meet at the first
    /// operation of an iteration and run the others side by side.
    pub(crate) fn by_kind(&self) -> Vec<Vec<&[&Collective]>> {
        let mut kinds: BTreeMap<(Op, u64), Vec<&[&Collective]>> = BTreeMap::new();
        for (_, ops) in &self.ops {
            if let Some(first) = ops.first() {
                let kind = kinds.entry((first.op, first.size)).or_default();
                kind.push(ops);
            }
        }
        kinds.into_values().collect()
    }

    /// Time from the first operation to the last one of the rank at this place in `ranks`, by its clock,
    /// milliseconds; `None` if the format has no times.
    #[expect(clippy::cast_precision_loss, reason = "a duration")]
    pub(crate) fn span_ms(&self, at: usize) -> Option<f64> {
        let own = || self.ops.iter().filter_map(|(_, ops)| ops.get(at));
        let first = own().filter_map(|op| op.start_ns).min()?;
        let last = own().filter_map(|op| op.end_ns()).max()?;
        (last > first).then(|| (last - first) as f64 / 1e6)
    }
}

/// Matches the operations of all groups of more than one rank.
pub(crate) fn matched(traces: &BTreeMap<u32, RankTrace>) -> Vec<MatchedGroup<'_>> {
    let mut by_group: BTreeMap<&str, BTreeMap<u32, BTreeMap<u64, &Collective>>> = BTreeMap::new();
    for (rank, trace) in traces {
        for (group, ops) in numbered(trace) {
            by_group.entry(group).or_default().insert(*rank, ops);
        }
    }
    let groups = by_group.into_iter().map(|(name, by_rank)| {
        let known = traces.values().filter_map(|trace| trace.groups.get(name));
        let known: BTreeSet<u32> = known.flatten().copied().collect();
        let missing = known.into_iter().filter(|rank| !by_rank.contains_key(rank));
        let mut sets = by_rank.values();
        let first: BTreeSet<u64> = sets
            .next()
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        let common = sets.fold(first, |common, ops| {
            common
                .into_iter()
                .filter(|seq| ops.contains_key(seq))
                .collect()
        });
        let of_all = |seq: u64| {
            let ops = by_rank.values().filter_map(|ops| ops.get(&seq).copied());
            (seq, ops.collect())
        };
        MatchedGroup {
            name,
            missing: missing.collect(),
            ranks: by_rank.keys().copied().collect(),
            ops: common.into_iter().map(of_all).collect(),
        }
    });
    groups
        .filter(|group| group.ranks.len() + group.missing.len() > 1)
        .collect()
}

/// Numbers the operations of each group.
fn numbered(trace: &RankTrace) -> BTreeMap<&str, BTreeMap<u64, &Collective>> {
    let mut by_group: BTreeMap<&str, Vec<&Collective>> = BTreeMap::new();
    for collective in &trace.collectives {
        let group = by_group.entry(collective.group.as_str()).or_default();
        group.push(collective);
    }
    let groups = by_group.into_iter();
    groups.map(|(name, ops)| (name, number(ops))).collect()
}

/// Numbers operations by the format, or by their order where it has no numbers.
fn number(mut ops: Vec<&Collective>) -> BTreeMap<u64, &Collective> {
    let numbers: BTreeSet<u64> = ops.iter().filter_map(|op| op.seq).collect();
    // A number that occurs twice, as in the parts of a coalesced operation, does not identify.
    if numbers.len() < ops.len() {
        ops.sort_by_key(|op| (op.start_ns, op.seq));
        return (0..).zip(ops).collect();
    }
    let numbered = ops.into_iter().filter_map(|op| Some((op.seq?, op)));
    numbered.collect()
}
