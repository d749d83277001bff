//! Starts the container of a pod like a container runtime: with the files of the image as read-only
//! root folder, the volumes, user, groups and capabilities of the manifest, and its own process and
//! network namespaces.
//!
//! The root folder is created by the script that the Dockerfile runs. The rest needs `unshare`,
//! `mount`, Python and root.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use serde_json::Value;
use tempfile::TempDir;

use super::rendered::{container, words};
use crate::testbed::namespace::Namespace;
use crate::testbed::{repository, wait_for};

/// Numbers of the capabilities that manifests may add.
const CAPABILITIES: [(&str, u32); 5] = [
    ("DAC_READ_SEARCH", 2),
    ("SYS_PTRACE", 19),
    ("PERFMON", 38),
    ("BPF", 39),
    ("CHECKPOINT_RESTORE", 40),
];

/// Script that mounts the volumes in `$MOUNTS`, one line `SOURCE TARGET ro|rw` each, and executes
/// the program.
const MOUNT: &str = r#"
set -e
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
echo "$MOUNTS" | while read -r source target mode; do
    mount --bind "$source" "$ROOT$target"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$ROOT$target"
done
mount -o remount,bind,ro "$ROOT"
ip link set lo up
exec python3 -c "$BECOME" "$@"
"#;

/// Search path for the programs that the script calls.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Script that drops all privileges not granted by the manifest, and executes the program in the
/// root folder of the image.
const BECOME: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
kept = [int(word) for word in os.environ.pop('KEPT').split()]
user, group, shared = (int(os.environ.pop(name)) for name in ('RUN_AS', 'GROUP', 'SHARED'))
os.chroot(os.environ.pop('ROOT'))
os.chdir('/')
for name in ('MOUNTS', 'BECOME'):
    del os.environ[name]
for capability in range(64):
    if capability not in kept:
        libc.prctl(24, capability, 0, 0, 0)
libc.prctl(38, 1, 0, 0, 0)
os.setgroups([shared])
os.setresgid(group, group, group)
os.setresuid(user, user, user)
os.execv(sys.argv[1], sys.argv[1:])
";

/// An image: the program and its root folder.
pub(super) struct Image {
    program: PathBuf,
    root: PathBuf,
    folder: Rc<TempDir>,
}

impl Image {
    /// Collects the files of the image of a program.
    pub(super) fn for_program(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let collected = Command::new(repository("deploy/image/collect"))
            .arg(program)
            .arg(&root)
            .status();
        assert!(collected.unwrap().success());
        let name = program.file_name().unwrap();
        Self {
            program: Path::new("/usr/bin").join(name),
            root,
            folder: Rc::new(folder),
        }
    }

    /// Writes a file that the node adds to the container.
    pub(super) fn write(&self, path: &str, text: &str) {
        std::fs::write(self.root.join(path), text).unwrap();
    }
}

/// Values of the names in a manifest.
pub(super) struct Surroundings<'a> {
    pub(super) network: &'a Namespace,
    /// Folders by name of the volume.
    pub(super) volumes: BTreeMap<String, PathBuf>,
    /// Environment variables from the `ConfigMap`s that the manifest names.
    pub(super) environment: BTreeMap<String, String>,
    /// Fields of the pod by their paths, such as `spec.nodeName`.
    pub(super) fields: BTreeMap<String, String>,
}

/// A running container, killed on drop.
pub(super) struct Container {
    child: Child,
    _files: Rc<TempDir>,
    /// Process id of the program in the namespace of this machine.
    pub(super) pid: u32,
}

impl Container {
    /// Starts the only container of a pod and waits until its program runs.
    pub(super) fn start(image: &Image, pod: &Value, around: &Surroundings<'_>, log: &Path) -> Self {
        let spec = container(pod);
        let mut command = around.network.run("unshare");
        command.args(["--mount", "--fork"]);
        if pod["hostPID"] != true {
            command.arg("--pid");
        }
        command
            .args(["sh", "-c", MOUNT, "container"])
            .arg(&image.program);
        let environment = environment(spec, around);
        let argument = |word: &&str| with_names(word, &environment);
        command.args(words(&spec["args"]).iter().map(argument));
        command.env_clear().envs(&environment);
        command
            .env("PATH", PATH)
            .env("ROOT", &image.root)
            .env("MOUNTS", mounts(image, spec, around))
            .env("BECOME", BECOME)
            .env("KEPT", kept(spec))
            .env("RUN_AS", pod["securityContext"]["runAsUser"].to_string())
            .env("GROUP", pod["securityContext"]["runAsGroup"].to_string())
            .env("SHARED", shared(pod));
        let file = std::fs::File::create(log).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let pid = program_of(&mut child, &image.program, log);
        Self {
            child,
            _files: Rc::clone(&image.folder),
            pid,
        }
    }

    /// Returns a field of `/proc/PID/status` of the program.
    pub(super) fn status(&self, name: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    }

    /// Returns the mount options of the root folder of the program.
    pub(super) fn root_options(&self) -> String {
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.pid)).unwrap();
        let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let root = mounts.lines().map(fields).find(|fields| fields[4] == "/");
        root.unwrap()[5].clone()
    }

    /// Sends SIGTERM to the program, as the node does.
    pub(super) fn send_sigterm(&self) {
        assert!(signal(self.pid, "TERM"));
    }

    /// Waits until the program exits, and returns its exit code.
    pub(super) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Killing `unshare` does not kill the program: the kernel clears the parent death signal
        // when a process changes its user.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _killed = signal(self.pid, "KILL");
        }
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn signal(pid: u32, name: &str) -> bool {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    sent.unwrap().success()
}

/// Returns the status of a probe request; `None` without a response.
pub(super) fn probe(network: &Namespace, spec: &Value, probe: &str) -> Option<u16> {
    let http = &spec[probe]["httpGet"];
    let named = |port: &&Value| port["name"] == http["port"];
    let port = spec["ports"]
        .as_array()
        .unwrap()
        .iter()
        .find(named)
        .unwrap();
    let scheme = http["scheme"].as_str().unwrap_or("HTTP").to_lowercase();
    let (port, path) = (&port["containerPort"], http["path"].as_str().unwrap());
    // Probes of a node accept any certificate.
    let mut curl = network.run("curl");
    curl.args(["--silent", "--insecure", "--output", "/dev/null"])
        .args(["--write-out", "%{http_code}", "--max-time"])
        .arg(spec[probe]["timeoutSeconds"].to_string())
        .arg(format!("{scheme}://127.0.0.1:{port}{path}"));
    let status = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    status.parse().ok().filter(|status| *status != 0)
}

/// Waits until the scripts have executed the program, and returns its process id.
fn program_of(child: &mut Child, program: &Path, log: &Path) -> u32 {
    let unshare = child.id();
    let found = std::cell::Cell::new(None);
    wait_for("the program of the container", || {
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let pid: Option<u32> = children
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        let command = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
        let is_program = |line: Vec<u8>| line.starts_with(program.as_os_str().as_encoded_bytes());
        found.set(pid.filter(|_| command.is_some_and(is_program)));
        // A program that has exited has logged the reason.
        found.get().is_some() || children.is_empty() && has_ended(log)
    });
    found.get().unwrap_or(unshare)
}

fn has_ended(log: &Path) -> bool {
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// Returns the environment variables of the manifest: maps first, as in Kubernetes.
fn environment(spec: &Value, around: &Surroundings<'_>) -> BTreeMap<String, String> {
    let mut environment = around.environment.clone();
    let own = spec["env"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for one in own {
        let field = one["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let value = match field {
            Some(path) => around.fields[path].clone(),
            None => one["value"].as_str().unwrap().to_owned(),
        };
        environment.insert(one["name"].as_str().unwrap().to_owned(), value);
    }
    environment
}

/// Returns an argument with each `$(NAME)` replaced.
fn with_names(argument: &str, environment: &BTreeMap<String, String>) -> String {
    let replace = |text: String, (name, value): (&String, &String)| {
        text.replace(&format!("$({name})"), value)
    };
    environment.iter().fold(argument.to_owned(), replace)
}

/// Returns the lines of mounts, and creates the mount points in the root folder.
fn mounts(image: &Image, spec: &Value, around: &Surroundings<'_>) -> String {
    let mounts = spec["volumeMounts"].as_array().unwrap();
    let line = |mount: &Value| {
        let name = mount["name"].as_str().unwrap();
        let source = around.volumes[name].display();
        let target = mount["mountPath"].as_str().unwrap();
        // No folder can be created in the sysfs of a container.
        assert!(!target.starts_with("/sys/"), "{target} cannot be created");
        std::fs::create_dir_all(image.root.join(target.trim_start_matches('/'))).unwrap();
        let mode = if mount["readOnly"] == true {
            "ro"
        } else {
            "rw"
        };
        format!("{source} {target} {mode}")
    };
    mounts.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn kept(spec: &Value) -> String {
    let added = words(&spec["securityContext"]["capabilities"]["add"]);
    let number = |name: &str| {
        let known = CAPABILITIES.iter().find(|(known, _)| *known == name);
        known.unwrap().1.to_string()
    };
    added.into_iter().map(number).collect::<Vec<_>>().join(" ")
}

/// Returns the group that owns the volumes.
fn shared(pod: &Value) -> String {
    let context = &pod["securityContext"];
    context["fsGroup"].as_u64().unwrap_or_default().to_string()
}
