use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use super::*;

const STAT: &str =
    "7 (a) b (x)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 123456 1000 200 0\n";

/// Creates a `/proc` that contains process 7.
fn proc_with(files: &[(&str, &[u8])]) -> (TempDir, Processes) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("7")).unwrap();
    for (name, content) in files {
        fs::write(root.path().join("7").join(name), content).unwrap();
    }
    let processes = Processes::new(root.path());
    (root, processes)
}

#[test]
fn the_placement_comes_from_environment_and_cgroup() {
    let environ = b"RANK=1\0WORLD_SIZE=2\0";
    let cgroup = b"0::/system.slice/slurmstepd.scope/job_9/step_0\n";
    let (_root, processes) = proc_with(&[("environ", environ), ("cgroup", cgroup)]);
    let placement = processes.placement(7).unwrap();
    assert_eq!((placement.rank, placement.world_size), (Some(1), Some(2)));
    assert_eq!(placement.job.as_deref(), Some("9"));
}

#[test]
fn a_pod_is_named_by_its_host_name_unless_it_uses_the_hosts_network() {
    use std::os::unix::fs::symlink;

    let cgroup = b"0::/kubepods/pod6ac5b8a3-2f4e-4c4b-9d5e-0f1a2b3c4d5e/x\n";
    let files: [(&str, &[u8]); 2] = [("environ", b"HOSTNAME=bert-1\0"), ("cgroup", cgroup)];
    let (root, processes) = proc_with(&files);
    let pod = || processes.placement(7).unwrap().pod;
    assert_eq!(pod(), None);
    for (pid, network) in [("1", "net:[1]"), ("7", "net:[2]")] {
        fs::create_dir_all(root.path().join(pid).join("ns")).unwrap();
        symlink(network, root.path().join(pid).join("ns/net")).unwrap();
    }
    assert_eq!(pod().as_deref(), Some("bert-1"));
    fs::remove_file(root.path().join("7/ns/net")).unwrap();
    symlink("net:[1]", root.path().join("7/ns/net")).unwrap();
    assert_eq!(pod(), None);
}

#[test]
fn a_truncated_variable_is_ignored() {
    let limit = usize::try_from(MAX_ENVIRON).unwrap();
    let mut environ = b"WORLD_SIZE=64\0PAD=".to_vec();
    environ.resize(limit - "\0RANK=1".len(), b'x');
    environ.extend_from_slice(b"\0RANK=12\0");
    let (_root, processes) = proc_with(&[("environ", &environ), ("cgroup", b"")]);
    assert_eq!(processes.placement(7).unwrap().rank, None);
}

#[test]
fn a_process_is_identified_by_its_start() {
    let (_root, processes) = proc_with(&[("stat", STAT.as_bytes()), ("comm", b"a) \x1bb (x)\n")]);
    let seen = processes.identity(7).unwrap();
    assert_eq!(seen.start_ticks, 123_456);
    assert_eq!(seen.command, "a) b (x)");
}

#[test]
fn usage_is_cpu_time_and_memory() {
    let status = b"Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t4\n";
    let (_root, processes) = proc_with(&[("stat", STAT.as_bytes()), ("status", status)]);
    let usage = processes.usage(7).unwrap();
    assert_eq!(usage.cpu, Duration::from_secs(3));
    assert_eq!(usage.rss_bytes, 2 << 20);
}

#[test]
fn a_process_in_a_container_has_the_id_of_its_own_namespace() {
    let status = b"Name:\tx\nNSpid:\t7\t1\n";
    let (_root, processes) = proc_with(&[("status", status)]);
    assert_eq!(processes.namespace_pid(7).unwrap(), 1);
    let (_root, processes) = proc_with(&[("status", b"Name:\tx\n")]);
    assert_eq!(processes.namespace_pid(7).unwrap(), 7);
}

#[test]
fn the_tests_own_process_can_be_read() {
    let own = std::process::id();
    let processes = Processes::new("/proc");
    assert_eq!(processes.identity(own).unwrap().pid, own);
    assert!(processes.usage(own).unwrap().rss_bytes > 0);
    assert!(processes.placement(own).is_ok());
}

#[test]
fn a_stopped_process_is_detected_until_it_continues() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = Pid::from_child(&child);
    let processes = Processes::new("/proc");
    let wait = |options| waitpid(Some(pid), options).unwrap();
    assert!(!processes.is_stopped(child.id()).unwrap());
    kill_process(pid, Signal::STOP).unwrap();
    wait(WaitOptions::UNTRACED);
    assert!(processes.is_stopped(child.id()).unwrap());
    kill_process(pid, Signal::CONT).unwrap();
    wait(WaitOptions::CONTINUED);
    assert!(!processes.is_stopped(child.id()).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_exited_process_is_distinguished_from_malformed_data() {
    let (_root, processes) = proc_with(&[("stat", b"7 (x"), ("comm", b"x")]);
    assert!(matches!(
        processes.identity(8),
        Err(ProcessError::Gone { pid: 8 })
    ));
    assert!(matches!(
        processes.identity(7),
        Err(ProcessError::Unreadable { .. })
    ));
}

#[test]
fn missing_permissions_are_reported() {
    use std::os::unix::fs::PermissionsExt;

    let (root, processes) = proc_with(&[("stat", STAT.as_bytes())]);
    let path = root.path().join("7/stat");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // A privileged user, such as root, is not refused.
    let refused = fs::read(&path).is_err();
    let result = processes.identity(7);
    assert_eq!(
        matches!(result, Err(ProcessError::Forbidden { .. })),
        refused
    );
}
