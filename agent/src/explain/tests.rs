use fleet_agent_core::event::{Frame, FunctionDurations, OffCpuTime, Process, Stack};
use fleet_agent_core::explain::{CausalChain, Cause, Observation, Place, ProcessReport, Reference};

use super::summary::{HostSummary, Summary};

const PERIOD: u64 = 5_000_000_000;

fn chain(since_ns: u64) -> CausalChain {
    let frame = |line, function: &str| Frame::Python {
        file: "/app/train.py".to_owned(),
        line,
        function: function.to_owned(),
    };
    let stack = Stack {
        frames: vec![frame(142, "forward"), frame(210, "main")],
    };
    CausalChain {
        cause: Cause::CpuContention,
        share: 0.3,
        reference: Reference::Peers(0.01),
        since_ns,
        links: vec!["node_exporter ran on cpu 12 225.0 ms/s".to_owned()],
        place: Some(Place {
            call: None,
            stack,
            share: 0.64,
        }),
        advice: vec!["keep node_exporter off cpu 12".to_owned()],
    }
}

fn report(pid: u32, period: u64, chains: Vec<CausalChain>) -> ProcessReport {
    let mut seen = Observation {
        threads: Some(OffCpuTime {
            preempted_ns: 1_500_000_000,
            preemptions: 190,
            ..OffCpuTime::default()
        }),
        ..Observation::default()
    };
    let mut calls = FunctionDurations {
        function: "cudaStreamSynchronize".to_owned(),
        total_ns: 2_000_000_000,
        longest_ns: 40_000_000,
        ..FunctionDurations::default()
    };
    calls.histogram.record(20_000_000, 100);
    seen.calls.insert(calls.label(), calls);
    ProcessReport {
        pid,
        process: (pid != 99).then_some(Process {
            pid,
            rank: pid - 10,
            world_size: 2,
        }),
        from_ns: (period - 1) * PERIOD,
        to_ns: period * PERIOD,
        seen,
        chains,
        files: Vec::new(),
    }
}

fn summary(reports: Vec<ProcessReport>) -> Summary {
    let mut host = HostSummary::new("this host");
    host.add(reports);
    Summary {
        hosts: vec![host],
        selected: Vec::new(),
        per_process: false,
    }
}

#[test]
fn a_chain_is_told_with_cause_place_time_and_advice() {
    let reports = vec![
        report(10, 1, vec![]),
        report(11, 1, vec![]),
        report(11, 2, vec![chain(0)]),
    ];
    assert_eq!(
        summary(reports).to_string(),
        "\
Rank 1 (pid 11)
  high     runnable without a CPU for 30.0 % of its time, peers 1.0 %
  because  node_exporter ran on cpu 12 225.0 ms/s
  where    train.py:142 in forward() <- train.py:210 in main() (64 % of the samples)
  held     for 10 s, and still does
  do       keep node_exporter off cpu 12

"
    );
}

#[test]
fn a_chain_that_is_over_says_so() {
    let reports = vec![report(11, 2, vec![chain(0)]), report(11, 4, vec![])];
    let text = summary(reports).to_string();
    assert!(
        text.contains("held     for 10 s, until 10 s before the end"),
        "{text}"
    );
}

#[test]
fn without_a_chain_it_is_told_what_was_looked_at() {
    let text = summary(vec![report(10, 1, vec![]), report(99, 1, vec![])]).to_string();
    assert_eq!(
        text,
        "Nothing stands out: 2 processes observed for 5 s.\nAdd --per-process for their calls and \
         their time off the CPU.\n"
    );
}

#[test]
fn the_figures_of_a_process_are_its_calls_and_its_time_off_the_cpu() {
    let mut all = summary(vec![report(99, 1, vec![]), report(99, 2, vec![])]);
    all.per_process = true;
    let text = all.to_string();
    assert_eq!(
        text,
        "\
Nothing stands out: 1 process observed for 10 s.
Process 99 (no rank)
  off the CPU: blocked 0.0 ms/s, preempted 300.0 ms/s, 380 preemptions
  function                             calls      ms/s    p50 ms    p99 ms    max ms
  cudaStreamSynchronize                  200     400.0    18.641    18.641    40.000

"
    );
}

#[test]
fn only_the_selected_processes_and_the_last_part_are_told() {
    let mut host = HostSummary::new("a.jsonl");
    host.add((1..=6).map(|n| report(11, n, vec![chain(0)])).collect());
    host.add(vec![report(10, 6, vec![])]);
    host.keep_last(std::time::Duration::from_secs(10));
    let all = Summary {
        hosts: vec![host],
        selected: vec![11],
        per_process: false,
    };
    let json = all.to_json();
    let processes = json["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1);
    let own = &processes[0];
    assert_eq!((&own["pid"], &own["rank"]), (&11.into(), &1.into()));
    assert_eq!(own["observed_s"], 10.0);
    let held = &own["chains"][0];
    assert_eq!(held["held_s"], 30.0);
    assert_eq!(held["chain"]["cause"], "cpu_contention");
    assert_eq!(held["chain"]["compared_with"], "peers");
    assert_eq!(own["calls"][0]["calls"], 200);
    assert_eq!(own["off_cpu"]["preempted_ms"], 3000.0);
}
