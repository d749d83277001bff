use std::sync::Arc;

use echo_core::error::{Code, Coded};
use echo_core::model::event::{BatchKey, Event, EventBatch, Reading, Summary};
use fleet_proto::metric;
use serde::Serialize;
use serde_json::{Value, json};

use super::causal_chains::GetCausalChains;
use super::check::HostCheck;
use super::filter::HostFilter;
use super::graph_lifecycle::GraphLifecycle;
use super::stacks::GetStacks;
use super::trace_stats::GetTraceStats;
use crate::fixture::{at, context, empty, host_evidence, process_reports};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

async fn reporting() -> ToolContext {
    let context = context().await;
    context.store.append(process_reports()).await.unwrap();
    context
}

fn json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

fn of_rank(rank: u32) -> HostFilter {
    HostFilter {
        rank: Some(rank),
        ..HostFilter::default()
    }
}

#[tokio::test]
async fn chains_are_listed_most_severe_first_beside_the_shares_of_the_peers() {
    let answer = GetCausalChains::default().run(&reporting().await).await;
    let answer = answer.unwrap();
    insta::assert_json_snapshot!(answer);
    assert!(
        answer
            .summary
            .contains("most severe: rank 2, python3 (4002) on node-1, 29.5 % of its time, its peers 0.0 %: preempted"),
        "{}",
        answer.summary
    );
}

#[tokio::test]
async fn the_peers_of_a_rank_are_the_same_whatever_the_filter() {
    let context = reporting().await;
    let all = GetCausalChains::default().run(&context).await.unwrap();
    let one = GetCausalChains(of_rank(2)).run(&context).await.unwrap();
    assert_eq!(one.chains, [all.chains[0].clone()]);
    let peers = one.chains[0].peers.as_ref().unwrap();
    assert_eq!((peers.ranks, peers.with_cause), (3, 1));
}

#[tokio::test]
async fn without_a_chain_the_answer_says_what_was_examined() {
    let context = reporting().await;
    let answer = GetCausalChains(of_rank(3)).run(&context).await.unwrap();
    assert_eq!(
        answer.summary,
        "nothing stands out: 1 process on 1 node reported, 1 with a rank"
    );
    let answer = GetCausalChains::default().run(&empty()).await.unwrap();
    assert_eq!(answer.summary, "no agent reported on a process");
    let note = answer.note.unwrap();
    assert!(note.contains("fleet.host.check"), "{note}");
}

#[tokio::test]
async fn calls_are_merged_per_process_and_function() {
    let answer = GetTraceStats(of_rank(2)).run(&reporting().await).await;
    insta::assert_json_snapshot!(answer.unwrap());
}

#[tokio::test]
async fn rows_above_the_limit_are_cut_and_that_is_reported() {
    let context = reporting().await;
    let one = HostFilter {
        limit: Some(1),
        ..HostFilter::default()
    };
    let stats = GetTraceStats(one.clone()).run(&context).await.unwrap();
    assert_eq!((stats.functions.len(), stats.truncated), (1, true));
    let stacks = GetStacks(one.clone()).run(&context).await.unwrap();
    assert_eq!((stacks.stacks.len(), stacks.truncated), (1, true));
    let chains = GetCausalChains(one.clone()).run(&context).await.unwrap();
    assert_eq!((chains.chains.len(), chains.truncated), (1, true));
    let summary = &chains.summary;
    assert!(
        summary.starts_with("more than 1 causal chain (first: "),
        "{summary}"
    );
    let nodes = HostCheck(one).run(&context).await.unwrap();
    assert_eq!((nodes.nodes.len(), nodes.truncated), (1, true));
}

#[tokio::test]
async fn stacks_have_their_share_of_the_samples_of_their_process() {
    let answer = GetStacks(of_rank(2)).run(&reporting().await).await;
    let stacks = json(&answer.unwrap().stacks);
    assert_eq!(stacks[0]["stack"][0], "cudaStreamSynchronize");
    assert_eq!(stacks[0]["stack"][1], "[Python] train.py:142 in forward()");
    assert_eq!(
        (&stacks[0]["samples"], &stacks[0]["share"]),
        (&json!(60), &json!(0.75))
    );
    assert_eq!(stacks[1]["function"], Value::Null);
}

fn graph_call(function: &str, count: u64) -> Event {
    let attrs =
        json!({ "fleet.function": function, "process.pid": 7, "process.executable.name": "vllm" });
    Event {
        timestamp: at(500),
        start: Some(at(490)),
        metric: metric::CALLS.parse().unwrap(),
        reading: Reading::Histogram(Summary {
            count,
            sum: 12.5,
            min: None,
            max: None,
        }),
        attrs: Arc::from(attrs.to_string()),
        ..process_reports().events[0].clone()
    }
}

async fn graphs(launches: u64) -> Value {
    let context = empty();
    let events = vec![
        graph_call("cudaStreamBeginCapture", 20),
        graph_call("cudaStreamEndCapture", 20),
        graph_call("cudaGraphInstantiateWithFlags", 20),
        graph_call("cuGraphLaunch", launches),
        graph_call("cudaGraphExecDestroy", 19),
        graph_call("cudaMalloc", 3),
    ];
    let batch = EventBatch {
        key: BatchKey::Content(9),
        received: at(600),
        events,
    };
    context.store.append(batch).await.unwrap();
    json(&GraphLifecycle::default().run(&context).await.unwrap())
}

#[tokio::test]
async fn a_graph_that_is_instantiated_for_each_launch_is_noted() {
    let answer = graphs(25).await;
    let process = &answer["processes"][0];
    assert_eq!(
        process["calls"],
        json!({ "captures": 20, "instantiations": 20, "updates": 0, "launches": 25, "destroys": 19 })
    );
    assert_eq!(process["calls_per_s"]["launches_per_s"], 2.5);
    assert_eq!(process["instantiation_ms"], 12.5);
    let note = process["note"].as_str().unwrap();
    assert!(note.contains("20 instantiations for 25 launches"), "{note}");
    let reused = graphs(4_000).await;
    assert_eq!(reused["processes"][0]["note"], Value::Null);
}

#[tokio::test]
async fn without_graphs_the_answer_says_so() {
    let answer = GraphLifecycle::default().run(&reporting().await).await;
    let note = answer.unwrap().note.unwrap();
    assert!(note.contains("no process captured"), "{note}");
}

#[tokio::test]
async fn a_node_without_kernel_evidence_or_processes_gets_advice() {
    let context = context().await;
    let answer = HostCheck::default().run(&context).await.unwrap();
    assert!(
        answer
            .summary
            .starts_with("2 nodes report, 2 with findings"),
        "{}",
        answer.summary
    );
    let node = &answer.nodes[0];
    assert_eq!((node.ranks, node.has_kernel_evidence), (2, Some(false)));
    assert!(
        node.findings
            .iter()
            .any(|finding| finding.contains("as root"))
    );
    context.store.append(host_evidence()).await.unwrap();
    context.store.append(process_reports()).await.unwrap();
    let answer = HostCheck::default().run(&context).await.unwrap();
    insta::assert_json_snapshot!(answer);
    let of_rank = HostCheck(of_rank(2)).run(&context).await.unwrap();
    let nodes: Vec<_> = of_rank
        .nodes
        .iter()
        .map(|node| node.node_id.as_str())
        .collect();
    assert_eq!(nodes, ["node-1"]);
}

#[tokio::test]
async fn an_unknown_node_rank_or_process_is_an_error_that_lists_the_known_ones() {
    let context = reporting().await;
    let failed = |filter: HostFilter| {
        let context = context.clone();
        async move { GetCausalChains(filter).run(&context).await.unwrap_err() }
    };
    let node = failed(HostFilter {
        node: Some("node-9".to_owned()),
        ..HostFilter::default()
    });
    let node: ToolError = node.await;
    assert_eq!(node.code(), Code::NotFound);
    assert_eq!(
        node.to_string(),
        "node \"node-9\" did not report in this window (known: node-0, node-1)"
    );
    let rank = failed(of_rank(9)).await;
    assert_eq!(rank.code(), Code::NotFound);
    let pid = HostFilter {
        pid: Some(1),
        ..HostFilter::default()
    };
    let message = failed(pid).await.to_string();
    assert!(message.contains("4002 on node-1"), "{message}");
}
