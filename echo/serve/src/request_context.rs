//! Context of one API request: caller, request id and audit record.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use echo_access::Principal;
use echo_core::error::Coded;
use echo_tools::ToolError;
use echo_tools::registry::{Registry, ToolOutput};
use serde_json::Value;

use crate::audit::AuditRecord;
use crate::auth::Caller;
use crate::request::RequestId;
use crate::tool_context::ToolContexts;

/// Context of one API request.
#[derive(Debug, Clone)]
pub(super) struct RequestContext {
    /// Caller; without permissions if unauthenticated.
    pub(super) caller: Arc<Principal>,
    /// Request id.
    pub(super) id: Option<RequestId>,
    record: Option<AuditRecord>,
}

impl RequestContext {
    /// Collects what the middleware added to the request's extensions.
    pub(super) fn from_extensions(extensions: &Extensions) -> Self {
        let caller = extensions
            .get::<Caller>()
            .and_then(|caller| caller.0.clone());
        Self {
            caller: caller.unwrap_or_else(|| Arc::new(Principal::unauthenticated())),
            id: extensions.get().cloned(),
            record: extensions.get().cloned(),
        }
    }

    /// Calls a tool, and records the call and its outcome in the audit log.
    pub(super) async fn call_tool(
        &self,
        registry: &Registry,
        contexts: &ToolContexts,
        name: &str,
        input: Value,
    ) -> Result<ToolOutput, ToolError> {
        let context = contexts.for_caller(&self.caller);
        let logged_input = input.clone();
        self.audited(
            name,
            &logged_input,
            registry.dispatch(&context, name, input),
        )
        .await
    }

    /// Runs a query that is not a tool, and records it and its outcome in the audit log.
    pub(super) async fn audited<T>(
        &self,
        name: &str,
        input: &Value,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        if let Some(record) = &self.record {
            record.set_tool_call(name, input);
        }
        let answer = answer.await;
        if let (Some(record), Err(error)) = (&self.record, &answer) {
            record.set_outcome(error.code());
        }
        answer
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::from_extensions(&parts.extensions))
    }
}
