//! What is watched of the jobs that run now.

use fleet_agent_sources::watch::Watched;

use crate::check::facts::{Rank, Watching};
use crate::check::findings::{degraded, fine};
use crate::check::report::Finding;

/// One finding for each library and each rank.
pub(super) fn of(watching: &Watching) -> Vec<Finding> {
    let libraries = watching.libraries.iter().map(library);
    let unprobeable = watching.health.unprobeable.iter().map(|reason| {
        degraded(
            "library",
            format!("not watched: {reason}"),
            "give the agent the capabilities above that it lacks; else it cannot be watched",
        )
    });
    let ranks = watching.ranks.iter().map(rank);
    let all: Vec<Finding> = libraries.chain(unprobeable).chain(ranks).collect();
    if all.is_empty() {
        return vec![fine(
            "jobs",
            "none: no process has NCCL, RCCL, CUDA or HIP mapped now",
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
        return fine("library", watched);
    }
    degraded(
        "library",
        format!("{watched}; not watched: {}", refused.join(" ")),
        "a probe would slow every call of these down: take a library built by its vendor",
    )
}

fn rank(process: &Rank) -> Finding {
    let Rank {
        pid,
        command,
        place,
    } = process;
    let who = format!("{pid} {command}");
    match place {
        Ok(Some((rank, world_size))) => fine("rank", format!("{who}: {rank} of {world_size}")),
        Ok(None) => degraded(
            "rank",
            format!("{who}: unknown until it joins a communicator"),
            "set RANK and WORLD_SIZE, as torchrun, mpirun and srun do, or start the job after the agent",
        ),
        Err(error) => degraded(
            "rank",
            format!("{who}: {error}"),
            "see the capabilities above",
        ),
    }
}
