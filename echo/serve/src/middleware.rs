//! Middleware chain of every API request.
//!
//! From the outside in: request id, rest of a refused body, audit log, panic handler, host and origin check,
//! authentication, rate limit, body limit. The audit log therefore contains requests rejected by
//! the inner layers.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use echo_core::clock::Clock;

use crate::audit::log::AuditLog;
use crate::audit::{AuditContext, audit_requests};
use crate::auth::{Authenticator, authorize_query};
use crate::body::{BODY_TIMEOUT, buffer_body, drain_refused_body};
use crate::origin::{OriginPolicy, check_host_and_origin};
use crate::panics::Panics;
use crate::request::RequestIds;
use crate::response::assign_request_id;

/// The middleware. Clones share their state.
#[derive(Debug, Clone)]
pub struct Middleware {
    /// Allowed host names and origins.
    pub origins: OriginPolicy,
    /// Authentication.
    pub auth: Authenticator,
    /// Audit log.
    pub audit: AuditContext,
    /// Panic handler and its count.
    pub panics: Panics,
}

impl Middleware {
    /// Allows every caller from this host, without audit log.
    pub fn without_auth(clock: Arc<dyn Clock>) -> Self {
        Self {
            origins: OriginPolicy::default(),
            auth: Authenticator::new(None, Arc::clone(&clock)),
            audit: AuditContext {
                log: AuditLog::disabled(),
                clock,
            },
            panics: Panics::default(),
        }
    }

    /// Wraps the routes.
    pub fn wrap(&self, routes: Router) -> Router {
        let mut routes = routes
            .layer(from_fn_with_state(BODY_TIMEOUT, buffer_body))
            .layer(from_fn_with_state(self.auth.clone(), authorize_query));
        if let Some(cors) = self.origins.cors() {
            routes = routes.layer(cors);
        }
        routes
            .layer(from_fn_with_state(
                self.origins.clone(),
                check_host_and_origin,
            ))
            .layer(self.panics.http_layer())
            .layer(from_fn_with_state(self.audit.clone(), audit_requests))
            .layer(from_fn(drain_refused_body))
            .layer(from_fn_with_state(RequestIds::default(), assign_request_id))
    }
}
