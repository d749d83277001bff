//! On which terms questions are let in: the chain that every one of them passes, whatever it asks.
//!
//! From the outside in: a number, the audit, whose page sends it, who asks, how often, how long its body takes. So the audit
//! sees all that is turned down further in.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::clock::Clock;
use crate::serve::audit::log::AuditLog;
use crate::serve::audit::{Auditing, audited};
use crate::serve::gate::{Gate, only_readers};
use crate::serve::http::answer::number;
use crate::serve::http::callers::{Callers, refuse_strangers};
use crate::serve::request::RequestIds;

/// Longest pause between two pieces of a body.
const BODY_PAUSE: Duration = Duration::from_secs(10);

/// The terms. Clones are the same.
#[derive(Debug, Clone)]
pub struct Terms {
    /// By which names it may be called, and from which pages.
    pub callers: Callers,
    /// Who is let in.
    pub gate: Gate,
    /// What is written down.
    pub auditing: Auditing,
}

impl Terms {
    /// Lets in everybody on this machine, and writes down nothing.
    pub fn open(clock: Arc<dyn Clock>) -> Self {
        Self {
            callers: Callers::default(),
            gate: Gate::new(None, Arc::clone(&clock)),
            auditing: Auditing {
                log: AuditLog::nowhere(),
                clock,
            },
        }
    }

    /// The routes for whoever keeps to the terms.
    pub fn guard(&self, routes: Router) -> Router {
        let mut routes = routes
            .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE))
            .layer(from_fn_with_state(self.gate.clone(), only_readers));
        if let Some(cors) = self.callers.cors() {
            routes = routes.layer(cors);
        }
        routes
            .layer(from_fn_with_state(self.callers.clone(), refuse_strangers))
            .layer(from_fn_with_state(self.auditing.clone(), audited))
            .layer(from_fn_with_state(RequestIds::default(), number))
    }
}
