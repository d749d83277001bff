//! The systemd units: flags, exit codes, privileges, and the files that they name.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use fleet_test_harness::Need;

use crate::testbed::{ECHO, agent, repository};

/// The program that checks units.
static SYSTEMD: Need = Need::program("systemd-analyze", "systemd");

fn unit(name: &str) -> String {
    std::fs::read_to_string(repository("deploy/systemd").join(format!("{name}.service"))).unwrap()
}

/// Returns the command of a unit, with continued lines joined.
fn command(unit: &str) -> Vec<String> {
    let joined = unit.replace("\\\n", " ");
    let line = joined
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words = line.unwrap().split_whitespace();
    words.map(str::to_owned).collect()
}

#[test]
fn the_units_use_existing_flags() {
    let agent = agent();
    for (name, program) in [
        ("fleet-echo", ECHO.as_ref()),
        ("fleet-agent", agent.as_path()),
    ] {
        let command = command(&unit(name));
        // Found in /usr/local/bin or /usr/bin.
        assert_eq!(command[0], name);
        let help = Command::new(program).args([&command[1], "--help"]).output();
        let help = String::from_utf8(help.unwrap().stdout).unwrap();
        for flag in command.iter().filter(|word| word.starts_with("--")) {
            let is_known = help.contains(&format!("{flag} <"));
            assert!(is_known, "{name} {} has no {flag}", command[1]);
        }
    }
}

#[test]
fn the_units_grant_no_more_privileges_than_the_pods() {
    let echo = unit("fleet-echo");
    assert!(echo.contains("\nDynamicUser=yes\n") && echo.contains("\nCapabilityBoundingSet=\n"));
    let agent = unit("fleet-agent");
    let bounding = agent
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let mut kept: Vec<&str> = bounding.unwrap().split(' ').collect();
    kept.sort_unstable();
    let expected = [
        "CAP_BPF",
        "CAP_CHECKPOINT_RESTORE",
        "CAP_DAC_READ_SEARCH",
        "CAP_PERFMON",
        "CAP_SYS_PTRACE",
    ];
    assert_eq!(kept, expected);
    for unit in [echo, agent] {
        assert!(
            unit.contains("\nNoNewPrivileges=yes\n") && unit.contains("\nProtectSystem=strict\n")
        );
    }
}

/// Returns the files below `/etc` that a unit needs.
fn required_files(unit: &str) -> Vec<&str> {
    // A dash marks what may be absent.
    let lines = unit
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("=-/"));
    let words = lines.flat_map(|line| line.split([' ', '=', ':']));
    words.filter(|word| word.starts_with("/etc/")).collect()
}

/// Runs the commands of a section of the README as root of `root`, without systemd.
fn run_section(section: &str, root: &Path) {
    let readme = std::fs::read_to_string(repository("deploy/systemd/README.md")).unwrap();
    let (_, section) = readme.split_once(&format!("\n## {section}\n")).unwrap();
    let block = section.split("```console\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let commands = block
        .replace("/etc/fleet-", &format!("{}/etc/fleet-", root.display()))
        .replace("systemctl enable --now", ": enable")
        // Reports what the host of the test allows, with its own exit code.
        .replace("fleet-agent check", "fleet-agent --version");
    let programs = [Path::new(ECHO), &agent()].map(|program| program.parent().unwrap().to_owned());
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        programs[0].display(),
        programs[1].display()
    );
    let output = Command::new("sh")
        .args(["-euc", &commands])
        .current_dir(root)
        .env("PATH", path)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}\n{error}");
}

#[test]
fn the_documented_commands_create_every_file_that_the_units_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    run_section("Echo", root);
    std::fs::copy(root.join("etc/fleet-echo/tls/ca.pem"), root.join("ca.pem")).unwrap();
    run_section("Agent", root);
    for name in ["fleet-echo", "fleet-agent"] {
        let unit = unit(name);
        let files = required_files(&unit);
        assert!(files.len() >= 2, "{files:?}");
        for file in files {
            let path = root.join(file.trim_start_matches('/'));
            assert!(path.is_file(), "{name}: no {file}");
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let is_secret = ["/etc/fleet-echo/tls.key", "/etc/fleet-agent/token"].contains(&file);
            assert_eq!(mode, if is_secret { 0o600 } else { 0o644 }, "{file}");
        }
    }
    // The agents' token opens the server that the same commands set up.
    let access = root.join("etc/fleet-echo/access.yaml");
    let access = std::fs::read_to_string(access).unwrap();
    assert!(
        access.contains("id: agents") && access.contains("id: operator"),
        "{access}"
    );
}

#[test]
#[needs(SYSTEMD)]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in [
        ("fleet-echo", ECHO.to_owned()),
        ("fleet-agent", agent().display().to_string()),
    ] {
        let here = unit(name).replace(
            &format!("ExecStart={name}"),
            &format!("ExecStart={program}"),
        );
        let file = folder.path().join(format!("{name}.service"));
        std::fs::write(&file, here).unwrap();
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&file)
            .output();
        let verified = verified.unwrap();
        let stderr = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{stderr}");
        assert!(!stderr.contains(name), "{stderr}");
    }
}
