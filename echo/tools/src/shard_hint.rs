//! Information about shards in answers: which shard this instance serves, and where the others are.

use std::collections::BTreeSet;

use echo_core::ids::ClusterId;
use echo_core::shard::Shard;
use serde_json::{Value, json};

use crate::cluster_names::{listed, nearest};
use crate::{ToolContext, ToolError};

/// Adds a field `shard` to an answer; does nothing when this is the only instance.
pub fn add_shard(context: &ToolContext, answer: &mut Value) {
    if let (Some(shard), Some(answer)) = (context.shard.as_deref(), answer.as_object_mut()) {
        let fields = json!({
            "ordinal": shard.ordinal(),
            "count": shard.count(),
            "url": shard.url(),
            "note": shard.note(),
        });
        answer.insert("shard".to_owned(), fields);
    }
}

/// Returns a note about data on other shards for an answer about `cluster`, or about all clusters;
/// `None` when the answer is complete.
pub(super) fn note(context: &ToolContext, cluster: Option<&ClusterId>) -> Option<String> {
    let shard = context.shard.as_deref()?;
    let Some(cluster) = cluster else {
        return shard.note();
    };
    let other = shard.other_of(cluster)?;
    Some(format!(
        "cluster {cluster} belongs to {other}; this answer covers only the events sent to this shard"
    ))
}

/// Returns what to do about an incomplete answer of a server whose events are copied to a lake.
pub(super) fn lake_note(context: &ToolContext) -> Option<String> {
    context.store.is_copied().then(|| {
        "the lake has what is missing: ask a server that was started with --read-only".to_owned()
    })
}

/// Error about an unknown cluster; names the shard that owns it, if another one does, or else the
/// clusters that the caller may see (`known`). The owner follows only from the name, so the error
/// is the same for clusters that do not exist and for clusters that the caller may not see.
pub(super) fn unknown_cluster(
    context: &ToolContext,
    cluster: &ClusterId,
    known: &BTreeSet<ClusterId>,
) -> ToolError {
    let name = cluster.to_string();
    let shard = context.shard.as_deref();
    if let Some(other) = shard.and_then(|shard| shard.other_of(cluster)) {
        return ToolError::OtherShard { name, other };
    }
    let near = nearest(cluster, known).map(ClusterId::as_str);
    let suggestion = near.map(|near| format!("; did you mean {near:?}?"));
    ToolError::UnknownCluster {
        name,
        suggestion: suggestion.unwrap_or_default(),
        known: listed(known),
    }
}

/// Appends the note about other shards to a message.
pub(super) fn append_note(context: &ToolContext, message: String) -> String {
    let note = context.shard.as_deref().and_then(Shard::note);
    match note {
        Some(note) => format!("{message} ({note})"),
        None => message,
    }
}
