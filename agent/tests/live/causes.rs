//! Planted causes, each explained with its advice. Rank 0 has the cause, and its peers are healthy; a process
//! without a rank is healthy before it has the cause.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::PROBES;
use crate::cgroup::Cgroup;
use crate::delays::{Hog, pinned_to, start_alike, with_priority};
use crate::explain::{delayed_alone, explained, job};
use crate::fixture::Gpu;
use crate::lossy_link::LossyLink;
use crate::tracing::{Watching, chain};

/// Explains a job whose rank 0 runs with a wrapper and has a delay; asserts that it has the cause
/// and that its peers do not, and returns its chain.
fn explains(gpu: &Gpu, wrapper: &[String], options: &[&str], cause: &str) -> Value {
    let job = job(gpu, wrapper, &[&["step=5"], options].concat());
    let explained = explained(gpu, &job, cause);
    job.issued();
    explained.chain(cause).clone()
}

fn contains(texts: &Value, words: &str) -> bool {
    let mut texts = texts.as_array().unwrap().iter();
    texts.any(|text| text.as_str().unwrap().contains(words))
}

#[test]
#[needs(PROBES)]
fn interrupts_on_the_cpu_of_a_rank_are_explained() {
    let gpu = Gpu::new();
    // Without a CPU it sends nothing that could interrupt it.
    let options = ["delay=0:irq:20"];
    let chain = explains(&gpu, &with_priority(-15), &options, "interrupts");
    assert!(contains(&chain["links"], "interrupts took"), "{chain:#}");
    assert!(contains(&chain["advice"], "smp_affinity_list"), "{chain:#}");
}

#[test]
#[needs(PROBES)]
fn a_rank_at_its_memory_limit_is_explained() {
    let gpu = Gpu::new();
    fs::write(gpu.gate("data"), vec![1; 16 << 20]).unwrap();
    // Half of the file.
    let group = Cgroup::with_memory(8 << 20);
    let file = format!("file={}", gpu.gate("data").display());
    let options = ["delay=0:memory:20", &file];
    let chain = explains(&gpu, &group.wrapper(), &options, "page_faults");
    assert!(
        contains(&chain["links"], "waiting for memory pages"),
        "{chain:#}"
    );
    assert!(
        contains(&chain["advice"], "raise the memory limit"),
        "{chain:#}"
    );
}

#[test]
#[needs(PROBES)]
fn a_rank_that_reads_past_the_page_cache_is_explained() {
    let gpu = Gpu::new();
    fs::write(gpu.gate("data"), vec![1; 16 << 20]).unwrap();
    let file = format!("file={}", gpu.gate("data").display());
    let chain = explains(&gpu, &[], &["delay=0:file:20", &file], "block_io");
    assert!(
        contains(&chain["links"], "waiting for a block device"),
        "{chain:#}"
    );
    assert!(contains(&chain["advice"], "local disk"), "{chain:#}");
}

#[test]
#[needs(PROBES)]
fn a_data_loader_with_too_few_workers_is_explained() {
    let gpu = Gpu::new();
    let chain = explains(&gpu, &[], &["delay=0:loader:20"], "pipe");
    assert!(contains(&chain["links"], "waiting at a pipe"), "{chain:#}");
    assert!(contains(&chain["advice"], "num_workers"), "{chain:#}");
}

#[test]
#[needs(PROBES)]
fn lost_segments_of_a_connection_are_explained() {
    let gpu = Gpu::new();
    let link = LossyLink::new();
    let netns = format!("netns={}", link.namespace().display());
    let chain = explains(&gpu, &[], &["delay=0:loss:1", &netns], "network");
    assert!(
        contains(&chain["links"], "waiting for a socket"),
        "{chain:#}"
    );
    assert!(contains(&chain["links"], "TCP segments again"), "{chain:#}");
    assert!(contains(&chain["advice"], "ss -tip"), "{chain:#}");
}

/// With one peer that suffers as much, a comparison tells nothing.
#[test]
#[needs(PROBES)]
fn a_host_that_is_short_of_cpu_is_explained_though_all_ranks_suffer() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let job = start_alike(&gpu, 2, "spin:20", &pinned_to(0));
    job.release();
    let live = Watching::start(&["trace"]);
    for pid in job.pids() {
        live.find("a host without CPU time", |report| {
            let is_of_rank = report["pid"] == pid;
            let found = chain(&report, "cpu_contention").filter(|_| is_of_rank)?;
            contains(&found["links"], "is short of CPU").then_some(())
        });
    }
    live.stop();
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
}

/// Waits of processes without a rank, with a part of the advice of each.
const WAITS: [(&str, &str, &str); 5] = [
    ("lock:10", "lock", "fleet-agent stacks"),
    ("pipe:10", "pipe", "num_workers"),
    ("tcp:10", "network", "ss -tip"),
    ("file:20", "block_io", "local disk"),
    ("memory:20", "page_faults", "raise the memory limit"),
];

#[test]
#[needs(PROBES)]
fn each_wait_that_begins_in_a_process_without_a_rank_is_explained_and_none_before() {
    let gpu = Gpu::new();
    let [from, data] = ["delay_from", "data"].map(|name| gpu.gate(name));
    fs::write(&data, vec![1; 16 << 20]).unwrap();
    // Half of the file.
    let group = Cgroup::with_memory(8 << 20);
    let jobs = WAITS.map(|(delay, cause, _)| {
        let wrapper = match cause {
            "page_faults" => group.wrapper(),
            _ => with_priority(-15),
        };
        // Five that pause for a millisecond would keep two CPUs busy.
        let delay = [delay, path(&from), path(&data), "5000"];
        delayed_alone(&gpu, &wrapper, &delay)
    });
    let mut waits: BTreeMap<u64, _> = jobs
        .iter()
        .zip(WAITS)
        .map(|(job, wait)| (u64::from(job.pids()[0]), wait))
        .collect();
    let live = Watching::start(&["trace"]);
    let mut periods: BTreeMap<u64, u32> = BTreeMap::new();
    live.find("their past", |report| {
        let pid = report["pid"].as_u64()?;
        let (_, cause, _) = waits.get(&pid)?;
        assert!(chain(&report, cause).is_none(), "{report:#}");
        *periods.entry(pid).or_default() += 1;
        let is_known = |pid| periods.get(pid) >= Some(&5);
        waits.keys().all(is_known).then_some(())
    });
    fs::write(&from, "").unwrap();
    live.find("each wait", |report| {
        let pid = report["pid"].as_u64()?;
        let (_, cause, advice) = waits.get(&pid)?;
        let chain = chain(&report, cause)?;
        assert!(contains(&chain["advice"], advice), "{chain:#}");
        waits.remove(&pid);
        waits.is_empty().then_some(())
    });
    live.stop();
    drop(jobs);
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
