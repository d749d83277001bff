//! Cost of an agent for its host: without a job, and with one.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::ProgressBar;

use crate::agent::{Agent, Counts, Programs};
use crate::machine;
use crate::process::Usage;
use crate::stand_ins::{StandIns, undisturbed};
use crate::table::{Table, least_and_median, pair, whole};

/// Ranks of the job, as many as a host has GPUs.
const RANKS: usize = 8;
/// Collectives per rank and period, microseconds; 5,000 collectives/s over all ranks.
const OPS: u64 = 16;
const PERIOD_US: u64 = 25_600;
/// Time until the agent knows the iteration pattern of the job.
const WARM_UP: Duration = Duration::from_secs(5);
/// Parts of a measurement.
const PARTS: u32 = 3;
/// Cores of a typical GPU host.
const LARGE_HOST: f64 = 64.0;

/// One part of a measurement.
#[derive(Debug, Clone)]
struct Part {
    seconds: f64,
    usage: [Usage; 2],
    counts: [Counts; 2],
}

impl Part {
    fn rate(&self, of: impl Fn(&Usage) -> f64) -> f64 {
        let [before, after] = &self.usage;
        (of(after) - of(before)) / self.seconds
    }

    fn counted(&self, of: impl Fn(&Counts) -> f64) -> f64 {
        let [before, after] = &self.counts;
        of(after) - of(before)
    }
}

/// Measures the agent's own cost.
pub(crate) fn table(
    programs: &Programs,
    stand_ins: &StandIns,
    seconds: u64,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let columns = [
        "job",
        "collectives/s",
        "calls captured/s",
        "lost",
        "points/s",
        "CPU, % of a core",
        "% of this host",
        "% of a host with 64 cores",
        "wake-ups/s",
        "RSS, MiB",
        "peak, MiB",
    ];
    let mut table = Table::new("What the agent costs", &columns);
    progress.set_message("agent: without a job");
    let idle = undisturbed(|| idle(programs, seconds))?;
    table.row(&row("none", 0.0, &idle)?);
    progress.set_message("agent: with a job");
    let (issued, busy) = undisturbed(|| busy(programs, stand_ins, seconds))?;
    table.row(&row(&format!("{RANKS} ranks"), issued, &busy)?);
    Ok(table.end(&format!(
        "Over {seconds} s; CPU and wake-ups are least / median of {PARTS} parts. CPU is user and system; wake-ups are the voluntary \
         context switches of all threads."
    )))
}

fn idle(programs: &Programs, seconds: u64) -> anyhow::Result<Option<Vec<Part>>> {
    let agent = programs.start(&[])?;
    sleep(Duration::from_secs(1));
    let parts = parts(&agent, seconds)?;
    agent.stop()?;
    let is_alone = |part: &Part| part.counts.iter().all(|counts| counts.ranks() == 0.0);
    Ok(parts.iter().all(is_alone).then_some(parts))
}

/// Returns collectives per second, and their cost; none if another job runs on the host.
fn busy(
    programs: &Programs,
    stand_ins: &StandIns,
    seconds: u64,
) -> anyhow::Result<Option<(f64, Vec<Part>)>> {
    let agent = programs.start(&[])?;
    let lasts = seconds + WARM_UP.as_secs() + 2;
    let callers = stand_ins.issue_periodically(RANKS, (lasts, PERIOD_US, OPS))?;
    let Some(callers) = agent.release(callers, stand_ins.libraries()) else {
        return Ok(None);
    };
    sleep(WARM_UP);
    let parts = parts(&agent, seconds)?;
    let ranks: Vec<f64> = parts
        .iter()
        .flat_map(|part| &part.counts)
        .map(Counts::ranks)
        .collect();
    let Some(printed) = callers.finish()? else {
        return Ok(None);
    };
    agent.stop()?;
    let issued: f64 = printed
        .iter()
        .filter_map(|line| line.trim().parse::<f64>().ok())
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a few seconds, a few ranks")]
    let (lasts, expected) = (lasts as f64, RANKS as f64);
    if ranks.iter().any(|ranks| *ranks < expected) {
        bail!("the agent traced {ranks:?} of {RANKS} ranks");
    }
    let is_alone = ranks.iter().all(|ranks| *ranks <= expected);
    Ok(is_alone.then_some((issued / lasts, parts)))
}

fn parts(agent: &Agent, seconds: u64) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        // The request wakes the agent, so its usage is read outside of it.
        let counts = agent.counts()?;
        let (begin, usage) = (Instant::now(), agent.usage()?);
        sleep(Duration::from_secs(seconds) / PARTS);
        let (seconds, after) = (begin.elapsed().as_secs_f64(), agent.usage()?);
        parts.push(Part {
            seconds,
            usage: [usage, after],
            counts: [counts, agent.counts()?],
        });
    }
    Ok(parts)
}

fn row(title: &str, issued: f64, parts: &[Part]) -> anyhow::Result<Vec<String>> {
    let rates = |of: fn(&Part) -> f64| {
        let rates: Vec<f64> = parts.iter().map(of).collect();
        least_and_median(&rates).unwrap_or_default()
    };
    let cpu = rates(|part| part.rate(|usage| usage.cpu_seconds) * 100.0);
    let share = |cores: f64| pair((cpu.0 / cores, cpu.1 / cores), 3);
    let wake_ups = rates(|part| part.rate(|usage| usage.wake_ups));
    let (_, calls) = rates(|part| part.counted(Counts::calls) / part.seconds);
    let (_, points) = rates(|part| part.counted(Counts::points) / part.seconds);
    let lost: f64 = parts.iter().map(|part| part.counted(Counts::lost)).sum();
    let Some([_, last]) = parts.last().map(|part| part.usage) else {
        bail!("no measurement");
    };
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let cores = machine::cores() as f64;
    Ok(vec![
        title.to_owned(),
        whole(issued),
        whole(calls),
        whole(lost),
        format!("{points:.1}"),
        pair(cpu, 2),
        share(cores),
        share(LARGE_HOST),
        pair(wake_ups, 0),
        format!("{:.1}", last.rss_mib),
        format!("{:.1}", last.peak_mib),
    ])
}
