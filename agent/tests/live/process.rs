//! The agent as a process: killed, stopped, without rights, without BTF.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::Test;
use crate::fixture::{Gpu, Job, Linking, agent};

pub(crate) const TESTS: &[Test] = &[
    (
        "an_agent_that_is_killed_is_gone_on_from_where_it_was",
        killed,
    ),
    (
        "events_that_the_ring_has_no_room_for_are_counted_and_their_blocks_left_out",
        overflow,
    ),
    ("five_capabilities_are_enough", capabilities),
    ("without_rights_one_line_says_which_are_missing", no_rights),
    (
        "without_btf_the_agent_does_without_the_kernels_evidence_and_says_so",
        no_btf,
    ),
    ("a_second_agent_of_the_host_is_refused", second),
];

/// The rights that an agent needs where the kernel has `uprobe_multi`.
const CAPABILITIES: &str = "+bpf,+perfmon,+sys_ptrace,+dac_read_search,+checkpoint_restore";

/// An agent that runs.
struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
    metrics: String,
}

impl Running {
    /// Starts the agent by `command`, which ends with its program, and waits until it watches.
    fn start(mut command: Command, flags: &[&str]) -> Self {
        // Free a moment ago; nothing else on this host listens where it does not know.
        let metrics = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        command.args([
            "run",
            "--endpoint",
            "none",
            "--cluster",
            "test",
            "--interval",
            "200ms",
        ]);
        command.args(["--metrics-listen", &metrics]).args(flags);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut running = Self {
            child,
            log,
            metrics,
        };
        running.until_says("watching this host");
        running
    }

    /// Reads the log to a line that says so; all until there.
    fn until_says(&mut self, words: &str) -> String {
        let mut said = String::new();
        while !said.contains(words) {
            assert!(
                self.log.read_line(&mut said).unwrap() > 0,
                "the agent ended:\n{said}"
            );
        }
        said
    }

    /// Lets a job join its communicators once it is watched.
    fn follow(&mut self, gpu: &Gpu, job: &Job) {
        let paths = ["libnccl.so.2", "libcudart.so.13"]
            .map(|name| gpu.path().join(name).display().to_string());
        let mut said = String::new();
        while !paths.iter().all(|path| said.contains(path)) {
            assert!(
                self.log.read_line(&mut said).unwrap() > 0,
                "the agent ended:\n{said}"
            );
        }
        job.go();
    }

    /// One of the agent's metrics.
    fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
            .parse()
            .unwrap()
    }

    fn until_metric(&self, name: &str, is_enough: impl Fn(u64) -> bool) -> u64 {
        loop {
            let value = self.metric(name);
            if is_enough(value) {
                return value;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Asks the agent to stop; all that it still says.
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let mut said = String::new();
        self.log.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only one that a failed test leaves behind is still there.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A folder for pins in a BPF file system of its own.
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

fn killed() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let mut first = Running::start(agent(), &[&pins.flag()]);
    let end = gpu.gate("end");
    let gate = format!("end={}", end.display());
    let job = gpu.job(Linking::Dynamic, 2, 200, &["step=2", &gate]);
    first.follow(&gpu, &job);
    first.until_says("following a rank");
    first.until_says("following a rank");
    first.until_metric("fleet_agent_events_total{source=\"calls\"}", |calls| {
        calls > 100
    });
    first.signal(Signal::KILL);
    first.child.wait().unwrap();
    let mut second = Running::start(agent(), &[&pins.flag()]);
    second.until_says("following a rank");
    fs::write(end, "").unwrap();
    job.issued();
    second.until_says("a rank ended");
    second.until_says("a rank ended");
    // Nothing of the communicators is unknown, and nothing was missed meanwhile: the probes counted on.
    assert_eq!(second.metric("fleet_agent_unknown_comm_ops_total"), 0);
    assert_eq!(
        second.metric("fleet_agent_events_lost_total{reason=\"ring\"}"),
        0
    );
    let said = second.stop();
    assert!(
        said.contains("broken_blocks=0") || said.contains("broken_blocks=2"),
        "{said}"
    );
    assert_eq!(
        fs::read_dir(pins.0.join("agent")).unwrap().count(),
        0,
        "nothing stays behind"
    );
}

fn overflow() {
    let gpu = Gpu::new();
    let mut running = Running::start(agent(), &["--pin=none"]);
    let begin = gpu.gate("begin");
    let gate = format!("begin={}", begin.display());
    // Twelve thousand events of 112 bytes: more than a megabyte.
    let job = gpu.job(Linking::Dynamic, 2, 300, &["ops=20", "step=0", &gate]);
    running.follow(&gpu, &job);
    running.until_says("following a rank");
    running.until_says("following a rank");
    running.signal(Signal::STOP);
    fs::write(begin, "").unwrap();
    let issued: u64 = job.issued().into_values().sum();
    running.signal(Signal::CONT);
    running.until_says("a rank ended");
    running.until_says("a rank ended");
    let lost = running.until_metric("fleet_agent_events_lost_total{reason=\"ring\"}", |lost| {
        lost > 0
    });
    let seen = running.metric("fleet_agent_events_total{source=\"calls\"}");
    // The communicators and the waits come on top, and whatever else happens on this host.
    assert!(
        seen + lost > issued,
        "{seen} seen, {lost} lost, {issued} issued"
    );
    running.stop();
}

/// The agent's program where anybody may run it.
fn for_anybody(gpu: &Gpu) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = gpu.path().join("fleet-agent");
    fs::copy(env!("CARGO_BIN_EXE_fleet-agent"), &program).unwrap();
    fs::set_permissions(gpu.path(), PermissionsExt::from_mode(0o755)).unwrap();
    program
}

/// The agent as nobody, with these capabilities.
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

fn capabilities() {
    let gpu = Gpu::new();
    let mut running = Running::start(as_nobody(&gpu, CAPABILITIES), &["--pin=none"]);
    let job = gpu.job(Linking::Dynamic, 2, 40, &["step=1"]);
    running.follow(&gpu, &job);
    running.until_says("following a rank");
    running.until_says("following a rank");
    let issued: u64 = job.issued().into_values().sum();
    running.until_says("a rank ended");
    running.until_says("a rank ended");
    assert!(running.metric("fleet_agent_events_total{source=\"calls\"}") > issued);
    assert_eq!(running.metric("fleet_agent_unknown_comm_ops_total"), 0);
    running.stop();
}

fn no_rights() {
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
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("CAP_BPF and CAP_PERFMON"), "{said}");
}

fn no_btf() {
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
    running.until_says("no evidence from the kernel");
    let job = gpu.job(Linking::Dynamic, 2, 40, &["step=1"]);
    running.follow(&gpu, &job);
    running.until_says("following a rank");
    let issued: u64 = job.issued().into_values().sum();
    running.until_says("a rank ended");
    running.until_says("a rank ended");
    assert!(running.metric("fleet_agent_events_total{source=\"calls\"}") > issued);
    running.stop();
}

fn second() {
    let gpu = Gpu::new();
    let pins = Pins::mount(&gpu);
    let running = Running::start(agent(), &[&pins.flag()]);
    let output = agent()
        .args(["run", "--endpoint=none", "--cluster=test", &pins.flag()])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), said.lines().count()),
        (Some(75), 1),
        "{said}"
    );
    assert!(said.contains("another agent of this host"), "{said}");
    running.stop();
}
