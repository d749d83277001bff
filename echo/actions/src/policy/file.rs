//! Format of the policy file. Unknown keys are refused, with their line and the known ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use echo_core::model::detector_output::Severity;
use echo_core::pattern::Pattern;
use serde::Deserialize;

use super::{
    Agents, Alertmanager, ConsumerPolicy, Destination, Kubernetes, Limits, Mode, NodeLimit,
    PagerDuty, Policy, PolicyError, Rule, Slack, Slurm, Webhook,
};
use crate::notice::Blame;

/// Lowest confidence that a file may require.
const LOWEST_CONFIDENCE: f64 = 0.5;

/// Longest time for which an incident may have to be open.
const LONGEST: Duration = Duration::from_hours(24);

/// Longest name of a consumer, which is a label of metrics.
const LONGEST_NAME: usize = 63;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    kill_switch: bool,
    kill_switch_file: Option<PathBuf>,
    limits: FileLimits,
    consumers: BTreeMap<String, Consumer>,
    rules: Vec<FileRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileLimits {
    max_nodes: u32,
    max_percent: f64,
    min_coverage: f64,
    min_confidence: f64,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            max_nodes: 1,
            max_percent: 5.0,
            min_coverage: 0.9,
            min_confidence: 0.8,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Consumer {
    mode: Mode,
    max_nodes: Option<u32>,
    max_percent: Option<f64>,
    webhook: Option<Webhook>,
    slack: Option<Slack>,
    pagerduty: Option<PagerDuty>,
    alertmanager: Option<Alertmanager>,
    kubernetes: Option<Kubernetes>,
    slurm: Option<Slurm>,
    agents: Option<Agents>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    consumers: Vec<String>,
    #[serde(default = "all_clusters")]
    clusters: Vec<String>,
    #[serde(default = "usual_classes")]
    classes: Vec<String>,
    #[serde(default = "usual_severity")]
    min_severity: String,
    #[serde(default = "usual_time")]
    open_for: String,
}

fn all_clusters() -> Vec<String> {
    vec!["*".to_owned()]
}

fn usual_classes() -> Vec<String> {
    Blame::USUAL.map(|blame| blame.name().to_owned()).to_vec()
}

fn usual_severity() -> String {
    "warn".to_owned()
}

fn usual_time() -> String {
    "5m".to_owned()
}

/// Parses a file.
pub(super) fn parse(text: &str, folder: &Path) -> Result<Policy, PolicyError> {
    let file: File = serde_norway::from_str(text).map_err(|error| PolicyError {
        mistakes: vec![with_hint(&error.to_string())],
    })?;
    let mut mistakes = Vec::new();
    let limits = limits(&file.limits, &mut mistakes);
    let mut consumers = BTreeMap::new();
    for (name, consumer) in file.consumers {
        let at = format!("consumers.{name}");
        if !is_label(&name) {
            mistakes.push(format!(
                "{at}: a name has 1 to {LONGEST_NAME} lower-case letters, digits and hyphens"
            ));
        }
        if let Some(consumer) = parse_consumer(&at, (consumer, &limits), folder, &mut mistakes) {
            consumers.insert(name, consumer);
        }
    }
    let numbered = file.rules.into_iter().enumerate();
    let rules = numbered
        .filter_map(|(index, rule)| {
            let at = format!("rules[{index}]");
            check_consumers(&at, &rule.consumers, &consumers, &mut mistakes);
            parse_rule(&at, rule, &mut mistakes)
        })
        .collect();
    if !mistakes.is_empty() {
        return Err(PolicyError { mistakes });
    }
    Ok(Policy {
        kill_switch: file.kill_switch,
        kill_switch_file: file.kill_switch_file.map(|path| folder.join(path)),
        limits,
        consumers,
        rules,
    })
}

/// Adds the most similar known key to the message about an unknown one.
fn with_hint(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(unknown) = quoted.next().filter(|_| message.contains("unknown field")) else {
        return message.to_owned();
    };
    let similar = quoted.map(|known| (strsim::jaro_winkler(unknown, known), known));
    let nearest = similar.max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, known)) if likeness > 0.8 => {
            format!("{message}; did you mean `{known}`?")
        }
        _ => message.to_owned(),
    }
}

fn limits(file: &FileLimits, mistakes: &mut Vec<String>) -> Limits {
    let nodes = NodeLimit {
        max_nodes: file.max_nodes,
        max_percent: file.max_percent,
    };
    check_percent("limits", nodes.max_percent, mistakes);
    if !(0.0..=1.0).contains(&file.min_coverage) {
        mistakes.push("limits.min_coverage: is not between 0 and 1".to_owned());
    }
    if !(LOWEST_CONFIDENCE..=1.0).contains(&file.min_confidence) {
        mistakes.push(format!(
            "limits.min_confidence: is not between {LOWEST_CONFIDENCE} and 1"
        ));
    }
    Limits {
        nodes,
        min_coverage: file.min_coverage,
        min_confidence: file.min_confidence,
    }
}

fn check_percent(at: &str, percent: f64, mistakes: &mut Vec<String>) {
    if !(0.0..=100.0).contains(&percent) {
        mistakes.push(format!("{at}.max_percent: is not between 0 and 100"));
    }
}

fn is_label(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(allowed)
}

fn parse_consumer(
    at: &str,
    (consumer, limits): (Consumer, &Limits),
    folder: &Path,
    mistakes: &mut Vec<String>,
) -> Option<ConsumerPolicy> {
    let nodes = NodeLimit {
        max_nodes: consumer.max_nodes.unwrap_or(limits.nodes.max_nodes),
        max_percent: consumer.max_percent.unwrap_or(limits.nodes.max_percent),
    };
    check_percent(at, nodes.max_percent, mistakes);
    let given = [
        consumer.webhook.map(Destination::Webhook),
        consumer.slack.map(Destination::Slack),
        consumer.pagerduty.map(Destination::PagerDuty),
        consumer.alertmanager.map(Destination::Alertmanager),
        consumer.kubernetes.map(Destination::Kubernetes),
        consumer.slurm.map(Destination::Slurm),
        consumer.agents.map(Destination::Agents),
    ];
    let mut given: Vec<Destination> = given.into_iter().flatten().collect();
    let Some(mut destination) = given.pop().filter(|_| given.is_empty()) else {
        mistakes.push(format!(
            "{at}: needs exactly one of webhook, slack, pagerduty, alertmanager, kubernetes, slurm, agents"
        ));
        return None;
    };
    complete_paths(&mut destination, folder);
    check_url(at, &destination, mistakes);
    Some(ConsumerPolicy {
        mode: consumer.mode,
        nodes,
        destination,
    })
}

fn complete_paths(destination: &mut Destination, folder: &Path) {
    let complete = |path: &mut PathBuf| *path = folder.join(&*path);
    match destination {
        Destination::Webhook(own) => {
            complete(&mut own.secret_file);
            own.ca_file.iter_mut().for_each(complete);
        }
        Destination::Slack(own) => {
            complete(&mut own.url_file);
            own.ca_file.iter_mut().for_each(complete);
        }
        Destination::PagerDuty(own) => {
            complete(&mut own.routing_key_file);
            own.ca_file.iter_mut().for_each(complete);
        }
        Destination::Alertmanager(own) => {
            own.token_file.iter_mut().for_each(complete);
            own.ca_file.iter_mut().for_each(complete);
        }
        Destination::Kubernetes(own) => {
            complete(&mut own.token_file);
            complete(&mut own.ca_file);
        }
        Destination::Slurm(_) | Destination::Agents(_) => {}
    }
}

fn check_url(at: &str, destination: &Destination, mistakes: &mut Vec<String>) {
    let (server, page) = match destination {
        Destination::Webhook(own) => (Some(("url", &own.url)), None),
        Destination::Alertmanager(own) => (Some(("url", &own.url)), own.page_url.as_ref()),
        Destination::PagerDuty(own) => (Some(("url", &own.url)), own.page_url.as_ref()),
        Destination::Kubernetes(own) => (Some(("server", &own.server)), None),
        Destination::Slack(own) => (None, own.page_url.as_ref()),
        Destination::Slurm(_) | Destination::Agents(_) => (None, None),
    };
    for (field, url) in page.map(|url| ("page_url", url)).into_iter().chain(server) {
        let rest = url
            .strip_prefix("https://")
            .or_else(|| url.strip_prefix("http://"));
        let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "<>|\"".contains(c);
        if !is_url || url.chars().any(is_odd) {
            let kind = destination.name();
            mistakes.push(format!(
                "{at}.{kind}.{field}: {url:?} is not an address such as https://host:8443/path"
            ));
        }
    }
}

fn check_consumers(
    at: &str,
    named: &[String],
    known: &BTreeMap<String, ConsumerPolicy>,
    mistakes: &mut Vec<String>,
) {
    if named.is_empty() {
        mistakes.push(format!("{at}.consumers: is empty"));
    }
    for name in named.iter().filter(|name| !known.contains_key(*name)) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        mistakes.push(format!(
            "{at}.consumers: {name:?} is not one of the consumers of this file ({})",
            names.join(", ")
        ));
    }
}

fn parse_rule(at: &str, rule: FileRule, mistakes: &mut Vec<String>) -> Option<Rule> {
    let mut add = |field: &str, why: String| mistakes.push(format!("{at}.{field}: {why}"));
    let mut clusters = Vec::new();
    for text in &rule.clusters {
        match text.parse::<Pattern>() {
            Ok(pattern) => clusters.push(pattern),
            Err(why) => add("clusters", format!("{text:?} {why}")),
        }
    }
    let mut classes = Vec::new();
    for text in &rule.classes {
        match Blame::ALL.into_iter().find(|blame| blame.name() == text) {
            Some(class) => classes.push(class),
            None => add(
                "classes",
                format!(
                    "{text:?} is not one of {}: other classes have no host to blame",
                    Blame::ALL.map(Blame::name).join(", ")
                ),
            ),
        }
    }
    let severity = Severity::ALL
        .into_iter()
        .find(|severity| severity.name() == rule.min_severity);
    if severity.is_none() {
        let names = Severity::ALL.map(Severity::name).join(", ");
        add(
            "min_severity",
            format!("{:?} is not one of {names}", rule.min_severity),
        );
    }
    let open_for = length(&rule.open_for);
    if open_for.is_none() {
        add(
            "open_for",
            format!(
                "{:?} is not a length such as 30s, 5m or 2h, at most 24h",
                rule.open_for
            ),
        );
    }
    Some(Rule {
        consumers: rule.consumers,
        clusters,
        classes,
        min_severity: severity?,
        open_for: open_for?,
    })
}

/// Parses a length such as `30s`, `5m` or `2h`.
fn length(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(split)?;
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit_s)?;
    Some(Duration::from_secs(seconds)).filter(|length| *length <= LONGEST)
}
