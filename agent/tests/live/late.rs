//! Jobs that created their communicators before the agent started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fleet_agent_core::batch::Batch;
use fleet_agent_core::event::Event;
use fleet_agent_core::host::{Host, Identity, WallClock};
use fleet_agent_core::pipeline::{BlockRule, Ending};
use fleet_proto::metric;

use crate::PROBES;
use crate::fixture::{Gpu, Linking, Observer, settings};
use crate::job::{Job, wait_for};

/// Blocks by communicator and operations, with the ranks that reported them.
type Blocks = BTreeMap<(String, u64, u64), Vec<u32>>;

#[test]
#[needs(PROBES)]
fn a_late_agent_numbers_operations_as_nccl_does_in_memory() {
    let gpu = Gpu::new();
    let job = gpu.job(Linking::Dynamic, 2, 1, &options(&gpu));
    let is_read = |event: &Event| matches!(event, Event::CommState(_));
    let is_enough = |observer: &Observer, pid: u32| {
        let read = observer.events_of(pid).filter(|event| is_read(event));
        read.count() >= 20
    };
    follow_late(&gpu, job, |_| true, is_enough);
}

#[test]
#[needs(PROBES)]
fn a_late_agent_numbers_operations_as_the_plugin_does() {
    let gpu = Gpu::new();
    let plugin = gpu.plugin("libnccl-profiler.so");
    let environment = [("NCCL_PROFILER_PLUGIN", plugin)];
    let job = gpu.job_in(&environment, Linking::Dynamic, (2, 1), &options(&gpu));
    let is_enough = |observer: &Observer, pid: u32| {
        let ran = |event: &&Event| matches!(event, Event::GpuOperation(_));
        observer.events_of(pid).filter(ran).count() >= 40
    };
    // Use only the records of the plugin.
    let is_of_use = |event: &Event| !matches!(event, Event::CommState(_));
    follow_late(&gpu, job, is_of_use, is_enough);
}

/// Steps of a millisecond until the file `end` exists.
fn options(gpu: &Gpu) -> [&'static str; 3] {
    let end = format!("end={}", gpu.gate("end").display());
    ["step=1", "compute=1000", end.leak()]
}

/// Watches a job that has issued operations already, until an observer has enough events of it and
/// 200 operations more.
#[track_caller]
fn follow_late(
    gpu: &Gpu,
    job: Job,
    is_of_use: fn(&Event) -> bool,
    is_enough: impl Fn(&Observer, u32) -> bool,
) {
    job.release();
    let has_begun =
        |counts: &[u64]| matches!(counts, [2, first, second, ..] if *first > 20 && *second > 20);
    wait_for("20 operations of each rank", || {
        let counts = shared_counts(gpu.path());
        if has_begun(&counts) {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    });
    let mut observer = Observer::new(&settings());
    let pids = job.pids();
    observer.until("the numbers of the operations", |observer| {
        pids.iter().all(|pid| is_enough(observer, *pid))
    });
    let n_calls = observer.collectives(pids[0]).len();
    observer.until("200 operations more", |observer| {
        observer.collectives(pids[0]).len() > n_calls + 200
    });
    fs::write(gpu.gate("end"), "").unwrap();
    observer.until_ended(&pids);
    let inits = pids.iter().map(|pid| observer.inits(*pid).len());
    assert_eq!(inits.sum::<usize>(), 0, "the agent was not late");
    let issued = job.issued();
    let blocks = blocks(&observer.events, is_of_use);
    // The agent attaches to one rank some operations before the other: their first blocks begin
    // there.
    let begin_of = |rank| blocks.iter().find(|(_, ranks)| ranks.contains(&rank));
    let begins = [0, 1].map(|rank| begin_of(rank).unwrap().0.1);
    let shared = blocks
        .iter()
        .filter(|((_, first, _), _)| *first > begins[0].max(begins[1]));
    assert!(shared.clone().count() > 2, "{blocks:?}");
    assert!(
        shared.clone().all(|(_, ranks)| ranks == &[0, 1]),
        "{blocks:?}"
    );
    let ((_, _, last), _) = blocks.last_key_value().unwrap();
    let is_last = |issued: &u64| last + 1 == *issued;
    assert!(issued.values().all(is_last), "{blocks:?} {issued:?}");
    let comms: BTreeSet<&str> = blocks.keys().map(|(comm, ..)| comm.as_str()).collect();
    assert_eq!(comms.len(), 1, "{comms:?}");
}

/// Returns the counts that the ranks of the one communicator in a directory have written: ranks
/// joined, and operations issued per rank.
fn shared_counts(folder: &Path) -> Vec<u64> {
    let mut files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_comm = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("comm-")
    };
    let bytes = files.find(is_comm).map(|path| fs::read(path).unwrap());
    let bytes = bytes.unwrap_or_default();
    let (counts, _) = bytes.as_chunks();
    counts.iter().copied().map(u64::from_ne_bytes).collect()
}

/// Returns the blocks that a host forms from events.
fn blocks(events: &[Event], is_of_use: fn(&Event) -> bool) -> Blocks {
    let identity = Identity {
        cluster: "lab".to_owned(),
        node: "a".to_owned(),
        job: None,
        gpu_model: None,
    };
    let clock = WallClock {
        origin_ns: 0,
        unix_ns: 0,
    };
    let rule = BlockRule {
        target_ns: 1e9,
        exponent: Some(4),
    };
    let mut host = Host::new(identity, u64::MAX);
    host.trace(&[], clock, rule);
    let events = events.iter().filter(|event| is_of_use(event));
    let mut batches: Vec<Batch> = events.filter_map(|event| host.on_event(event)).collect();
    batches.extend(host.finish(Ending::Complete).0);
    let mut blocks = Blocks::new();
    for resource in batches.iter().flat_map(|batch| &batch.resources) {
        let points = resource.points.iter();
        for point in points.filter(|point| point.metric == metric::ARRIVAL) {
            let block = &point.block;
            let at = (block.comm.to_string(), block.seq_first, block.seq_last);
            blocks.entry(at).or_default().extend(resource.resource.rank);
        }
    }
    for ranks in blocks.values_mut() {
        ranks.sort_unstable();
    }
    blocks
}
