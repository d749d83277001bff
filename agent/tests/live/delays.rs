//! Delays of a rank on its host: who ran in its place, and why it was blocked. Rank 0 has the delay,
//! and rank 1 is its healthy twin.

use std::fs;
use std::process::{Child, Command, Stdio};

use fleet_agent_core::event::{BlockReason, DelaySample, Delays, Event};

use crate::PROBES;
use crate::cgroup::Cgroup;
use crate::fixture::{Gpu, Linking, Observer, settings};
use crate::job::Job;

const MS: u64 = 1_000_000;

/// Starts ranks until the gate `end` opens, of which one, run by `wrapper`, has a delay in every
/// step, once the file `delay_from` is there if the options name one. Its peers are undisturbed.
pub(crate) fn start(
    gpu: &Gpu,
    (ranks, delayed): (u32, u32),
    options: &[&str],
    wrapper: &[String],
) -> Job {
    let command = |rank: u32| {
        let words = if rank == delayed {
            wrapper.to_vec()
        } else {
            undisturbed()
        };
        command(gpu, words, (rank, ranks), options)
    };
    gpu.start((0..ranks).map(|rank| (rank, command(rank))), ranks)
}

/// Starts ranks which all run with a wrapper, and all have the same delay.
pub(crate) fn start_alike(gpu: &Gpu, ranks: u32, delay: &str, wrapper: &[String]) -> Job {
    let command = |rank: u32| {
        let delay = format!("delay={rank}:{delay}");
        command(gpu, wrapper.to_vec(), (rank, ranks), &[&delay])
    };
    gpu.start((0..ranks).map(|rank| (rank, command(rank))), ranks)
}

/// Command of one of so many ranks, which runs until the gate `end` opens.
fn command(
    gpu: &Gpu,
    mut words: Vec<String>,
    (rank, ranks): (u32, u32),
    options: &[&str],
) -> Command {
    let gate = |name: &str, file: &str| format!("{name}={}", gpu.gate(file).display());
    let program = gpu.path().join(Linking::Dynamic.program());
    words.push(program.display().to_string());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args([rank, ranks, 0].map(|n| n.to_string()))
        .args(["import=0", "step=5", "compute=50"])
        .args([gate("init", "go"), gate("end", "end"), gate("file", "data")])
        .args(options)
        .env("LD_LIBRARY_PATH", gpu.path());
    command
}

/// Observes both ranks until `is_enough` holds for rank 0; returns the delays of it and of its twin.
fn observe(
    gpu: &Gpu,
    delay: &str,
    wrapper: &[String],
    is_enough: impl Fn(&[DelaySample]) -> bool,
) -> [Vec<DelaySample>; 2] {
    let mut observer = Observer::new(&settings());
    let job = start(gpu, (2, 0), &[&format!("delay=0:{delay}")], wrapper);
    let pids = job.pids();
    let samples = |observer: &Observer, at: usize| -> Vec<DelaySample> {
        let events = observer.events_of(pids[at]);
        let delays = events.filter_map(|event| match event {
            Event::Delays(sample) => Some(DelaySample::clone(sample)),
            _ => None,
        });
        delays.collect()
    };
    observer.release(&job);
    observer.until("the delay of rank 0", |observer| {
        is_enough(&samples(observer, 0))
    });
    let seen = [0, 1].map(|at| samples(&observer, at));
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    observer.live.clear();
    seen
}

fn sum(samples: &[DelaySample]) -> Delays {
    let mut sum = Delays::default();
    for sample in samples {
        sum.add(&sample.delays);
    }
    sum.name_largest_tasks();
    sum
}

/// Asserts that rank 0 waits mainly for one reason, which its twin hardly knows.
fn waits_for(delay: &str, reason: BlockReason) {
    let gpu = Gpu::new();
    fs::write(gpu.gate("data"), vec![1; 16 << 20]).unwrap();
    let is_enough = |samples: &[DelaySample]| sum(samples).blocked_ns(reason) > 200 * MS;
    let [own, twin] = observe(&gpu, delay, &[], is_enough).map(|samples| sum(&samples));
    // A rank sleeps in every step as well.
    let others = own
        .blocked
        .iter()
        .filter(|blocked| blocked.reason != BlockReason::Sleep);
    let longest = others.max_by_key(|blocked| blocked.ns).unwrap();
    assert_eq!(longest.reason, reason, "{own:?}");
    // The longest one is no shorter than the mean.
    let is_longest = longest.longest_ns * longest.count >= longest.ns;
    assert!(
        is_longest && longest.longest_ns <= longest.ns,
        "{longest:?}"
    );
    assert!(
        own.blocked_ns(reason) > 4 * twin.blocked_ns(reason),
        "{own:?} {twin:?}"
    );
    assert!(twin.blocked_ns(BlockReason::Sleep) > 0, "{twin:?}");
}

#[test]
#[needs(PROBES)]
fn a_wait_for_a_lock_has_a_reason_of_its_own() {
    waits_for("lock:10", BlockReason::Lock);
}

#[test]
#[needs(PROBES)]
fn a_wait_for_a_pipe_has_a_reason_of_its_own() {
    waits_for("pipe:10", BlockReason::Pipe);
}

#[test]
#[needs(PROBES)]
fn a_wait_for_a_connection_has_a_reason_of_its_own() {
    waits_for("tcp:10", BlockReason::Network);
}

#[test]
#[needs(PROBES)]
fn a_read_past_the_page_cache_is_a_wait_for_a_device() {
    waits_for("file:20", BlockReason::BlockIo);
}

#[test]
#[needs(PROBES)]
fn a_page_fault_that_waits_has_a_reason_of_its_own() {
    waits_for("fault:20", BlockReason::PageFault);
}

/// Task that keeps one CPU busy, and has more of it than most tasks of a busy host.
pub(crate) struct Hog(Child);

impl Hog {
    pub(crate) fn start(gpu: &Gpu, name: &str, cpu: u32) -> Self {
        let program = gpu.path().join(name);
        fs::copy("/usr/bin/yes", &program).unwrap();
        let words = [with_priority(-5), pinned_to(cpu)].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
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

/// Returns the words before a command that has a CPU other than 0 when it wants one, whatever else
/// the machine does.
pub(crate) fn undisturbed() -> Vec<String> {
    let not_on_0 = ["taskset", "-c", "1-1023"].map(str::to_owned);
    [with_priority(-15), not_on_0.to_vec()].concat()
}

/// Returns the words before a command with a priority. It gets a session of its own, since the kernel
/// compares priorities within a session and treats all sessions alike, and ends with the test, which
/// the runner can kill.
pub(crate) fn with_priority(nice: i32) -> Vec<String> {
    let raise = format!("echo {nice} 2>/dev/null >/proc/self/autogroup");
    let script = format!("{raise}; exec nice -n {nice} \"$@\"");
    let words = [
        "setsid",
        "setpriv",
        "--pdeathsig=KILL",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    words.map(str::to_owned).to_vec()
}

fn time_of(delays: &Delays, name: &str) -> u64 {
    let named = delays.preempted_by.iter().filter(|task| task.task == name);
    named.map(|task| task.ns).sum()
}

#[test]
#[needs(PROBES)]
fn a_task_on_the_cpu_of_a_rank_is_named() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let is_enough = |samples: &[DelaySample]| time_of(&sum(samples), "cpu-hog") > 200 * MS;
    let seen = observe(&gpu, "spin:20", &pinned_to(0), is_enough);
    let [own, twin] = seen.map(|samples| sum(&samples));
    // On a busy machine other tasks run there as well.
    let mut named = own.preempted_by.iter();
    let hog = named.find(|task| task.task == "cpu-hog").unwrap();
    assert!(hog.cpu == Some(0) && hog.switches > 0, "{own:?}");
    assert_eq!(time_of(&twin, "cpu-hog"), 0, "{own:?} {twin:?}");
}

#[test]
#[needs(PROBES)]
fn interrupts_on_the_cpu_of_a_rank_are_counted() {
    let gpu = Gpu::new();
    let interrupted = |delays: &Delays| delays.interrupt_ns.unwrap_or(0);
    let is_enough = |samples: &[DelaySample]| interrupted(&sum(samples)) > 100 * MS;
    let [own, twin] = observe(&gpu, "irq:20", &[], is_enough).map(|samples| sum(&samples));
    assert!(
        interrupted(&own) > 4 * interrupted(&twin),
        "{own:?} {twin:?}"
    );
}

/// A thread that is throttled waits for no task: both times together are not more than what passed.
#[test]
#[needs(PROBES)]
fn no_task_is_charged_for_the_time_a_rank_is_throttled() {
    let gpu = Gpu::new();
    let group = Cgroup::with_quota(5000);
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let wrapper = [group.wrapper(), pinned_to(0)].concat();
    let throttled = |samples: &[DelaySample]| sum(samples).cgroup_throttled_ns.unwrap_or(0);
    let is_enough = |samples: &[DelaySample]| throttled(samples) > 2500 * MS;
    let [own, twin] = observe(&gpu, "spin:20", &wrapper, is_enough);
    assert_eq!(throttled(&twin), 0, "{twin:?}");
    // The first reading of a group has no predecessor.
    let is_whole = |sample: &&DelaySample| sample.delays.cgroup_throttled_ns.is_some();
    let own: Vec<DelaySample> = own.iter().filter(is_whole).cloned().collect();
    let passed_ns: u64 = own.iter().map(|own| own.ts_ns - own.from_ns).sum();
    let tasks = sum(&own).preempted_by;
    let tasks_ns: u64 = tasks.iter().map(|task| task.ns).sum();
    // What began before the first reading is counted when it ends.
    let bound_ns = passed_ns + passed_ns / 10;
    assert!(tasks_ns + throttled(&own) < bound_ns, "{passed_ns} {own:?}");
}
