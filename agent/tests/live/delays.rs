//! Delays of a rank on its host: who ran in its place, and why it was blocked. Rank 0 has the delay,
//! and rank 1 is its healthy twin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fleet_agent_core::event::{BlockReason, Delays, Event};

use crate::Test;
use crate::fixture::{Gpu, Linking, Observer, settings};
use crate::job::Job;

pub(crate) const TESTS: &[Test] = &[
    ("a_task_on_the_cpu_of_a_rank_is_named", hog),
    ("a_wait_for_a_lock_has_a_reason_of_its_own", lock),
    ("a_wait_for_a_pipe_has_a_reason_of_its_own", pipe),
    ("a_wait_for_a_connection_has_a_reason_of_its_own", tcp),
    ("a_read_past_the_page_cache_is_a_wait_for_a_device", file),
    ("a_page_fault_that_waits_has_a_reason_of_its_own", fault),
    ("interrupts_on_the_cpu_of_a_rank_are_counted", interrupts),
    ("a_rank_at_its_cpu_quota_is_throttled", throttled),
];

const MS: u64 = 1_000_000;

/// Starts ranks until the gate `end` opens, of which one, run by `wrapper`, has a delay in every
/// step.
fn start(gpu: &Gpu, (ranks, delayed): (u32, u32), delay: &str, wrapper: &[String]) -> Job {
    let gate = |name: &str, file: &str| format!("{name}={}", gpu.gate(file).display());
    let command = |rank: u32| {
        let mut words: Vec<String> = Vec::new();
        words.extend(wrapper.iter().filter(|_| rank == delayed).cloned());
        let program = gpu.path().join(Linking::Dynamic.program());
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args([rank, ranks, 0].map(|n| n.to_string()))
            .args(["import=0", "step=5", "compute=50"])
            .args([gate("init", "go"), gate("end", "end"), gate("file", "data")])
            .arg(format!("delay={delayed}:{delay}"))
            .env("LD_LIBRARY_PATH", gpu.path());
        command
    };
    gpu.start((0..ranks).map(|rank| (rank, command(rank))), ranks)
}

/// Observes the delays of both ranks until `is_enough`; returns those of rank 0 and of its twin.
fn observe(
    gpu: &Gpu,
    delay: &str,
    wrapper: &[String],
    is_enough: impl Fn(&Delays) -> bool,
) -> [Delays; 2] {
    let mut observer = Observer::new(&settings());
    let job = start(gpu, (2, 0), delay, wrapper);
    let pids = job.pids();
    let delays = |observer: &Observer, at: usize| {
        let mut sum = Delays::default();
        for event in observer.events_of(pids[at]) {
            if let Event::Delays(sample) = event {
                sum.add(&sample.delays);
            }
        }
        sum.name_largest_tasks();
        sum
    };
    observer.release(&job);
    observer.until(|observer| is_enough(&delays(observer, 0)));
    let seen = [0, 1].map(|at| delays(&observer, at));
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    observer.live.clear();
    seen
}

/// Asserts that rank 0 waits mainly for one reason, which its twin hardly knows.
fn waits_for(delay: &str, reason: BlockReason) {
    let gpu = Gpu::new();
    fs::write(gpu.gate("data"), vec![1; 16 << 20]).unwrap();
    let is_enough = |delays: &Delays| delays.blocked_ns(reason) > 200 * MS;
    let [own, twin] = observe(&gpu, delay, &[], is_enough);
    // A rank sleeps in every step as well.
    let others = own
        .blocked
        .iter()
        .filter(|blocked| blocked.reason != BlockReason::Sleep);
    let longest = others.max_by_key(|blocked| blocked.ns).unwrap();
    assert_eq!(longest.reason, reason, "{own:?}");
    assert!(
        own.blocked_ns(reason) > 4 * twin.blocked_ns(reason),
        "{own:?} {twin:?}"
    );
    assert!(twin.blocked_ns(BlockReason::Sleep) > 0, "{twin:?}");
}

fn lock() {
    waits_for("lock:10", BlockReason::Lock);
}

fn pipe() {
    waits_for("pipe:10", BlockReason::Pipe);
}

fn tcp() {
    waits_for("tcp:10", BlockReason::Network);
}

fn file() {
    waits_for("file:20", BlockReason::BlockIo);
}

fn fault() {
    waits_for("fault:20", BlockReason::PageFault);
}

/// Task that keeps one CPU busy.
pub(crate) struct Hog(Child);

impl Hog {
    pub(crate) fn start(gpu: &Gpu, name: &str, cpu: u32) -> Self {
        let program = gpu.path().join(name);
        fs::copy("/usr/bin/yes", &program).unwrap();
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(program);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

pub(crate) fn pinned_to(cpu: u32) -> Vec<String> {
    ["taskset", "-c", &cpu.to_string()]
        .map(str::to_owned)
        .to_vec()
}

fn time_of(delays: &Delays, name: &str) -> u64 {
    let named = delays.preempted_by.iter().filter(|task| task.task == name);
    named.map(|task| task.ns).sum()
}

fn hog() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let is_enough = |delays: &Delays| time_of(delays, "cpu-hog") > 200 * MS;
    let [own, twin] = observe(&gpu, "spin:20", &pinned_to(0), is_enough);
    // On a busy machine other tasks run there as well.
    let mut named = own.preempted_by.iter();
    let hog = named.find(|task| task.task == "cpu-hog").unwrap();
    assert!(hog.cpu == 0 && hog.switches > 0, "{own:?}");
    assert!(4 * time_of(&twin, "cpu-hog") < hog.ns, "{own:?} {twin:?}");
}

fn interrupts() {
    let gpu = Gpu::new();
    let interrupted = |delays: &Delays| delays.interrupt_ns.unwrap_or(0);
    let [own, twin] = observe(&gpu, "irq:20", &[], |delays| interrupted(delays) > 100 * MS);
    assert!(
        interrupted(&own) > 4 * interrupted(&twin),
        "{own:?} {twin:?}"
    );
}

/// Control group of a test, of either version.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a group with a CPU quota of microseconds in each tenth of a second.
    fn with_quota(quota_us: u32) -> Self {
        let mount = Path::new("/sys/fs/cgroup");
        let is_unified = mount.join("cgroup.controllers").exists();
        let name = format!("fleet-test-{}", std::process::id());
        if is_unified {
            fs::write(mount.join("cgroup.subtree_control"), "+cpu").unwrap();
            let group = Self(mount.join(name));
            fs::create_dir(&group.0).unwrap();
            fs::write(group.0.join("cpu.max"), format!("{quota_us} 100000")).unwrap();
            return group;
        }
        let group = Self(mount.join("cpu").join(name));
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join("cpu.cfs_period_us"), "100000").unwrap();
        fs::write(group.0.join("cpu.cfs_quota_us"), quota_us.to_string()).unwrap();
        group
    }

    /// Returns the words before a command that runs in the group.
    fn wrapper(&self) -> Vec<String> {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _removed = fs::remove_dir(&self.0);
    }
}

fn throttled() {
    let gpu = Gpu::new();
    let group = Cgroup::with_quota(5000);
    let throttled = |delays: &Delays| delays.cgroup_throttled_ns.unwrap_or(0);
    let is_enough = |delays: &Delays| throttled(delays) > 500 * MS;
    let [_, twin] = observe(&gpu, "spin:20", &group.wrapper(), is_enough);
    assert_eq!(twin.cgroup_throttled_ns, Some(0), "{twin:?}");
}
