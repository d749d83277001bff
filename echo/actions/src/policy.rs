//! Policy: which incidents are reported to which consumer, and the limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use echo_core::model::detector_output::Severity;
use echo_core::pattern::Pattern;
use serde::{Deserialize, Serialize};

use crate::notice::{Blame, Candidate};

mod file;

/// Policy of the operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// True if nothing may be sent.
    pub kill_switch: bool,
    /// File whose existence means the same, if not the usual one.
    pub kill_switch_file: Option<PathBuf>,
    /// Limits for all consumers.
    pub limits: Limits,
    /// Consumers by name.
    pub consumers: BTreeMap<String, ConsumerPolicy>,
    /// Rules; an incident is reported if one matches.
    pub rules: Vec<Rule>,
}

/// Limits for all consumers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Nodes of a cluster, at most.
    pub nodes: NodeLimit,
    /// Share of the ranks of a cluster that have to report, 0 to 1.
    pub min_coverage: f64,
    /// Confidence that an incident has to have, 0 to 1.
    pub min_confidence: f64,
}

/// Nodes of a cluster that may be acted on at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeLimit {
    /// Number of nodes.
    pub max_nodes: u32,
    /// Percent of the nodes of the cluster.
    pub max_percent: f64,
}

/// A consumer and its own limits.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerPolicy {
    /// Whether anything is sent.
    pub mode: Mode,
    /// Nodes of a cluster, at most.
    pub nodes: NodeLimit,
    /// Destination.
    pub destination: Destination,
}

/// Whether actions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Actions are logged, audited and counted only.
    #[default]
    Shadow,
    /// Actions are carried out.
    Act,
}

impl Mode {
    /// Name in files, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Act => "act",
        }
    }
}

/// System that receives actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// URL that receives signed JSON.
    Webhook(Webhook),
    /// Channel of Slack, or of what takes its messages.
    Slack(Slack),
    /// Service of PagerDuty.
    PagerDuty(PagerDuty),
    /// Alertmanager of Prometheus.
    Alertmanager(Alertmanager),
    /// Nodes of a Kubernetes cluster.
    Kubernetes(Kubernetes),
    /// Nodes of a Slurm cluster.
    Slurm(Slurm),
    /// Agents of the hosts, which answer launchers and health monitors.
    Agents(Agents),
}

impl Destination {
    /// Name of the kind in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::PagerDuty(_) => "pagerduty",
            Self::Alertmanager(_) => "alertmanager",
            Self::Kubernetes(_) => "kubernetes",
            Self::Slurm(_) => "slurm",
            Self::Agents(_) => "agents",
        }
    }

    /// Returns true if actions are about nodes, however many incidents a node has.
    pub const fn is_per_node(&self) -> bool {
        matches!(self, Self::Kubernetes(_) | Self::Slurm(_))
    }

    /// Returns true if changes of an incident are reported.
    pub const fn takes_changes(&self) -> bool {
        !matches!(self, Self::Slack(_) | Self::PagerDuty(_) | Self::Slurm(_))
    }

    /// Interval at which an open incident is reported again; `None` if that is not necessary.
    pub const fn refresh_every(&self) -> Option<Duration> {
        match self {
            Self::Alertmanager(_) => Some(Duration::from_mins(1)),
            Self::Kubernetes(_) => Some(Duration::from_mins(5)),
            Self::Webhook(_)
            | Self::Slack(_)
            | Self::PagerDuty(_)
            | Self::Slurm(_)
            | Self::Agents(_) => None,
        }
    }
}

/// URL that receives signed JSON.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Address.
    pub url: String,
    /// File with the key of the signature.
    pub secret_file: PathBuf,
    /// Certificate authorities, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Channel of Slack: a message when an incident is raised and when it is cleared.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    /// File with the address of the incoming webhook, which is a secret.
    pub url_file: PathBuf,
    /// Address of Echo as people reach it, for links to the incident and the runbook.
    pub page_url: Option<String>,
    /// Certificate authorities, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Service of PagerDuty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagerDuty {
    /// File with the routing key of an integration with the Events API, version 2.
    pub routing_key_file: PathBuf,
    /// Address of the API; another one for the service region EU.
    #[serde(default = "pagerduty_api")]
    pub url: String,
    /// Address of Echo as people reach it, for links to the incident and the runbook.
    pub page_url: Option<String>,
    /// Certificate authorities, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

fn pagerduty_api() -> String {
    "https://events.pagerduty.com/v2/enqueue".to_owned()
}

/// Alertmanager of Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alertmanager {
    /// Address, without `/api/v2/alerts`.
    pub url: String,
    /// Address of Echo as people reach it, for links to the incident and the runbook.
    pub page_url: Option<String>,
    /// File with a bearer token, if one is required.
    pub token_file: Option<PathBuf>,
    /// Certificate authorities, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Nodes of a Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kubernetes {
    /// Address of the API server.
    pub server: String,
    /// File with the token of the service account.
    pub token_file: PathBuf,
    /// Certificate authorities of the API server.
    pub ca_file: PathBuf,
    /// True if an event is created for each change.
    pub events: bool,
    /// True if the node also gets a taint, `PreferNoSchedule`.
    pub taint: bool,
}

impl Default for Kubernetes {
    fn default() -> Self {
        let folder = PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount");
        Self {
            server: "https://kubernetes.default.svc".to_owned(),
            token_file: folder.join("token"),
            ca_file: folder.join("ca.crt"),
            events: true,
            taint: false,
        }
    }
}

/// Nodes of a Slurm cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// The program `scontrol`.
    pub scontrol: PathBuf,
}

impl Default for Slurm {
    fn default() -> Self {
        Self {
            scontrol: PathBuf::from("scontrol"),
        }
    }
}

/// Agents of the hosts. They need no setting: each response to an agent carries its culprits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agents {}

/// Selects incidents for consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Names of the consumers.
    pub consumers: Vec<String>,
    /// Clusters.
    pub clusters: Vec<Pattern>,
    /// Reasons to blame a rank.
    pub classes: Vec<Blame>,
    /// Lowest severity.
    pub min_severity: Severity,
    /// Time for which the incident has to be open, by the clock of Echo.
    pub open_for: Duration,
}

impl Rule {
    /// Returns true if the rule is about the cluster, the class and the severity of an incident.
    pub fn matches(&self, candidate: &Candidate) -> bool {
        let cluster = &candidate.notice.cluster;
        self.clusters.iter().any(|one| one.matches(cluster))
            && self.classes.contains(&candidate.blame)
            && candidate.severity >= self.min_severity
    }
}

/// Error of a policy file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid actions file: {}", self.mistakes.join("; "))]
pub struct PolicyError {
    /// One message per mistake.
    pub mistakes: Vec<String>,
}

impl Policy {
    /// Parses a policy in YAML. Paths of files are relative to `folder`.
    pub fn parse(text: &str, folder: &std::path::Path) -> Result<Self, PolicyError> {
        file::parse(text, folder)
    }
}

#[cfg(test)]
mod tests;
