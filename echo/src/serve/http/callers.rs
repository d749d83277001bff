//! By which names Echo may be called, and which web pages may do so.
//!
//! A page on the web can point a name of its own at this machine and have a browser ask here. Such a request carries
//! that name, or says that it comes from elsewhere; honest ones carry an address, `localhost`, or a name that the
//! operator allowed.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::Code;
use crate::serve::http::answer::failure;
use crate::tools::error_body;

/// What the operator allows beside addresses and `localhost`. Clones share it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Callers(Arc<Allowed>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Callers {
    /// Allows these names of this machine, and pages of these origins, such as `https://grafana.example`.
    pub fn new(hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self(Arc::new(Allowed { hosts, origins }))
    }

    /// Whether the request calls this machine by a name it goes by.
    fn knows_host(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(HOST) {
            return true;
        }
        let authority = text(headers, &HOST).and_then(|host| host.parse::<Authority>().ok());
        authority.is_some_and(|authority| {
            let name = authority.host();
            let bare = name.trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost")
                || bare.parse::<IpAddr>().is_ok()
                || self
                    .0
                    .hosts
                    .iter()
                    .any(|host| host.eq_ignore_ascii_case(name))
        })
    }

    /// Whether no page sends it, or one of Echo itself, or one that is allowed.
    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(ORIGIN) {
            return true;
        }
        let Some(origin) = text(headers, &ORIGIN) else {
            return false;
        };
        let own = origin.split_once("://").map(|(_, authority)| authority);
        own.is_some_and(|own| text(headers, &HOST) == Some(own))
            || self
                .0
                .origins
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Turns down who calls by another name, or from elsewhere.
pub(in crate::serve) async fn refuse_strangers(
    State(callers): State<Callers>,
    request: Request,
    next: Next,
) -> Response {
    let message = if !callers.knows_host(request.headers()) {
        "ask by an IP address, localhost, or a name given with --allowed-host"
    } else if !callers.knows_origin(request.headers()) {
        "pages of this origin may not ask; --allowed-origin allows them"
    } else {
        return next.run(request).await;
    };
    failure(Code::Forbidden, error_body(Code::Forbidden, message))
}
