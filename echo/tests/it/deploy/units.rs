//! The systemd units: flags, exit codes and privileges.

use std::process::Command;

use crate::testbed::{ECHO, agent, repository};

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
        assert_eq!(command[0], format!("/usr/local/bin/{name}"));
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

#[test]
fn systemd_accepts_the_units() {
    let is_there = Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok();
    if !is_there {
        eprintln!("skipped: no systemd-analyze (apt-get install systemd)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in [
        ("fleet-echo", ECHO.to_owned()),
        ("fleet-agent", agent().display().to_string()),
    ] {
        let here = unit(name).replace(&format!("/usr/local/bin/{name}"), &program);
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
