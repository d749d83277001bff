//! Command `stacks`: where the threads of one process spend their time.

mod profile;

use std::fs;

use fleet_agent_core::event::Unprobed;
use fleet_agent_sources::live::Stop;
use fleet_agent_stacks::arming::INTERVAL;
use fleet_agent_stacks::clock::{cpu_ns, monotonic_ns};
use fleet_agent_stacks::error::StackError;
use fleet_agent_stacks::sampler::Sampler;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

use crate::config::StacksArgs;
pub use crate::stacks::profile::Profile;

/// Maximum number of characters of the command name of a process.
const MAX_NAME: usize = 64;

/// Error of the command.
#[derive(Debug, Error)]
pub enum StacksError {
    /// The process cannot be sampled.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The sampling task panicked.
    #[error("internal error: the sampling task failed ({0})")]
    TaskFailed(#[from] JoinError),
}

/// Samples a process for the time of the flags, or until `stop` resolves or the process exits.
pub async fn sample(
    args: &StacksArgs,
    stop: impl Future<Output = ()>,
) -> Result<Profile, StacksError> {
    let request = Stop::default();
    let (args, requested) = (args.clone(), request.clone());
    let mut sampling = spawn_blocking(move || profile(&args, &requested));
    let profile = tokio::select! {
        profile = &mut sampling => profile,
        () = stop => {
            request.request();
            sampling.await
        }
    };
    Ok(profile??)
}

/// Samples on the current thread, which may wait.
fn profile(args: &StacksArgs, stop: &Stop) -> Result<Profile, StackError> {
    let pid = args.pid;
    let tids = if args.tid.is_empty() {
        vec![pid]
    } else {
        args.tid.clone()
    };
    let cpu_before_ns = cpu_ns();
    let mut sampler = Sampler::open(pid, &tids)?;
    let name = command_name(pid);
    let from_ns = monotonic_ns();
    let duration_ns = u64::try_from(args.duration.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = from_ns.saturating_add(duration_ns);
    let runtime = Handle::current();
    let has_exited = loop {
        let now_ns = monotonic_ns();
        match sampler.sample(now_ns, &Unprobed) {
            Ok(()) if stop.is_requested() || now_ns >= until_ns => break false,
            Ok(()) => runtime.block_on(sleep(INTERVAL)),
            Err(StackError::Exited { .. }) if sampler.counts().samples > 0 => break true,
            Err(error) => return Err(error),
        }
    };
    // Each worker process can be asked for by its own id.
    let samples = sampler.take().into_iter();
    Ok(Profile {
        pid,
        name,
        lasted_ns: monotonic_ns().saturating_sub(from_ns),
        cpu_ns: cpu_ns().saturating_sub(cpu_before_ns),
        has_exited,
        limits: sampler.limits(),
        counts: sampler.counts(),
        samples: samples.filter(|sample| !sample.is_worker).collect(),
    })
}

/// Returns the command name of a process without control characters.
fn command_name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let printable = name.chars().filter(|c| !c.is_control());
    printable.take(MAX_NAME).collect()
}
