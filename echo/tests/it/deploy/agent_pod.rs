//! The agent in the pod of the quick start: it observes a job on this machine with five
//! capabilities, and reports to Echo.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};

use fleet_test_harness::{CONTAINERS, Need};
use tempfile::TempDir;

use super::container::{Image, probe};
use super::rendered::container;
use super::site::Site;
use crate::testbed::{agent, repository, wait_for};

/// Probes that the agent can attach on this machine.
static PROBES: Need = Need::new("probes", || {
    let checked = Command::new(agent()).args(["check", "--json"]).output();
    let can_run = checked.unwrap().status.success();
    (!can_run).then(|| "nothing can be probed (fleet-agent check names the reasons)".to_owned())
});

/// A separate BPF file system, so that an agent on this machine is not disturbed.
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

/// A job of two ranks on fake NCCL and CUDA libraries. The second rank is late.
struct Job {
    ranks: Vec<Child>,
    folder: TempDir,
}

impl Job {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compile = |output: &str, flags: &[&str], source: &str| {
            let mut cc = Command::new("cc");
            // Without optimization, functions start with the same instructions as in the real
            // libraries.
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
    fn start_iterations(&self) {
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

/// Locks the file that tests with probes share, because probes affect all processes of the machine.
fn lock_probes() -> File {
    let file = File::create(std::env::temp_dir().join("fleet-agent-live-tests.lock")).unwrap();
    file.lock().unwrap();
    file
}

#[test]
#[needs(CONTAINERS, PROBES)]
fn the_agent_watches_with_five_capabilities_and_a_read_only_root() {
    let _lock = lock_probes();
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
    wait_for("the agent to attach to the job", || {
        let library = job.folder.path().join("libcudart.so.13");
        quick
            .log("agent.log")
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
    job.start_iterations();
    wait_for("the job's events at Echo", || {
        quick.count("collectives WHERE cluster_id = 'default' AND node_id = 'gpu-host-1'") > 1
    });
    watcher.send_sigterm();
    assert_eq!(watcher.wait(), Some(0), "{}", quick.log("agent.log"));
    // The agent removes its pinned probes on shutdown.
    let left = std::fs::read_dir(pins).unwrap();
    let left: Vec<_> = left.map(|pin| pin.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
