//! Keys of gRPC metadata. Requests carry the deduplication key, responses carry the policy.

/// Response: encoded [`crate::policy::PolicySet`], at most [`POLICY_MAX_BYTES`].
pub const POLICY: &str = "fleet-policy-bin";

/// Largest encoded policy that Echo sends, in bytes.
pub const POLICY_MAX_BYTES: usize = 8 * 1024;

/// Response, read by Ingero agents: the scalar threshold as a decimal number.
pub const INGERO_THRESHOLD: &str = "ingero-threshold";

/// Response, read by Ingero agents: `true` or `false`.
pub const INGERO_QUORUM_MET: &str = "ingero-quorum-met";

/// Request: identity of one agent process, new at every start (any string of 1 to 64 printable ASCII characters).
pub const AGENT_INSTANCE: &str = "fleet-agent-instance";

/// Request: number of the batch within the agent instance, decimal, growing by one per batch.
/// A batch that is sent again keeps its number, and Echo stores it once.
pub const BATCH_NUMBER: &str = "fleet-batch-number";
