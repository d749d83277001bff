//! Limit of the number of stragglers.

use clap::{Args, ValueEnum};
use echo_tools::Limits;
use serde_json::Value;

use crate::cli::assert::case::{Case, Check};
use crate::cli::assert::parse_share;
use crate::cli::view::{decimals, number, text};

/// Maximum number of stragglers named in a line.
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
    /// Count only stragglers with at least this confidence: `0.9` or `90%`
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
    /// Several of these.
    Mixed,
    /// The cause is unclear.
    Inconclusive,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Network => "network",
            Self::Mixed => "mixed",
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
    let counted: Option<Vec<&Value>> = answer
        .get("outliers")
        .and_then(Value::as_array)
        .map(|outliers| outliers.iter().filter(|one| limits.counts(one)).collect());
    #[expect(
        clippy::cast_precision_loss,
        reason = "a result has a thousand at most"
    )]
    let value = counted.as_ref().map(|counted| counted.len() as f64);
    let check = Check::new("outliers", value, f64::from(limits.max));
    let mut check = check.with_message("outliers:", "", |count| format!("{count:.0}"));
    let named: Vec<String> = counted
        .iter()
        .flatten()
        .take(MAX_NAMED)
        .map(|one| name(one))
        .collect();
    if !named.is_empty() {
        check.message = format!("{} ({})", check.message, named.join(", "));
    }
    let unknown = value
        .is_none()
        .then(|| "the result has no list of outliers".to_owned());
    case.add_check(check, unknown);
}

impl OutlierLimitArgs {
    /// Returns whether an outlier counts. Missing fields count as a match.
    fn counts(&self, outlier: &Value) -> bool {
        let class = outlier.get("class").and_then(Value::as_str);
        let is_of_class = self.class.is_empty()
            || class.is_none_or(|class| self.class.iter().any(|one| one.name() == class));
        let confidence = number(outlier, "confidence").unwrap_or(1.0);
        let is_sure = self.min_confidence.is_none_or(|least| confidence >= least);
        text(outlier, "role") == "culprit" && is_of_class && is_sure
    }
}

fn name(outlier: &Value) -> String {
    let (node, rank) = (text(outlier, "node_id"), text(outlier, "rank"));
    let (class, lag) = (text(outlier, "class"), decimals(outlier, "lag_ms", 1));
    format!("rank {rank} on {node}, {class}, {lag} ms late")
}
