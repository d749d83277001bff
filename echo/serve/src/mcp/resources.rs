//! Resources for a model: schemas of the answers, known clusters, and prices.

use echo_tools::rates::Rate;
use echo_tools::registry::{RegisteredTool, Registry};
use echo_tools::run_analysis::RunAnalysis;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError, views};
use rmcp::ErrorData;
use rmcp::model::{CacheScope, ReadResourceResult, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::cluster_list::cluster_list;
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
        "The clusters that sent events, with the times of the first and last one, nodes, jobs, GPUs and open incidents.",
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
        CLUSTERS => {
            let list = cluster_list(registry, context, MAX_CLUSTERS);
            (context.run_limited(list).await?, 0)
        }
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
