//! Resources for a model: schemas of the answers, known clusters, and prices.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_core::units::{Nanos, Window};
use echo_tools::rates::Rate;
use echo_tools::registry::{RegisteredTool, Registry};
use echo_tools::run_analysis::RunAnalysis;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError, shard_hint, views};
use rmcp::ErrorData;
use rmcp::model::{CacheScope, ReadResourceResult, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::mcp::LIST_TTL_MS;

/// Most clusters in the list.
const MAX_CLUSTERS: usize = 500;

const SCHEMA: &str = "echo://schema";
const HOST_SCHEMA: &str = "echo://host-schema";
const CLUSTERS: &str = "echo://clusters";
const RATES: &str = "echo://rates";

/// URI, name and description of each resource.
const RESOURCES: [(&str, &str, &str); 4] = [
    (
        SCHEMA,
        "schema",
        "Schemas of the input and the answer of each tool about clusters, and the views that SQL can query, with the meaning and the unit of each field.",
    ),
    (
        HOST_SCHEMA,
        "host-schema",
        "Schemas of the input and the answer of each tool about the processes of hosts.",
    ),
    (
        CLUSTERS,
        "clusters",
        "The clusters that sent events, with the time of the first and the last one stored.",
    ),
    (
        RATES,
        "rates",
        "Prices of GPU-hours used for costs. Of the matching entries, one for the node takes precedence over one for the cluster, that over one for the GPU model, and among equal ones the one that also names region and provider.",
    ),
];

/// Lists the resources.
pub(super) fn list() -> Vec<Resource> {
    let listed = |(uri, name, description): (&str, &str, &str)| {
        Resource::new(uri, name)
            .with_description(description)
            .with_mime_type("application/json")
    };
    RESOURCES.map(listed).into()
}

/// Returns a resource as JSON; `None` if the URI is unknown.
pub(super) async fn read(
    uri: &str,
    registry: &Registry,
    context: &ToolContext,
) -> Result<Option<ReadResourceResult>, ToolError> {
    let (content, ttl_ms) = match uri {
        SCHEMA => (
            context.run_limited(schema(registry, context)).await?,
            LIST_TTL_MS,
        ),
        HOST_SCHEMA => {
            let tools = tool_schemas(registry, context, is_about_hosts);
            (json!({ "tools": tools }), LIST_TTL_MS)
        }
        CLUSTERS => (context.run_limited(clusters(context)).await?, 0),
        RATES => (rates(context), LIST_TTL_MS),
        _ => return Ok(None),
    };
    let content = ResourceContents::text(content.to_string(), uri);
    let mut result = ReadResourceResult::new(vec![content.with_mime_type("application/json")]);
    result.ttl_ms = Some(ttl_ms);
    result.cache_scope = Some(CacheScope::Private);
    Ok(Some(result))
}

/// Returns the error for an unknown URI.
pub(super) fn unknown(uri: &str) -> ErrorData {
    let known = RESOURCES.map(|(uri, ..)| uri).join(", ");
    let message = format!("no such resource: {uri:?} (known: {known})");
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

fn is_about_hosts(tool: &RegisteredTool) -> bool {
    tool.name.starts_with("fleet.host.")
}

/// Returns the schemas of the tools that the caller may use and that match.
fn tool_schemas(
    registry: &Registry,
    context: &ToolContext,
    matches: impl Fn(&RegisteredTool) -> bool,
) -> Vec<Value> {
    let tools = registry.tools_for(&context.caller);
    let tools = tools.filter(|tool| matches(tool)).map(|tool| {
        json!({ "name": tool.name, "input": tool.input_schema, "answer": tool.output_schema })
    });
    tools.collect()
}

async fn schema(registry: &Registry, context: &ToolContext) -> Result<Value, ToolError> {
    let tools = tool_schemas(registry, context, |tool| !is_about_hosts(tool));
    let views = match registry.find(&context.caller, RunAnalysis::NAME) {
        Ok(_) => views::views(context).await?,
        Err(_) => Vec::new(),
    };
    Ok(json!({ "tools": tools, "views": views }))
}

/// Returns the clusters by name, with the times of their first and last event, using one query for
/// all of them.
async fn clusters(context: &ToolContext) -> Result<Value, ToolError> {
    let store = &context.store;
    let mut names = store.clusters().await?;
    names.retain(|cluster| context.caller.may_see(cluster));
    let mut seen: BTreeMap<ClusterId, (Nanos, Nanos)> = BTreeMap::new();
    let ever = store.extent(None).await?;
    if let Some(ever) = ever.and_then(|(first, last)| Window::new(first, last.offset(1))) {
        for row in store.coverage(None, ever).await? {
            let ends = seen.entry(row.origin.cluster.clone());
            let ends = ends.or_insert((row.first, row.last));
            *ends = (ends.0.min(row.first), ends.1.max(row.last));
        }
    }
    let listed = names.iter().take(MAX_CLUSTERS).map(|cluster| {
        let ends = seen.get(cluster);
        json!({
            "cluster": cluster.as_str(),
            "first_event": ends.map(|(first, _)| first.to_string()),
            "last_event": ends.map(|(_, last)| last.to_string()),
        })
    });
    let mut answer = json!({
        "clusters": listed.collect::<Vec<_>>(),
        "truncated": names.len() > MAX_CLUSTERS,
        "now": context.clock.now().to_string(),
    });
    shard_hint::add_shard(context, &mut answer);
    Ok(answer)
}

fn rates(context: &ToolContext) -> Value {
    let row = |rate: &Rate| {
        json!({
            "cluster": rate.cluster.as_ref().map(ToString::to_string),
            "node": rate.node.as_ref().map(ToString::to_string),
            "gpu_model": rate.gpu_model.as_ref().map(ToString::to_string),
            "provider": rate.provider,
            "region": rate.region,
            "rate_class": rate.class.name(),
            "per_gpu_hour": rate.per_gpu_hour.to_string(),
            "currency": rate.currency.to_string(),
            "from": rate.from.to_string(),
            "to": rate.to.map(|to| to.to_string()),
        })
    };
    // A price for a cluster or node reveals that it exists.
    let may_see = |rate: &&Rate| match (&rate.cluster, &rate.node) {
        (Some(cluster), _) => context.caller.may_see(cluster),
        (None, Some(_node)) => context.caller.sees_everything(),
        (None, None) => true,
    };
    let rows = context.rates.all().iter().filter(may_see).map(row);
    json!({ "rates": rows.collect::<Vec<_>>() })
}
