//! The agent as the pod of the quick start: it watches a job on this machine with five capabilities, and Echo hears of it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};

use tempfile::TempDir;

use super::container::{Image, is_possible, probe};
use super::rendered::container;
use super::site::Site;
use crate::testbed::{agent, repository, wait_for};

/// Whether this machine lets the agent watch; says in one line why not.
fn is_watchable() -> bool {
    let checked = Command::new(agent()).args(["check", "--json"]).output();
    let can_run = checked.unwrap().status.success();
    if !can_run {
        eprintln!("not run: `fleet-agent check` says that nothing can be probed on this machine");
    }
    can_run
}

/// A BPF file system of the test's own, so that an agent of this machine is not disturbed.
struct Bpf(PathBuf);

impl Bpf {
    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "bpf", "bpf"])
            .arg(&at)
            .status();
        assert!(mounted.unwrap().success());
        Self(at)
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg(&self.0).status();
    }
}

/// Two ranks on the stand-ins for NCCL and CUDA, of which the second is late.
struct Job {
    ranks: Vec<Child>,
    folder: TempDir,
}

impl Job {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compile = |output: &str, flags: &[&str], source: &str| {
            let mut cc = Command::new("cc");
            // Unoptimized, so that functions begin as those of the real libraries do.
            cc.args(["-O0", "-o"])
                .arg(folder.path().join(output))
                .args(flags);
            cc.arg(repository("testdata/fake-gpu").join(source));
            assert!(cc.status().unwrap().success(), "{output}");
        };
        let library = |name: &str, source: &str| {
            let soname = format!("-Wl,-soname,{name}");
            compile(name, &["-fPIC", "-shared", &soname], source);
        };
        library("libnccl.so.2", "nccl.c");
        library("libcudart.so.13", "cudart.c");
        compile("rank", &[], "rank.c");
        let rank = |rank: u32| {
            let mut command = Command::new(folder.path().join("rank"));
            command.args([
                &rank.to_string(),
                "2",
                "1000000",
                "slow=1:8:0:1000000",
                "step=4",
            ]);
            for gate in ["init", "end"] {
                command.arg(format!("{gate}={}", folder.path().join(gate).display()));
            }
            command
                .env("LD_LIBRARY_PATH", folder.path())
                .env("FAKE_NCCL_DIR", folder.path())
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "2");
            command.spawn().unwrap()
        };
        Self {
            ranks: (0..2).map(rank).collect(),
            folder,
        }
    }

    /// Lets the ranks join their communicator.
    fn go(&self) {
        std::fs::write(self.folder.path().join("init"), "").unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _killed = rank.kill();
            let _reaped = rank.wait();
        }
    }
}

/// Probes are felt by the whole machine, so one test at a time; the agent's own tests hold the same file.
fn alone() -> File {
    let file = File::create(std::env::temp_dir().join("fleet-agent-live-tests.lock")).unwrap();
    file.lock().unwrap();
    file
}

#[test]
fn the_agent_watches_with_five_capabilities_and_a_read_only_root() {
    if !is_possible() || !is_watchable() {
        return;
    }
    let _alone = alone();
    let quick = Site::new("quickstart");
    let _echo = quick.echo("echo.log");
    quick.wait_until_ready();
    let job = Job::start();
    let bpf = Bpf::mount(quick.path("bpf"));
    std::fs::create_dir(quick.path("spool")).unwrap();
    let image = Image::for_program(&agent());
    let pod = quick.overlay.agent();
    let pins = bpf.0.join("fleet-agent");
    std::fs::create_dir(&pins).unwrap();
    let volumes = [("bpf", pins.clone()), ("spool", quick.path("spool"))];
    let watcher = quick.start(pod, &image, &volumes, "agent.log");
    let spec = container(pod);
    wait_for("the agent to watch the job", || {
        let library = job.folder.path().join("libcudart.so.13");
        quick
            .said("agent.log")
            .contains(&library.display().to_string())
    });
    for name in ["startupProbe", "livenessProbe"] {
        wait_for(name, || probe(&quick.network, spec, name) == Some(200));
    }
    assert_eq!(watcher.status("CapEff"), "000001c000080004");
    assert_eq!(watcher.status("CapBnd"), "000001c000080004");
    assert_eq!(watcher.status("NoNewPrivs"), "1");
    let root = watcher.root_options();
    assert!(root.starts_with("ro"), "{root}");
    job.go();
    wait_for("the job's events at Echo", || {
        quick.count("collectives WHERE cluster_id = 'default' AND node_id = 'gpu-host-1'") > 1
    });
    watcher.ask_to_stop();
    assert_eq!(watcher.wait(), Some(0), "{}", quick.said("agent.log"));
    // Asked to stop, it takes its probes out: its folder is empty.
    let left = std::fs::read_dir(pins).unwrap();
    let left: Vec<_> = left.map(|pin| pin.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
