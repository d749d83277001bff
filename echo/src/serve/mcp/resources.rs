//! What a model may want to read before it asks: what answers hold, which clusters there are, and the prices in use.

use rmcp::ErrorData;
use rmcp::model::{CacheScope, ReadResourceResult, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::error::{Code, Coded, chain};
use crate::rates::Rate;
use crate::serve::http::sql as views;
use crate::serve::mcp::LIST_TTL_MS;
use crate::store::StoreError;
use crate::tools::ToolContext;
use crate::tools::registry::Registry;

const SCHEMA: &str = "echo://schema";
const CLUSTERS: &str = "echo://clusters";
const RATES: &str = "echo://rates";

/// Address, name and description of each.
const RESOURCES: [(&str, &str, &str); 3] = [
    (
        SCHEMA,
        "schema",
        "Schemas of the input and the answer of every tool, and the views that SQL can ask about, with the meaning and the unit of each field.",
    ),
    (
        CLUSTERS,
        "clusters",
        "The clusters that sent events, with the time of the first and the last one stored.",
    ),
    (
        RATES,
        "rates",
        "Prices of GPU-hours that costs are computed with. Of the lines that fit, one that names the node decides before one that names the cluster, and that before one that names the model.",
    ),
];

/// The resources.
pub(super) fn list() -> Vec<Resource> {
    let listed = |(uri, name, description): (&str, &str, &str)| {
        Resource::new(uri, name)
            .with_description(description)
            .with_mime_type("application/json")
    };
    RESOURCES.map(listed).into()
}

/// One of them, as JSON.
pub(super) async fn read(
    uri: &str,
    registry: &Registry,
    context: &ToolContext,
) -> Result<ReadResourceResult, ErrorData> {
    let (content, ttl_ms) = match uri {
        SCHEMA => (
            schema(registry, context)
                .await
                .map_err(|error| unread(&error))?,
            LIST_TTL_MS,
        ),
        CLUSTERS => (clusters(context).await.map_err(|error| unread(&error))?, 0),
        RATES => (rates(context), LIST_TTL_MS),
        _ => {
            let known = RESOURCES.map(|(uri, ..)| uri).join(", ");
            let message = format!("there is no resource {uri:?}; the resources are {known}");
            return Err(ErrorData::resource_not_found(
                message,
                Some(json!({ "uri": uri })),
            ));
        }
    };
    let content = ResourceContents::text(content.to_string(), uri);
    let mut result = ReadResourceResult::new(vec![content.with_mime_type("application/json")]);
    result.ttl_ms = Some(ttl_ms);
    result.cache_scope = Some(CacheScope::Private);
    Ok(result)
}

fn unread(error: &StoreError) -> ErrorData {
    if error.code() == Code::Internal {
        tracing::error!(error = chain(error), "a resource could not be read");
    }
    ErrorData::internal_error("Echo could not answer; its log says why", None)
}

async fn schema(registry: &Registry, context: &ToolContext) -> Result<Value, StoreError> {
    let tools = registry.tools().iter().map(|tool| {
        json!({ "name": tool.name, "input": tool.input_schema, "answer": tool.output_schema })
    });
    let views = context.store.views().await?;
    let views = views.iter().map(views::json);
    Ok(json!({ "tools": tools.collect::<Vec<_>>(), "views": views.collect::<Vec<_>>() }))
}

async fn clusters(context: &ToolContext) -> Result<Value, StoreError> {
    let mut listed = Vec::new();
    for cluster in context.store.clusters().await? {
        let extent = context.store.extent(Some(&cluster)).await?;
        listed.push(json!({
            "cluster": cluster.as_str(),
            "first_event": extent.map(|(first, _)| first.to_string()),
            "last_event": extent.map(|(_, last)| last.to_string()),
        }));
    }
    Ok(json!({ "clusters": listed, "now": context.clock.now().to_string() }))
}

fn rates(context: &ToolContext) -> Value {
    let row = |rate: &Rate| {
        json!({
            "cluster": rate.cluster.as_ref().map(ToString::to_string),
            "node": rate.node.as_ref().map(ToString::to_string),
            "gpu_model": rate.gpu_model.as_ref().map(ToString::to_string),
            "rate_class": rate.class.name(),
            "per_gpu_hour": rate.per_gpu_hour.to_string(),
            "currency": rate.currency.to_string(),
            "from": rate.from.to_string(),
            "to": rate.to.map(|to| to.to_string()),
        })
    };
    let rows = context.rates.all().iter().map(row);
    json!({ "rates": rows.collect::<Vec<_>>() })
}
