//! Runs loops through the detector and the floor rule, and prints their scores.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_core::ids::{IncidentId, NodeId};
use echo_core::model::detector_output::{DetectorOutput, LostTime};
use echo_core::units::Nanos;
use fleet_agent_core::event::Event;
use fleet_agent_sources::recording::Recording;

use super::case::LoopCase;
use super::floor::{FLOOR, Rows};
use super::recorded::RecordedLoop;
use super::suite::BLOCKS_MS;
use super::verdict::{Count, Judgement, Truth, Verdict};
use crate::alert::{Alert, ECHO, Incidents};
use crate::delivery::{Delivery, EPOCH};
use crate::recordings;

const HEADER: &str = "| loops | method | with a fault | right | wrong | condition only | silent | cost within 15 % | \
     cost error (median) | seconds to the truth (median, longest) | healthy and quiet |\n\
     |---|---|---|---|---|---|---|---|---|---|---|\n";

/// What the agent sees of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Hosts and, with the profiler plugin, GPUs.
    All,
    /// Hosts only.
    Hosts,
}

impl Sight {
    const fn sees(self, event: &Event) -> bool {
        matches!(self, Self::All) || !matches!(event, Event::GpuOperation(_))
    }
}

/// Verdicts of the methods on one loop.
#[derive(Debug, Clone)]
pub struct LoopResult {
    /// Row in the table.
    pub group: String,
    /// Name of the loop.
    pub name: String,
    /// Verdict on the detector.
    pub echo: Judgement,
    /// Verdict on the floor rule.
    pub floor: Judgement,
    /// True cost, GPU-seconds, if known.
    pub lost_gpu_s: Option<f64>,
}

/// Rows by incident, node and interval: a later one replaces an earlier one.
type LostTimeRows = BTreeMap<(IncidentId, NodeId, Nanos, Nanos), f64>;

/// Runs a recording through the agent's pipeline, the detector and the floor rule.
pub fn judge(
    recording: Recording,
    block_ms: f64,
    truth: &Truth,
    sight: Sight,
) -> anyhow::Result<(Judgement, Judgement)> {
    let mut rows = Rows::default();
    let deliveries = recordings::play(recording, block_ms * 1e6, |event| {
        let is_seen = sight.sees(event);
        if is_seen {
            rows.add(event);
        }
        is_seen
    })?;
    let (alerts, lost_gpu_s) = watch(deliveries);
    let echo = Judgement::new(truth, &alerts, Some(lost_gpu_s));
    Ok((echo, Judgement::new(truth, &rows.alerts(), None)))
}

/// Returns the alerts, in milliseconds since the start of the recording, and the cost in
/// GPU-seconds.
pub fn watch(deliveries: Vec<Delivery>) -> (Vec<Alert>, f64) {
    let mut detector = Detector::new(Settings::default());
    let mut incidents = Incidents::default();
    let mut rows = LostTimeRows::new();
    let mut now_ms = 0;
    for delivery in deliveries {
        let latest = delivery
            .events
            .iter()
            .map(|event| event.received)
            .max()
            .unwrap_or(EPOCH);
        let since_ms = (latest.value() - EPOCH.value()) / 1_000_000;
        now_ms = now_ms.max(u32::try_from(since_ms).unwrap_or(0));
        let DetectorOutput {
            lost,
            incidents: changed,
            ..
        } = detector.observe(&delivery.events);
        for LostTime {
            incident,
            node,
            interval,
            lost_gpu_ms,
            ..
        } in lost
        {
            rows.insert(
                (incident, node, interval.from(), interval.to()),
                lost_gpu_ms,
            );
        }
        incidents.observe(
            &DetectorOutput {
                incidents: changed,
                ..DetectorOutput::default()
            },
            now_ms,
        );
    }
    let mut by_incident: BTreeMap<IncidentId, f64> = BTreeMap::new();
    for ((incident, ..), lost_ms) in rows {
        *by_incident.entry(incident).or_default() += lost_ms / 1e3;
    }
    let lost = by_incident
        .into_values()
        .fold(0.0, |sum, lost| sum + lost.max(0.0));
    (incidents.into_alerts(), lost)
}

/// Runs a generated loop.
pub fn run(case: &LoopCase, sight: Sight) -> anyhow::Result<LoopResult> {
    let generated = case.generate()?;
    let name = case.name();
    let recording = Recording::new(&name, Cursor::new(generated.bytes))?;
    let (echo, floor) = judge(recording, case.block_ms, &generated.truth, sight)?;
    Ok(LoopResult {
        group: case.shape.kind.name().to_owned(),
        name,
        echo,
        floor,
        lost_gpu_s: generated.truth.lost_gpu_s,
    })
}

/// Runs a recorded loop once per block length.
pub fn run_recorded(
    recorded: &RecordedLoop,
    testdata: &Path,
    sight: Sight,
) -> anyhow::Result<Vec<LoopResult>> {
    let truth = recorded.truth();
    let run = |block_ms: f64| -> anyhow::Result<LoopResult> {
        let (echo, floor) = judge(recorded.open(testdata)?, block_ms, &truth, sight)?;
        let name = format!("{}, blocks of {block_ms:.0} ms", recorded.name);
        let group = recorded.name.to_owned();
        Ok(LoopResult {
            group,
            name,
            echo,
            floor,
            lost_gpu_s: truth.lost_gpu_s,
        })
    };
    BLOCKS_MS.into_iter().map(run).collect()
}

/// Scores over all loops, and a row for each group.
pub fn markdown(title: &str, judged: &[LoopResult]) -> String {
    let mut groups: BTreeMap<&str, [Count; 2]> = BTreeMap::new();
    let mut all = [Count::default(), Count::default()];
    for one in judged {
        let group = groups.entry(&one.group).or_default();
        for counts in [&mut all, group] {
            let [echo, floor] = counts;
            echo.add(&one.echo);
            floor.add(&one.floor);
        }
    }
    let mut text = format!("### {title}\n\n{HEADER}");
    for (group, counts) in [("all", &all)]
        .into_iter()
        .chain(groups.iter().map(|(name, counts)| (*name, counts)))
    {
        for (method, count) in [ECHO, FLOOR].into_iter().zip(counts) {
            text.push_str(&row(group, method, count));
        }
    }
    text + "\n"
}

/// One line per loop: its verdicts, costs and alerts.
pub fn details(title: &str, judged: &[LoopResult]) -> String {
    let line = |one: &LoopResult| {
        let lost = one
            .lost_gpu_s
            .map_or_else(|| "?".to_owned(), |lost| format!("{lost:.1}"));
        let found = one.echo.lost_gpu_s.unwrap_or(0.0);
        format!(
            "- {}: {:?} (lost {found:.1} of {lost} GPU-s; {}); {FLOOR}: {:?} ({})\n",
            one.name, one.echo.verdict, one.echo.summary, one.floor.verdict, one.floor.summary
        )
    };
    let lines: String = judged.iter().map(line).collect();
    format!("### {title}, one by one\n\n{lines}\n")
}

fn row(group: &str, method: &str, count: &Count) -> String {
    let loops = |verdict| count.with_verdict(verdict).to_string();
    let number =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let percent = |value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{:.0} %", value * 100.0))
    };
    let share = |(whole, part): (u32, u32)| {
        if whole > 0 {
            format!("{part} of {whole}")
        } else {
            "-".to_owned()
        }
    };
    let cells = [
        group.to_owned(),
        method.to_owned(),
        count.n.to_string(),
        loops(Verdict::Right),
        loops(Verdict::Wrong),
        loops(Verdict::Unnamed),
        loops(Verdict::Silent),
        share(count.costs),
        percent(quantile(&count.cost_errors, 50)),
        format!(
            "{}, {}",
            number(quantile(&count.delays_s, 50)),
            number(quantile(&count.delays_s, 100))
        ),
        share(count.healthy),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the quantile of the values at this many hundredths.
fn quantile(values: &[f64], hundredths: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied()
}
