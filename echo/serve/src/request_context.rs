//! One request that asks something: who asks, under which number, and where it is written down.

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

use crate::audit::Attempt;
use crate::auth::Caller;
use crate::request::RequestId;
use crate::tool_context::Contexts;

/// Who asks, under which number, and where it is written down.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    /// Who asks; somebody who may nothing where nobody was let in.
    pub(super) caller: Arc<Principal>,
    /// The number of the request.
    pub(super) id: Option<RequestId>,
    attempt: Option<Attempt>,
}

impl Asking {
    /// What the chain in front of the routes put among the extensions of the request.
    pub(super) fn of(extensions: &Extensions) -> Self {
        let caller = extensions
            .get::<Caller>()
            .and_then(|caller| caller.0.clone());
        Self {
            caller: caller.unwrap_or_else(|| Arc::new(Principal::nobody())),
            id: extensions.get().cloned(),
            attempt: extensions.get().cloned(),
        }
    }

    /// Asks a tool, and writes down what came of it.
    pub(super) async fn ask(
        &self,
        (registry, contexts): (&Registry, &Contexts),
        (name, input): (&str, Value),
    ) -> Result<ToolOutput, ToolError> {
        let context = contexts.of(&self.caller);
        let noted = input.clone();
        self.noted((name, &noted), registry.dispatch(&context, name, input))
            .await
    }

    /// Answers something that is no tool, and writes down what was asked and what came of it.
    pub(super) async fn noted<T>(
        &self,
        (name, input): (&str, &Value),
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        if let Some(attempt) = &self.attempt {
            attempt.asks(name, input);
        }
        let answer = answer.await;
        if let (Some(attempt), Err(error)) = (&self.attempt, &answer) {
            attempt.came_to(error.code());
        }
        answer
    }
}

impl<S: Sync> FromRequestParts<S> for Asking {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}
