//! What answers say where several Echos share the clusters: which one this is, and where the others are.

use echo_core::ids::ClusterId;
use echo_core::shard::Shard;
use serde_json::{Value, json};

use crate::{ToolContext, ToolError};

/// Adds to an answer what is known of this shard and the others; nothing where it is the only one.
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

/// What to know of an answer about a cluster that was named, or about all; nothing when all of it is here.
pub(super) fn note(context: &ToolContext, cluster: Option<&ClusterId>) -> Option<String> {
    let shard = context.shard.as_deref()?;
    let Some(cluster) = cluster else {
        return shard.note();
    };
    let other = shard.other_of(cluster)?;
    Some(format!(
        "cluster {cluster} belongs to {other}, and only what was sent here is in this answer"
    ))
}

/// That there is no such cluster among those `known` here; when another shard takes it, which one. That follows from the name
/// alone, and is said of clusters that the caller may not see as of those that do not exist.
pub(super) fn unknown_cluster(
    context: &ToolContext,
    cluster: &ClusterId,
    known: String,
) -> ToolError {
    let name = cluster.to_string();
    let shard = context.shard.as_deref();
    match shard.and_then(|shard| shard.other_of(cluster)) {
        Some(other) => ToolError::OtherShard { name, other },
        None => ToolError::UnknownCluster { name, known },
    }
}

/// The same sentence with where the others are behind it.
pub(super) fn append_note(context: &ToolContext, message: String) -> String {
    let note = context.shard.as_deref().and_then(Shard::note);
    match note {
        Some(note) => format!("{message} ({note})"),
        None => message,
    }
}
