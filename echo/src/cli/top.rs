//! `fleet-echo top`: open incidents on a screen that is drawn again every few seconds and obeys keys.

use std::io::{self, IsTerminal, Stdout, Write};
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::{Args, ValueEnum};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, poll, read};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{cursor, execute};
use echo_core::text::visible;
use serde_json::Value;

use crate::cli::column::{Column, Layout};
use crate::cli::connection::ConnectionArgs;
use crate::cli::cost::lost;
use crate::cli::hang::stops_job;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::status::OpenIncidents;
use crate::cli::table::Table;
use crate::cli::view::{counted, heading, list, number};
use crate::cli::{CliError, view};

/// Open incidents on one screen, most expensive first. The keys c, s and a change the order, and q
/// quits. In a pipe it prints once.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Time between two queries
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=86_400), help_heading = "Output")]
    pub every: u64,
    /// Order of the incidents
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub order: Order,
    /// Connection.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Order of the incidents, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Order {
    /// By cost per hour now; key c
    #[default]
    Cost,
    /// By slowdown of the job; key s
    Slowdown,
    /// By age; key a
    Age,
}

impl Order {
    fn of_key(key: KeyCode) -> Option<Self> {
        match key {
            KeyCode::Char('c') => Some(Self::Cost),
            KeyCode::Char('s') => Some(Self::Slowdown),
            KeyCode::Char('a') => Some(Self::Age),
            _ => None,
        }
    }

    /// Value by which an incident is placed; those without one come last.
    fn value(self, incident: &Value) -> f64 {
        let value = match self {
            Self::Cost => number(incident, "run_rate_per_hour"),
            Self::Slowdown if stops_job(incident) => Some(f64::INFINITY),
            Self::Slowdown => number(incident, "effect_ratio"),
            Self::Age => view::instant(incident, "first_seen")
                .map(|since| -since.as_duration().as_secs_f64()),
        };
        value.unwrap_or(f64::NEG_INFINITY)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost per hour",
            Self::Slowdown => "slowdown",
            Self::Age => "age",
        }
    }
}

const COLUMNS: [Column<'_>; 11] = [
    Column::money("PER HOUR", "run_rate_per_hour"),
    Column::money("SO FAR", "cost"),
    Column::text("CURRENCY", "currency"),
    Column::percent("SLOWER", "effect_ratio"),
    Column::count("FOR", "for").text_only(),
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node_id"),
    Column::number("RANK", "rank", ranks),
    Column::text("KIND", "kind"),
    Column::text("JOB", "job"),
    Column::sentence("WAITS FOR", WAITS_FOR).if_known(),
];

/// Field for what a job that makes no progress waits for.
const WAITS_FOR: &str = "waits_for";

/// Most ranks of a row.
const MAX_RANKS: usize = 4;

/// Lines of the screen that are no incidents: what is shown, sums, header, rest and keys.
const FRAME_LINES: usize = 7;

/// Most characters of an error that are shown.
const MAX_FAILURE: usize = 60;

/// Time for which a key is awaited before the query is looked at again.
const SLICE: Duration = Duration::from_millis(100);

/// Time without an answer after which that is shown.
const LATE: Duration = Duration::from_secs(2);

/// Runs the command. Errors: the first query fails, or the terminal cannot be used; later failures
/// are shown, so that a restart of the server does not end it.
pub fn run(args: &TopArgs, out: &mut Stdout) -> Result<(), CliError> {
    let mut found = fetch(args)?;
    if !out.is_terminal() {
        let mut screen = Screen::stdout(out);
        return Ok(draw(&found, args.order, usize::MAX, &mut screen)?);
    }
    let mut order = args.order;
    let mut queries = Queries::new(args.clone());
    let mut notice = String::new();
    let mut terminal = FullScreen::take(out)?;
    terminal.show(&found, order, &notice)?;
    loop {
        let key = next_key(SLICE)?;
        if key.is_some_and(is_quit) {
            return Ok(());
        }
        let answer = queries.answer(if key.is_none() { SLICE } else { Duration::ZERO });
        if key.is_none() && matches!(answer, Answer::Waiting) {
            continue;
        }
        order = key.and_then(|key| Order::of_key(key.code)).unwrap_or(order);
        match answer {
            Answer::Waiting => {}
            Answer::Late => "no answer yet".clone_into(&mut notice),
            Answer::Found(newer) => (found, notice) = (*newer, String::new()),
            Answer::Failed(error) => notice = one_line(&error),
        }
        terminal.show(&found, order, &notice)?;
    }
}

/// Queries, one at a time in a thread: keys are obeyed while the server does not answer.
struct Queries {
    args: TopArgs,
    running: Option<JoinHandle<Result<OpenIncidents, CliError>>>,
    /// Time since the last query began or ended.
    waited: Duration,
}

/// What is new of a query.
enum Answer {
    Waiting,
    /// There is none yet after [`LATE`]. Said once.
    Late,
    Found(Box<OpenIncidents>),
    Failed(CliError),
}

impl Queries {
    const fn new(args: TopArgs) -> Self {
        Self {
            args,
            running: None,
            waited: Duration::ZERO,
        }
    }

    /// Returns what is new after a time has passed, and begins a query when it is due.
    fn answer(&mut self, passed: Duration) -> Answer {
        let before = self.waited;
        self.waited += passed;
        if let Some(ended) = self.running.take_if(|query| query.is_finished()) {
            self.waited = Duration::ZERO;
            return match ended.join() {
                Ok(Ok(found)) => Answer::Found(Box::new(found)),
                Ok(Err(error)) => Answer::Failed(error),
                Err(panic) => resume_unwind(panic),
            };
        }
        if self.running.is_some() {
            let is_late = before < LATE && self.waited >= LATE;
            return if is_late {
                Answer::Late
            } else {
                Answer::Waiting
            };
        }
        if self.waited >= Duration::from_secs(self.args.every) {
            let args = self.args.clone();
            self.running = Some(thread::spawn(move || fetch(&args)));
            self.waited = Duration::ZERO;
        }
        Answer::Waiting
    }
}

fn fetch(args: &TopArgs) -> Result<OpenIncidents, CliError> {
    OpenIncidents::fetch(&args.scope, &args.connection)
}

/// An error on the line of the keys: a longer one would move the screen.
fn one_line(error: &CliError) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    visible(first).chars().take(MAX_FAILURE).collect()
}

fn is_quit(key: KeyEvent) -> bool {
    let is_interrupt =
        key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// Waits for a key, or for a change of the size; `None` when the time is over.
fn next_key(time: Duration) -> io::Result<Option<KeyEvent>> {
    while poll(time)? {
        match read()? {
            Event::Key(key) => return Ok(Some(key)),
            Event::Resize(_, _) => return Ok(Some(KeyCode::Null.into())),
            _ => {}
        }
    }
    Ok(None)
}

/// Terminal with a screen of its own and unbuffered keys, which is given back at the end.
struct FullScreen<'o>(&'o mut Stdout);

impl<'o> FullScreen<'o> {
    fn take(out: &'o mut Stdout) -> io::Result<Self> {
        enable_raw_mode()?;
        let taken = Self(out);
        execute!(taken.0, EnterAlternateScreen, cursor::Hide)?;
        Ok(taken)
    }

    fn show(&mut self, found: &OpenIncidents, order: Order, notice: &str) -> io::Result<()> {
        let (width, height) = size()?;
        let n_rows = usize::from(height).saturating_sub(FRAME_LINES).max(1);
        let mut page = Vec::new();
        let mut screen = Screen::with_width(&mut page, width);
        draw(found, order, n_rows, &mut screen)?;
        let order = order.name();
        let keys = format!("by {order}: c cost, s slowdown, a age, q quits  {notice}");
        // Rows of a narrow terminal have two lines.
        let page = String::from_utf8_lossy(&page);
        let mut lines: Vec<&str> = page
            .lines()
            .take(usize::from(height).saturating_sub(2))
            .collect();
        lines.extend(["", keys.trim_end()]);
        execute!(self.0, cursor::MoveTo(0, 0), Clear(ClearType::All))?;
        // A raw terminal does not return to the first column.
        self.0.write_all(lines.join("\r\n").as_bytes())?;
        self.0.flush()
    }
}

impl Drop for FullScreen<'_> {
    fn drop(&mut self) {
        let _best_effort = execute!(self.0, LeaveAlternateScreen, cursor::Show);
        let _best_effort = disable_raw_mode();
    }
}

/// Adds the ranks that did not join and how many wait for them, if the job makes no progress.
fn with_wait(incident: &Value) -> Value {
    let mut row = incident.clone();
    let reason = row.get("reason").cloned().unwrap_or_default();
    let is_waiting = stops_job(incident);
    if let Some(fields) = row.as_object_mut().filter(|_| is_waiting) {
        fields.insert(WAITS_FOR.to_owned(), reason);
    }
    row
}

/// Returns the rank of an incident, or its ranks; a dash if it names none.
fn ranks(incident: &Value) -> String {
    let named = list(incident, "ranks").iter().filter_map(Value::as_u64);
    let named: Vec<String> = named.take(MAX_RANKS).map(|rank| rank.to_string()).collect();
    let count = incident.get("rank_count").and_then(Value::as_u64);
    let count = count.and_then(|count| usize::try_from(count).ok());
    match count.unwrap_or(named.len()).saturating_sub(named.len()) {
        _ if named.is_empty() => view::text(incident, "rank"),
        0 => named.join(","),
        more => format!("{} +{more}", named.join(",")),
    }
}

fn draw(
    found: &OpenIncidents,
    order: Order,
    n_rows: usize,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let mut rows: Vec<Value> = found.incidents.iter().map(with_wait).collect();
    rows.sort_by(|a, b| order.value(b).total_cmp(&order.value(a)));
    let left_out = rows.split_off(rows.len().min(n_rows));
    let hourly = lost(&found.cost, "run_rate_per_hour");
    writeln!(screen, "{}", heading(&found.outliers))?;
    writeln!(screen, "{hourly} per hour now\n")?;
    if rows.is_empty() {
        return writeln!(screen, "no open incidents");
    }
    let layout = Layout {
        is_wide: false,
        has_header: true,
    };
    Table::new(&COLUMNS, &rows).print(layout, screen)?;
    if !left_out.is_empty() {
        writeln!(screen, "and {}", counted(left_out.len(), "more incident"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
