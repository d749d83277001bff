//! On which terms questions are let in: the chain that every one of them passes, whatever it asks.
//!
//! From the outside in: a number, the audit, what catches panics, whose page sends it, who asks, how often, its body. So the
//! audit sees all that is turned down further in.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use echo_core::clock::Clock;

use crate::audit::log::AuditLog;
use crate::audit::{Auditing, audited};
use crate::auth::{Gate, only_readers};
use crate::body::{BODY_WITHIN, whole};
use crate::origin::{Callers, refuse_strangers};
use crate::panics::Panics;
use crate::request::RequestIds;
use crate::response::number;

/// The terms. Clones are the same.
#[derive(Debug, Clone)]
pub struct Terms {
    /// By which names it may be called, and from which pages.
    pub callers: Callers,
    /// Who is let in.
    pub gate: Gate,
    /// What is written down.
    pub auditing: Auditing,
    /// What was answered in place of handlers that panicked.
    pub panics: Panics,
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
            panics: Panics::default(),
        }
    }

    /// The routes for whoever keeps to the terms.
    pub fn guard(&self, routes: Router) -> Router {
        let mut routes = routes
            .layer(from_fn_with_state(BODY_WITHIN, whole))
            .layer(from_fn_with_state(self.gate.clone(), only_readers));
        if let Some(cors) = self.callers.cors() {
            routes = routes.layer(cors);
        }
        routes
            .layer(from_fn_with_state(self.callers.clone(), refuse_strangers))
            .layer(self.panics.over_http())
            .layer(from_fn_with_state(self.auditing.clone(), audited))
            .layer(from_fn_with_state(RequestIds::default(), number))
    }
}
