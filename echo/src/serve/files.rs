//! Every connection is an open file, of which a process may have few until it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside the connections: the database, its log, threads and the runtime.
const OTHERS: u64 = 256;

/// Raises the limit of open files as far as so many connections need it, and says so in the log where that is not allowed.
pub fn allow(connections: u64) {
    let needed = connections.saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let reached = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = Rlimit {
        current: Some(reached),
        maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_err() || reached < needed {
        tracing::warn!(
            "{needed} files may have to be open for --max-connections, but this process may open {reached}: raise the limit \
             (ulimit -n, LimitNOFILE) or lower --max-connections"
        );
    }
}
