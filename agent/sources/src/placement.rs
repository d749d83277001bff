//! Placement of a traced process: rank, job, pod and container, from its environment and its
//! cgroup. Pure.
//!
//! Both texts come from the traced process or its launcher and are untrusted: numbers have to be
//! consistent, and texts that are passed on are short and free of control characters.

mod cgroup;
mod environ;

use crate::placement::cgroup::{Cgroup, Step};
use crate::placement::environ::Environ;

/// Maximum plausible number of ranks of a job.
const MAX_WORLD_SIZE: u32 = 1 << 20;

/// Maximum bytes of a text that is passed on.
const MAX_TEXT: usize = 128;

/// Maximum bytes of a device list: sixteen UUIDs of 40 characters and their commas.
const MAX_DEVICES: usize = 656;

/// Placement of a process; `None` where unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Rank within the job, below `world_size` where that is known.
    pub rank: Option<u32>,
    /// Number of ranks of the job.
    pub world_size: Option<u32>,
    /// Rank among the job's processes on this host.
    pub local_rank: Option<u32>,
    /// Job name, the same on all its ranks.
    pub job: Option<String>,
    /// Kubernetes pod name.
    pub pod: Option<String>,
    /// Kubernetes namespace of the pod.
    pub namespace: Option<String>,
    /// Kubernetes pod UID.
    pub pod_uid: Option<String>,
    /// Container id, 64 hex digits.
    pub container: Option<String>,
    /// Devices visible to the container (`NVIDIA_VISIBLE_DEVICES`).
    pub container_devices: Option<String>,
    /// Address at which NCCL's RAS subsystem listens (`NCCL_RAS_ADDR`), if not the default.
    pub ras_address: Option<String>,
    /// Devices that the process selects among those (`CUDA_VISIBLE_DEVICES`).
    pub process_devices: Option<String>,
}

/// Network namespace of a process, which determines its `HOSTNAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Namespace of its container.
    Container,
    /// Namespace of the host, or unknown. Pods that use RDMA often share the network and the name
    /// of their host.
    Host,
}

/// Variables that one launcher sets for each process. Of several names, the first that is set
/// counts.
struct Launcher {
    rank: &'static [&'static str],
    world_size: &'static [&'static str],
    local_rank: &'static [&'static str],
}

/// Ordered from the innermost: torchrun may run under mpirun or srun, and mpirun under srun; the
/// innermost one assigns the ranks.
const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        rank: &["RANK"],
        world_size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
    },
    Launcher {
        rank: &["OMPI_COMM_WORLD_RANK"],
        world_size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    },
    Launcher {
        rank: &["PMI_RANK"],
        world_size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
    },
];

const SLURM: Launcher = Launcher {
    rank: &["SLURM_PROCID"],
    world_size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    local_rank: &["SLURM_LOCALID"],
};

/// `PMIx` sets the rank, but not the world size.
const PMIX_RANK: &str = "PMIX_RANK";

/// Job id of the batch system. It comes first, because people reuse run ids of torchrun.
const BATCH_JOB: [&str; 4] = ["SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID"];

/// Run id of torchrun, and the variable by which Kubernetes operators set it.
const TORCH_JOB: [&str; 2] = ["TORCHELASTIC_RUN_ID", "PET_RDZV_ID"];

/// Value that torchrun sets without a run id.
const NO_RUN_ID: &str = "none";

/// Job names in pods. Elsewhere they may mean anything: a build server calls its builds `JOB_NAME`.
const POD_JOB: [&str; 3] = ["JOB_NAME", "JOBSET_NAME", "TRAINING_JOB_NAME"];

const POD_NAME: [&str; 2] = ["POD_NAME", "MY_POD_NAME"];
const POD_NAMESPACE: [&str; 3] = ["POD_NAMESPACE", "MY_POD_NAMESPACE", "KUBERNETES_NAMESPACE"];
const HOSTNAME: &str = "HOSTNAME";
const CONTAINER_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
const RAS_ADDRESS: &str = "NCCL_RAS_ADDR";
const PROCESS_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

impl Placement {
    /// Parses the bytes of `/proc/PID/environ` and the text of `/proc/PID/cgroup`.
    pub fn parse(environ: &[u8], cgroup: &str, network: Network) -> Self {
        let environ = Environ::new(environ, &variable_names());
        let cgroup = Cgroup::parse(cgroup);
        let ranks = ranks(&environ, cgroup.slurm_step);
        let is_pod = cgroup.pod_uid.is_some();
        let is_named_pod = is_pod && network == Network::Container;
        let text = |names: &[&str]| environ.text(names, MAX_TEXT);
        Self {
            rank: ranks.rank,
            world_size: ranks.world_size,
            local_rank: ranks.local_rank,
            job: job(&environ, is_pod).or_else(|| cgroup.slurm_job.map(|id| id.to_string())),
            pod: text(&POD_NAME).or_else(|| text(&[HOSTNAME]).filter(|_| is_named_pod)),
            namespace: text(&POD_NAMESPACE),
            pod_uid: cgroup.pod_uid,
            container: cgroup.container,
            container_devices: environ.text(&[CONTAINER_DEVICES], MAX_DEVICES),
            ras_address: text(&[RAS_ADDRESS]),
            process_devices: environ.text(&[PROCESS_DEVICES], MAX_DEVICES),
        }
    }
}

/// Returns the names of all evaluated variables.
fn variable_names() -> Vec<&'static str> {
    let of_launchers = LAUNCHERS.iter().chain([&SLURM]);
    let of_launchers =
        of_launchers.flat_map(|own| [own.rank, own.world_size, own.local_rank].concat());
    let lists: [&[&str]; 6] = [
        &BATCH_JOB,
        &TORCH_JOB,
        &POD_JOB,
        &POD_NAME,
        &POD_NAMESPACE,
        &[
            PMIX_RANK,
            HOSTNAME,
            CONTAINER_DEVICES,
            PROCESS_DEVICES,
            RAS_ADDRESS,
        ],
    ];
    of_launchers.chain(lists.concat()).collect()
}

#[derive(Default)]
struct Ranks {
    rank: Option<u32>,
    world_size: Option<u32>,
    local_rank: Option<u32>,
}

fn ranks(environ: &Environ<'_>, step: Option<Step>) -> Ranks {
    // The script of a Slurm job itself runs with task number 0, and its child processes inherit
    // that.
    let slurm = (step != Some(Step::Other)).then_some(&SLURM);
    let mut launchers = LAUNCHERS.iter().chain(slurm);
    launchers
        .find_map(|launcher| ranks_from(launcher, environ))
        .unwrap_or_else(|| Ranks {
            rank: environ
                .number(&[PMIX_RANK])
                .filter(|rank| *rank < MAX_WORLD_SIZE),
            ..Ranks::default()
        })
}

/// Returns rank and world size set by one launcher, if both are present and consistent.
fn ranks_from(launcher: &Launcher, environ: &Environ<'_>) -> Option<Ranks> {
    let rank = environ.number(launcher.rank)?;
    let world_size = environ.number(launcher.world_size)?;
    let local_rank = environ.number(launcher.local_rank);
    (rank < world_size && world_size <= MAX_WORLD_SIZE).then(|| Ranks {
        rank: Some(rank),
        world_size: Some(world_size),
        local_rank: local_rank.filter(|local| *local < world_size),
    })
}

fn job(environ: &Environ<'_>, is_pod: bool) -> Option<String> {
    // The step of a Slurm job is ignored: under mpirun, ranks of the first host are in another step
    // than the rest.
    let batch = || environ.text(&BATCH_JOB, MAX_TEXT);
    let torch = |name| environ.text(&[name], MAX_TEXT).filter(|id| id != NO_RUN_ID);
    let pod = || environ.text(&POD_JOB, MAX_TEXT).filter(|_| is_pod);
    batch()
        .or_else(|| TORCH_JOB.into_iter().find_map(torch))
        .or_else(pod)
}

#[cfg(test)]
mod tests;
