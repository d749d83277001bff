//! Contexts of tool calls: the caller, and the current prices.

use std::sync::Arc;

use echo_access::Principal;
use echo_tools::ToolContext;
use echo_tools::rates::Rates;
use tokio::sync::watch;

/// Creates the context of each query. Clones share everything.
#[derive(Debug, Clone)]
pub struct ToolContexts {
    base: ToolContext,
    rates: watch::Receiver<Arc<Rates>>,
    otlp: Option<OtlpEndpoint>,
}

/// OTLP/gRPC listener of this instance, as agents reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// Port.
    pub port: u16,
    /// True if it speaks TLS.
    pub is_encrypted: bool,
}

impl OtlpEndpoint {
    /// Returns its URL on a host.
    pub fn url(self, host: &str) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{host}:{}", self.port)
    }
}

impl ToolContexts {
    /// Creates contexts like `base`, with the prices current at the time of the query.
    pub const fn new(base: ToolContext, rates: watch::Receiver<Arc<Rates>>) -> Self {
        Self {
            base,
            rates,
            otlp: None,
        }
    }

    /// Adds the OTLP listener to which the pages refer.
    #[must_use]
    pub const fn with_otlp(mut self, otlp: OtlpEndpoint) -> Self {
        self.otlp = Some(otlp);
        self
    }

    /// Returns the OTLP listener, if known.
    pub const fn otlp(&self) -> Option<OtlpEndpoint> {
        self.otlp
    }

    /// Returns the context for a query of this principal.
    pub fn for_caller(&self, caller: &Arc<Principal>) -> ToolContext {
        ToolContext {
            rates: Arc::clone(&self.rates.borrow()),
            caller: Arc::clone(caller),
            ..self.base.clone()
        }
    }

    /// Returns the part of the context that is independent of the caller.
    pub const fn base(&self) -> &ToolContext {
        &self.base
    }
}

impl From<ToolContext> for ToolContexts {
    fn from(base: ToolContext) -> Self {
        let (_, rates) = watch::channel(Arc::clone(&base.rates));
        Self::new(base, rates)
    }
}
