//! Jobs in other roots and mounts, and with hostile environments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_agent_core::event::Event;

use crate::PROBES;
use crate::fixture::{Gpu, Linking, Observer, settings};
use crate::tracing::{Watching, chain};

/// Copies a program's libraries, as in a container image.
fn furnish(root: &Path, program: &Path) {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for path in listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let target = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
}

/// Command of a rank in another root, with its libraries in `/gpu` there.
fn rank_in(gpu: &Gpu, root: &Path, (rank, world_size): (u32, u32)) -> Command {
    let mut command = Command::new("chroot");
    command
        .arg(root)
        .arg("/gpu/rank")
        .args([rank, world_size, 30].map(|n| n.to_string()));
    command
        .args(["ops=3", "step=1", "import=0"])
        .arg(format!("init={}", gpu.gate("go").display()))
        .env("LD_LIBRARY_PATH", "/gpu");
    command
}

fn install(gpu: &Gpu, root: &Path) {
    let inside = root.join("gpu");
    fs::create_dir_all(&inside).unwrap();
    for name in ["libnccl.so.2", "libcudart.so.13", "rank"] {
        fs::copy(gpu.path().join(name), inside.join(name)).unwrap();
    }
    furnish(root, &gpu.path().join("rank"));
}

/// Directory in which ranks meet, as seen from inside a root.
fn meeting_place(gpu: &Gpu, root: &Path) -> PathBuf {
    root.join(gpu.path().strip_prefix("/").unwrap())
}

#[test]
#[needs(PROBES)]
fn a_job_in_a_chroot_is_traced() {
    let gpu = Gpu::new();
    let root = gpu.path().join("root");
    install(&gpu, &root);
    fs::create_dir_all(meeting_place(&gpu, &root)).unwrap();
    let mut observer = Observer::new(&settings());
    let commands = (0..2).map(|rank| (rank, rank_in(&gpu, &root, (rank, 2))));
    let mut job = gpu.start(commands, 2);
    job.gate = meeting_place(&gpu, &root).join("go");
    observer.follow(&job);
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn a_process_of_another_user_in_a_container_is_explained_with_its_own_symbols() {
    let gpu = Gpu::new();
    let (root, folder) = (gpu.path().join("root"), gpu.path());
    let inside = meeting_place(&gpu, &root);
    fs::create_dir_all(&inside).unwrap();
    for name in ["libcuda.so.1", "libcudart.so.13", "alone"] {
        fs::copy(folder.join(name), inside.join(name)).unwrap();
        // The file at the same path on the host has none of the functions.
        fs::copy("/bin/true", folder.join(name)).unwrap();
    }
    furnish(&root, &inside.join("alone"));
    fs::write(inside.join("go"), "").unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "chroot", "--userspec=65534:65534"])
        .arg(&root)
        .arg(folder.join("alone"))
        .arg("1000000")
        .arg(gpu.gate("go"))
        .env("LD_LIBRARY_PATH", folder);
    let job = gpu.start(std::iter::once((0, command)), 1);
    let live = Watching::start(&["trace"]);
    let report = live.until(job.pids()[0], "memory_allocation");
    live.stop();
    let chain = chain(&report, "memory_allocation").unwrap();
    assert_eq!(chain["function"], "cudaMalloc", "{chain:#}");
    let stack = chain["stack"].to_string();
    assert!(stack.contains("cuMemAlloc_v2+"), "{chain:#}");
}

/// Mounted overlay, unmounted on drop.
struct Overlay(PathBuf);

impl Overlay {
    fn mount(dir: &Path, lower: &Path) -> Self {
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| dir.join(name));
        for folder in [&upper, &work, &merged] {
            fs::create_dir_all(folder).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mounted = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(&merged)
            .status();
        assert!(mounted.unwrap().success());
        Self(merged)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
#[needs(PROBES)]
fn libraries_of_one_image_layer_are_probed_once_however_many_containers_share_it() {
    let gpu = Gpu::new();
    let layer = gpu.path().join("layer");
    install(&gpu, &layer);
    // The layers of an overlay cannot be nested, nor lie in another overlay.
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    let containers = ["a", "b"].map(|name| Overlay::mount(&elsewhere.path().join(name), &layer));
    let mut observer = Observer::new(&settings());
    let mut pids = Vec::new();
    for container in &containers {
        let root = &container.0;
        fs::create_dir_all(meeting_place(&gpu, root)).unwrap();
        let command = rank_in(&gpu, root, (0, 1));
        let mut job = gpu.start(std::iter::once((0, command)), 1);
        // Each is alone in its job, so each can end independently.
        job.gate = meeting_place(&gpu, root).join("go");
        pids.extend(job.pids());
        observer.follow(&job);
        job.issued();
    }
    let probed = observer.live.health().probed;
    assert_eq!(
        probed
            .iter()
            .filter(|path| path.ends_with("libcudart.so.13"))
            .count(),
        1,
        "{probed:?}"
    );
    for pid in pids {
        let launches = observer.events_of(pid).filter_map(|event| match event {
            Event::Activity(measured) => measured.activity.launches,
            _ => None,
        });
        assert_eq!(launches.sum::<u64>(), 90);
        assert_eq!(observer.collectives(pid).len(), 90);
    }
}

#[test]
#[needs(PROBES)]
fn a_thousand_short_processes_leave_nothing_behind() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    // From here on the libraries are probed.
    let first = gpu.job(Linking::Dynamic, 1, 1, &[]);
    observer.follow(&first);
    for round in 2..22 {
        // It ends before its environment can be read: its communicator identifies its rank.
        let job = format!("job={round}");
        let short: Vec<_> = (0..50)
            .map(|_| Command::new("true").spawn().unwrap())
            .collect();
        let ranks = gpu.job(Linking::Dynamic, 2, 1, &[&job, "step=0"]);
        ranks.release();
        observer.until_ended(&ranks.pids());
        observer.assert_saw_all(&ranks.issued());
        for mut child in short {
            assert!(child.wait().unwrap().success());
        }
    }
    assert_eq!(observer.live.unplaced(), 0);
    assert_eq!(observer.live.losses().events(), 0);
}

#[test]
#[needs(PROBES)]
fn hostile_environments_are_truncated_and_sanitized() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let commands = (0..2).map(|rank: u32| {
        let mut command = Command::new(gpu.path().join("rank"));
        command
            .args([rank, 2, 5].map(|n| n.to_string()))
            .env("LD_LIBRARY_PATH", gpu.path());
        command
            .arg(format!("init={}", gpu.gate("go").display()))
            .env("SLURM_JOB_ID", "x\u{1b}[31m".repeat(10_000))
            .env("OMPI_COMM_WORLD_RANK", "-1");
        (rank, command)
    });
    let job = gpu.start(commands, 2);
    let pids = job.pids();
    observer.follow(&job);
    for pid in pids {
        let reported = observer.events_of(pid).find_map(|event| match event {
            Event::Started(started) => started.labels.job.clone(),
            _ => None,
        });
        let job = reported.unwrap();
        assert!(job.len() <= 128 && !job.contains('\u{1b}'), "{job:?}");
    }
    observer.assert_saw_all(&job.issued());
}
