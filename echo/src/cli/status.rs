//! `fleet-echo status`: the open incidents, each with its cause, its cost and the next command.

use std::io::{self, Write};

use clap::Args;
use clap::builder::styling::{AnsiColor, Effects};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cli::age::with_age;
use crate::cli::column::Column;
use crate::cli::connection::ConnectionArgs;
use crate::cli::cost::{at_least, lost};
use crate::cli::next_command::next_command;
use crate::cli::output::Format;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::{Table, wrapped};
use crate::cli::view::{self, counted, heading, list, money, number, percent, quality, text};
use crate::cli::watch::WatchArgs;
use crate::cli::{CliError, ClientArgs, ToolInput, call_tool, for_display, hang};

/// Open incidents: what is slow, since when, why, what it costs, and what to run next.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Repetition.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Width of the labels in a block.
const LABEL: usize = 10;

/// Maximum width of a block; longer lines are hard to read.
const MAX_WIDTH: u16 = 120;

const CSV: [Column<'_>; 15] = [
    Column::text("", "cluster"),
    Column::text("", "severity"),
    Column::text("", "kind"),
    Column::text("", "node_id"),
    Column::text("", "rank"),
    Column::text("", "ranks"),
    Column::text("", "gpu_model"),
    Column::text("", "gpu_uuid"),
    Column::text("", "job"),
    Column::text("", "first_seen"),
    Column::text("", "effect_ratio"),
    Column::text("", "cost"),
    Column::text("", "run_rate_per_hour"),
    Column::text("", "currency"),
    Column::text("", "reason"),
];

/// Runs the command.
pub fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    args.watch
        .repeat(args.client.output, screen, |screen| once(args, screen))
}

fn once(args: &StatusArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let (scope, connection) = (&args.scope, &args.client.connection);
    let Some(answer) = for_display(&args.client, fetch(scope, connection), screen)? else {
        return Ok(());
    };
    let output = args.client.output;
    if output.has_rows_only() {
        let (outliers, cost) = (field(&answer, "outliers"), field(&answer, "cost"));
        let rows = open_incidents(outliers, cost, connection);
        return Ok(Table::new(&CSV, &rows).write_rows(output, screen)?);
    }
    let found = OpenIncidents::from_answer(&answer, scope, connection);
    let page = Page {
        args,
        found: &found.outliers,
        cost: &found.cost,
        incidents: &found.incidents,
    };
    Ok(page.print(screen)?)
}

fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// Returns the answers of two tools as one document.
fn fetch(scope: &ScopeArgs, connection: &ConnectionArgs) -> Result<(Vec<u8>, Value), CliError> {
    let input = ToolInput::from_scope(scope);
    let (_, outliers) = call_tool(connection, "fleet.cluster.find_outlier_nodes", input)?;
    let input = ToolInput::from_scope(scope).with("limit", Some(2_000_u32));
    let (_, cost) = call_tool(connection, "fleet.cluster.get_cost", input)?;
    let answer = json!({ "outliers": outliers, "cost": cost });
    Ok((format!("{answer}\n").into_bytes(), answer))
}

/// Open incidents with their cost, and the answers of the tools that they come from.
#[derive(Debug)]
pub(super) struct OpenIncidents {
    /// Answer of `find_outlier_nodes`.
    pub(super) outliers: Value,
    /// Answer of `get_cost`.
    pub(super) cost: Value,
    /// Culprits and unhealthy nodes, then conditions; each with its age in the field `for`.
    pub(super) incidents: Vec<Value>,
}

impl OpenIncidents {
    /// Queries them.
    pub(super) fn fetch(scope: &ScopeArgs, connection: &ConnectionArgs) -> Result<Self, CliError> {
        let (_, answer) = fetch(scope, connection)?;
        let answer = view::sanitize(answer);
        Ok(Self::from_answer(&answer, scope, connection))
    }

    fn from_answer(answer: &Value, scope: &ScopeArgs, connection: &ConnectionArgs) -> Self {
        let (outliers, cost) = (field(answer, "outliers"), field(answer, "cost"));
        let incidents = open_incidents(outliers, cost, connection);
        Self {
            incidents: with_age(&incidents, outliers, scope, connection),
            outliers: outliers.clone(),
            cost: cost.clone(),
        }
    }
}

fn open_incidents(found: &Value, cost: &Value, connection: &ConnectionArgs) -> Vec<Value> {
    let is_open = |row: &Value| text(row, "state") == "open";
    let named = list(found, "outliers").iter().cloned();
    let named = named.map(|mut row| {
        let role = text(&row, "role");
        if let Some(fields) = row.as_object_mut() {
            fields.insert("kind".to_owned(), json!(role));
        }
        row
    });
    let open = json!({
        "window": field(found, "window"),
        "conditions": list(found, "conditions").iter().filter(|row| is_open(row)).collect::<Vec<_>>(),
    });
    let conditions = hang::named(&open, connection);
    let incidents = named.filter(is_open).chain(conditions);
    incidents.map(|row| with_cost(row, cost)).collect()
}

/// Adds the cost of an incident, if it has any.
fn with_cost(mut incident: Value, cost: &Value) -> Value {
    let of_incident = |row: &&Value| {
        let names = ["incident_id", "cluster"];
        names
            .iter()
            .all(|name| field(row, name) == field(&incident, name))
    };
    let contributor = list(cost, "contributors").iter().find(of_incident).cloned();
    if let (Some(contributor), Some(fields)) = (contributor, incident.as_object_mut()) {
        for name in ["cost", "currency", "run_rate_per_hour", "lost_gpu_hours"] {
            fields.insert(name.to_owned(), field(&contributor, name).clone());
        }
    }
    incident
}

/// What is printed.
struct Page<'a> {
    args: &'a StatusArgs,
    found: &'a Value,
    cost: &'a Value,
    incidents: &'a [Value],
}

impl Page<'_> {
    fn print(&self, screen: &mut Screen<'_>) -> io::Result<()> {
        writeln!(screen, "{}\n", heading(self.found))?;
        if self.incidents.is_empty() {
            let is_known =
                self.found.pointer("/data_quality/quorum_met") == Some(&Value::Bool(true));
            let verdict = if is_known {
                "no open incidents"
            } else {
                "not enough data to name outliers"
            };
            writeln!(screen, "{verdict}\n")?;
        }
        let longest = self
            .incidents
            .iter()
            .map(|row| text(row, "cluster").chars().count());
        let indent = longest.max().unwrap_or(0) + 2;
        for incident in self.incidents {
            self.print_block(incident, indent, screen)?;
            writeln!(screen)?;
        }
        let cleared = list(self.found, "conditions")
            .iter()
            .chain(list(self.found, "outliers"));
        let n_cleared = cleared
            .filter(|row| text(row, "state") == "cleared")
            .count();
        if n_cleared > 0 {
            let cleared = counted(n_cleared, "incident");
            let (scope, connection) = (&self.args.scope, &self.args.client.connection);
            let cluster = [("-c", scope.cluster.clone())];
            let command = next_command("outliers", &cluster, scope, connection);
            writeln!(
                screen,
                "{cleared} cleared in this window: {command} lists all"
            )?;
        }
        let window = lost(self.cost, "window_total");
        let hourly = lost(self.cost, "run_rate_per_hour");
        writeln!(
            screen,
            "lost {window} in this window, {hourly} per hour now"
        )?;
        writeln!(screen, "{}", quality(self.found))
    }

    fn print_block(
        &self,
        incident: &Value,
        indent: usize,
        screen: &mut Screen<'_>,
    ) -> io::Result<()> {
        let lines = self.lines(incident);
        let width = screen.width.map(|width| width.min(MAX_WIDTH));
        let (title, since) = (title(incident), self.since(incident));
        let cluster = text(incident, "cluster");
        let used = indent + title.chars().count();
        let room = width.map_or(2, |width| {
            usize::from(width).saturating_sub(used + since.chars().count())
        });
        let shown = if screen.has_color {
            colored(&title, incident)
        } else {
            title
        };
        if room >= 2 {
            writeln!(screen, "{cluster:<indent$}{shown}{:room$}{since}", "")?;
        } else {
            writeln!(screen, "{cluster:<indent$}{shown}")?;
            print_line(screen, indent, ("", &since))?;
        }
        for (label, line) in &lines {
            print_line(screen, indent, (label, line))?;
        }
        Ok(())
    }

    fn since(&self, incident: &Value) -> String {
        let window = field(self.found, "window");
        let first_seen = text(incident, "first_seen");
        let shown = match view::instant(incident, "first_seen") {
            Some(since) if self.args.client.output.output != Format::Wide => {
                let since = since.to_zoned(TimeZone::UTC);
                let end = view::instant(window, "to").map(|end| end.to_zoned(TimeZone::UTC));
                let is_today = end.is_some_and(|end| end.date() == since.date());
                let form = if is_today {
                    "%H:%M:%S UTC"
                } else {
                    "%F %H:%M:%S UTC"
                };
                since.strftime(form).to_string()
            }
            _ => first_seen,
        };
        format!("open {}, since {shown}", text(incident, "for"))
    }

    /// Returns the lines of a block that the answer has data for, each with its label.
    fn lines(&self, incident: &Value) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let is_culprit = text(incident, "kind") == "culprit";
        let names = |fields: &[&str]| {
            let found = fields
                .iter()
                .filter_map(|name| incident.get(name)?.as_str());
            let found: Vec<&str> = found.collect();
            (!found.is_empty()).then(|| found.join(", "))
        };
        lines.extend(names(&["gpu_model", "gpu_uuid"]).map(|line| ("GPU", line)));
        lines.extend(names(&["job", "pod"]).map(|line| ("job", line)));
        if is_culprit {
            let (class, sure) = (text(incident, "class"), percent(incident, "confidence"));
            lines.push(("cause", format!("{class} ({sure} confidence)")));
            lines.push(("slower", slower(incident)));
            lines.extend(
                view::host_evidence(incident)
                    .into_iter()
                    .map(|line| ("evidence", line)),
            );
        } else {
            if !hang::stops_job(incident) && number(incident, "effect_ratio").is_some() {
                lines.push(("slower", slower(incident)));
            }
            let name = if incident.get("missing").is_some() {
                "detail"
            } else {
                "reason"
            };
            lines.push(("reason", text(incident, name)));
        }
        lines.extend(cost_line(incident).map(|line| ("cost", line)));
        lines.extend(view::recurrence(incident).map(|line| ("recurs", line)));
        let advice = view::advice(incident).into_iter();
        lines.extend(advice.map(|line| ("do", line)));
        lines.extend(self.next_command(incident).map(|line| ("next", line)));
        lines
    }

    /// Returns the command that explains an incident; `None` without a rank to explain.
    fn next_command(&self, incident: &Value) -> Option<String> {
        let rank = incident
            .get("rank")
            .or_else(|| list(incident, "ranks").first())?
            .as_u64()?;
        let field = |name: &str| incident.get(name).and_then(Value::as_str);
        let flags = [
            ("-c", field("cluster").map(str::to_owned)),
            ("--rank", Some(rank.to_string())),
            ("--job", field("job").map(str::to_owned)),
        ];
        let (scope, connection) = (&self.args.scope, &self.args.client.connection);
        Some(next_command("explain", &flags, scope, connection))
    }
}

fn print_line(screen: &mut Screen<'_>, indent: usize, line: (&str, &str)) -> io::Result<()> {
    let (label, text) = line;
    let rest = screen.width.map(|width| {
        let width = usize::from(width.min(MAX_WIDTH)).saturating_sub(indent + LABEL);
        u16::try_from(width).unwrap_or(u16::MAX).max(20)
    });
    // A command is one line, so that it can be copied.
    let rest = rest.filter(|_| label != "next");
    let lines = rest.map_or_else(|| vec![text.to_owned()], |rest| wrapped(text, 0, rest));
    let mut label = label;
    for line in lines {
        writeln!(screen, "{:indent$}{label:<LABEL$}{line}", "")?;
        label = "";
    }
    Ok(())
}

fn colored(title: &str, incident: &Value) -> String {
    let color = match text(incident, "severity").as_str() {
        "critical" => AnsiColor::Red,
        _ => AnsiColor::Yellow,
    };
    let style = color.on_default().effects(Effects::BOLD);
    format!("{style}{title}{style:#}")
}

fn title(incident: &Value) -> String {
    let kind = text(incident, "kind");
    if kind != "culprit" {
        let kind = kind.replace('_', " ").to_uppercase();
        let subject = ["missing", "node_id"].map(|name| incident.get(name)?.as_str());
        let subject = subject.into_iter().flatten().next();
        return subject.map_or_else(|| kind.clone(), |subject| format!("{kind}: {subject}"));
    }
    let (rank, node) = (text(incident, "rank"), text(incident, "node_id"));
    format!("RANK {rank} on {node} holds back its job")
}

/// Describes the slowdown of the job, and the lag of the rank that causes it.
fn slower(incident: &Value) -> String {
    let ratio = percent(incident, "effect_ratio");
    let periods = number(incident, "healthy_period_ms").zip(number(incident, "period_ms"));
    let periods = periods.map(|(healthy, now)| format!(" ({healthy:.1} -> {now:.1} ms)"));
    let lag = number(incident, "lag_ms").map(|lag| format!(", {lag:.1} ms late"));
    let (periods, lag) = (periods.unwrap_or_default(), lag.unwrap_or_default());
    format!("+{ratio} per iteration{periods}{lag}")
}

/// Describes the cost of an incident; `None` if it has lost nothing in the window.
fn cost_line(incident: &Value) -> Option<String> {
    let hours = number(incident, "lost_gpu_hours")?;
    if number(incident, "cost").is_none() {
        return Some(format!("{hours:.4} GPU-hours so far, without a price"));
    }
    let currency = text(incident, "currency");
    let so_far = format!(
        "{}{} {currency} so far",
        at_least(incident),
        money(incident, "cost")
    );
    Some(match number(incident, "run_rate_per_hour") {
        Some(_) => format!(
            "{so_far}, {} {currency} per hour now",
            money(incident, "run_rate_per_hour")
        ),
        None => so_far,
    })
}
