//! Authentication: verifies the bearer token of a request and checks the permissions of its
//! principal.
//!
//! Responses state that a caller is not authenticated or not authorized, but not the reason.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use echo_access::{Access, Principal, Rejected};
use echo_core::clock::Clock;
use echo_core::error::Code;
use echo_tools::error_body;
use tokio::sync::watch;

use crate::audit::AuditRecord;
use crate::jwks::JwksCache;
use crate::rate_limit::{Failures, Rates};
use crate::response::failure;
use crate::session;
use echo_ingest::memory_account::Peer;
use echo_ingest::respond;

/// Paths without authentication, for probes and for clients that identify the server.
const PUBLIC: [&str; 6] = [
    "/healthz",
    "/readyz",
    "/api/versions",
    "/api/v1/health",
    "/login",
    "/logout",
];

/// Path polled by agents that ignore the policy in ingest responses.
const THRESHOLD_PATH: &str = "/api/v1/threshold";

/// Challenges of RFC 6750: no token, unknown token, missing permission.
const MISSING_TOKEN: &str = "Bearer realm=\"echo\"";
const INVALID_TOKEN: &str = "Bearer realm=\"echo\", error=\"invalid_token\"";
const INSUFFICIENT_SCOPE: &str = "Bearer realm=\"echo\", error=\"insufficient_scope\"";

/// Authenticates requests. Clones share the state.
#[derive(Debug, Clone)]
pub struct Authenticator {
    access: Option<watch::Receiver<Arc<Access>>>,
    clock: Arc<dyn Clock>,
    jwks: JwksCache,
    failures: Failures,
    rates: Rates,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    rejected: AtomicU64,
    limited: AtomicU64,
}

/// The authenticated caller of a request; `None` on public paths without a valid token.
#[derive(Debug, Clone)]
pub struct Caller(pub Option<Arc<Principal>>);

/// Reason for rejecting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuthError {
    /// The request has no token.
    MissingToken,
    /// The token is unknown or not valid.
    InvalidToken(Rejected),
    /// Too many invalid tokens from this address; retry after this time.
    TooManyFailures(Duration),
    /// The principal exceeds its rate limit; retry after this time.
    RateLimited(Duration),
    /// The token does not permit queries.
    WriteOnlyToken,
    /// The token does not permit sending measurements.
    ReadOnlyToken,
}

impl Authenticator {
    /// Authenticates by the current value of `access`; allows every request without it.
    pub fn new(access: Option<watch::Receiver<Arc<Access>>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            access,
            clock,
            jwks: JwksCache::default(),
            failures: Failures::default(),
            rates: Rates::default(),
            counts: Arc::default(),
        }
    }

    /// Adds keys that issuers publish.
    #[must_use]
    pub fn with_jwks(self, jwks: JwksCache) -> Self {
        Self { jwks, ..self }
    }

    /// Returns the number of requests with a missing or invalid token since the start.
    pub fn rejected(&self) -> u64 {
        self.counts.rejected.load(Relaxed)
    }

    /// Returns the number of requests over a rate limit since the start.
    pub fn limited(&self) -> u64 {
        self.counts.limited.load(Relaxed)
    }

    /// Counts the rejection and returns its response.
    fn refuse(&self, error: AuthError) -> Response {
        self.count(error);
        error.into_http()
    }

    /// Redirects a browser to the login page, unless its address is over the limit of failures.
    fn send_to_login(&self, error: AuthError, request: &Request) -> Response {
        if error.code() != Code::Unauthenticated {
            return self.refuse(error);
        }
        self.count(error);
        if let Some(record) = request.extensions().get::<AuditRecord>() {
            record.set_outcome(error.code());
        }
        let login = session::login_url(request.uri());
        let location =
            HeaderValue::from_str(&login).unwrap_or(HeaderValue::from_static(session::LOGIN_PATH));
        (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
    }

    /// Returns whether authentication is disabled.
    pub(crate) const fn is_disabled(&self) -> bool {
        self.access.is_none()
    }

    /// Authorizes a token from a form as if it were in a header.
    pub(crate) fn authorize(
        &self,
        token: &str,
        extensions: &Extensions,
    ) -> Result<(), (Code, &'static str)> {
        let identified = self.identify(Some(token), peer_address(extensions));
        audit_identity(extensions.get::<AuditRecord>(), &identified);
        let error = match identified {
            Ok(principal) if principal.query.is_none() => Some(AuthError::WriteOnlyToken),
            Ok(principal) => self
                .rates
                .check(&principal)
                .err()
                .map(AuthError::RateLimited),
            Err(error) => Some(error),
        };
        let refused = error.inspect(|error| self.count(*error));
        refused.map_or(Ok(()), |error| Err((error.code(), error.message())))
    }

    fn count(&self, error: AuthError) {
        match error.code() {
            Code::TooMany => self.counts.limited.fetch_add(1, Relaxed),
            _ => self.counts.rejected.fetch_add(1, Relaxed),
        };
    }

    fn identify(
        &self,
        token: Option<&str>,
        from: Option<IpAddr>,
    ) -> Result<Arc<Principal>, AuthError> {
        let Some(access) = &self.access else {
            return Ok(Arc::new(Principal::local()));
        };
        let token = token.ok_or(AuthError::MissingToken)?;
        let access = Arc::clone(&access.borrow());
        let identified = self.verify_token(&access, token);
        identified.map_err(|rejected| {
            let recorded = from.map_or(Ok(()), |address| self.failures.record(address));
            match recorded {
                Ok(()) => AuthError::InvalidToken(rejected),
                Err(wait) => AuthError::TooManyFailures(wait),
            }
        })
    }

    /// Verifies a token. If its key is unknown, requests a refresh of the issuer's keys.
    fn verify_token(&self, access: &Access, token: &str) -> Result<Arc<Principal>, Rejected> {
        let now = self.clock.now();
        let identified = access.identify_with(token, now, &self.jwks.published());
        if let Err(Rejected::UnknownKey | Rejected::NoKeys) = identified
            && let Some(source) = access.key_source_for(token)
        {
            self.jwks.request_refresh(source);
        }
        identified
    }
}

/// Returns the bearer token in the headers.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let token = headers.get(AUTHORIZATION)?;
    Some(session::bearer(token).unwrap_or_default())
}

fn peer_address(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Peer>().map(|peer| peer.0.ip())
}

/// Middleware of the API: requires permission to query, within the rate limit.
pub(crate) async fn authorize_query(
    State(auth): State<Authenticator>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_public = PUBLIC.contains(&request.uri().path());
    let identified = auth.identify(session::token(&request), peer_address(request.extensions()));
    audit_identity(request.extensions().get::<AuditRecord>(), &identified);
    let caller = match identified {
        Ok(principal) => Some(principal),
        Err(_) if is_public => None,
        Err(error) if session::wants_page(&request) => {
            return auth.send_to_login(error, &request);
        }
        Err(error) => return auth.refuse(error),
    };
    if let Some(principal) = caller.as_ref().filter(|_| !is_public) {
        if principal.query.is_none() && request.uri().path() != THRESHOLD_PATH {
            return auth.refuse(AuthError::WriteOnlyToken);
        }
        if let Err(wait) = auth.rates.check(principal) {
            return auth.refuse(AuthError::RateLimited(wait));
        }
    }
    request.extensions_mut().insert(Caller(caller));
    next.run(request).await
}

/// Middleware of the OTLP listeners: requires permission to send measurements, and adds the
/// principal to the request's extensions.
pub(crate) async fn authorize_ingest(
    State(auth): State<Authenticator>,
    mut request: Request,
    next: Next,
) -> Response {
    let token = bearer_token(request.headers());
    let identified = auth.identify(token, peer_address(request.extensions()));
    audit_identity(request.extensions().get::<AuditRecord>(), &identified);
    let error = match identified {
        Ok(principal) if principal.write.is_some() => {
            request.extensions_mut().insert(principal);
            return next.run(request).await;
        }
        Ok(_) => AuthError::ReadOnlyToken,
        Err(error) => error,
    };
    if let Some(record) = request.extensions().get::<AuditRecord>() {
        record.set_outcome(error.code());
    }
    auth.count(error);
    if request.version() == Version::HTTP_2 {
        return respond::rejection(error.code(), error.message()).into_http();
    }
    error.into_http()
}

/// Records the principal, or why authentication failed.
fn audit_identity(record: Option<&AuditRecord>, identified: &Result<Arc<Principal>, AuthError>) {
    match (record, identified) {
        (Some(record), Ok(principal)) => record.set_principal(principal),
        (Some(record), Err(AuthError::InvalidToken(rejected))) => {
            record.set_rejection(rejected.name());
        }
        (Some(record), Err(AuthError::MissingToken)) => record.set_rejection("no_token"),
        _ => {}
    }
}

impl AuthError {
    const fn code(self) -> Code {
        match self {
            Self::MissingToken | Self::InvalidToken(_) => Code::Unauthenticated,
            Self::WriteOnlyToken | Self::ReadOnlyToken => Code::Forbidden,
            Self::TooManyFailures(_) | Self::RateLimited(_) => Code::TooMany,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::MissingToken => "missing token; send the header Authorization: Bearer TOKEN",
            Self::InvalidToken(_) => "this token is not valid",
            Self::TooManyFailures(_) => "too many invalid tokens from this address; retry later",
            Self::RateLimited(_) => "the rate limit of this token is exceeded; retry later",
            Self::WriteOnlyToken => "this token may send measurements but not query",
            Self::ReadOnlyToken => "this token may query but not send measurements",
        }
    }

    /// Returns the HTTP response, with the challenge of RFC 6750.
    fn into_http(self) -> Response {
        let mut response = failure(self.code(), error_body(self.code(), self.message()));
        let headers = response.headers_mut();
        let challenge = match self {
            Self::MissingToken => Some(MISSING_TOKEN),
            Self::InvalidToken(_) => Some(INVALID_TOKEN),
            Self::WriteOnlyToken | Self::ReadOnlyToken => Some(INSUFFICIENT_SCOPE),
            Self::TooManyFailures(wait) | Self::RateLimited(wait) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
                None
            }
        };
        if let Some(challenge) = challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

#[cfg(test)]
pub(crate) mod tests;
