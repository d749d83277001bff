//! Root folder with a few programs and their libraries, entered without network and with an empty
//! environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Script that mounts what programs expect, and enters the root folder `$1` with the rest of the
/// arguments as command.
const ENTER: &str = r#"
set -e
root=$1
shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
ip link set lo up
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin HOME=/root "$@"
"#;

/// Namespaces of the programs: with root privileges, or as root of a user namespace.
const NAMESPACES: [&[&str]; 2] = [
    &["--mount", "--net", "--pid", "--fork"],
    &[
        "--user",
        "--map-root-user",
        "--mount",
        "--net",
        "--pid",
        "--fork",
    ],
];

/// A root folder.
pub(super) struct CleanRoot {
    folder: PathBuf,
    namespaces: &'static [&'static str],
}

impl CleanRoot {
    /// Creates the folder with programs of this machine, and the libraries of others. Fails with
    /// the reason if it cannot be entered.
    pub(super) fn new(
        folder: &Path,
        programs: &[&str],
        others: &[PathBuf],
    ) -> Result<Self, String> {
        for name in ["usr/bin", "proc", "dev", "tmp", "root"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let mut libraries = BTreeSet::new();
        for name in programs {
            let program = which(name)?;
            libraries.extend(libraries_of(&program));
            copy(&program, &folder.join("usr/bin").join(name));
        }
        libraries.extend(others.iter().flat_map(|other| libraries_of(other)));
        for library in &libraries {
            let path = library.strip_prefix("/").unwrap();
            copy(library, &folder.join(path));
        }
        let entered = NAMESPACES.map(|namespaces| {
            let root = Self {
                folder: folder.to_owned(),
                namespaces,
            };
            let output = root.enter(&["bash", "-c", "cd"]);
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() {
                Ok(root)
            } else {
                Err(reason)
            }
        });
        let [as_root, as_user] = entered;
        as_root.or(as_user)
    }

    /// Runs a script in the home folder of the root, with copies of its arguments.
    pub(super) fn run(&self, script: &Path, arguments: &[&Path]) -> Output {
        let inside = |path: &Path| {
            let name = path.file_name().unwrap();
            copy(path, &self.folder.join("tmp").join(name));
            Path::new("/tmp").join(name).display().to_string()
        };
        let script = inside(script);
        let arguments: Vec<String> = arguments.iter().map(|path| inside(path)).collect();
        let line = "cd && exec bash \"$0\" \"$@\"";
        let mut command = vec!["bash", "-c", line, script.as_str()];
        command.extend(arguments.iter().map(String::as_str));
        self.enter(&command)
    }

    fn enter(&self, command: &[&str]) -> Output {
        Command::new("unshare")
            .args(self.namespaces)
            .args(["sh", "-c", ENTER, "enter"])
            .arg(&self.folder)
            .args(command)
            .output()
            .unwrap()
    }
}

/// Returns the path of a program of this machine.
fn which(name: &str) -> Result<PathBuf, String> {
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let paths = folders.map(|folder| Path::new(folder).join(name));
    let found = paths.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| format!("no program {name}"))
}

/// Returns the shared libraries of the system that a program links, and its loader.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let words = listed.split_whitespace();
    let paths = words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from);
    // The archive brings its own library of DuckDB.
    paths
        .filter(|path| !path.ends_with("libduckdb.so"))
        .collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap();
}
