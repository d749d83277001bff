//! API routes, served once the database is open.

use std::sync::Arc;

use axum::Router;
use echo_core::clock::Clock;
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use echo_tools::query_limit::QueryLimit;
use echo_tools::rates::Rates;
use echo_tools::registry::Registry;
use echo_tools::{Limits, ToolContext};

use crate::app::connection_limit::cores;
use crate::app::inputs::Inputs;
use crate::app::lake::{Lake, collectors};
use crate::config::ServeArgs;
use echo_ingest::accept::Ingest;
use echo_serve::http::metrics::{Metrics, Sources};
use echo_serve::http::{RuntimeState, router};
use echo_serve::listener::Connections;
use echo_serve::tool_context::{OtlpEndpoint, ToolContexts};

/// Builds the routes of a running instance, whose addresses are those that it has bound.
pub(super) fn routes(
    args: &ServeArgs,
    (store, ingest, lake): (&Arc<DuckDbStore>, &Ingest, Option<&Lake>),
    (inputs, clock): (&Inputs, Arc<dyn Clock>),
    feeds: RuntimeState,
    listeners: [(&'static str, Connections); 3],
) -> Router {
    let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(store);
    let usual = ToolContext::new(Arc::clone(&shared), Rates::default(), clock);
    let tools = ToolContext {
        limits: Limits {
            deadline: args.bounds.query_deadline,
            cost_grace: args.limits.cost_grace,
            ..usual.limits
        },
        query_limit: QueryLimit::new(args.bounds.queries(cores())),
        shard: args.shard.shard().map(Arc::new),
        ..usual
    };
    let actions = inputs.actions.as_ref().map(|_policy| &inputs.action_counts);
    let metrics = Metrics::new(Sources {
        ingest: ingest.clone(),
        store: shared,
        timings: store.timings(),
        judged: feeds.judged.clone(),
        listeners,
        query_limit: tools.query_limit.clone(),
        middleware: inputs.middleware.clone(),
        reloads: inputs.reloads.clone(),
        jwks: inputs.key_sets.clone(),
        encryption: inputs.api_encryption.clone(),
        collectors: collectors(lake, actions),
    });
    let otlp = OtlpEndpoint {
        port: args.otlp_listen.port(),
        // One certificate serves all listeners.
        is_encrypted: inputs.api_encryption.identity().is_some(),
    };
    let contexts = ToolContexts::new(tools, inputs.rates.clone());
    let contexts = if args.lake.read_only {
        contexts
    } else {
        contexts.with_otlp(otlp)
    };
    router(
        Registry::standard(),
        contexts,
        (feeds, metrics),
        &inputs.middleware,
    )
}
