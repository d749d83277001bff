//! Findings about ranks that have not joined an operation.

use std::collections::{BTreeMap, BTreeSet};

use crate::chain::Behind;
use crate::finding::{Blocked, Finding, Kind, noun};
use crate::job::{Job, Process};

/// Returns the findings about processes that have ended or do not answer: whatever waits, waits for
/// them.
pub(crate) fn ended(processes: &BTreeMap<u32, Process>) -> Vec<Finding> {
    let mut crashed: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut dead = Vec::new();
    for (rank, process) in processes {
        match process {
            Process::Crashed(how) => crashed.entry(how).or_default().push(*rank),
            Process::Dead => dead.push(*rank),
            Process::Stopped | Process::Waits => {}
        }
    }
    let crashed = crashed.into_iter().map(|(how, ranks)| Finding {
        kind: Kind::Crashed,
        sentence: format!("{} ended: {how}", noun(&ranks)),
        ranks,
    });
    let dead = Some(dead).filter(|ranks| !ranks.is_empty());
    let dead = dead.map(|ranks| Finding {
        kind: Kind::ProcessDead,
        sentence: format!("{} did not answer: dead, stopped or cut off", noun(&ranks)),
        ranks,
    });
    crashed.chain(dead).collect()
}

/// Returns the findings about ranks that hold back others.
pub(crate) fn behind(job: &Job, behind: &Behind, blocked: &[Blocked]) -> Vec<Finding> {
    let process = |rank: &u32| job.processes.get(rank);
    let is_ended = |rank: &u32| matches!(process(rank), Some(Process::Dead | Process::Crashed(_)));
    let sources = behind
        .sources
        .iter()
        .filter(|rank| !is_ended(rank))
        .copied();
    let (circle, others): (BTreeSet<u32>, BTreeSet<u32>) =
        sources.partition(|rank| behind.in_circle.contains(rank));
    let (stopped, missing): (BTreeSet<u32>, BTreeSet<u32>) = others
        .into_iter()
        .partition(|rank| process(rank) == Some(&Process::Stopped));
    let mut findings = Vec::new();
    findings.extend(about(Kind::Stopped, stopped, blocked));
    let (few, missing) = ahead(missing, &behind.sources, blocked);
    findings.extend(about(Kind::DidNotJoin, missing, blocked));
    findings.extend(few);
    findings.extend(about(Kind::OtherOrder, circle, blocked));
    findings
}

/// Replaces ranks by those ahead of them, where these are the minority.
fn ahead(
    mut missing: BTreeSet<u32>,
    sources: &BTreeSet<u32>,
    blocked: &[Blocked],
) -> (Vec<Finding>, BTreeSet<u32>) {
    let mut findings = Vec::new();
    for one in blocked.iter().filter(|one| !one.is_transfer) {
        let of_group = one.behind.iter().filter(|rank| sources.contains(rank));
        if of_group.count() <= one.waiting.len() {
            continue;
        }
        let is_of_group = |rank: &u32| one.behind.contains(rank);
        if missing.iter().any(is_of_group) {
            missing.retain(|rank| !is_of_group(rank));
            findings.push(Finding {
                kind: Kind::Ahead,
                ranks: one.waiting.clone(),
                sentence: format!(
                    "{} entered {}, and {} others did not: one operation too many, or the others are held up elsewhere",
                    noun(&one.waiting),
                    one.operation(),
                    one.behind.len(),
                ),
            });
        }
    }
    (findings, missing)
}

/// Returns the finding about ranks that are behind; `None` without ranks.
fn about(kind: Kind, ranks: BTreeSet<u32>, blocked: &[Blocked]) -> Option<Finding> {
    let is_named = |rank: &u32| ranks.contains(rank);
    let one = blocked.iter().find(|one| one.behind.iter().any(is_named))?;
    let ranks: Vec<u32> = ranks.iter().copied().collect();
    let is_whole = ranks.iter().all(|rank| one.behind.contains(rank));
    let such = if is_whole { "" } else { "operations such as " };
    let of = one.operation();
    let half = if one.is_transfer {
        "the other half of "
    } else {
        ""
    };
    let sentence = match kind {
        Kind::Stopped => format!(
            "{} stopped by a signal or a debugger, and did not join {such}{half}{of}",
            noun(&ranks)
        ),
        Kind::OtherOrder if one.is_transfer => format!(
            "{} wait for each other, such as for {half}{of}",
            noun(&ranks)
        ),
        Kind::OtherOrder => format!(
            "{} wait for each other, in {of} and in other operations: they use the communicators in different orders",
            noun(&ranks)
        ),
        _ => format!("{} did not join {such}{half}{of}", noun(&ranks)),
    };
    Some(Finding {
        kind,
        ranks,
        sentence,
    })
}

/// Returns the finding about ranks that were not observed, and for which alone others wait.
pub(crate) fn unobserved(job: &Job, blocked: &[Blocked]) -> Option<Finding> {
    let of_groups = blocked.iter().filter(|one| one.behind.is_empty());
    let ranks: BTreeSet<u32> = of_groups.flat_map(|one| &one.unobserved).copied().collect();
    let is_ended = |rank: &u32| job.processes.contains_key(rank);
    let ranks: Vec<u32> = ranks.into_iter().filter(|rank| !is_ended(rank)).collect();
    (!ranks.is_empty()).then(|| Finding {
        kind: Kind::NotObserved,
        sentence: format!("{} left nothing to read, and others wait", noun(&ranks)),
        ranks,
    })
}
