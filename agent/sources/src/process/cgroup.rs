//! CPU quota and pressure of the control group of a process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fleet_agent_core::event::Pressure;

use crate::process::{MAX_CGROUP, MAX_LINES, Processes, bounded};

/// Totals of a control group since it was created.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupTotals {
    /// Time for which the group and those above it were throttled at their CPU quota, nanoseconds,
    /// each summed over CPUs; `None` if it cannot be read. Groups without a quota are omitted.
    pub throttled_ns: Option<BTreeMap<PathBuf, u64>>,
    /// Pressure stall time of the group, or of the host if the group has no pressure files; `None`
    /// if neither has them.
    pub pressure: Option<Pressure>,
}

impl CgroupTotals {
    /// Returns the time throttled since earlier totals, of the group that was throttled most, since
    /// the times of nested groups overlap. `None` if either cannot be read.
    pub fn throttled_since(&self, before: &Self) -> Option<u64> {
        let before = before.throttled_ns.as_ref()?;
        let rise = |(group, ns): (&PathBuf, &u64)| {
            let earlier = before.get(group).copied().unwrap_or(0);
            ns.saturating_sub(earlier)
        };
        let rises = self.throttled_ns.as_ref()?.iter().map(rise);
        Some(rises.max().unwrap_or(0))
    }

    /// Returns the pressure since earlier totals; `None` if either cannot be read.
    pub fn pressure_since(&self, before: &Self) -> Option<Pressure> {
        let (now, before) = self.pressure.zip(before.pressure)?;
        Some(Pressure {
            cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
            memory_ns: now.memory_ns.saturating_sub(before.memory_ns),
            io_ns: now.io_ns.saturating_sub(before.io_ns),
        })
    }
}

impl Processes {
    /// Returns the membership of a process in control groups: the text of `/proc/PID/cgroup`.
    pub fn cgroup(&self, pid: u32) -> Option<String> {
        let text = self.read(pid, "cgroup", MAX_CGROUP).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the totals of a process's control group. `mount` is `/sys/fs/cgroup` except in
    /// tests, and `membership` the text of `/proc/PID/cgroup`.
    pub fn cgroup_totals(&self, pid: u32, mount: &Path, membership: &str) -> CgroupTotals {
        let own_mount = self.path(pid, "root/sys/fs/cgroup");
        let unified = group(membership, "").map(|path| {
            let roots = [mount.to_owned(), mount.join("unified")];
            let root = roots.into_iter().find(|root| is_unified(root));
            // In a namespace of control groups, its own root is the group.
            existing(root, path).unwrap_or_else(|| Group::root_of(own_mount.clone()))
        });
        let quota = group(membership, "cpu")
            .and_then(|path| existing(Some(mount.join("cpu")), path))
            .or_else(|| unified.clone());
        CgroupTotals {
            throttled_ns: quota.and_then(|group| group.throttled_ns()),
            pressure: unified
                .and_then(|group| pressure(|resource| group.leaf(&format!("{resource}.pressure"))))
                .or_else(|| pressure(|resource| self.root.join("pressure").join(resource))),
        }
    }
}

/// Control group below the mount point of its hierarchy.
#[derive(Debug, Clone)]
struct Group {
    root: PathBuf,
    path: PathBuf,
}

impl Group {
    fn root_of(root: PathBuf) -> Self {
        Self {
            root,
            path: PathBuf::new(),
        }
    }

    fn leaf(&self, file: &str) -> PathBuf {
        self.root.join(&self.path).join(file)
    }

    /// Returns the throttled time of the group and of those above it, by folder. A quota of any of
    /// them stops the process.
    fn throttled_ns(&self) -> Option<BTreeMap<PathBuf, u64>> {
        let folders = self.path.ancestors().map(|path| self.root.join(path));
        let stats = folders.filter_map(|folder| Some((read(&folder.join("cpu.stat"))?, folder)));
        let mut is_readable = false;
        let mut throttled = BTreeMap::new();
        for (stat, folder) in stats {
            is_readable = true;
            if let Some(ns) = throttled_ns(&stat) {
                throttled.insert(folder, ns);
            }
        }
        is_readable.then_some(throttled)
    }
}

/// Returns the path of a process's group in the hierarchy of a controller; of version 2 for "".
fn group<'a>(membership: &'a str, controller: &str) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let mut controllers = controllers.split(',');
        controllers.any(|name| name == controller).then_some(path)
    })
}

fn is_unified(root: &Path) -> bool {
    root.join("cgroup.controllers").exists()
}

/// Returns the group if it can be reached from this mount point. A path that begins with `/..` is
/// outside of the agent's own namespace.
fn existing(root: Option<PathBuf>, path: &str) -> Option<Group> {
    let path = PathBuf::from(path.trim_start_matches('/'));
    let group = Group { root: root?, path };
    (!group.path.starts_with("..") && group.leaf("").is_dir()).then_some(group)
}

/// Parses the throttled time of `cpu.stat`: microseconds in version 2, nanoseconds in version 1.
fn throttled_ns(stat: &str) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let mut lines = stat.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let of_version_2 = number("throttled_usec ").map(|us| us.saturating_mul(1000));
    of_version_2.or_else(|| number("throttled_time "))
}

fn pressure(file: impl Fn(&str) -> PathBuf) -> Option<Pressure> {
    let total_ns = |resource| some_total_ns(&read(&file(resource))?);
    Some(Pressure {
        cpu_ns: total_ns("cpu")?,
        memory_ns: total_ns("memory")?,
        io_ns: total_ns("io")?,
    })
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=TOTAL`, in microseconds.
fn some_total_ns(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = some.rsplit_once("total=")?;
    Some(total.trim().parse::<u64>().ok()?.saturating_mul(1000))
}

fn read(path: &Path) -> Option<String> {
    String::from_utf8(bounded(path, MAX_LINES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn pressure_files(root: &Path, suffix: &str, total: u64) {
        for (at, resource) in (0_u64..).zip(["cpu", "memory", "io"]) {
            let total = total + at;
            let text = format!(
                "some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 \
                 avg300=0.00 total=0\n"
            );
            write(root, &format!("{resource}{suffix}"), &text);
        }
    }

    #[test]
    fn the_quota_of_every_group_above_a_process_counts() {
        let host = tempfile::tempdir().unwrap();
        let mount = host.path().join("cgroup");
        write(&mount, "cgroup.controllers", "cpu");
        write(&mount, "cpu.stat", "usage_usec 9\n");
        let pod = |us: u64| format!("usage_usec 9\nnr_throttled 1\nthrottled_usec {us}\n");
        write(&mount, "pod/cpu.stat", &pod(50));
        write(&mount, "pod/main/cpu.stat", &pod(0));
        pressure_files(&mount.join("pod/main"), ".pressure", 100);
        let processes = Processes::new(host.path().join("proc"));
        let read = || processes.cgroup_totals(7, &mount, "0::/pod/main\n");
        let before = read();
        write(&mount, "pod/cpu.stat", &pod(80));
        pressure_files(&mount.join("pod/main"), ".pressure", 105);
        let now = read();
        assert_eq!(now.throttled_since(&before), Some(30_000));
        let pressure = Pressure {
            cpu_ns: 5000,
            memory_ns: 5000,
            io_ns: 5000,
        };
        assert_eq!(now.pressure_since(&before), Some(pressure));
    }

    #[test]
    fn version_1_has_its_own_hierarchy_and_the_pressure_of_the_host() {
        let host = tempfile::tempdir().unwrap();
        let mount = host.path().join("cgroup");
        write(
            &mount,
            "cpu/job/cpu.stat",
            "nr_throttled 3\nthrottled_time 77\n",
        );
        pressure_files(&host.path().join("proc/pressure"), "", 1);
        let processes = Processes::new(host.path().join("proc"));
        let membership = "4:cpu,cpuacct:/job\n1:name=systemd:/\n";
        let totals = processes.cgroup_totals(7, &mount, membership);
        let group = mount.join("cpu/job");
        assert_eq!(totals.throttled_ns, Some(BTreeMap::from([(group, 77)])));
        assert_eq!(totals.pressure.map(|pressure| pressure.io_ns), Some(3000));
    }

    #[test]
    fn a_group_outside_of_the_namespace_is_read_in_that_of_the_process() {
        let host = tempfile::tempdir().unwrap();
        let mount = host.path().join("cgroup");
        write(&mount, "cgroup.controllers", "cpu");
        let own = host.path().join("proc/7/root/sys/fs/cgroup");
        write(&own, "cpu.stat", "throttled_usec 4\n");
        let processes = Processes::new(host.path().join("proc"));
        let totals = processes.cgroup_totals(7, &mount, "0::/../other\n");
        assert_eq!(
            totals.throttled_ns,
            Some(BTreeMap::from([(own.join(""), 4000)]))
        );
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_no_quota_is_no_throttling() {
        let host = tempfile::tempdir().unwrap();
        let processes = Processes::new(host.path().join("proc"));
        let mount = host.path().join("cgroup");
        let unknown = processes.cgroup_totals(7, &mount, "0::/pod\n");
        assert_eq!(unknown, CgroupTotals::default());
        write(&mount, "cgroup.controllers", "cpu");
        write(&mount, "pod/cpu.stat", "usage_usec 9\n");
        let unlimited = processes.cgroup_totals(7, &mount, "0::/pod\n");
        assert_eq!(unlimited.throttled_since(&unlimited), Some(0));
        assert_eq!(unlimited.throttled_since(&unknown), None);
    }
}
