//! Process without a rank, from end to end, by default: probes, agent, OTLP, Echo, and the queries.

use std::fs;

use serde_json::{Value, json};

use crate::delays::undisturbed;
use crate::echo::{Echo, reporting};
use crate::explain::delayed_alone;
use crate::fixture::Gpu;
use crate::job::wait_for;
use crate::{ECHO, PROBES};

#[test]
#[needs(PROBES, ECHO)]
fn a_lock_of_a_process_without_a_rank_is_named_by_echo_with_the_stack_at_which_it_waits() {
    let gpu = Gpu::new();
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &[]);
    let running = reporting(&echo, &["--pin=none"]);
    let from = gpu.gate("delay_from");
    let delay = ["lock:10", from.to_str().unwrap()];
    let alone = delayed_alone(&gpu, &undisturbed(), &delay);
    let arguments = json!({"cluster": "live", "pid": alone.pids()[0], "window": "all"});
    let ask = |tool: &str| echo.call_tool(tool, &arguments).unwrap_or_default();
    // Its past, in which no lock is named. On a busy machine it may wait for a CPU.
    wait_for("reports of the process", || {
        let calls = ask("fleet.host.get_trace_stats");
        let waits = calls["functions"][0]["n_calls"].as_u64();
        if waits > Some(1_000) {
            Ok(())
        } else {
            Err(calls.to_string())
        }
    });
    let lock = || {
        let answer = ask("fleet.host.get_causal_chains");
        let chains = answer["chains"].as_array().cloned().unwrap_or_default();
        let is_lock = |chain: &Value| chain["cause"] == "lock";
        chains
            .into_iter()
            .find(is_lock)
            .ok_or_else(|| answer.to_string())
    };
    assert!(lock().is_err(), "{:?}", lock());
    fs::write(&from, "").unwrap();
    let chain = wait_for("the lock", lock);
    assert_eq!(
        (&chain["rank"], &chain["process"]),
        (&Value::Null, &json!("alone")),
        "{chain:#}"
    );
    wait_for("its stack", || {
        let stacks = ask("fleet.host.get_stacks");
        let text = stacks["stacks"].to_string();
        if text.contains("lock_wait") || text.contains("mutex_lock") {
            Ok(())
        } else {
            Err(stacks.to_string())
        }
    });
    running.stop();
    drop(alone);
}
