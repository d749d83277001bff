//! What tests need of the machine, and how to find out whether it is there.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Something that a test needs and not every machine has.
#[derive(Debug)]
pub struct Need {
    name: &'static str,
    check: Check,
    /// Result of the check, made once per process.
    checked: OnceLock<Option<String>>,
}

#[derive(Debug)]
enum Check {
    /// Returns the reason why it is missing, and what to do.
    Function(fn() -> Option<String>),
    /// A program and the package of Debian that has it.
    Program(&'static str, &'static str),
    /// The user sets `FLEET_NIGHTLY` to run the test.
    Choice,
}

/// A volume of its own: `mkfs.ext4`, loop devices and the right to mount.
pub static MOUNTS: Need = Need::new("mounts", || error_of(mounted()));

/// Network namespaces: iproute2 and root.
pub static NETWORKS: Need = Need::new("networks", || error_of(network()));

/// Namespaces of mounts, processes and networks, which containers are made of.
pub static CONTAINERS: Need = Need::new("containers", || error_of(container()));

/// Packages of the npm registry.
pub static NPM: Need = Need::new("npm", || {
    let mut view = Command::new("timeout");
    view.args(["60", "npm", "view", "@modelcontextprotocol/conformance"]);
    let reached = succeeded(view.arg("name"));
    error_of(reached.map_err(|why| format!("npm or its registry ({why}; apt-get install npm)")))
});

/// Packages of `PyPI`.
pub static PYPI: Need = Need::new("pypi", || {
    let mut download = Command::new("timeout");
    download.args(["60", "python3", "-m", "pip", "download", "--quiet"]);
    download.args(["--no-deps", "--no-cache-dir", "--dest"]);
    let folder = tempfile::tempdir().map_err(|error| error.to_string());
    let reached = folder.and_then(|folder| succeeded(download.arg(folder.path()).arg("six")));
    error_of(reached.map_err(|why| format!("pip or PyPI ({why}; apt-get install python3-pip)")))
});

/// Packages of Debian, downloaded but not installed.
pub static DEBIAN: Need = Need::new("debian", || {
    let known = succeeded(Command::new("apt-cache").args(["show", "prometheus"]));
    error_of(known.map_err(|why| format!("packages of Debian ({why}; apt-get update)")))
});

/// Time: tests with this need run in `make nightly`.
pub static NIGHTLY: Need = Need {
    name: "nightly",
    check: Check::Choice,
    checked: OnceLock::new(),
};

impl Need {
    /// Creates a need from its name in `FLEET_CI_REQUIRE` and a function that returns the reason
    /// why it is missing, with what to do, or `None` where it is met.
    pub const fn new(name: &'static str, missing: fn() -> Option<String>) -> Self {
        Self {
            name,
            check: Check::Function(missing),
            checked: OnceLock::new(),
        }
    }

    /// Creates a need for a program, which `package` of Debian contains.
    pub const fn program(name: &'static str, package: &'static str) -> Self {
        Self {
            name,
            check: Check::Program(name, package),
            checked: OnceLock::new(),
        }
    }

    /// Returns the reason why the need is not met here, or `None` where it is.
    pub fn missing(&self) -> Option<String> {
        self.checked.get_or_init(|| self.check.reason()).clone()
    }

    /// Returns whether a value of `FLEET_CI_REQUIRE` names the need. A choice cannot be required.
    pub(crate) fn is_required(&self, required: &str) -> bool {
        let mut names = required.split(',').map(str::trim);
        !matches!(self.check, Check::Choice) && names.any(|name| name == "all" || name == self.name)
    }
}

impl Check {
    #[expect(clippy::disallowed_methods, reason = "a setting of the test runner")]
    fn reason(&self) -> Option<String> {
        match self {
            Self::Function(missing) => missing(),
            Self::Program(name, package) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let mut folders =
                    std::env::split_paths(&path).chain([Path::new("/usr/sbin").into()]);
                let is_there = folders.any(|folder| folder.join(name).is_file());
                (!is_there).then(|| format!("no {name} (apt-get install {package})"))
            }
            Self::Choice => std::env::var_os("FLEET_NIGHTLY")
                .is_none()
                .then(|| "make nightly runs it".to_owned()),
        }
    }
}

fn error_of(result: Result<(), String>) -> Option<String> {
    result.err().map(|what| format!("no {what}"))
}

/// Runs a command without output; the error is what it wrote last.
fn succeeded(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().last().unwrap_or_default().to_owned())
}

/// Mounts a small file system and unmounts it again.
fn mounted() -> Result<(), String> {
    let tried = || {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let [image, volume] = ["image", "volume"].map(|name| folder.path().join(name));
        let file = File::create(&image).and_then(|file| file.set_len(4 * 1024 * 1024));
        file.and_then(|()| std::fs::create_dir(&volume))
            .map_err(|error| error.to_string())?;
        succeeded(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        succeeded(
            Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &volume]),
        )?;
        succeeded(Command::new("umount").arg(&volume))
    };
    tried().map_err(|why| format!("file system can be mounted ({why}; run the tests as root)"))
}

/// Creates a network namespace and removes it again.
fn network() -> Result<(), String> {
    let name = format!("fleet-check-{}", std::process::id());
    let tried = succeeded(Command::new("ip").args(["netns", "add", &name]))
        .and_then(|()| succeeded(Command::new("ip").args(["netns", "del", &name])));
    tried.map_err(|why| {
        format!("network namespace can be created ({why}; apt-get install iproute2, run the tests as root)")
    })
}

fn container() -> Result<(), String> {
    let mut mount = Command::new("unshare");
    mount.args([
        "--mount",
        "--pid",
        "--fork",
        "mount",
        "--make-rprivate",
        "/",
    ]);
    let mounted = succeeded(&mut mount);
    mounted.map_err(|why| format!("container can be started ({why}; run the tests as root)"))?;
    network()
}
