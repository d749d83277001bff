//! Findings about operations that all ranks have joined.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocked;
use crate::chain::earliest_positions;
use crate::finding::{Finding, Kind, noun};
use crate::front::Front;
use crate::job::{Job, Operation, Process, State};

/// Name of the record of coalesced operations, whose members have their sizes.
const COALESCED: &str = "coalesced";

/// Returns the findings; none if no operation of all ranks is pending.
pub(crate) fn joined(job: &Job, fronts: &[Front<'_>]) -> Vec<Finding> {
    let joined: Vec<&Front<'_>> = fronts.iter().filter(|own| own.is_joined_by_all()).collect();
    let mismatches: Vec<Finding> = joined.iter().filter_map(|front| mismatch(front)).collect();
    if !mismatches.is_empty() {
        return mismatches;
    }
    let orders = other_orders(&joined);
    if !orders.is_empty() {
        return orders;
    }
    let stopped: Vec<Finding> = joined
        .iter()
        .filter_map(|front| stopped(job, front))
        .collect();
    if !stopped.is_empty() {
        return stopped;
    }
    let not_begun = not_begun(&joined);
    if !not_begun.is_empty() {
        return not_begun;
    }
    does_not_end(&joined)
}

/// Divides ranks by a value; the most frequent value is the last.
fn divided<'j>(
    front: &Front<'j>,
    value: impl Fn(&'j Operation) -> Option<String>,
) -> Vec<(String, Vec<u32>)> {
    let mut by_value: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for rank in &front.entered {
        if let Some(value) = front.operation(*rank).and_then(&value) {
            by_value.entry(value).or_default().push(*rank);
        }
    }
    let mut divided: Vec<_> = by_value.into_iter().collect();
    divided.sort_by_key(|(_, ranks)| ranks.len());
    divided
}

/// Returns the ranks that enqueued something else than the majority; all, if there is none.
fn mismatch(front: &Front<'_>) -> Option<Finding> {
    let is_single = |own: &&Operation| own.name != COALESCED && !own.name.is_empty();
    let name = |own: &Operation| Some(own).filter(is_single).map(|own| own.name.clone());
    let compared = [
        ("operation", divided(front, name)),
        ("type", divided(front, |own| own.dtype.clone())),
        (
            "number of elements",
            divided(front, |own| Some(own.elements?.to_string())),
        ),
    ];
    let (what, values) = compared.into_iter().find(|(_, values)| values.len() > 1)?;
    let all: usize = values.iter().map(|(_, ranks)| ranks.len()).sum();
    let (usual, others) = values.split_last()?;
    let has_majority = usual.1.len() * 2 > all;
    let named = if has_majority {
        others
    } else {
        values.as_slice()
    };
    let mut ranks: Vec<u32> = named.iter().flat_map(|(_, ranks)| ranks).copied().collect();
    ranks.sort_unstable();
    let texts = named
        .iter()
        .map(|(value, ranks)| format!("{value} of {}", noun(ranks)));
    let texts: Vec<String> = texts.take(3).collect();
    let usual = if has_majority {
        format!(", {} of the others", usual.0)
    } else {
        ", no majority".to_owned()
    };
    Some(Finding {
        kind: Kind::Mismatch,
        ranks,
        sentence: format!(
            "{}: the ranks disagree about the {what}: {}{usual}",
            blocked(front).operation(),
            texts.join(", ")
        ),
    })
}

/// Returns the pairs of groups whose operations ranks enqueued in different orders.
fn other_orders(joined: &[&Front<'_>]) -> Vec<Finding> {
    let mut by_rank: BTreeMap<u32, Vec<(u64, usize)>> = BTreeMap::new();
    for (index, front) in joined.iter().enumerate() {
        let positions = front.entered.iter();
        for (rank, position) in positions.filter_map(|rank| Some((rank, front.position(*rank)?))) {
            by_rank.entry(*rank).or_default().push((position, index));
        }
    }
    let mut by_pair: BTreeMap<(usize, usize), [Vec<u32>; 2]> = BTreeMap::new();
    for (rank, own) in &by_rank {
        for (at, one) in own.iter().enumerate() {
            for other in own.iter().skip(at + 1) {
                let [first, second] = by_pair.entry((one.1, other.1)).or_default();
                let ranks = if one.0 < other.0 { first } else { second };
                ranks.push(*rank);
            }
        }
    }
    by_pair
        .into_iter()
        .filter(|(_, [first, second])| !first.is_empty() && !second.is_empty())
        .filter_map(|((one, other), [first, second])| {
            let places = [joined.get(one)?, joined.get(other)?];
            let [one, other] = places.map(|front| blocked(front));
            let mut ranks = match first.len().cmp(&second.len()) {
                std::cmp::Ordering::Less => first.clone(),
                std::cmp::Ordering::Greater => second.clone(),
                std::cmp::Ordering::Equal => [&first[..], &second].concat(),
            };
            ranks.sort_unstable();
            Some(Finding {
                kind: Kind::OtherOrder,
                ranks,
                sentence: format!(
                    "deadlock by order: {} enqueued {} before {}, {} the other way round",
                    noun(&first),
                    one.operation(),
                    other.operation(),
                    noun(&second)
                ),
            })
        })
        .collect()
}

/// Returns the members whose process is stopped: NCCL's threads are stopped with it.
fn stopped(job: &Job, front: &Front<'_>) -> Option<Finding> {
    let is_stopped = |rank: &&u32| job.processes.get(rank) == Some(&Process::Stopped);
    let ranks: Vec<u32> = front.entered.iter().filter(is_stopped).copied().collect();
    (!ranks.is_empty()).then(|| Finding {
        kind: Kind::Stopped,
        sentence: format!(
            "{} stopped by a signal or a debugger in {}, which all ranks joined",
            noun(&ranks),
            blocked(front).operation()
        ),
        ranks,
    })
}

/// Returns the ranks whose GPUs have not begun an operation in which others are, and that are in no
/// other operation.
fn not_begun(joined: &[&Front<'_>]) -> Vec<Finding> {
    let begun: Vec<BTreeSet<u32>> = joined
        .iter()
        .map(|front| front.in_state(State::Started))
        .collect();
    let busy: BTreeSet<u32> = begun.iter().flatten().copied().collect();
    let finding = |(front, begun): (&&Front<'_>, &BTreeSet<u32>)| {
        let waiting = &front.entered - begun;
        let is_few = !begun.is_empty() && waiting.len() <= begun.len();
        let ranks: Vec<u32> = waiting.difference(&busy).copied().collect();
        (is_few && !ranks.is_empty()).then(|| Finding {
            kind: Kind::NotBegun,
            sentence: format!(
                "{} enqueued {}, but its GPU has not begun it while the others are in it: it is stuck in earlier work",
                noun(&ranks),
                blocked(front).operation()
            ),
            ranks,
        })
    };
    joined.iter().zip(&begun).filter_map(finding).collect()
}

/// Returns the operations that nothing precedes and that do not end.
fn does_not_end(joined: &[&Front<'_>]) -> Vec<Finding> {
    let earliest = earliest_positions(joined.iter().copied());
    let is_first = |front: &&&Front<'_>| {
        let position = |rank: &u32| front.position(*rank);
        let mut ranks = front.entered.iter();
        ranks.all(|rank| position(rank).is_none_or(|own| earliest.get(rank) == Some(&own)))
    };
    let finding = |front: &&Front<'_>| {
        let ended = front.in_state(State::Completed).len();
        let partly = if ended > 0 {
            format!(
                " on {} of {} ranks",
                front.entered.len() - ended,
                front.entered.len()
            )
        } else {
            String::new()
        };
        Finding {
            kind: Kind::DoesNotEnd,
            ranks: Vec::new(),
            sentence: format!(
                "all ranks joined {}, and it does not end{partly}: network or GPU, no rank is named",
                blocked(front).operation()
            ),
        }
    };
    joined.iter().filter(is_first).map(finding).collect()
}
