//! Findings about the jobs that run now.

use fleet_agent_sources::watch::Watched;

use crate::check::facts::{Rank, WatchFacts};
use crate::check::findings::{degraded, ok};
use crate::check::report::Finding;

/// Returns one finding per library and per rank.
pub(super) fn findings(watching: &WatchFacts) -> Vec<Finding> {
    let libraries = watching.libraries.iter().map(library);
    let unprobeable = watching.health.unprobeable.iter().map(|reason| {
        degraded(
            "library",
            format!("not watched: {reason}"),
            "grant the missing capabilities above",
        )
    });
    let ranks = watching.ranks.iter().map(rank);
    let all: Vec<Finding> = libraries.chain(unprobeable).chain(ranks).collect();
    if all.is_empty() {
        return vec![ok(
            "jobs",
            "none: no process has loaded NCCL, RCCL, CUDA or HIP",
        )];
    }
    all
}

fn library(library: &Watched) -> Finding {
    let Watched {
        path,
        functions,
        refused,
        users,
        ..
    } = library;
    let watched = format!("{path}: {functions} functions, {} processes", users.len());
    if refused.is_empty() {
        return ok("library", watched);
    }
    degraded(
        "library",
        format!("{watched}; not watched: {}", refused.join(" ")),
        "a probe would slow down every call of these functions: use the vendor's build of the library",
    )
}

fn rank(process: &Rank) -> Finding {
    let Rank {
        pid,
        command,
        place,
    } = process;
    let process_name = format!("{pid} {command}");
    match place {
        Ok(Some((rank, world_size))) => ok(
            "rank",
            format!("{process_name}: rank {rank} of {world_size}"),
        ),
        Ok(None) => degraded(
            "rank",
            format!("{process_name}: rank unknown until it joins a communicator"),
            "set RANK and WORLD_SIZE (torchrun, mpirun and srun do), or start the job after the agent",
        ),
        Err(error) => degraded(
            "rank",
            format!("{process_name}: {error}"),
            "see the capabilities above",
        ),
    }
}
