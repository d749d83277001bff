//! Limits of the number of stragglers and of conditions.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use echo_core::model::detector_output::ConditionKind;
use echo_tools::Limits;
use serde_json::Value;

use crate::cli::assert::case::{Case, Check};
use crate::cli::assert::parse_share;
use crate::cli::view::{decimals, list, number, percent, text};

/// Maximum number of stragglers, and of conditions, named in a line.
const MAX_NAMED: usize = 3;

/// Maximum number of stragglers, with filters.
#[derive(Debug, Clone, Args)]
pub struct OutlierLimitArgs {
    /// Maximum number of ranks that hold back others
    #[arg(long, value_name = "COUNT", env = "FLEET_ECHO_MAX_OUTLIERS")]
    pub max: u32,
    /// Count only this class of cause. Can be repeated [default: all]
    #[arg(
        long,
        value_name = "CLASS",
        env = "FLEET_ECHO_CLASS",
        value_delimiter = ','
    )]
    pub class: Vec<Class>,
    /// Accept conditions of this kind, which would fail the check. Can be repeated [default: none]
    #[arg(
        long,
        value_name = "KIND",
        env = "FLEET_ECHO_ALLOW_CONDITION",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(ConditionKind::ALL.map(ConditionKind::name))
    )]
    pub allow_condition: Vec<String>,
    /// Count only stragglers and conditions with at least this confidence: `0.9` or `90%`
    #[arg(long, value_name = "SHARE", env = "FLEET_ECHO_MIN_CONFIDENCE", value_parser = parse_share)]
    pub min_confidence: Option<f64>,
}

/// Class of a cause, as answers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// The host is late.
    Host,
    /// The GPU is slow.
    Device,
    /// Transfers are slow.
    Network,
    /// The cause is unclear.
    Inconclusive,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Network => "network",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// Checks a result of `find_outlier_nodes` against the limit.
pub(super) fn check_limits(limits: &OutlierLimitArgs, answer: &Value, case: &mut Case) {
    let age_s = number(&case.quality, "last_event_age_s");
    let stale_s = Limits::default().stale_after.as_secs_f64();
    if let Some(age_s) = age_s.filter(|age_s| *age_s > stale_s) {
        case.missing.push(format!(
            "the last event is {age_s:.0} s before the end of the window: set --to to the end of the job, or use --window all"
        ));
    }
    let stragglers = entries(answer, "outliers", |one| limits.counts_straggler(one));
    let mut conditions = entries(answer, "conditions", |one| limits.counts_condition(one));
    // A node that reports bad health is listed as an outlier, but holds back nothing that was measured.
    let nodes = entries(answer, "outliers", |one| limits.counts_node(one));
    if let Some(conditions) = &mut conditions {
        conditions.extend(nodes.into_iter().flatten());
    }
    add_check(
        case,
        "outliers",
        f64::from(limits.max),
        stragglers,
        straggler_name,
    );
    // No rank may be late, but a hang or a slowdown of all ranks is still a failed run.
    add_check(case, "conditions", 0.0, conditions, condition_name);
}

/// Returns the counted entries of a list in the result; `None` if the result has no such list.
fn entries<'a>(
    answer: &'a Value,
    field: &str,
    is_counted: impl Fn(&Value) -> bool,
) -> Option<Vec<&'a Value>> {
    let list = answer.get(field)?.as_array()?;
    Some(list.iter().filter(|one| is_counted(one)).collect())
}

/// Adds the check of the number of entries, with the first of them in the message.
fn add_check(
    case: &mut Case,
    name: &'static str,
    limit: f64,
    counted: Option<Vec<&Value>>,
    describe: fn(&Value) -> String,
) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a result has a thousand at most"
    )]
    let value = counted.as_ref().map(|counted| counted.len() as f64);
    let label = format!("{name}:");
    let check = Check::new(name, value, limit);
    let mut check = check.with_message(&label, "", |count| format!("{count:.0}"));
    let named = counted.iter().flatten().take(MAX_NAMED);
    let named: Vec<String> = named.map(|one| describe(one)).collect();
    if !named.is_empty() {
        check.message = format!("{} ({})", check.message, named.join(", "));
    }
    let unknown = value.is_none();
    let unknown = unknown.then(|| format!("the result has no list of {name}"));
    case.add_check(check, unknown);
}

impl OutlierLimitArgs {
    /// Returns whether an outlier counts. Missing fields count as a match.
    fn counts_straggler(&self, outlier: &Value) -> bool {
        let class = outlier.get("class").and_then(Value::as_str);
        let is_of_class = self.class.is_empty()
            || class.is_none_or(|class| self.class.iter().any(|one| one.name() == class));
        text(outlier, "role") == "culprit" && is_of_class && self.is_confident(outlier)
    }

    /// Returns whether a condition counts: if its kind is not accepted.
    fn counts_condition(&self, condition: &Value) -> bool {
        let kind = text(condition, "kind");
        !self.allow_condition.contains(&kind) && self.is_confident(condition)
    }

    /// Returns whether an outlier is an unhealthy node that counts as a condition.
    fn counts_node(&self, outlier: &Value) -> bool {
        let kind = ConditionKind::UnhealthyNode.name();
        text(outlier, "role") == kind
            && !self.allow_condition.iter().any(|allowed| allowed == kind)
            && self.is_confident(outlier)
    }

    fn is_confident(&self, entry: &Value) -> bool {
        let confidence = number(entry, "confidence").unwrap_or(1.0);
        self.min_confidence.is_none_or(|least| confidence >= least)
    }
}

fn straggler_name(outlier: &Value) -> String {
    let (node, rank) = (text(outlier, "node_id"), text(outlier, "rank"));
    let (class, lag) = (text(outlier, "class"), decimals(outlier, "lag_ms", 1));
    format!("rank {rank} on {node}, {class}, {lag} ms late")
}

fn condition_name(condition: &Value) -> String {
    if condition.get("role").is_some() {
        return format!("{} {}", text(condition, "role"), text(condition, "node_id"));
    }
    let (kind, slowdown) = (text(condition, "kind"), percent(condition, "effect_ratio"));
    let ranks: Vec<String> = list(condition, "ranks")
        .iter()
        .map(Value::to_string)
        .collect();
    let ranks = match ranks.as_slice() {
        [] => "all ranks".to_owned(),
        [rank] => format!("rank {rank}"),
        [first, .., last] => format!("{} ranks from {first} to {last}", ranks.len()),
    };
    match kind.as_str() {
        // A job that stands still has no iteration time to compare.
        "hang" | "stall" | "crash" => format!("{kind} of {ranks}"),
        _ => format!("{kind} of {ranks}, {slowdown} slower"),
    }
}
