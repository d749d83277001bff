//! Keys of gRPC metadata. Requests carry the deduplication key, responses carry the policy.

/// Response: encoded [`crate::policy::PolicySet`], at most [`POLICY_MAX_BYTES`].
pub const POLICY: &str = "fleet-policy-bin";

/// Largest encoded policy that Echo sends, in bytes.
pub const POLICY_MAX_BYTES: usize = 8 * 1024;

/// Response: encoded [`crate::policy::HostCulprits`] of the node that sent the first point of the
/// request, at most [`CULPRITS_MAX_BYTES`]. Absent if Echo reports no culprits to agents.
pub const CULPRITS: &str = "fleet-culprits-bin";

/// Largest encoded list of culprits that Echo sends, in bytes. With a policy it fits the limit of
/// 16 KiB that clients have for headers.
pub const CULPRITS_MAX_BYTES: usize = 2 * 1024;

/// Response, read by Ingero agents: the health score below which a node counts as a straggler, as a
/// decimal number. Absent without quorum, and for clusters whose nodes send no health scores.
pub const INGERO_THRESHOLD: &str = "ingero-threshold";

/// Response, read by Ingero agents: `true` if enough nodes report for the threshold to be valid,
/// else `false`.
pub const INGERO_QUORUM_MET: &str = "ingero-quorum-met";

/// Request: id of an agent process, new at every start (any string of 1 to 64 printable
/// ASCII characters).
pub const AGENT_INSTANCE: &str = "fleet-agent-instance";

/// Request: number of the batch within the agent instance, decimal, incremented per batch. A batch
/// that is sent again keeps its number, and Echo stores it once.
pub const BATCH_NUMBER: &str = "fleet-batch-number";

/// [`INGERO_THRESHOLD`] as a header of a response over HTTP.
pub const HTTP_INGERO_THRESHOLD: &str = "x-ingero-threshold";

/// [`INGERO_QUORUM_MET`] as a header of a response over HTTP.
pub const HTTP_INGERO_QUORUM_MET: &str = "x-ingero-quorum-met";
