//! Overload: more calls than any job makes. Calls that the agent cannot capture are counted.

use std::thread::sleep;
use std::time::Duration;

use indicatif::ProgressBar;
use rustix::process::Signal;

use crate::agent::Programs;
use crate::stand_ins::{StandIns, undisturbed};
use crate::table::{Table, whole};

const RANKS: usize = 2;
const SECONDS: u64 = 5;
/// Time until the last poll has been processed.
const SETTLE: Duration = Duration::from_secs(2);

/// Result of an overload.
#[derive(Debug)]
struct Storm {
    issued: f64,
    seen: f64,
    lost: f64,
    cpu_seconds: f64,
    peak_mib: f64,
}

/// Measures what happens to collectives issued as fast as two processes can.
pub(crate) fn table(
    programs: &Programs,
    stand_ins: &StandIns,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let columns = [
        "agent",
        "issued",
        "issued/s",
        "captured/s",
        "lost (counted)",
        "captured + lost - issued",
        "agent's CPU per captured call",
        "peak, MiB",
    ];
    let mut table = Table::new("Overload", &columns);
    for (title, pause) in [
        ("runs", Duration::ZERO),
        ("is stopped for a second", Duration::from_secs(1)),
    ] {
        progress.set_message(format!("storm: the agent {title}"));
        let storm = undisturbed(|| storm(programs, stand_ins, pause))?;
        table.row(&storm.row(title));
    }
    Ok(table.end(&format!(
        "{RANKS} processes that do nothing but call `ncclAllReduce`, for {SECONDS} s."
    )))
}

impl Storm {
    fn row(&self, title: &str) -> Vec<String> {
        let Self {
            issued,
            seen,
            lost,
            cpu_seconds,
            peak_mib,
        } = self;
        #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
        let seconds = SECONDS as f64;
        vec![
            title.to_owned(),
            whole(*issued),
            whole(issued / seconds),
            whole(seen / seconds),
            format!("{} ({:.1} %)", whole(*lost), lost / issued * 100.0),
            whole(seen + lost - issued),
            format!("{:.0} ns", cpu_seconds / seen * 1e9),
            format!("{peak_mib:.1}"),
        ]
    }
}

/// Runs one overload; the agent is stopped for a part of the time.
fn storm(
    programs: &Programs,
    stand_ins: &StandIns,
    pause: Duration,
) -> anyhow::Result<Option<Storm>> {
    let agent = programs.start(&[])?;
    let (usage, before) = (agent.usage()?, agent.counts()?);
    let callers = stand_ins.storm(RANKS, SECONDS)?;
    let Some(callers) = agent.release(callers, stand_ins.libraries()) else {
        return Ok(None);
    };
    if !pause.is_zero() {
        sleep(Duration::from_secs(1));
        agent.signal(Signal::STOP)?;
        sleep(pause);
        agent.signal(Signal::CONT)?;
    }
    let Some(printed) = callers.finish()? else {
        return Ok(None);
    };
    sleep(SETTLE);
    let (used, after) = (agent.usage()?, agent.counts()?);
    agent.stop()?;
    let issued = printed
        .iter()
        .filter_map(|line| line.trim().parse::<f64>().ok())
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a few processes")]
    let joins = RANKS as f64;
    // Calls of other jobs cannot be distinguished from these.
    if after.changes() - before.changes() > 2.0 * joins {
        return Ok(None);
    }
    Ok(Some(Storm {
        issued,
        // Each process also creates one communicator, which is a call.
        seen: after.calls() - before.calls() - joins,
        lost: after.lost() - before.lost(),
        cpu_seconds: used.cpu_seconds - usage.cpu_seconds,
        peak_mib: used.peak_mib,
    }))
}
