//! What the path of a control group says of who runs in it.

/// Digits of a container's id.
const CONTAINER_ID: usize = 64;

/// Who runs in a control group.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cgroup {
    /// Unique id of the Kubernetes pod.
    pub(super) pod_uid: Option<String>,
    /// Id of the container.
    pub(super) container: Option<String>,
    /// Number of the Slurm job.
    pub(super) slurm_job: Option<u64>,
    /// Its step.
    pub(super) slurm_step: Option<Step>,
}

/// A step of a Slurm job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Tasks that srun started.
    Tasks,
    /// The job's script, or something else that has no tasks.
    Other,
}

impl Cgroup {
    /// Reads the text of `/proc/PID/cgroup`: one line `HIERARCHY:CONTROLLERS:PATH` for each hierarchy, so that version 1
    /// says the same many times over, and version 2 says it once.
    pub(super) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        for path in paths {
            let own = Self::parse_path(path);
            found.pod_uid = found.pod_uid.or(own.pod_uid);
            found.container = found.container.or(own.container);
            if found.slurm_job.is_none() {
                (found.slurm_job, found.slurm_step) = (own.slurm_job, own.slurm_step);
            }
        }
        found
    }

    /// The innermost pod and container: hosts may themselves be containers.
    fn parse_path(path: &str) -> Self {
        let mut found = Self::default();
        // Without delegation containerd joins slice, prefix and id by colons.
        for segment in path.split(['/', ':']) {
            if let Some(uid) = pod_uid(segment) {
                found.pod_uid = Some(uid);
            }
            if let Some(id) = container(segment) {
                found.container = Some(id.to_owned());
            }
            if let Some(job) = segment.strip_prefix("job_") {
                found.slurm_job = job.parse().ok();
            }
            if let Some(step) = segment.strip_prefix("step_") {
                let is_number = step.parse::<u32>().is_ok();
                found.slurm_step = Some(if is_number { Step::Tasks } else { Step::Other });
            }
        }
        // Others may number their jobs, too; only Slurm has steps in them.
        if found.slurm_step.is_none() || found.slurm_job.is_none() {
            (found.slurm_job, found.slurm_step) = (None, None);
        }
        found
    }
}

/// The uid in `podUID` or `kubepods-burstable-podUID.slice`, where systemd wants underscores for hyphens.
fn pod_uid(segment: &str) -> Option<String> {
    let name = segment.strip_suffix(".slice").unwrap_or(segment);
    let (before, uid) = name.rsplit_once("pod")?;
    let uid = uid.replace('_', "-");
    let is_ours = before.is_empty() || before.ends_with('-');
    (is_ours && is_uid(&uid)).then_some(uid)
}

/// A UUID, or for pods out of a file of the host the 32 digits of that file's hash.
fn is_uid(uid: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
    uid.split('-').all(is_hex) && matches!(*lengths, [32] | [8, 4, 4, 4, 12])
}

/// The id in `ID` or `RUNTIME-ID.scope`.
fn container(segment: &str) -> Option<&str> {
    let name = segment.strip_suffix(".scope").unwrap_or(segment);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == CONTAINER_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Beside a container CRI-O and Podman run its monitor, which has the same id.
    (is_id && !runtime.ends_with("conmon")).then_some(id)
}
