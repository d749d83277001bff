//! Explains what processes lose time to: watches this host, or reads recordings.

mod json;
mod screen;
pub mod summary;
mod text;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use fleet_agent_core::event::Event;
use fleet_agent_core::explain::{Explainer, ProcessReport};
use fleet_agent_sources::live::{EVIDENCE_INTERVAL, Live, Stop};
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::recording::Recording;
use fleet_agent_sources::source::{EventSource, SourceError};
use fleet_agent_sources::watch::{Watch, WatchError, now_ns};
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;
use tokio::task::{JoinError, spawn_blocking};

use crate::config::{ExplainArgs, ProbeArgs, TraceArgs};
use crate::explain::screen::Screen;
use crate::explain::summary::{HostSummary, Summary};
use crate::host_conditions::{ConditionsBeside, with_readings};
use crate::stack_sampling::StackSampling;

/// Smallest number of readings of the kernel's counters per period.
const READINGS: u32 = 5;
/// Name of this host in summaries.
const THIS_HOST: &str = "this host";

/// Error of an explanation.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// The host cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A file is damaged or not a recording.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// No process called a GPU library.
    #[error(
        "{place}: nothing to explain: no process {selected}called a GPU library; \
         `fleet-agent check` lists what is watched"
    )]
    NoProcesses {
        /// The host or the files.
        place: String,
        /// Processes selected by --pid, as part of the message.
        selected: &'static str,
    },
    /// Output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] std::io::Error),
    /// A task panicked.
    #[error("internal error: a task of the explanation failed ({0})")]
    TaskFailed(#[from] JoinError),
}

/// Explains this host, or recordings. The watch ends early if `stop` resolves.
pub async fn explain(
    args: &ExplainArgs,
    stop: impl Future<Output = ()>,
    progress: &ProgressBar,
) -> Result<Summary, ExplainError> {
    let args = args.clone();
    let selected = args.pid.clone();
    let per_process = args.per_process;
    let hosts = if args.files.is_empty() {
        let bar = progress.clone();
        let (conditions, readings) = ConditionsBeside::new(reading_interval(args.report_period));
        let watch = move |stop: &Stop| {
            let mut host = HostSummary::new(THIS_HOST);
            let (duration, period) = (Some(args.duration), args.report_period);
            let on_reports = |reports: Vec<ProcessReport>, until: Duration| {
                bar.set_message(format!("watching {} processes", host.n_processes()));
                bar.set_position(until.as_secs());
                host.add(reports);
                Ok(())
            };
            let watched = watch_host(
                &args.probes,
                (duration, period),
                conditions,
                stop,
                on_reports,
            );
            host.limitations = watched?;
            Ok(vec![host])
        };
        with_readings(blocking_until(stop, watch), readings).await?
    } else {
        let read = move |_: &Stop| args.files.iter().map(|file| read(file, &args)).collect();
        blocking_until(stop, read).await?
    };
    let summary = Summary {
        hosts,
        selected,
        per_process,
    };
    if summary.processes().next().is_none() {
        return Err(no_processes(&summary));
    }
    Ok(summary)
}

/// Shows the calls of processes and what they lose time to until the time is over or `stop`
/// resolves.
pub async fn trace(args: &TraceArgs, stop: impl Future<Output = ()>) -> Result<(), ExplainError> {
    let args = args.clone();
    let (conditions, readings) = ConditionsBeside::new(reading_interval(args.report_period));
    let trace = move |stop: &Stop| {
        let mut screen = Screen::new(args.json, args.pid.clone());
        let (duration, period) = (args.duration, args.report_period);
        let show = |reports: Vec<ProcessReport>, _: Duration| {
            screen.show(&reports).map_err(ExplainError::Output)
        };
        watch_host(&args.probes, (duration, period), conditions, stop, show)?;
        match screen.n_shown() {
            0 => Err(ExplainError::NoProcesses {
                place: THIS_HOST.to_owned(),
                selected: selected(&args.pid),
            }),
            _ => Ok(()),
        }
    };
    with_readings(blocking_until(stop, trace), readings).await
}

/// Progress of a watch on a terminal.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.set_message("watching");
    bar
}

/// Runs `work` on a thread of its own and requests its stop when `stop` resolves.
async fn blocking_until<T: Send + 'static>(
    stop: impl Future<Output = ()>,
    work: impl FnOnce(&Stop) -> Result<T, ExplainError> + Send + 'static,
) -> Result<T, ExplainError> {
    let stop_request = Stop::default();
    let own = stop_request.clone();
    let mut working = spawn_blocking(move || work(&own));
    let joined = tokio::select! {
        joined = &mut working => joined,
        () = stop => {
            stop_request.request();
            working.await
        }
    };
    joined?
}

/// Interval at which counters and the GPUs' driver are read.
fn reading_interval(period: Duration) -> Duration {
    EVIDENCE_INTERVAL.min(period / READINGS)
}

/// Watches this host and passes on the reports of each period and the time since the start. Returns
/// what it cannot see.
fn watch_host(
    probes: &ProbeArgs,
    (duration, period): (Option<Duration>, Duration),
    mut conditions: ConditionsBeside,
    stop: &Stop,
    mut on_reports: impl FnMut(Vec<ProcessReport>, Duration) -> Result<(), ExplainError>,
) -> Result<Vec<String>, ExplainError> {
    // Single waits are not looked at: their durations are summed up in the kernel.
    let mut settings = probes.settings(Duration::MAX);
    settings.without_host = false;
    settings.count_options.all_processes = true;
    let watch = Watch::start(&settings)?;
    let no_host = watch.health().abilities.no_host;
    let live = Live::new(watch, Processes::new("/proc"), stop.clone());
    let mut live = live.with_evidence_every(reading_interval(period));
    let started_ns = now_ns();
    let mut explainer = Explainer::new(period);
    let mut stacks = StackSampling::default();
    let calls = live.calls();
    while live.poll() {
        while let Some(event) = live.next_pending() {
            stacks.on_event(&event);
            conditions.on_event(&event);
            explainer.on_event(&event);
        }
        let until_ns = now_ns();
        stacks.sample(until_ns, &calls);
        for event in conditions.take() {
            explainer.on_event(&event);
        }
        if explainer.is_due(until_ns) {
            for sample in stacks.take() {
                explainer.on_event(&Event::Stack(Box::new(sample)));
            }
        }
        let elapsed = Duration::from_nanos(until_ns.saturating_sub(started_ns));
        on_reports(explainer.reports(until_ns), elapsed)?;
        if duration.is_some_and(|duration| elapsed >= duration) {
            stop.request();
        }
    }
    live.clear();
    let no_host =
        no_host.map(|reason| format!("no kernel evidence, such as time off the CPU: {reason}"));
    Ok(no_host
        .into_iter()
        .chain(stacks.limits().cloned())
        .collect())
}

/// Reads a recording and explains its processes.
fn read(path: &Path, args: &ExplainArgs) -> Result<HostSummary, ExplainError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| SourceError::Open {
        path: name.clone(),
        source,
    })?;
    let mut recording = Recording::new(&name, file)?;
    let mut host = HostSummary::new(&name);
    let mut explainer = Explainer::new(args.report_period);
    let mut is_first = true;
    while let Some(event) = recording.next_event()? {
        let ts_ns = event.ts_ns();
        if std::mem::take(&mut is_first) {
            for process in recording.processes() {
                explainer.add_process(*process, ts_ns);
            }
        }
        host.add(explainer.reports(ts_ns));
        explainer.on_event(&event);
    }
    if let Some(since) = args.since {
        host.keep_last(since);
    }
    Ok(host)
}

fn no_processes(summary: &Summary) -> ExplainError {
    let places: Vec<&str> = summary
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    ExplainError::NoProcesses {
        place: places.join(", "),
        selected: selected(&summary.selected),
    }
}

fn selected(pids: &[u32]) -> &'static str {
    if pids.is_empty() {
        ""
    } else {
        "selected by --pid "
    }
}

#[cfg(test)]
mod tests;
