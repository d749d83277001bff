//! Who calls: the bearer token of a request, turned into a principal, and what that may do.
//!
//! Callers are told that they are not known, or that they may not do this, and nothing of the reason.

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

use crate::audit::Attempt;
use crate::jwks::KeySets;
use crate::rate_limit::{Failures, Rates};
use crate::response::failure;
use crate::session;
use echo_ingest::memory_account::Peer;
use echo_ingest::respond;

/// What is answered to everybody, so that probes and clients find out what they talk to.
const PUBLIC: [&str; 6] = [
    "/healthz",
    "/readyz",
    "/api/versions",
    "/api/v1/health",
    "/login",
    "/logout",
];

/// What agents ask who do not listen to what they are answered when they send.
const FOR_AGENTS: &str = "/api/v1/threshold";

/// Challenges of RFC 6750: nothing was shown, what was shown is not known, what is known may not do this.
const NOTHING_SHOWN: &str = "Bearer realm=\"echo\"";
const NOT_KNOWN: &str = "Bearer realm=\"echo\", error=\"invalid_token\"";
const NOT_ALLOWED: &str = "Bearer realm=\"echo\", error=\"insufficient_scope\"";

/// Who is let in. Clones are the same.
#[derive(Debug, Clone)]
pub struct Gate {
    access: Option<watch::Receiver<Arc<Access>>>,
    clock: Arc<dyn Clock>,
    key_sets: KeySets,
    failures: Failures,
    rates: Rates,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    rejected: AtomicU64,
    limited: AtomicU64,
}

/// Who sends a request, as far as anybody is known: absent where everybody is answered.
#[derive(Debug, Clone)]
pub struct Caller(pub Option<Arc<Principal>>);

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// No token was shown.
    NothingShown,
    /// The token is not known, or not good.
    NotKnown(Rejected),
    /// So many tokens from this address were not known that it has to wait.
    TooManyFailures(Duration),
    /// The principal asks more often than he may.
    TooOften(Duration),
    /// The token is known, and is not for questions.
    NotForAsking,
    /// The token is known, and is not for measurements.
    NotForSending,
}

impl Gate {
    /// Lets in whom `access` knows, as it is at that moment; everybody without it.
    pub fn new(access: Option<watch::Receiver<Arc<Access>>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            access,
            clock,
            key_sets: KeySets::default(),
            failures: Failures::default(),
            rates: Rates::default(),
            counts: Arc::default(),
        }
    }

    /// Also by keys that issuers publish.
    #[must_use]
    pub fn with_keys(self, key_sets: KeySets) -> Self {
        Self { key_sets, ..self }
    }

    /// Requests whose token was missing or not valid, since the start.
    pub fn rejected(&self) -> u64 {
        self.counts.rejected.load(Relaxed)
    }

    /// Requests that came too often, since the start.
    pub fn limited(&self) -> u64 {
        self.counts.limited.load(Relaxed)
    }

    /// Counts and says that somebody is not let in.
    fn refuse(&self, refusal: Refusal) -> Response {
        self.count(refusal);
        refusal.for_people()
    }

    /// Shows a browser where to say who uses it; whoever failed too often has to wait first.
    fn send_to_login(&self, refusal: Refusal, request: &Request) -> Response {
        if refusal.code() != Code::Unauthenticated {
            return self.refuse(refusal);
        }
        self.count(refusal);
        if let Some(attempt) = request.extensions().get::<Attempt>() {
            attempt.came_to(refusal.code());
        }
        let login = session::login_address(request.uri());
        let location =
            HeaderValue::from_str(&login).unwrap_or(HeaderValue::from_static(session::LOGIN_PATH));
        (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
    }

    /// Whether everybody is let in.
    pub(crate) const fn asks_nobody(&self) -> bool {
        self.access.is_none()
    }

    /// Lets in whoever shows this token in a form, as if it had come in a header; else says why not.
    pub(crate) fn let_in(
        &self,
        token: &str,
        extensions: &Extensions,
    ) -> Result<(), (Code, &'static str)> {
        let identified = self.identify(Some(token), address(extensions));
        noted(extensions.get::<Attempt>(), &identified);
        let refusal = match identified {
            Ok(principal) if principal.ask.is_none() => Some(Refusal::NotForAsking),
            Ok(principal) => self.rates.take(&principal).err().map(Refusal::TooOften),
            Err(refusal) => Some(refusal),
        };
        let refused = refusal.inspect(|refusal| self.count(*refusal));
        refused.map_or(Ok(()), |refusal| Err((refusal.code(), refusal.message())))
    }

    fn count(&self, refusal: Refusal) {
        match refusal.code() {
            Code::TooMany => self.counts.limited.fetch_add(1, Relaxed),
            _ => self.counts.rejected.fetch_add(1, Relaxed),
        };
    }

    fn identify(
        &self,
        shown: Option<&str>,
        from: Option<IpAddr>,
    ) -> Result<Arc<Principal>, Refusal> {
        let Some(access) = &self.access else {
            return Ok(Arc::new(Principal::local()));
        };
        let token = shown.ok_or(Refusal::NothingShown)?;
        let access = Arc::clone(&access.borrow());
        let identified = self.whose(&access, token);
        identified.map_err(|rejected| {
            let taken = from.map_or(Ok(()), |address| self.failures.take(address));
            match taken {
                Ok(()) => Refusal::NotKnown(rejected),
                Err(wait) => Refusal::TooManyFailures(wait),
            }
        })
    }

    /// Whose token this is. When its key is not known, its issuer may have a new one.
    fn whose(&self, access: &Access, token: &str) -> Result<Arc<Principal>, Rejected> {
        let now = self.clock.now();
        let identified = access.identify_with((token, now), &self.key_sets.published());
        if let Err(Rejected::UnknownKey | Rejected::NoKeys) = identified
            && let Some(source) = access.key_source_of(token)
        {
            self.key_sets.wish(source);
        }
        identified
    }
}

/// The token in the header of a request.
fn bearer_of(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(AUTHORIZATION)?;
    Some(session::bearer(shown).unwrap_or_default())
}

fn address(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Peer>().map(|peer| peer.0.ip())
}

/// Lets in whoever may ask, as often as he may.
pub(crate) async fn only_readers(
    State(gate): State<Gate>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_public = PUBLIC.contains(&request.uri().path());
    let identified = gate.identify(session::token(&request), address(request.extensions()));
    noted(request.extensions().get::<Attempt>(), &identified);
    let caller = match identified {
        Ok(principal) => Some(principal),
        Err(_) if is_public => None,
        Err(refusal) if session::wants_page(&request) => {
            return gate.send_to_login(refusal, &request);
        }
        Err(refusal) => return gate.refuse(refusal),
    };
    if let Some(principal) = caller.as_ref().filter(|_| !is_public) {
        if principal.ask.is_none() && request.uri().path() != FOR_AGENTS {
            return gate.refuse(Refusal::NotForAsking);
        }
        if let Err(wait) = gate.rates.take(principal) {
            return gate.refuse(Refusal::TooOften(wait));
        }
    }
    request.extensions_mut().insert(Caller(caller));
    next.run(request).await
}

/// Lets in whoever may send measurements, and puts him among the extensions of the request.
pub(crate) async fn only_writers(
    State(gate): State<Gate>,
    mut request: Request,
    next: Next,
) -> Response {
    let shown = bearer_of(request.headers());
    let identified = gate.identify(shown, address(request.extensions()));
    noted(request.extensions().get::<Attempt>(), &identified);
    let refusal = match identified {
        Ok(principal) if principal.write.is_some() => {
            request.extensions_mut().insert(principal);
            return next.run(request).await;
        }
        Ok(_) => Refusal::NotForSending,
        Err(refusal) => refusal,
    };
    if let Some(attempt) = request.extensions().get::<Attempt>() {
        attempt.came_to(refusal.code());
    }
    gate.count(refusal);
    if request.version() == Version::HTTP_2 {
        return respond::rejection(refusal.code(), refusal.message()).into_http();
    }
    refusal.for_people()
}

/// Notes who it is, or why nobody knows.
fn noted(attempt: Option<&Attempt>, identified: &Result<Arc<Principal>, Refusal>) {
    match (attempt, identified) {
        (Some(attempt), Ok(principal)) => attempt.by(principal),
        (Some(attempt), Err(Refusal::NotKnown(rejected))) => attempt.rejected(rejected.name()),
        (Some(attempt), Err(Refusal::NothingShown)) => attempt.rejected("no_token"),
        _ => {}
    }
}

impl Refusal {
    const fn code(self) -> Code {
        match self {
            Self::NothingShown | Self::NotKnown(_) => Code::Unauthenticated,
            Self::NotForAsking | Self::NotForSending => Code::Forbidden,
            Self::TooManyFailures(_) | Self::TooOften(_) => Code::TooMany,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::NothingShown => "show a token: Authorization: Bearer TOKEN",
            Self::NotKnown(_) => "this token is not valid",
            Self::TooManyFailures(_) => {
                "too many tokens from this address were not valid; wait a moment"
            }
            Self::TooOften(_) => "this token asks too often; wait a moment",
            Self::NotForAsking => "this token is for sending measurements, not for asking",
            Self::NotForSending => "this token is for asking, not for sending measurements",
        }
    }

    /// As HTTP says it, with the challenge of RFC 6750.
    fn for_people(self) -> Response {
        let mut response = failure(self.code(), error_body(self.code(), self.message()));
        let headers = response.headers_mut();
        let challenge = match self {
            Self::NothingShown => Some(NOTHING_SHOWN),
            Self::NotKnown(_) => Some(NOT_KNOWN),
            Self::NotForAsking | Self::NotForSending => Some(NOT_ALLOWED),
            Self::TooManyFailures(wait) | Self::TooOften(wait) => {
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
