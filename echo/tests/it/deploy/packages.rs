//! Metadata of the `.deb` and `.rpm` packages: both install the same files, keep settings that were
//! changed, and start no service.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::testbed::repository;

/// A package with its `[package.metadata]`.
struct Package {
    folder: PathBuf,
    metadata: Value,
}

fn packages() -> [Package; 2] {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(repository("echo"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = metadata["packages"].as_array().unwrap();
    ["fleet-echo", "fleet-agent"].map(|name| {
        let package = all.iter().find(|package| package["name"] == name).unwrap();
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
        Package {
            folder: manifest.parent().unwrap().to_owned(),
            metadata: package["metadata"].clone(),
        }
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

impl Package {
    /// Returns source and destination of each asset of the `.deb`.
    fn deb(&self) -> Vec<(&str, &str)> {
        let assets = self.metadata["deb"]["assets"].as_array().unwrap();
        assets
            .iter()
            .map(|asset| (text(&asset[0]), text(&asset[1])))
            .collect()
    }

    /// Returns the assets of the `.rpm`.
    fn rpm(&self) -> &[Value] {
        self.metadata["generate-rpm"]["assets"].as_array().unwrap()
    }
}

/// Returns the path of an installed file; a folder takes the name of the source.
fn installed(source: &str, to: &str) -> String {
    let name = source.rsplit('/').next().unwrap();
    let name = if to.ends_with('/') { name } else { "" };
    // Debian has another folder for the completions of packages.
    format!("/{to}{name}").replace("zsh/vendor-completions", "zsh/site-functions")
}

#[test]
fn sources_of_the_repository_exist() {
    for package in packages() {
        let rpm = package.rpm().iter().map(|asset| text(&asset["source"]));
        let deb = package.deb().into_iter().map(|(source, _)| source);
        for source in deb.chain(rpm).filter(|source| source.starts_with("..")) {
            assert!(package.folder.join(source).is_file(), "no {source}");
        }
        let scripts = package.metadata["generate-rpm"].as_object().unwrap();
        let scripts = scripts.iter().filter(|(key, _)| key.ends_with("_script"));
        for (key, script) in scripts {
            assert!(
                package.folder.join(text(script)).is_file(),
                "{key}: no {script}"
            );
        }
    }
}

#[test]
fn both_kinds_of_packages_install_the_same_files() {
    for package in packages() {
        let deb = package.deb();
        let deb: BTreeSet<_> = deb.iter().map(|(from, to)| installed(from, to)).collect();
        let rpm = package.rpm().iter().map(|asset| {
            let to = text(&asset["dest"]).trim_start_matches('/');
            installed(text(&asset["source"]), to)
        });
        // cargo-deb adds the unit and the licence by itself.
        let is_added = |path: &String| path.ends_with(".service") || path.ends_with("/LICENSE");
        let rpm: BTreeSet<_> = rpm.filter(|path| !is_added(path)).collect();
        assert_eq!(deb, rpm);
    }
}

#[test]
fn changed_settings_are_kept_and_no_service_is_started() {
    for package in packages() {
        let units = &package.metadata["deb"]["systemd-units"];
        assert_eq!(
            (&units["enable"], &units["start"]),
            (&false.into(), &false.into())
        );
        let settings = package.rpm().iter();
        let settings = settings.filter(|asset| text(&asset["dest"]).starts_with("/etc/"));
        let kept: Vec<&Value> = settings.map(|asset| &asset["config"]).collect();
        assert!(!kept.is_empty() && kept.iter().all(|config| **config == "noreplace"));
    }
    for script in ["post.sh", "echo.postun.sh", "agent.postun.sh"] {
        let script = repository("deploy/package").join(script);
        let script = std::fs::read_to_string(script).unwrap();
        let starts = ["systemctl start", "systemctl enable", "systemctl restart"];
        assert!(
            starts.iter().all(|start| !script.contains(start)),
            "{script}"
        );
    }
}

#[test]
fn the_folders_that_only_an_rpm_uses_are_removed_with_it() {
    for package in packages() {
        let files = package.rpm().iter().map(|asset| text(&asset["dest"]));
        let folders = files.filter_map(|file| Some(file.rsplit_once('/')?.0));
        let is_own = |folder: &&str| folder.rsplit('/').next().unwrap().starts_with("fleet-");
        let own: BTreeSet<&str> = folders.filter(is_own).collect();
        let script = text(&package.metadata["generate-rpm"]["post_uninstall_script"]);
        let script = std::fs::read_to_string(package.folder.join(script)).unwrap();
        let removal = script
            .lines()
            .find_map(|line| Some(line.split_once("rmdir ")?.1));
        let (removed, _) = removal.unwrap().split_once(" 2>").unwrap();
        assert_eq!(removed.split(' ').collect::<BTreeSet<_>>(), own);
    }
}
