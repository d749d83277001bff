//! Explanations as JSON.

use fleet_agent_core::event::{BlockReason, FunctionDurations, Stack};
use fleet_agent_core::explain::{CausalChain, Observation, ProcessReport, Reference};
use fleet_agent_core::signal::millis;
use serde_json::{Value, json};

use crate::explain::summary::{HeldChain, ProcessSummary, Summary};

impl Summary {
    /// Returns the summary as JSON.
    pub fn to_json(&self) -> Value {
        let processes: Vec<Value> = self.processes().map(|own| process(&own)).collect();
        let limitations: Vec<&str> = self
            .hosts
            .iter()
            .flat_map(|host| &host.limitations)
            .map(String::as_str)
            .collect();
        json!({ "processes": processes, "limitations": limitations })
    }
}

/// Converts what was found out about a process.
fn process(own: &ProcessSummary) -> Value {
    let chains = own.chains.iter().map(|held: &HeldChain| {
        json!({
            "chain": chain(&held.chain),
            "held_s": seconds(held.held_ns),
            "over_for_s": seconds(held.over_ns),
        })
    });
    json!({
        "pid": own.pid,
        "rank": own.process.map(|process| process.rank),
        "observed_s": seconds(own.observed_ns),
        "chains": chains.collect::<Vec<_>>(),
        "calls": calls(&own.seen),
        "off_cpu": off_cpu(&own.seen),
        "stacks": stacks(&own.seen),
    })
}

/// Converts a report of one period.
pub(super) fn report(report: &ProcessReport) -> Value {
    json!({
        "pid": report.pid,
        "rank": report.process.map(|process| process.rank),
        "observed_s": seconds(report.to_ns.saturating_sub(report.from_ns)),
        "chains": report.chains.iter().map(chain).collect::<Vec<_>>(),
        "calls": calls(&report.seen),
        "off_cpu": off_cpu(&report.seen),
        "stacks": stacks(&report.seen),
    })
}

fn chain(chain: &CausalChain) -> Value {
    let (compared_with, usual) = match chain.reference {
        Reference::Peers(share) => (Some("peers"), Some(share)),
        Reference::Past(share) => (Some("past"), Some(share)),
        Reference::None => (None, None),
    };
    let place = chain.place.as_ref();
    json!({
        "cause": chain.cause.name(),
        "severity": chain.severity().name(),
        "share": chain.share,
        "compared_with": compared_with,
        "usual_share": usual,
        "summary": chain.to_string(),
        "links": chain.links,
        "function": place.and_then(|place| place.call.as_deref()),
        "stack": place.map(|place| place.stack.lines()),
        "stack_share": place.map(|place| place.share),
        "advice": chain.advice,
    })
}

fn calls(seen: &Observation) -> Vec<Value> {
    let mut calls: Vec<&FunctionDurations> = seen.calls.values().collect();
    calls.sort_by_key(|calls| std::cmp::Reverse(calls.total_ns));
    let call = |calls: &FunctionDurations| {
        let percentile = |percent| calls.percentile_ns(percent).map(millis);
        json!({
            "function": calls.label(),
            "calls": calls.calls(),
            "total_ms": millis(calls.total_ns),
            "p50_ms": percentile(50),
            "p95_ms": percentile(95),
            "p99_ms": percentile(99),
            "max_ms": millis(calls.longest_ns),
            "interrupted": calls.interrupted,
            "bytes": calls.bytes,
        })
    };
    calls.into_iter().map(call).collect()
}

fn off_cpu(seen: &Observation) -> Value {
    let threads = seen.threads;
    let tasks = seen
        .tasks()
        .into_iter()
        .map(|(task, cpu, ns)| json!({ "task": task, "cpu": cpu, "ms": millis(ns) }));
    let blocked = seen.blocked.iter().flatten();
    let by_reason =
        |(reason, ns): (&BlockReason, &u64)| (reason.name().to_owned(), json!(millis(*ns)));
    let longest = seen.longest_blocked.iter().map(by_reason);
    json!({
        "blocked_ms": threads.map(|sum| millis(sum.off_cpu_ns)),
        "preempted_ms": threads.map(|sum| millis(sum.preempted_ns)),
        "run_queue_ms": threads.and_then(|sum| sum.run_queue_ns).map(millis),
        "preemptions": threads.map(|sum| sum.preemptions),
        "preempted_by": tasks.collect::<Vec<_>>(),
        "longest_preemption_ms": seen.longest_preemption_ns.map(millis),
        "blocked_by_reason_ms": Value::Object(blocked.map(by_reason).collect()),
        "longest_blocked_by_reason_ms": Value::Object(longest.collect()),
        "cgroup_throttled_ms": seen.cgroup_throttled_ns.map(millis),
        "interrupts_ms": seen.interrupt_ns.map(millis),
    })
}

fn stacks(seen: &Observation) -> Vec<Value> {
    let mut stacks: Vec<(&(Option<String>, Stack), &u64)> = seen.stacks.iter().collect();
    stacks.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
    let stack = |((call, stack), samples): (&(Option<String>, Stack), &u64)| json!({ "function": call, "samples": samples, "frames": stack.lines() });
    stacks.into_iter().map(stack).collect()
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}
