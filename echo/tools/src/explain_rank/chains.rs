//! Causal chains and the top stack of the process of a rank, over its incidents or the window.

use echo_core::model::detector_output::Incident;
use echo_core::units::Window;
use echo_store::process_reports::ProcessQuery;
use schemars::JsonSchema;
use serde::Serialize;

use super::subject::Subject;
use super::top_stack::top_stack;
use crate::ToolError;
use crate::host::causal_chains::{ProcessChain, compared};
use crate::host::stacks::SampledStack;
use crate::host_evidence::widen_for_clock_skew;
use crate::scope::Scope;

/// Maximum number of chains per answer, most severe first.
const MAX_CHAINS: usize = 5;

/// Maximum number of stacks of the rank, and of its job, that are compared; those with most samples.
const MAX_STACKS: usize = 1000;

/// Reports of the agent on the process of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostReports {
    /// Causal chains, most severe first, at most 5; `fleet.host.get_causal_chains` has all.
    pub chains: Vec<ProcessChain>,
    /// Stack at the line where the rank is more often than the sampled ranks of its job, with all samples
    /// there; null without samples.
    pub top_stack: Option<SampledStack>,
    /// Share of the samples of these other ranks at the same line, 0 to 1; null if none was sampled.
    pub top_stack_peer_share: Option<f64>,
}

impl HostReports {
    /// Loads the reports of the time of the incidents, or of the window if there are none.
    pub(super) async fn load(
        scope: &Scope<'_>,
        subject: &Subject,
        incidents: &[&Incident],
    ) -> Result<Self, ToolError> {
        let window = window(scope, incidents);
        let query = ProcessQuery {
            cluster: scope.cluster.clone(),
            job: subject.job().cloned(),
            rank: Some(subject.rank),
            ..ProcessQuery::new(window, MAX_CHAINS)
        };
        let store = &scope.context.store;
        let chains = store.chains(query.clone()).await?;
        let of_rank = ProcessQuery {
            limit: MAX_STACKS,
            ..query
        };
        let of_job = ProcessQuery {
            rank: None,
            ..of_rank.clone()
        };
        let own = store.stack_totals(of_rank).await?;
        let top = top_stack(&own, &store.stack_totals(of_job).await?);
        Ok(Self {
            chains: compared(scope, window, chains).await?,
            top_stack_peer_share: top.as_ref().and_then(|top| top.peer_share),
            top_stack: top.map(|top| top.stack),
        })
    }
}

fn window(scope: &Scope<'_>, incidents: &[&Incident]) -> Window {
    let first = incidents.iter().map(|incident| incident.first_seen).min();
    let ends = incidents.iter();
    let last = ends.map(|incident| incident.cleared_at.unwrap_or_else(|| scope.window.to()));
    let seen = first.zip(last.max());
    let seen = seen.and_then(|(first, last)| widen_for_clock_skew(first, last));
    seen.unwrap_or(scope.window)
}

#[cfg(test)]
mod tests {
    use crate::explain_rank::{ExplainRank, Explanation};
    use crate::fixture::{context, process_reports};
    use crate::tool::Tool;

    async fn explained(rank: u32) -> Explanation {
        let context = context().await;
        context.store.append(process_reports()).await.unwrap();
        let explain = ExplainRank {
            cluster: "prod".to_owned(),
            rank,
            job: None,
            from: None,
            to: None,
            window: None,
            plot: None,
        };
        explain.run(&context).await.unwrap()
    }

    #[tokio::test]
    async fn a_culprit_has_the_chains_and_the_top_stack_of_its_process() {
        let answer = explained(2).await;
        let [chain] = answer.host.chains.as_slice() else {
            panic!("{:?}", answer.host)
        };
        assert_eq!(chain.cause, "cpu_contention");
        assert_eq!(chain.peers.as_ref().unwrap().ranks, 3);
        let top = answer.host.top_stack.unwrap();
        assert_eq!((top.samples, top.share), (60, 0.75));
        let sentence =
            "75 % of its samples are in cudaStreamSynchronize <- train.py:142 in forward()";
        assert!(answer.summary.contains(sentence), "{}", answer.summary);
    }

    #[tokio::test]
    async fn a_rank_without_reports_has_neither() {
        let host = explained(3).await.host;
        assert_eq!((host.chains, host.top_stack), (Vec::new(), None));
    }
}
