//! Causal chains: what a process loses time to, from the system to the call that waits.

use std::collections::BTreeMap;

use echo_core::text::decimal;
use echo_core::units::Window;
use echo_store::process_reports::{ChainState, MAX_CHAIN_PAUSE_NANOS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filter::{Examined, HostFilter, counted, cut};
use super::peers::{PeerShares, Peers};
use super::process::ProcessIdentity;
use super::stacks::lines;
use crate::ToolError;
use crate::scope::{Scope, ScopeRequest};
use crate::time::AnswerWindow;
use crate::tool::Tool;

/// Names of the states in answers.
const OPEN: &str = "open";
const CLEARED: &str = "cleared";

/// Causal chains of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct GetCausalChains(pub HostFilter);

/// Causal chains of processes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CausalChains {
    /// Requested cluster; null for all clusters.
    pub cluster: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// The most severe chain in one sentence, or what was examined if nothing stands out.
    pub summary: String,
    /// Chains, most severe first: one per process and cause, in the latest state.
    pub chains: Vec<ProcessChain>,
    /// True when there are more; raise `limit` or use a filter.
    pub truncated: bool,
    /// Reports that the answer is based on.
    pub examined: Examined,
    /// Caveats about the answer and what to do about them; null when there are none.
    pub note: Option<String>,
}

/// Causal chain of one process.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProcessChain {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Cause, such as `cpu_contention`.
    pub cause: String,
    /// `low`, `medium` or `high`; null when not reported.
    pub severity: Option<String>,
    /// `open` while it holds at the end of the window, else `cleared`.
    pub state: &'static str,
    /// Share of its time that the process lost to the cause at last, 0 to 1.
    pub share: Option<f64>,
    /// Largest share in the window.
    pub max_share: Option<f64>,
    /// The same cause on the other ranks of the job; null for a process without a rank.
    pub peers: Option<PeerShares>,
    /// Time since which it held without a pause of a minute, RFC 3339.
    pub since: String,
    /// Time of the last report, RFC 3339.
    pub last_seen: String,
    /// The chain in one sentence, with its figures.
    pub summary: String,
    /// Links of the chain, from the system to the call.
    pub links: Vec<String>,
    /// Stack in which the process waited, innermost frame first; empty without samples.
    pub stack: Vec<String>,
    /// What to do; empty where no advice is known.
    pub advice: Vec<String>,
}

impl Tool for GetCausalChains {
    const NAME: &'static str = "fleet.host.get_causal_chains";
    const TITLE: &'static str = "Causal chains";
    const DESCRIPTION: &'static str = "What processes lose time to, most severe first: cause, links from the system to the call, stack, peers, advice.";
    type Answer = CausalChains;

    fn scope_request(&self) -> ScopeRequest {
        self.0.scope_request()
    }

    async fn call(self, scope: &Scope<'_>) -> Result<CausalChains, ToolError> {
        let selection = self.0.select(scope).await?;
        let query = selection.query.clone();
        let mut states = scope.context.store.chains(query).await?;
        let truncated = cut(&mut states, self.0.limit());
        let chains = compared(scope, scope.window, states).await?;
        let examined = selection.examined();
        Ok(CausalChains {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            summary: summarize(&chains, truncated, &examined),
            chains,
            truncated,
            examined,
            note: selection.note,
        })
    }

    fn headline(answer: &CausalChains) -> Option<String> {
        Some(answer.summary.clone())
    }
}

/// Converts chains, each with the shares of its peers in the window.
pub(crate) async fn compared(
    scope: &Scope<'_>,
    window: Window,
    states: Vec<ChainState>,
) -> Result<Vec<ProcessChain>, ToolError> {
    let peers = Peers::load(scope, window, &states).await?;
    let chain = |state: ChainState| ProcessChain::new(peers.of(&state), state, window);
    Ok(states.into_iter().map(chain).collect())
}

impl ProcessChain {
    fn new(peers: Option<PeerShares>, state: ChainState, window: Window) -> Self {
        let holds = state.last >= window.to().offset(-MAX_CHAIN_PAUSE_NANOS);
        let of = |text: Option<String>| text.as_deref().map(lines).unwrap_or_default();
        Self {
            process: state.process.into(),
            summary: state.summary.unwrap_or_else(|| state.cause.clone()),
            cause: state.cause,
            severity: state.severity,
            state: if holds { OPEN } else { CLEARED },
            share: state.share,
            max_share: state.max_share,
            peers,
            since: state.since.to_string(),
            last_seen: state.last.to_string(),
            links: of(state.links),
            stack: of(state.stack),
            advice: of(state.advice),
        }
    }
}

/// Summarizes the chains in a sentence.
fn summarize(chains: &[ProcessChain], truncated: bool, examined: &Examined) -> String {
    let Some(first) = chains.first() else {
        return if examined.processes == 0 {
            "no agent reported on a process".to_owned()
        } else {
            format!("nothing stands out: {}", examined.sentence())
        };
    };
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for chain in chains {
        *causes.entry(&chain.cause).or_default() += 1;
    }
    let causes: Vec<String> = causes
        .iter()
        .map(|(cause, n)| format!("{cause} {n}"))
        .collect();
    let peers = first.peers.as_ref().and_then(|peers| peers.median_share);
    let peers = peers.map_or_else(String::new, |share| {
        format!(", its peers {} %", decimal(share * 100.0, 1))
    });
    let share = first.share.map_or_else(String::new, |share| {
        format!(", {} % of its time{peers}", decimal(share * 100.0, 1))
    });
    let (more, first_ones) = if truncated {
        ("more than ", "first: ")
    } else {
        ("", "")
    };
    format!(
        "{more}{} ({first_ones}{}); most severe: {}{share}: {}",
        counted(chains.len(), "causal chain", "causal chains"),
        causes.join(", "),
        first.process.name(),
        first.summary
    )
}
