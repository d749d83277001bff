//! The Model Context Protocol: another view of the tool registry, on `POST /mcp`.
//!
//! One endpoint speaks the stateless revision of 2026-07-28 and those before. There are no sessions and nothing is sent
//! but answers, so an answer is one JSON text. A question ends when its request is hung up on; the cancellations of older
//! revisions, which come as requests of their own, cannot be told whose they are and do nothing. What a tool answers is in the text and, the same, as structured content;
//! what it cannot answer is a result that is marked as an error and carries the error body of the HTTP API. Only an
//! unknown tool and a defect are errors of the protocol, with that body as their data.
//!
//! Names of tools have dots. Some clients take none, so `/mcp/compat` lists underscores; both are understood everywhere.

use std::sync::Arc;

use axum::http::Extensions;
use axum::http::request::Parts;
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
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use crate::mcp::errors::{malformed, of_protocol, of_tool};
use crate::request::MAX_BODY_BYTES;
use crate::request_context::Asking;
use crate::tool_context::Contexts;

mod errors;
mod listing;
mod prompts;
mod resources;

/// How long a client may keep a list: it changes with the version of Echo only.
const LIST_TTL_MS: u64 = 300_000;

/// What a model is told of Echo before it sees the tools.
const INSTRUCTIONS: &str = "\
Echo watches the collectives of distributed GPU jobs and finds the rank that holds the others back. \
Start with find_outlier_nodes for the cluster in question (echo://clusters lists them). A culprit is held responsible, \
a victim only waits for one: never blame a victim. Look into a culprit with explain_rank, price it with get_cost, and \
read single measurements with event_history. What these do not answer, ask with run_analysis in SQL. Empty lists mean health only if data_quality.quorum_met is true. \
Times are UTC; windows default to the last hour.";

/// How the names of tools are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// With dots, as they are.
    Dotted,
    /// With underscores, for clients that take no dots.
    Plain,
}

/// What answers one request. Clones share everything.
#[derive(Debug, Clone)]
pub struct Handler {
    registry: Arc<Registry>,
    contexts: Contexts,
    names: Names,
}

/// The service behind a path.
pub(super) fn service(
    registry: Arc<Registry>,
    contexts: Contexts,
    names: Names,
) -> StreamableHttpService<Handler, NeverSessionManager> {
    let handler = Handler {
        registry,
        contexts,
        names,
    };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        // Names and origins have been looked at before, for all paths alike.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    )
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
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let asking = asking(&context);
        let tools = self.registry.tools_for(&asking.caller);
        let tools = tools.map(|tool| listing::tool(tool, self.names)).collect();
        let mut result = ListToolsResult::with_all_items(tools);
        result.ttl_ms = Some(LIST_TTL_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        // Only for what headers repeat of arguments; the call itself looks at who asks.
        let tool = self.registry.find(&Principal::local(), name).ok()?;
        Some(listing::tool(tool, self.names))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asking = asking(&context);
        let input = Value::Object(request.arguments.unwrap_or_default());
        let answer = asking.ask((&self.registry, &self.contexts), (&request.name, input));
        match unless_cancelled(&context, answer).await? {
            Ok(answer) => Ok(complete(answer).into()),
            Err(error) => of_tool(&request.name, &error, asking.id.as_ref()).map(Into::into),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // A known method comes here when its parameters are not what it takes.
        Err(malformed(&request.method))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut result = ListResourcesResult::with_all_items(resources::list());
        result.ttl_ms = Some(LIST_TTL_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let asking = asking(&context);
        let with = self.contexts.of(&asking.caller);
        let reading = resources::read(&request.uri, &self.registry, &with);
        match unless_cancelled(&context, reading).await? {
            Ok(Some(result)) => Ok(result.into()),
            Ok(None) => Err(resources::unknown(&request.uri)),
            Err(error) => Err(of_protocol(&request.uri, &error, asking.id.as_ref())),
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut result = ListPromptsResult::with_all_items(prompts::list());
        result.ttl_ms = Some(LIST_TTL_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        prompts::get(&request.name, &arguments).map(Into::into)
    }
}

/// Waits for an answer as long as the client does. A query is dropped with its future, and interrupted.
async fn unless_cancelled<T>(
    context: &RequestContext<RoleServer>,
    answer: impl Future<Output = T>,
) -> Result<T, ErrorData> {
    tokio::select! {
        answer = answer => Ok(answer),
        // Nobody waits for this one.
        () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
    }
}

/// Who asks, as the request says that the message came with.
fn asking(context: &RequestContext<RoleServer>) -> Asking {
    let parts = context.extensions.get::<Parts>();
    parts.map_or_else(
        || Asking::of(&Extensions::new()),
        |parts| Asking::of(&parts.extensions),
    )
}

/// An answer as a result. Some clients read the text, others the structure; a picture comes beside both.
fn complete(answer: ToolOutput) -> CallToolResult {
    let structure = serde_json::from_str(&answer.text).ok();
    let mut content = vec![ContentBlock::text(answer.text)];
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
