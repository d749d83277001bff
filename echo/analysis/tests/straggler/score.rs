//! Plays reports through the detector and compares its incidents with the truth.

use std::collections::BTreeMap;
use std::fmt;

use echo_analysis::straggler::Detector;
use echo_analysis::straggler::block::NodeKey;
use echo_analysis::straggler::incident::{Finding, Incident, RankOfJob};
use echo_analysis::straggler::rule::Rule;
use echo_core::units::Nanos;

use crate::recording::{Item, ORIGIN, Recording, at};

/// Interval at which reports are played and evaluated, seconds.
const INTERVAL_S: f64 = 1.0;

/// Time between two reports that agents have kept, nanoseconds.
const KEPT_NS: i64 = 20_000_000;

/// Last states of the incidents of all jobs, by job and number.
pub(crate) fn play(recording: &Recording, rule: Rule) -> Vec<Incident> {
    let mut detector = Detector::new(rule);
    let mut incidents: BTreeMap<(u64, u64), Incident> = BTreeMap::new();
    let mut next = at(INTERVAL_S);
    let mut now = ORIGIN;
    let mut keep = |detector: &mut Detector, now: Nanos| {
        for report in detector.advance(now) {
            for incident in report.incidents {
                incidents.insert((report.job, incident.number), incident);
            }
        }
    };
    for item in &recording.items {
        now = if recording.is_kept {
            now.offset(KEPT_NS)
        } else {
            now.max(item.at())
        };
        while now >= next {
            keep(&mut detector, now);
            next = next.offset((INTERVAL_S * 1e9) as i64);
        }
        match item {
            Item::Block(block) => detector.observe(block, now),
            Item::Beat(beat) => detector.note(beat, now),
        }
    }
    keep(&mut detector, now);
    incidents.into_values().collect()
}

/// Seconds since the origin.
pub(crate) fn seconds(instant: Nanos) -> f64 {
    instant.millis_since(ORIGIN) / 1e3
}

/// What is right to report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Truth {
    /// This rank holds the job back.
    Rank(u32),
    /// These ranks do.
    Ranks(&'static [u32]),
    /// All ranks of this node do.
    Node(u64),
    /// The job is slower, and no rank is to be named.
    Uniform,
    /// Nothing at all.
    Nothing,
    /// A stall, with this rank missing.
    Stall(u32),
    /// This rank late without a past.
    Late(u32),
}

/// Result of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Score {
    Right,
    /// The loss is reported, but not the rank.
    Unnamed,
    Silent,
    /// A wrong rank, or an incident where there is none.
    Wrong,
}

/// Ranks named by an incident.
fn named(incident: &Incident) -> Vec<u32> {
    let name = |rank: &RankOfJob| rank.rank.unwrap_or(rank.process.0 as u32);
    match &incident.finding {
        Finding::Rank(rank) | Finding::LateWithoutPast(rank) => vec![name(rank)],
        Finding::Node(_, ranks) | Finding::Stall(ranks) => ranks.iter().map(name).collect(),
        Finding::UniformSlowdown => Vec::new(),
    }
}

/// Scores the incidents of one job.
pub(crate) fn score(incidents: &[Incident], truth: Truth) -> Score {
    let mut names: Vec<u32> = incidents.iter().flat_map(named).collect();
    names.sort_unstable();
    names.dedup();
    let is_silent = incidents.is_empty();
    let expected: Vec<u32> = match truth {
        Truth::Rank(rank) | Truth::Stall(rank) | Truth::Late(rank) => vec![rank],
        Truth::Ranks(ranks) => ranks.to_vec(),
        Truth::Node(_) | Truth::Uniform | Truth::Nothing => Vec::new(),
    };
    let is_node = |incident: &Incident, node| matches!(&incident.finding, Finding::Node(NodeKey(named), _) if *named == node);
    match truth {
        Truth::Nothing if is_silent => Score::Right,
        Truth::Nothing => Score::Wrong,
        Truth::Node(node) => {
            let nodes = incidents.iter().filter(|one| !named(one).is_empty());
            let (right, others): (Vec<_>, Vec<_>) = nodes.partition(|one| is_node(one, node));
            // One of its ranks is not wrong, but it is not the answer.
            let of_node = |rank: &RankOfJob| rank.node == NodeKey(node);
            let is_wrong = others.iter().any(|one| match &one.finding {
                Finding::Rank(rank) | Finding::LateWithoutPast(rank) => !of_node(rank),
                _ => true,
            });
            match (right.is_empty(), !is_wrong) {
                (_, false) => Score::Wrong,
                (false, true) => Score::Right,
                (true, true) if is_silent => Score::Silent,
                (true, true) => Score::Unnamed,
            }
        }
        _ if names.iter().any(|name| !expected.contains(name)) => Score::Wrong,
        _ if is_silent => Score::Silent,
        _ if names == expected => Score::Right,
        _ => Score::Unnamed,
    }
}

/// GPU time that all incidents cost until an instant, seconds.
pub(crate) fn cost(incidents: &[Incident], until_s: f64) -> f64 {
    let pieces = incidents.iter().flat_map(|incident| &incident.pieces);
    pieces
        .filter(|piece| seconds(piece.from) < until_s)
        .map(|piece| piece.lost_gpu_s)
        .sum()
}

/// One line per incident.
pub(crate) struct Shown<'a>(pub(crate) &'a [Incident]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in self.0 {
            let what = match &one.finding {
                Finding::Rank(_) => "rank",
                Finding::Node(..) => "node",
                Finding::LateWithoutPast(_) => "late",
                Finding::UniformSlowdown => "uniform",
                Finding::Stall(_) => "stall",
            };
            write!(
                f,
                "{what} {:?} {:?} {:.0}-{:.0} s, known {:.1}, {:.1} GPU-s, loss {:.2}, {:.0} ms/s; ",
                named(one),
                one.class,
                seconds(one.since),
                seconds(one.until),
                seconds(one.known),
                one.lost_gpu_s,
                one.loss,
                one.waited_ms_per_s
            )?;
        }
        Ok(())
    }
}
