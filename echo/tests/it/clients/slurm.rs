//! Slurm, where Debian's packages are installed: a recorded fault drains its node and resumes it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fleet_test_harness::{NIGHTLY, Need};
use tempfile::TempDir;

use super::done;
use crate::actions::replay;
use crate::testbed::{Echo, free_port, serve_command, wait_for};

/// Programs that are needed.
const PROGRAMS: [&str; 3] = ["munged", "slurmctld", "slurmd"];

/// Slurm, whose programs run as root in these tests.
static SLURM: Need = Need::new("slurm", || {
    let is_missing = |name: &str| !Path::new("/usr/sbin").join(name).is_file();
    if PROGRAMS.iter().any(|name| is_missing(name)) {
        let packages = "slurmctld slurmd slurm-client munge";
        return Some(format!("no Slurm (apt-get install {packages})"));
    }
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "no right to run Slurm (run the tests as root)".to_owned())
});

/// A cluster of four nodes, of which one is running; its programs are killed on drop.
struct Slurm {
    folder: TempDir,
    children: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

impl Slurm {
    /// Starts a cluster.
    fn start() -> Self {
        let mut slurm = Self {
            folder: tempfile::tempdir().unwrap(),
            children: Vec::new(),
        };
        let key = slurm.path("key");
        std::fs::write(&key, [7; 64]).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o400)).unwrap();
        std::fs::create_dir(slurm.path("state")).unwrap();
        std::fs::write(slurm.path("slurm.conf"), slurm.config()).unwrap();
        let flag = |name: &str, file: &str| format!("--{name}={}", slurm.path(file).display());
        let munge = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            flag("key-file", "key"),
            flag("socket", "socket"),
            flag("pid-file", "pid"),
            flag("log-file", "munge.log"),
            flag("seed-file", "seed"),
        ];
        slurm.spawn("munged", &munge);
        wait_for("munged", || slurm.path("socket").exists());
        slurm.spawn("slurmctld", &["-D".to_owned()]);
        slurm.spawn("slurmd", &["-D", "-N", "node-2"].map(str::to_owned));
        wait_for("the node", || slurm.node().contains("State=IDLE "));
        slurm
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&mut self, program: &str, arguments: &[String]) {
        let log = std::fs::File::create(self.path(&format!("{program}.out"))).unwrap();
        let mut command = Command::new(Path::new("/usr/sbin").join(program));
        command
            .args(arguments)
            .env("SLURM_CONF", self.path("slurm.conf"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.children.push(command.spawn().unwrap());
    }

    fn config(&self) -> String {
        let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
        let host = done(Command::new("hostname").arg("-s"), "no host name").stdout;
        let host = String::from_utf8(host).unwrap().trim().to_owned();
        let nodes = (0..4).map(|n| {
            let port = ports[n];
            format!("NodeName=node-{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1\n")
        });
        let folder = self.folder.path().display();
        format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmdPort={}\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/socket\nSlurmUser=root\nSlurmdUser=root\n\
             StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n\
             SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
             {}PartitionName=all Nodes=ALL Default=YES State=UP\n",
            ports[4],
            ports[5],
            nodes.collect::<String>()
        )
    }

    /// Runs `scontrol`, and returns what it prints.
    fn control(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("scontrol");
        command
            .args(arguments)
            .env("SLURM_CONF", self.path("slurm.conf"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// Line of the node that runs.
    fn node(&self) -> String {
        self.control(&["show", "node", "node-2", "--oneliner"])
    }

    /// Starts Echo with a policy for this cluster.
    fn echo(&self) -> Echo {
        let policy = self.path("actions.yaml");
        let text = "limits: { max_percent: 25 }\nconsumers: { queue: { mode: act, slurm: {} } }\n\
                    rules: [{ consumers: [queue], min_severity: info, open_for: 0s }]\n";
        std::fs::write(&policy, text).unwrap();
        let mut command = serve_command(&self.path("db"));
        command.arg("--actions").arg(policy);
        command.env("SLURM_CONF", self.path("slurm.conf"));
        Echo::spawn(command).0
    }
}

#[test]
#[needs(NIGHTLY, SLURM)]
fn a_recorded_fault_drains_its_node_in_slurm_and_resumes_it() {
    let slurm = Slurm::start();
    let echo = slurm.echo();
    std::thread::scope(|scope| {
        scope.spawn(|| replay("host-sleep-rank2", &echo));
        wait_for("the node to be drained", || {
            slurm.node().contains("State=IDLE+DRAIN ")
        });
        let node = slurm.node();
        assert!(
            node.contains("Reason=[node_problem] straggler: rank 2, "),
            "{node}"
        );
    });
    wait_for("the node to be resumed", || !slurm.node().contains("DRAIN"));
    assert!(!slurm.node().contains("Reason="), "{}", slurm.node());
}

#[test]
#[needs(NIGHTLY, SLURM)]
fn a_node_that_an_administrator_has_drained_stays_drained() {
    let slurm = Slurm::start();
    slurm.control(&["update", "NodeName=node-2", "State=DRAIN", "Reason=rack 7"]);
    let echo = slurm.echo();
    replay("host-sleep-rank2", &echo);
    let sent = r#"echo_actions_total{consumer="queue",outcome="sent"} 2"#;
    wait_for("beginning and end", || {
        let url = format!("http://{}/metrics", echo.http);
        let text = ureq::get(&url).call().unwrap().body_mut().read_to_string();
        text.unwrap().contains(sent)
    });
    let node = slurm.node();
    assert!(
        node.contains("DRAIN") && node.contains("Reason=rack 7 "),
        "{node}"
    );
}
