//! Every connection is an open file, of which a process may have few until it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside the connections: the database, its log, threads and the runtime.
const OTHERS: u64 = 256;

/// Raises the limit of open files as far as so many connections need it. Returns how many of them fit, which are fewer where
/// raising it so far is not allowed.
pub fn make_room(connections: u64) -> u64 {
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
