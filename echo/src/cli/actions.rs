//! `fleet-echo actions`: validation of a policy of actions.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use echo_actions::notice::Blame;
use echo_actions::policy::{ConsumerPolicy, Destination, Policy, PolicyError, Rule};
use echo_core::pattern::Pattern;
use serde_json::{Value, json};

/// Commands for a policy of actions.
#[derive(Debug, Clone, Args)]
pub struct ActionsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: ActionsCommand,
}

/// Subcommands of `actions`.
#[derive(Debug, Clone, Subcommand)]
pub enum ActionsCommand {
    /// Validate a policy, and list its consumers and rules
    Check(CheckArgs),
}

/// Policy to check.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct CheckArgs {
    /// Policy file, as for `serve --actions`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
Example:
  fleet-echo actions check actions.yaml

A policy, with the defaults of its limits:
  limits:
    { max_nodes: 1, max_percent: 5, min_coverage: 0.9, min_confidence: 0.8 }
  consumers:
    pager:
      mode: act
      max_nodes: 20
      webhook: { url: https://pager/hook, secret_file: pager.key }
    oncall: { mode: act, pagerduty: { routing_key_file: pagerduty.key } }
    channel: { mode: act, slack: { url_file: slack.url } }
    alerts: { alertmanager: { url: http://alertmanager:9093 } }
    nodes: { kubernetes: {} }
    queue: { slurm: { scontrol: /usr/bin/scontrol } }
    hosts: { agents: {} }
  rules:
    - { consumers: [pager, alerts], min_severity: warn, open_for: 5m }
    - consumers: [nodes]
      clusters: [prod-*]
      classes: [device]
      min_severity: critical
      open_for: 15m

A consumer without `mode: act` is in shadow mode: what it would get is logged and counted only. \
`kill_switch: true` stops everything, and so does a file DB.stop-actions beside the database.

Exit codes: 0 valid file, 64 file cannot be read, 65 invalid file.";

/// Error of a command for a policy.
#[derive(Debug, thiserror::Error)]
pub enum ActionsCommandError {
    /// The file cannot be read.
    #[error("cannot read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The policy is invalid.
    #[error("invalid actions file {}:\n  {}", file.display(), error.mistakes.join("\n  "))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Its mistakes.
        error: PolicyError,
    },
    /// The output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl ActionsCommandError {
    /// Returns the exit code.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Unreadable { .. } => 64,
            Self::Invalid { .. } => 65,
            Self::Output(_) => 74,
        }
    }
}

/// Runs the command.
pub fn run(args: &ActionsArgs, out: &mut dyn Write) -> Result<(), ActionsCommandError> {
    let ActionsCommand::Check(args) = &args.command;
    let file = args.file.clone();
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(source) => return Err(ActionsCommandError::Unreadable { file, source }),
    };
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let name = file.display().to_string();
    match Policy::parse(&text, folder) {
        Ok(policy) if args.json => writeln!(out, "{}", report(&name, &policy))?,
        Ok(policy) => print(&name, &policy, out)?,
        Err(error) => {
            if args.json {
                let mistakes = &error.mistakes;
                let answer = json!({ "file": name, "valid": false, "mistakes": mistakes });
                writeln!(out, "{answer}")?;
            }
            return Err(ActionsCommandError::Invalid { file, error });
        }
    }
    Ok(())
}

fn print(file: &str, policy: &Policy, out: &mut dyn Write) -> io::Result<()> {
    let (consumers, rules) = (policy.consumers.len(), policy.rules.len());
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    writeln!(
        out,
        "{file} is valid: {}, {}",
        plural(consumers, "consumer"),
        plural(rules, "rule")
    )?;
    if policy.kill_switch {
        writeln!(out, "the kill switch is on: nothing is sent")?;
    }
    for (name, consumer) in &policy.consumers {
        writeln!(
            out,
            "  {name}: {}, {} mode, at most {} nodes and {} % of a cluster",
            consumer.destination.name(),
            consumer.mode.name(),
            consumer.nodes.max_nodes,
            consumer.nodes.max_percent
        )?;
    }
    for rule in &policy.rules {
        writeln!(
            out,
            "  {}: {} incidents of class {} in {} that are open for {} s",
            rule.consumers.join(", "),
            rule.min_severity.name(),
            names(&rule.classes).join(", "),
            patterns(rule).join(", "),
            rule.open_for.as_secs()
        )?;
    }
    for note in notes(policy) {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn report(file: &str, policy: &Policy) -> Value {
    let consumers = policy.consumers.iter().map(|(name, consumer)| {
        json!({
            "name": name,
            "kind": consumer.destination.name(),
            "mode": consumer.mode.name(),
            "max_nodes": consumer.nodes.max_nodes,
            "max_percent": consumer.nodes.max_percent,
        })
    });
    let rules = policy.rules.iter().map(|rule| {
        json!({
            "consumers": rule.consumers,
            "clusters": patterns(rule),
            "classes": names(&rule.classes),
            "min_severity": rule.min_severity.name(),
            "open_for_s": rule.open_for.as_secs(),
        })
    });
    json!({
        "file": file,
        "valid": true,
        "mistakes": [],
        "notes": notes(policy),
        "kill_switch": policy.kill_switch,
        "consumers": consumers.collect::<Vec<_>>(),
        "rules": rules.collect::<Vec<_>>(),
    })
}

fn names(classes: &[Blame]) -> Vec<&'static str> {
    classes.iter().map(|class| class.name()).collect()
}

fn patterns(rule: &Rule) -> Vec<&str> {
    rule.clusters.iter().map(Pattern::as_str).collect()
}

/// What is valid but probably unintended.
fn notes(policy: &Policy) -> Vec<String> {
    let is_used = |name: &String| {
        policy
            .rules
            .iter()
            .any(|rule| rule.consumers.contains(name))
    };
    let unused = policy.consumers.keys().filter(|name| !is_used(name));
    let unused = unused.map(|name| format!("no rule names the consumer {name}"));
    let missing = policy
        .consumers
        .iter()
        .flat_map(|(name, consumer)| files(consumer).into_iter().map(move |file| (name, file)))
        .filter(|(_, file)| fs::File::open(file).is_err())
        .map(|(name, file)| {
            let file = file.display();
            format!("{file} of the consumer {name} cannot be read here")
        });
    unused.chain(missing).collect()
}

/// Files that a consumer needs.
fn files(consumer: &ConsumerPolicy) -> Vec<&Path> {
    match &consumer.destination {
        Destination::Webhook(own) => {
            let ca = own.ca_file.as_deref();
            ca.into_iter().chain([own.secret_file.as_path()]).collect()
        }
        Destination::Slack(own) => {
            let ca = own.ca_file.as_deref();
            ca.into_iter().chain([own.url_file.as_path()]).collect()
        }
        Destination::PagerDuty(own) => {
            let ca = own.ca_file.as_deref();
            let files = ca.into_iter().chain([own.routing_key_file.as_path()]);
            files.collect()
        }
        Destination::Alertmanager(own) => {
            let files = own.ca_file.iter().chain(&own.token_file);
            files.map(PathBuf::as_path).collect()
        }
        Destination::Kubernetes(own) => vec![&own.ca_file, &own.token_file],
        Destination::Slurm(_) | Destination::Agents(_) => Vec::new(),
    }
}
