//! The Model Context Protocol: the tools of the registry on `POST /mcp`.
//!
//! One endpoint supports the stateless revision 2026-07-28 and earlier ones. There are no sessions
//! and no server-initiated messages, so every response is one JSON document. A call ends when its
//! request is closed; the cancellation messages of earlier revisions are separate requests that
//! cannot be attributed to a call, and are ignored. The answer of a tool is returned as text, after
//! one line that sums it up, and as structured content; an error of a tool is a result marked as an error, with the error body of
//! the HTTP API. Only unknown tools and internal errors are protocol errors, with that body as
//! their data.
//!
//! Tool names have dots. Some clients reject dots, so `/mcp/compat` lists names with underscores;
//! both forms can be called on both paths.

use std::sync::Arc;

use axum::Router;
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::middleware::from_fn;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use echo_access::Principal;
use echo_tools::registry::{Registry, ToolOutput};
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    CustomRequest, CustomResult, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext as McpContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use crate::mcp::errors::{malformed, protocol_error, tool_error};
use crate::request::MAX_BODY_BYTES;
use crate::request_context::RequestContext;
use crate::tool_context::ToolContexts;

mod errors;
mod listing;
mod prompts;
mod request;
mod resources;

/// Time for which a client may cache a list, which changes only with the version of Echo.
const LIST_TTL_MS: u64 = 300_000;

/// Instructions for a model, shown before the tools.
const INSTRUCTIONS: &str = "\
Echo watches the collectives of distributed GPU jobs and finds the rank that holds the others back. \
Start with find_outlier_nodes for the affected cluster (echo://clusters lists them). A culprit causes the delay. \
Examine it with explain_rank, price it with get_cost, and \
read single measurements with event_history. What processes of a host lose time to, with or without a rank: get_causal_chains, \
then get_stacks and get_trace_stats. For anything else use SQL with run_analysis. Empty lists mean health only if data_quality.quorum_met is true. \
Times are UTC; windows default to the last hour.";

/// Form of the tool names in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolNames {
    /// With dots.
    Dotted,
    /// With underscores, for clients that reject dots.
    Plain,
}

/// Handler of MCP requests. Clones share everything.
#[derive(Debug, Clone)]
pub struct Handler {
    registry: Arc<Registry>,
    contexts: ToolContexts,
    names: ToolNames,
}

/// Builds the route of `path`.
pub(super) fn route(
    path: &str,
    registry: &Arc<Registry>,
    contexts: &ToolContexts,
    names: ToolNames,
) -> Router {
    let handler = Handler {
        registry: Arc::clone(registry),
        contexts: contexts.clone(),
        names,
    };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        // Host and origin are checked by the middleware of all paths.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new()
        .route_service(path, service)
        .layer(from_fn(request::adapt))
}

impl rmcp::ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .build();
        let name = Implementation::new("fleet-echo", env!("CARGO_PKG_VERSION")).with_title("Echo");
        ServerConfig::new(capabilities)
            .with_server_info(name)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: McpContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let request_context = request_context(&context);
        let tools = self.registry.tools_for(&request_context.caller);
        let tools = tools.map(|tool| listing::tool(tool, self.names)).collect();
        let mut result = ListToolsResult::with_all_items(tools);
        result.ttl_ms = Some(LIST_TTL_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        // Used only to check headers that repeat arguments; the call checks the caller's
        // permissions.
        let tool = self.registry.find(&Principal::local(), name).ok()?;
        Some(listing::tool(tool, self.names))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: McpContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request_context = request_context(&context);
        let input = Value::Object(request.arguments.unwrap_or_default());
        let answer =
            request_context.call_tool(&self.registry, &self.contexts, &request.name, input);
        match unless_cancelled(&context, answer).await? {
            Ok(answer) => Ok(complete(answer).into()),
            Err(error) => {
                tool_error(&request.name, &error, request_context.id.as_ref()).map(Into::into)
            }
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: McpContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // A known method is dispatched here when its parameters do not match.
        Err(malformed(&request.method))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: McpContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut result = ListResourcesResult::with_all_items(resources::list());
        result.ttl_ms = Some(LIST_TTL_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: McpContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let request_context = request_context(&context);
        let with = self.contexts.for_caller(&request_context.caller);
        let reading = resources::read(&request.uri, &self.registry, &with);
        match unless_cancelled(&context, reading).await? {
            Ok(Some(result)) => Ok(result.into()),
            Ok(None) => Err(resources::unknown(&request.uri)),
            Err(error) => Err(protocol_error(
                &request.uri,
                &error,
                request_context.id.as_ref(),
            )),
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: McpContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut result = ListPromptsResult::with_all_items(prompts::list());
        result.ttl_ms = Some(LIST_TTL_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: McpContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        prompts::get(&request.name, &arguments).map(Into::into)
    }
}

/// Waits for the answer until the client cancels. Dropping the future of a query interrupts it.
async fn unless_cancelled<T>(
    context: &McpContext<RoleServer>,
    answer: impl Future<Output = T>,
) -> Result<T, ErrorData> {
    tokio::select! {
        answer = answer => Ok(answer),
        // The client no longer waits for this error.
        () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
    }
}

/// Returns the context of the HTTP request that contained the message.
fn request_context(context: &McpContext<RoleServer>) -> RequestContext {
    let parts = context.extensions.get::<Parts>();
    parts.map_or_else(
        || RequestContext::from_extensions(&Extensions::new()),
        |parts| RequestContext::from_extensions(&parts.extensions),
    )
}

/// Converts an answer to a result: one line of text, the answer as JSON, and a picture if one was
/// requested. Clients read either these or the structured content.
fn complete(answer: ToolOutput) -> CallToolResult {
    let structure = serde_json::from_str(&answer.text).ok();
    let headline = answer.headline.map(ContentBlock::text);
    let mut content: Vec<ContentBlock> = headline.into_iter().collect();
    content.push(ContentBlock::text(answer.text));
    content.extend(answer.picture.map(|picture| {
        let data = STANDARD.encode(&picture.bytes);
        ContentBlock::image(data, picture.format.media_type())
    }));
    let mut result = CallToolResult::success(content);
    result.structured_content = structure;
    result
}

#[cfg(test)]
mod tests;
