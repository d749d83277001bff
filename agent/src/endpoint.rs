//! Endpoint of a cluster, and identity of an agent towards it.

use fleet_agent_export::otlp::EndpointError;
use tracing::info;

use crate::config::ConnectionArgs;

/// Log target of the line that names the shard this agent reports to.
pub const SHARD: &str = "fleet_agent::shard";

/// Endpoint for the cluster: the given one, or with {shard} that of the cluster's shard, which is
/// logged.
pub fn shard_endpoint(
    connection: &ConnectionArgs,
    given: &str,
    cluster: &str,
) -> Result<String, EndpointError> {
    let Some(shard) = connection.resolve_shard(given, cluster)? else {
        return Ok(given.to_owned());
    };
    let (ordinal, count) = (shard.ordinal, shard.count);
    info!(target: SHARD, "cluster {cluster} belongs to shard {ordinal} of {count}: reporting to {}", shard.endpoint);
    Ok(shard.endpoint)
}

/// Identity of one agent of this process, new at every start.
pub fn new_instance(boot: i128, node: &str) -> u64 {
    let mut key = node.as_bytes().to_vec();
    key.extend_from_slice(&boot.to_le_bytes());
    key.extend_from_slice(&std::process::id().to_le_bytes());
    xxhash_rust::xxh64::xxh64(&key, 0)
}
