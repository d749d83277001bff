//! Agent process: killed, stopped, without privileges, without BTF.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fleet_agent_core::event::Event;
use fleet_agent_sources::watch::WatchSettings;
use rustix::process::Signal;

use crate::PROBES;
use crate::fixture::{Gpu, Linking, Observer, agent, settings};
use crate::job::Job;
use crate::running::Running;

/// Capabilities that an agent needs if the kernel has `uprobe_multi`.
const CAPABILITIES: &str = "+bpf,+perfmon,+sys_ptrace,+dac_read_search,+checkpoint_restore";

/// Pin directory in a separate BPF file system.
struct Pins(PathBuf);

impl Pins {
    fn mount(gpu: &Gpu) -> Self {
        let folder = gpu.path().join("bpf");
        fs::create_dir(&folder).unwrap();
        assert!(
            Command::new("mount")
                .args(["-t", "bpf", "bpf"])
                .arg(&folder)
                .status()
                .unwrap()
                .success()
        );
        Self(folder)
    }

    fn flag(&self) -> String {
        format!("--pin={}", self.0.join("agent").display())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
#[needs(PROBES)]
fn the_next_agent_continues_where_a_killed_one_stopped() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let mut first = Running::start(agent(), &[&pins.flag()]);
    let end = gpu.gate("end");
    let gate = format!("end={}", end.display());
    let job = gpu.job(Linking::Dynamic, 2, 200, &["step=2", &gate]);
    first.follow(&gpu, &job);
    first.wait_for_log("following a rank");
    first.wait_for_log("following a rank");
    first.wait_for_metric("fleet_agent_events_total{source=\"calls\"}", |calls| {
        calls > 100
    });
    first.signal(Signal::KILL);
    first.child.wait().unwrap();
    let mut second = Running::start(agent(), &[&pins.flag()]);
    second.wait_for_log("following a rank");
    fs::write(end, "").unwrap();
    job.issued();
    second.wait_for_log("a rank ended");
    second.wait_for_log("a rank ended");
    // All communicators are known, and no call was missed meanwhile: the probes kept counting.
    assert_eq!(second.metric("fleet_agent_unknown_comm_ops_total"), 0);
    assert_eq!(
        second.metric("fleet_agent_events_lost_total{reason=\"ring\"}"),
        0
    );
    let output = second.stop();
    assert!(
        output.contains("broken_blocks=0") || output.contains("broken_blocks=2"),
        "{output}"
    );
    assert_eq!(
        fs::read_dir(pins.0.join("agent")).unwrap().count(),
        0,
        "no pins are left"
    );
}

/// Starts a job of two ranks, which runs until the gate `end` opens, and whose agent was killed.
fn outlives_its_agent(gpu: &Gpu, pins: &Pins) -> Job {
    let mut agent = Running::start(agent(), &[&pins.flag()]);
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 2, 0, &["step=2", &end]);
    agent.follow(gpu, &job);
    agent.wait_for_log("following a rank");
    agent.signal(Signal::KILL);
    agent.child.wait().unwrap();
    job
}

#[test]
#[needs(PROBES)]
fn the_next_agent_reports_ranks_that_ended_without_an_agent() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let job = outlives_its_agent(&gpu, &pins);
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    // The ring holds their last calls, and no event reports their end.
    let mut second = Running::start(agent(), &[&pins.flag()]);
    second.wait_for_log("a rank ended");
    second.wait_for_log("a rank ended");
    second.stop();
}

#[test]
#[needs(PROBES)]
fn kernel_evidence_continues_under_the_next_agent() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let kept = WatchSettings {
        pins: Some(pins.0.join("agent")),
        ..settings()
    };
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 1, 0, &["step=2", &end]);
    job.release();
    let pid = job.pids()[0];
    let off_cpu_ns = |observer: &Observer| {
        let activities = observer.events_of(pid).filter_map(|event| match event {
            Event::Activity(measured) => measured.activity.threads,
            _ => None,
        });
        activities.map(|threads| threads.off_cpu_ns).sum::<u64>()
    };
    // Dropped without cleanup, as if it had been killed.
    let has_evidence = |observer: &Observer| off_cpu_ns(observer) > 0;
    Observer::new(&kept).until("time off the CPU", has_evidence);
    let mut second = Observer::new(&kept);
    second.until("time off the CPU", has_evidence);
    second.live.clear();
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
}

#[test]
#[needs(PROBES)]
fn partly_pinned_probes_are_not_reused() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let job = outlives_its_agent(&gpu, &pins);
    // As if it had been killed after pinning one of two: the name of each pin ends with its number.
    let folders = fs::read_dir(pins.0.join("agent")).unwrap();
    let kept = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let seconds = kept.map(|pin| pin.unwrap().path()).filter(|pin| {
        pin.to_str()
            .is_some_and(|name| name.ends_with("-1") && name.matches('-').count() > 4)
    });
    for pin in seconds {
        fs::remove_file(pin).unwrap();
    }
    let mut second = Running::start(agent(), &[&pins.flag()]);
    second.wait_for_log("following a rank");
    // Calls in between were not counted, so sequence numbers are unknown, and operations count as
    // unknown.
    second.wait_for_metric("fleet_agent_unknown_comm_ops_total", |ops| ops > 20);
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    second.wait_for_log("a rank ended");
    second.stop();
    let left = fs::read_dir(pins.0.join("agent")).unwrap().count();
    assert_eq!(left, 0, "no pins are left");
}

#[test]
#[needs(PROBES)]
fn a_process_with_the_id_of_an_ended_one_is_a_rank_of_its_own() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let start = |job: &str| {
        let environment = [("SLURM_JOB_ID", PathBuf::from(job))];
        gpu.job_in(&environment, Linking::Dynamic, (1, 3), &["step=0"])
    };
    let first = start("first");
    observer.follow(&first);
    let pid = first.pids()[0];
    let mut issued = first.issued()[&pid];
    // Another process of the host can take the id between the two lines: then once more.
    let second = loop {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let job = start("second");
        if job.pids() == [pid] {
            break job;
        }
        observer.follow(&job);
        job.issued();
    };
    observer.release(&second);
    observer.until("two ends of processes with one id", |observer| {
        let ends = observer
            .events_of(pid)
            .filter(|event| matches!(event, Event::Ended(_)));
        ends.count() == 2
    });
    issued += second.issued()[&pid];
    let jobs = observer.events_of(pid).filter_map(|event| match event {
        Event::Started(started) => started.labels.job.as_deref(),
        _ => None,
    });
    assert_eq!(jobs.collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(observer.collectives(pid).len() as u64, issued);
    assert_eq!(observer.live.losses().events(), 0);
}

#[test]
#[needs(PROBES)]
fn events_that_do_not_fit_in_the_ring_are_counted_and_their_blocks_left_out() {
    let gpu = Gpu::new();
    let mut running = Running::start(agent(), &["--pin=none"]);
    let begin = gpu.gate("begin");
    let gate = format!("begin={}", begin.display());
    // Twelve thousand events of 112 bytes: more than a megabyte.
    let job = gpu.job(Linking::Dynamic, 2, 300, &["ops=20", "step=0", &gate]);
    running.follow(&gpu, &job);
    running.wait_for_log("following a rank");
    running.wait_for_log("following a rank");
    running.signal(Signal::STOP);
    fs::write(begin, "").unwrap();
    let issued: u64 = job.issued().into_values().sum();
    running.signal(Signal::CONT);
    running.wait_for_log("a rank ended");
    running.wait_for_log("a rank ended");
    let lost = running.wait_for_metric("fleet_agent_events_lost_total{reason=\"ring\"}", |lost| {
        lost > 0
    });
    let seen = running.metric("fleet_agent_events_total{source=\"calls\"}");
    // Communicators and waits are events as well, and so is everything else on this host.
    assert!(
        seen + lost > issued,
        "{seen} seen, {lost} lost, {issued} issued"
    );
    running.stop();
}

/// Copies the agent's program to where any user can run it.
fn for_anybody(gpu: &Gpu) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = gpu.path().join("fleet-agent");
    fs::copy(env!("CARGO_BIN_EXE_fleet-agent"), &program).unwrap();
    fs::set_permissions(gpu.path(), PermissionsExt::from_mode(0o755)).unwrap();
    program
}

/// Agent command that runs as user 65534 with the given capabilities.
fn as_nobody(gpu: &Gpu, capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .arg(format!("--inh-caps={capabilities}"))
        .arg(format!("--ambient-caps={capabilities}"));
    command
        .arg(format!("--bounding-set=-all,{capabilities}"))
        .arg(for_anybody(gpu));
    command
}

#[test]
#[needs(PROBES)]
fn five_capabilities_are_enough() {
    let gpu = Gpu::new();
    let mut running = Running::start(as_nobody(&gpu, CAPABILITIES), &["--pin=none"]);
    let job = gpu.job(Linking::Dynamic, 2, 40, &["step=1"]);
    running.follow(&gpu, &job);
    running.wait_for_log("following a rank");
    running.wait_for_log("following a rank");
    let issued: u64 = job.issued().into_values().sum();
    running.wait_for_log("a rank ended");
    running.wait_for_log("a rank ended");
    assert!(running.metric("fleet_agent_events_total{source=\"calls\"}") > issued);
    assert_eq!(running.metric("fleet_agent_unknown_comm_ops_total"), 0);
    running.stop();
}

#[test]
#[needs(PROBES)]
fn without_privileges_one_line_names_the_missing_capabilities() {
    let gpu = Gpu::new();
    let mut command = as_nobody(&gpu, "-all");
    command.args([
        "run",
        "--endpoint",
        "none",
        "--cluster",
        "test",
        "--pin=none",
    ]);
    let output = command.output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("CAP_BPF and CAP_PERFMON"), "{log}");
}

#[test]
#[needs(PROBES)]
fn without_btf_the_agent_runs_without_kernel_evidence_and_logs_it() {
    let gpu = Gpu::new();
    let mut hidden = Command::new("unshare");
    hidden.args([
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"",
        "sh",
    ]);
    hidden.arg(env!("CARGO_BIN_EXE_fleet-agent"));
    let mut running = Running::start(hidden, &["--pin=none"]);
    running.wait_for_log("no kernel evidence");
    let job = gpu.job(Linking::Dynamic, 2, 40, &["step=1"]);
    running.follow(&gpu, &job);
    running.wait_for_log("following a rank");
    let issued: u64 = job.issued().into_values().sum();
    running.wait_for_log("a rank ended");
    running.wait_for_log("a rank ended");
    assert!(running.metric("fleet_agent_events_total{source=\"calls\"}") > issued);
    running.stop();
}

#[test]
#[needs(PROBES)]
fn without_a_bpf_file_system_the_agent_runs_without_pins_and_logs_it() {
    let gpu = Gpu::new();
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c"]);
    hidden.arg("mount -t tmpfs none /sys/fs/bpf && exec \"$@\"");
    hidden.args(["sh", env!("CARGO_BIN_EXE_fleet-agent")]);
    let mut running = Running::start(hidden, &[]);
    let job = gpu.job(Linking::Dynamic, 2, 40, &["step=1"]);
    running.follow(&gpu, &job);
    running.wait_for_log("a rank ended");
    running.wait_for_log("a rank ended");
    let issued: u64 = job.issued().into_values().sum();
    assert!(running.metric("fleet_agent_events_total{source=\"calls\"}") > issued);
    running.stop();
}

#[test]
#[needs(PROBES)]
fn a_second_agent_of_the_host_is_refused() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let running = Running::start(agent(), &[&pins.flag()]);
    let output = agent()
        .args(["run", "--endpoint=none", "--cluster=live", &pins.flag()])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), log.lines().count()),
        (Some(75), 1),
        "{log}"
    );
    assert!(log.contains("another agent on this host"), "{log}");
    running.stop();
}

#[test]
#[needs(PROBES)]
fn an_empty_recording_ends_with_69_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.jsonl.gz");
    // This process calls no GPU library.
    let own = std::process::id().to_string();
    let mut record = agent();
    record.arg("record").arg(&path);
    let output = record
        .args(["--pid", &own, "--duration", "10ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("nothing to record"), "{message}");
    assert!(!path.exists());
}
