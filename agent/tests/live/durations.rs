//! Durations of calls of CUDA and HIP: count and percentiles of every function.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use fleet_agent_core::event::{
    CallDurations, Direction, Event, FunctionDurations, LaunchSizes, Process,
};
use fleet_agent_sources::watch::{CountOptions, Detail, WatchSettings};

use crate::PROBES;
use crate::delays::{Hog, pinned_to, start};
use crate::fixture::{Gpu, Linking, Observer, agent, settings};
use crate::job::{Job, wait_for};
use crate::running::Running;

const STEPS: u64 = 60;
/// Calls of a process without NCCL.
const CALLS: u64 = 400;
/// Part of a duration measured by a program that is the cost of the probes, nanoseconds.
const PROBES_NS: u64 = 20_000;

/// Durations of a process by function, over all windows.
fn durations(observer: &Observer, pid: u32) -> BTreeMap<String, FunctionDurations> {
    let mut all: BTreeMap<String, FunctionDurations> = BTreeMap::new();
    for calls in windows(observer, pid).flat_map(|window| &window.calls) {
        match all.get_mut(&calls.label()) {
            Some(known) => known.merge(calls),
            None => drop(all.insert(calls.label(), calls.clone())),
        }
    }
    all
}

fn windows(observer: &Observer, pid: u32) -> impl Iterator<Item = &CallDurations> {
    observer.events_of(pid).filter_map(|event| match event {
        Event::CallDurations(durations) => Some(durations.as_ref()),
        _ => None,
    })
}

fn watching(count_options: CountOptions) -> Observer {
    Observer::new(&WatchSettings {
        count_options,
        ..settings()
    })
}

#[test]
#[needs(PROBES)]
fn an_allocation_in_the_loop_shows() {
    let gpu = Gpu::new();
    for linking in [Linking::Dynamic, Linking::Hip] {
        let mut observer = watching(CountOptions::default());
        let steps = u32::try_from(STEPS).unwrap();
        let with = gpu.job(linking, 2, steps, &["step=1", "alloc=200000"]);
        observer.follow(&with);
        let without = gpu.job(linking, 2, steps, &["step=1"]);
        observer.follow(&without);
        for pid in with.pids() {
            let durations = durations(&observer, pid);
            let prefix = if linking == Linking::Hip {
                "hip"
            } else {
                "cuda"
            };
            let malloc = &durations[&format!("{prefix}Malloc")];
            assert_eq!((malloc.calls(), malloc.bytes), (STEPS, STEPS * 200_000));
            assert!(malloc.total_ns >= STEPS * 200_000);
            for percent in [50, 95, 99] {
                assert!(malloc.percentile_ns(percent).unwrap() >= 200_000 * 8 / 9);
            }
            assert!(malloc.longest_ns >= 200_000);
            assert_eq!(durations[&format!("{prefix}Free")].calls(), STEPS);
            // Collectives and waits are measured as well.
            assert_eq!(durations["ncclAllReduce"].calls(), 4 * STEPS);
            assert_eq!(
                durations[&format!("{prefix}StreamSynchronize")].calls(),
                STEPS
            );
        }
        for pid in without.pids() {
            let names = durations(&observer, pid).into_keys();
            assert!(names.filter(|name| name.contains("Malloc")).count() == 0);
        }
    }
}

#[test]
#[needs(PROBES)]
fn calls_that_lose_the_cpu_to_another_task_are_counted() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let mut observer = watching(CountOptions::default());
    let job = start(&gpu, (2, 0), &["alloc=20000000"], &pinned_to(0));
    let pid = job.pids()[0];
    observer.release(&job);
    observer.until("allocations", |observer| {
        let all = durations(observer, pid);
        let malloc = all.get("cudaMalloc");
        malloc.is_some_and(|malloc| malloc.calls() >= 20)
    });
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    let all = durations(&observer, pid);
    let [malloc, free] = ["cudaMalloc", "cudaFree"].map(|name| {
        let calls = &all[name];
        (calls.interrupted.unwrap(), calls.calls())
    });
    // An allocation takes longer than the scheduler leaves the CPU to one of two tasks.
    assert!(
        malloc.0 * 2 > malloc.1 && malloc.0 <= malloc.1,
        "{malloc:?}"
    );
    assert!(free.0 * 2 < free.1, "{free:?}");
    observer.live.clear();
}

#[test]
#[needs(PROBES)]
fn a_graph_that_is_captured_in_each_step_shows() {
    let gpu = Gpu::new();
    let mut observer = watching(CountOptions::default());
    let job = gpu.job(
        Linking::Dynamic,
        2,
        u32::try_from(STEPS).unwrap(),
        &["step=1", "capture"],
    );
    observer.follow(&job);
    for pid in job.pids() {
        let durations = durations(&observer, pid);
        for name in [
            "cudaStreamBeginCapture",
            "cudaStreamEndCapture",
            "cudaGraphInstantiate",
            "cudaGraphExecDestroy",
        ] {
            assert_eq!(durations[name].calls(), STEPS, "{name}");
        }
        let launches = observer.events_of(pid).filter_map(|event| match event {
            Event::Activity(measured) => measured.activity.graph_launches,
            _ => None,
        });
        assert_eq!(launches.sum::<u64>(), STEPS);
    }
}

/// Starts the program that uses a GPU alone.
fn start_alone(gpu: &Gpu) -> Job {
    let mut command = Command::new(gpu.path().join("alone"));
    command
        .arg(CALLS.to_string())
        .arg(gpu.gate("go"))
        .env("LD_LIBRARY_PATH", gpu.path());
    // The environment of a rank makes it none.
    gpu.start([(0, command)].into_iter(), 1)
}

#[test]
#[needs(PROBES)]
fn a_process_without_nccl_is_measured_if_all_processes_are() {
    let gpu = Gpu::new();
    let mut observer = watching(CountOptions {
        copies: Detail::Measure,
        launches: Detail::Measure,
        all_processes: true,
    });
    let job = start_alone(&gpu);
    observer.follow(&job);
    let pid = job.pids()[0];
    let durations = durations(&observer, pid);
    let calls: BTreeMap<&str, (u64, u64)> = durations
        .iter()
        .map(|(name, calls)| (name.as_str(), (calls.calls(), calls.bytes)))
        .collect();
    let malloc = &durations["cudaMalloc"];
    // The driver's allocation is a part of the runtime's one.
    let expected = [
        ("cuLaunchKernel", (CALLS, 0)),
        ("cuMemcpyDtoH_v2 to host", (CALLS, 10 * CALLS)),
        ("cudaLaunchKernel", (CALLS, 0)),
        ("cudaMalloc", (CALLS, malloc.bytes)),
        ("cudaMemcpyAsync to device", (CALLS, 1000 * CALLS)),
    ];
    assert_eq!(calls, BTreeMap::from(expected));
    assert_eq!(
        durations["cuMemcpyDtoH_v2 to host"].direction,
        Some(Direction::ToHost)
    );
    let mut sizes = LaunchSizes::default();
    for sampled in windows(&observer, pid).filter_map(|window| window.launch_sizes.as_ref()) {
        sizes.merge(sampled);
    }
    let sampled = sizes.grid.count();
    assert!(sampled > 0 && sampled < 2 * CALLS);
    assert_eq!(
        (sizes.grid_total, sizes.block_total),
        (24 * sampled, 256 * sampled)
    );
    // It has no rank, so its calls are no events of their own.
    let is_measurement = |event: &Event| {
        matches!(
            event,
            Event::CallDurations(_) | Event::Activity(_) | Event::Delays(_) | Event::Ended(_)
        )
    };
    assert!(observer.events_of(pid).all(is_measurement));
    assert_percentiles(malloc, &job.outputs()[0]);
}

/// Asserts that percentiles deviate from those that the program has measured by the stated error at
/// most. On a busy host the program is interrupted between its clock and a probe in a few calls, which are
/// shorter for the probes then: 2 % of them.
fn assert_percentiles(calls: &FunctionDurations, output: &str) {
    let own: Vec<u64> = output
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(own[0], calls.calls());
    let own_ns = own[1..4].iter().zip(&own[5..]);
    for (percent, (own_ns, below_ns)) in [50, 95, 99].into_iter().zip(own_ns) {
        let seen_ns = calls.percentile_ns(percent).unwrap();
        let least_ns = below_ns.saturating_sub(PROBES_NS);
        assert!(
            (least_ns - least_ns / 9..=own_ns + own_ns / 9).contains(&seen_ns),
            "p{percent}: {seen_ns} ns, by the program {own_ns} ns"
        );
    }
    assert!(calls.longest_ns <= own[4] && calls.longest_ns >= own[4].saturating_sub(PROBES_NS) / 2);
}

#[test]
#[needs(PROBES)]
fn a_process_without_nccl_is_left_out_by_default() {
    let gpu = Gpu::new();
    let mut observer = watching(CountOptions::default());
    let job = start_alone(&gpu);
    observer.release(&job);
    let pid = job.pids()[0];
    job.outputs();
    let rank = gpu.job(Linking::Dynamic, 1, 5, &["step=1"]);
    observer.follow(&rank);
    assert_eq!(observer.events_of(pid).count(), 0);
    let started = observer
        .events_of(rank.pids()[0])
        .find_map(|event| match event {
            Event::Started(started) => Some(started.process),
            _ => None,
        });
    let pid = rank.pids()[0];
    let process = Process {
        pid,
        rank: 0,
        world_size: 1,
    };
    assert_eq!(started, Some(process));
}

#[test]
#[needs(PROBES)]
fn calls_of_a_process_are_served_to_prometheus() {
    let gpu = Gpu::new();
    let flags = [
        "--pin=none",
        "--ras=off",
        "--processes=gpu",
        "--measure=launches,copies",
    ];
    let mut running = Running::start(agent(), &flags);
    let job = start_alone(&gpu);
    let pid = job.pids()[0];
    running.wait_for_probes(&gpu, ["libcuda.so.1", "libcudart.so.13"]);
    job.release();
    job.outputs();
    let value = |text: &str, name: &str, label: &str| {
        let process = format!("{name}{{process_pid=\"{pid}\"");
        let line = text
            .lines()
            .find(|line| line.starts_with(&process) && line.contains(label));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
    };
    // An ended process stays for a minute.
    let text = wait_for("800 kernel launches", || {
        let text = running.metrics();
        match value(&text, "gpu_kernel_launch_calls_total", "") {
            Some(800.0) => Ok(text),
            _ => Err(text),
        }
    });
    for (name, label, expected) in [
        ("gpu_call_duration_seconds_count", "cudaMalloc", 400.0),
        ("gpu_memory_copies_bytes_total", "host_to_device", 400_000.0),
        ("gpu_memory_copies_bytes_total", "device_to_host", 4_000.0),
    ] {
        let served = value(&text, name, label);
        assert_eq!(served, Some(expected), "{name} {label} in\n{text}");
    }
    let p50 = value(
        &text,
        "gpu_call_duration_quantile_seconds",
        "\"cudaMalloc\",quantile=\"0.5\"",
    );
    assert!(p50.is_some_and(|seconds| seconds > 0.0004), "{text}");
    assert!(text.contains("system_cpu_time_seconds_total{cpu_mode=\"user\"}"));
    running.stop();
}
