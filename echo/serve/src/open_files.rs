//! Limit on open files, of which every connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files besides the connections: the database, its log, threads and the runtime.
const OTHERS: u64 = 256;

/// Raises the limit on open files for this number of connections. Returns how many of them fit,
/// which is less if the hard limit is lower.
pub fn raise_limit(connections: u64) -> u64 {
    let needed = connections.saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < needed) else {
        return connections;
    };
    let raised = maximum.map_or(needed, |maximum| maximum.min(needed));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    let reached = setrlimit(Resource::Nofile, limit).map_or(current, |()| raised);
    reached.saturating_sub(OTHERS).min(connections)
}
