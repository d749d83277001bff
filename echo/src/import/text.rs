//! Output of an import: the answer first, then its cost, what it rests on, and the next command.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_import::progress::REPORT_TIMES;
use fleet_import::report::Report;
use serde_json::{Value, json};

use crate::cli::next_command::quoted;
use crate::demo::report::{ToolAnswers, print_cost, print_verdict};
use crate::import::{DEFAULT_CLUSTER, ImportArgs};

/// Maximum number of recordings in a command.
const LISTED: usize = 16;

/// What an import found.
pub(super) struct Shown<'a> {
    /// Flags of the import.
    pub(super) args: &'a ImportArgs,
    /// What the files show.
    pub(super) report: &'a Report,
    /// What the detector found; `None` if it has no events.
    pub(super) answers: Option<&'a ToolAnswers>,
    /// Number of points that the instance rejected.
    pub(super) points_rejected: u64,
    /// The files, if they are recordings.
    pub(super) recordings: &'a [PathBuf],
    /// Address of the page that stays.
    pub(super) page: Option<String>,
}

impl Shown<'_> {
    /// Returns everything as one object.
    pub(super) fn to_json(&self) -> Value {
        let report = self.report;
        let outliers = self.answers.map(|answers| &answers.outliers);
        let is_named = report.hang.is_some() || outliers.is_some_and(|answer| !is_empty(answer));
        let unknown_cost = unknown_cost(report).filter(|_| !is_named);
        let cost = self.answers.map(|answers| &answers.cost);
        json!({
            "report": report,
            "points_rejected": self.points_rejected,
            "outliers": outliers,
            "cost": cost.filter(|_| unknown_cost.is_none()),
            "cost_unknown": unknown_cost,
            "loss_by_arrivals": report.loss().filter(|_| !is_named),
            "page": self.page,
        })
    }

    /// Prints everything as text.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{}", self.report.verdict())?;
        if let Some(answers) = self.answers {
            print_answers(out, self.report, answers)?;
        }
        write!(out, "{}", self.report.evidence())?;
        if self.points_rejected > 0 {
            let rejected = self.points_rejected;
            writeln!(
                out,
                "  stored   without {rejected} points, which were rejected"
            )?;
        }
        self.print_next(out)
    }

    /// Prints the address of the page, or commands that show more.
    fn print_next(&self, out: &mut dyn Write) -> io::Result<()> {
        let args = self.args;
        let mut commands = Vec::new();
        match (&self.page, &args.db) {
            (Some(page), _) => writeln!(out, "  page     {page}, until Ctrl-C")?,
            (None, _) if self.answers.is_none() => {}
            (None, Some(db)) => {
                let db = word(db);
                commands.push(format!("fleet-echo serve --db {db} --insecure-no-tls"));
            }
            (None, None) => commands.push(import_and_serve(args)),
        }
        if (1..=LISTED).contains(&self.recordings.len()) {
            let files: Vec<String> = self.recordings.iter().map(|file| word(file)).collect();
            let files = files.join(" ");
            commands.push(format!("fleet-agent export {files} --output trace.json"));
        }
        for (label, command) in ["next   ", "       "].iter().zip(commands) {
            writeln!(out, "  {label}  {command}")?;
        }
        Ok(())
    }
}

/// Returns the command that imports the same files and serves the page.
fn import_and_serve(args: &ImportArgs) -> String {
    let mut command = "fleet-echo import".to_owned();
    let flags = [
        ("--rates", args.rates.as_deref()),
        ("--agent", args.agent.as_deref()),
    ];
    for path in &args.paths {
        command.extend([" ", &word(path)]);
    }
    for (flag, file) in flags {
        if let Some(file) = file {
            command.extend([" ", flag, " ", &word(file)]);
        }
    }
    if args.cluster != DEFAULT_CLUSTER {
        command.extend([" --cluster ", &quoted(&args.cluster)]);
    }
    command.push_str(" --serve");
    command
}

/// Returns a path as one word of a shell.
fn word(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

/// Age of the first report of a hang at the time of the last one.
fn longest_report() -> Duration {
    let [.., last] = REPORT_TIMES;
    last
}

/// Prints what the detector found and what it cost. The report has already named the ranks of a hang.
fn print_answers(out: &mut dyn Write, report: &Report, answers: &ToolAnswers) -> io::Result<()> {
    if report.hang.is_none() {
        if is_empty(&answers.outliers) {
            writeln!(out, "  verdict  {}", without_outlier(report))?;
            if let Some(loss) = report.loss() {
                return writeln!(out, "  cost     {loss}");
            }
            if let Some(unknown) = unknown_cost(report) {
                return writeln!(out, "  cost     unknown: {unknown}");
            }
        } else {
            print_verdict(out, &answers.outliers)?;
        }
        return print_cost(out, &answers.cost);
    }
    if is_empty(&answers.outliers) {
        return Ok(());
    }
    print_cost(out, &answers.cost)?;
    writeln!(
        out,
        "           of {} s only: how long the ranks have waited is not read from the files",
        longest_report().as_secs()
    )
}

/// Least share of the time that ranks wait for one another, from which a cost of 0 would be misleading.
const MUCH_WAITING: f64 = 0.05;

/// Returns why the cost is unknown if the detector names no rank, and how long the ranks waited.
fn unknown_cost(report: &Report) -> Option<String> {
    if report.loss().is_some() {
        return Some("by its past: the detector of running jobs names no rank".to_owned());
    }
    let waiting = report.waiting.as_ref()?;
    let is_much = waiting.share >= Some(MUCH_WAITING);
    // Operations side by side count each, which can be more than all time.
    let share = waiting.share.filter(|share| *share < 1.0);
    let of_time = |share: f64| format!(", {:.1} % of the traced time", share * 100.0);
    is_much.then(|| {
        format!(
            "no part of the trace is known to be healthy; the ranks waited {:.2} GPU-seconds for one another{}",
            waiting.gpu_s,
            share.map_or_else(|| " in operations side by side".to_owned(), of_time)
        )
    })
}

/// Returns what can be said if the detector names no rank.
fn without_outlier(report: &Report) -> String {
    let why = "the detector of running jobs, which needs seconds of healthy steps before a fault, names none";
    if let Some(late) = &report.late_together {
        return format!("{}, by their arrivals alone: {why}", late.noun());
    }
    match (report.cause(), report.late.len()) {
        (Some(one), 1) => format!("rank {}, by its arrivals alone: {why}", one.rank),
        (Some(one), _) => format!("rank {}, by its arrivals and its computation: {why}", one.rank),
        (None, 0) => match report.waiting.as_ref().and_then(|waiting| waiting.by_turns.as_ref()) {
            Some(turns) => format!(
                "no rank is named: {} ranks arrive last by turns, at {} operations: uneven work, such as batches of different sizes",
                turns.n_ranks, turns.n_ops
            ),
            None => "no rank is named: no lag reaches the limits of the detector".to_owned(),
        },
        (None, _) => "no rank is named: the traced steps have no healthy ones to compare with, or are too few; see arrival"
            .to_owned(),
    }
}

/// Returns whether the answer names neither a rank nor a condition.
fn is_empty(answer: &Value) -> bool {
    let has = |name: &str| {
        let list = answer.get(name).and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty())
    };
    !has("outliers") && !has("conditions")
}
