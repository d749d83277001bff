//! Parsing of control group paths.

/// Number of digits of a container id.
const CONTAINER_ID: usize = 64;

/// Owner of a control group.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cgroup {
    /// UID of the Kubernetes pod.
    pub(super) pod_uid: Option<String>,
    /// Id of the container.
    pub(super) container: Option<String>,
    /// Slurm job number.
    pub(super) slurm_job: Option<u64>,
    /// Slurm step.
    pub(super) slurm_step: Option<Step>,
}

/// Kind of a Slurm step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Tasks started by srun.
    Tasks,
    /// Script of the job, or another step without tasks.
    Other,
}

impl Cgroup {
    /// Parses the text of `/proc/PID/cgroup`: one line `HIERARCHY:CONTROLLERS:PATH` for each
    /// hierarchy. Version 1 repeats the same paths, version 2 has a single line.
    pub(super) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        for path in paths {
            let parsed = Self::parse_path(path);
            found.pod_uid = found.pod_uid.or(parsed.pod_uid);
            found.container = found.container.or(parsed.container);
            if found.slurm_job.is_none() {
                (found.slurm_job, found.slurm_step) = (parsed.slurm_job, parsed.slurm_step);
            }
        }
        found
    }

    /// Parses the innermost pod and container: hosts may themselves be containers.
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
        // Other systems may number their jobs, too; only Slurm has steps in them.
        if found.slurm_step.is_none() || found.slurm_job.is_none() {
            (found.slurm_job, found.slurm_step) = (None, None);
        }
        found
    }
}

/// Extracts the UID of `podUID` or `kubepods-burstable-podUID.slice`, where systemd requires
/// underscores for hyphens.
fn pod_uid(segment: &str) -> Option<String> {
    let name = segment.strip_suffix(".slice").unwrap_or(segment);
    let (before, uid) = name.rsplit_once("pod")?;
    let uid = uid.replace('_', "-");
    let is_ours = before.is_empty() || before.ends_with('-');
    (is_ours && is_uid(&uid)).then_some(uid)
}

/// Returns whether this is a UUID, or for static pods the 32-digit hash of their file.
fn is_uid(uid: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
    uid.split('-').all(is_hex) && matches!(*lengths, [32] | [8, 4, 4, 4, 12])
}

/// Extracts the id of `ID` or `RUNTIME-ID.scope`.
fn container(segment: &str) -> Option<&str> {
    let name = segment.strip_suffix(".scope").unwrap_or(segment);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == CONTAINER_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Next to a container, CRI-O and Podman run its monitor, which has the same id.
    (is_id && !runtime.ends_with("conmon")).then_some(id)
}
