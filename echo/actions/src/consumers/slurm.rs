//! Slurm: nodes are drained and resumed with `scontrol`.
//!
//! The state of the node is read first. A node that is drained or down for another reason is left
//! alone, and only a node that carries the reason of Echo is resumed. The result is read again: an
//! exit code of 0 is no proof.

use std::process::{Command, Stdio};
use std::time::Duration;

use echo_core::units::Nanos;

use crate::consumer::{Consumer, DeliveryError};
use crate::notice::Phase;
use crate::policy::Slurm;
use crate::state::Delivery;

/// Longest time of a command.
const TIMEOUT_S: u64 = Duration::from_secs(20).as_secs();

/// Beginning of the reasons that Echo sets, which `NVSentinel` and `NVRx` look for.
const REASON: &str = "[node_problem] straggler:";

/// Sender to Slurm.
#[derive(Debug)]
pub(super) struct SlurmSender(Slurm);

impl SlurmSender {
    pub(super) const fn new(slurm: Slurm) -> Self {
        Self(slurm)
    }

    /// Runs `scontrol`, with a limit of time.
    fn run(&self, arguments: &[String]) -> Result<String, DeliveryError> {
        let program = self.0.scontrol.display();
        let output = Command::new("timeout")
            .args(["--kill-after=5", &TIMEOUT_S.to_string()])
            .arg(&self.0.scontrol)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| DeliveryError::transient(format!("cannot run {program}: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let shown: String = format!("{text} {errors}").chars().take(300).collect();
        let message = format!("{program} ended with {}: {}", output.status, shown.trim());
        let is_unknown = shown.contains("not found") || shown.contains("Invalid node name");
        Err(if is_unknown && output.status.code() == Some(1) {
            DeliveryError::permanent(message)
        } else {
            DeliveryError::transient(message)
        })
    }

    fn node(&self, name: &str) -> Result<Node, DeliveryError> {
        let arguments = ["show", "node", name, "--oneliner"].map(str::to_owned);
        let text = self.run(&arguments)?;
        Node::parse(&text, name).ok_or_else(|| {
            let shown: String = text.chars().take(200).collect();
            DeliveryError::transient(format!("scontrol shows no node {name}: {shown}"))
        })
    }

    fn drain(&self, delivery: &Delivery) -> Result<String, DeliveryError> {
        let name = &delivery.notice.node;
        let node = self.node(name)?;
        if node.is_drained && !node.is_ours() {
            return Ok(format!("left alone: drained for {:?}", node.reason));
        }
        if node.is_drained {
            return Ok("drained already".to_owned());
        }
        self.run(&update(delivery))?;
        let node = self.node(name)?;
        if node.is_drained && node.is_ours() {
            return Ok("drained".to_owned());
        }
        Err(DeliveryError::transient(format!(
            "scontrol succeeded, but the node is in state {}",
            node.state
        )))
    }

    fn resume(&self, delivery: &Delivery) -> Result<String, DeliveryError> {
        let name = &delivery.notice.node;
        let node = self.node(name)?;
        if !node.is_drained || !node.is_ours() {
            let (state, reason) = (node.state, node.reason);
            return Ok(format!("left alone: state {state}, reason {reason:?}"));
        }
        self.run(&update(delivery))?;
        let node = self.node(name)?;
        if node.is_drained {
            let state = node.state;
            let message = format!("scontrol succeeded, but the node is in state {state}");
            return Err(DeliveryError::transient(message));
        }
        Ok("resumed".to_owned())
    }
}

impl Consumer for SlurmSender {
    fn describe(&self, delivery: &Delivery) -> String {
        let arguments: Vec<String> = update(delivery)
            .into_iter()
            .map(|argument| match argument.split_once('=') {
                Some((name, value)) if value.contains(' ') => format!("{name}={value:?}"),
                _ => argument,
            })
            .collect();
        format!("{} {}", self.0.scontrol.display(), arguments.join(" "))
    }

    fn deliver(&self, delivery: &Delivery, _now: Nanos) -> Result<String, DeliveryError> {
        match delivery.phase {
            Phase::Raised | Phase::Changed | Phase::Refreshed => self.drain(delivery),
            Phase::Cleared => self.resume(delivery),
        }
    }
}

fn update(delivery: &Delivery) -> Vec<String> {
    let node = format!("NodeName={}", delivery.notice.node);
    let mut arguments = vec!["update".to_owned(), node];
    match delivery.phase {
        Phase::Raised | Phase::Changed | Phase::Refreshed => {
            arguments.push("State=DRAIN".to_owned());
            arguments.push(format!("Reason={}", reason(delivery)));
        }
        // Unlike RESUME, this does not bring up a node that is down.
        Phase::Cleared => arguments.push("State=UNDRAIN".to_owned()),
    }
    arguments
}

fn reason(delivery: &Delivery) -> String {
    let notice = &delivery.notice;
    format!(
        "{REASON} rank {}, {:.1} ms late, incident {}",
        notice.rank, notice.lag_ms, notice.incident_id
    )
}

/// State of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    state: String,
    reason: String,
    is_drained: bool,
}

impl Node {
    /// Parses the line of `scontrol show node NAME --oneliner`.
    pub(super) fn parse(text: &str, name: &str) -> Option<Self> {
        let line = text.lines().find(|line| {
            let named = line.split_whitespace().next();
            named == Some(&format!("NodeName={name}"))
        })?;
        let mut words = line.split_whitespace();
        let state = words.find_map(|word| word.strip_prefix("State="))?;
        let reason = line.split_once(" Reason=").map_or("", |(_, reason)| reason);
        // The end names the user and the time.
        let reason = reason
            .rsplit_once(" [")
            .map_or(reason, |(reason, _user)| reason);
        Some(Self {
            is_drained: state
                .split(['+', '*'])
                .any(|flag| matches!(flag, "DRAIN" | "DRAINED" | "DRAINING")),
            state: state.to_owned(),
            reason: reason.trim().to_owned(),
        })
    }

    fn is_ours(&self) -> bool {
        self.reason.starts_with(REASON)
    }
}
