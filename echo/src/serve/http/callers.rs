//! By which names Echo may be called, and which web pages may do so.
//!
//! A page on the web can point a name of its own at this machine and have a browser ask here. Such a request carries
//! that name, or says that it comes from elsewhere; honest ones carry an address, a name that nobody on the web can own,
//! such as `localhost` or that of a Kubernetes service, or one that the operator allowed.

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

/// Last labels of names that public DNS gives to nobody: RFC 6761, RFC 6762, ICANN's `internal`, and Kubernetes services.
const PRIVATE: [&str; 4] = ["localhost", "local", "internal", "svc"];

/// What the operator allows beside addresses and private names. Clones share it.
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
            let is = |known: &String| known.eq_ignore_ascii_case(name);
            is_private(name) || bare.parse::<IpAddr>().is_ok() || self.0.hosts.iter().any(is)
        })
    }

    /// Whether no page sends it, or one that is allowed.
    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(ORIGIN) {
            return true;
        }
        let origin = text(headers, &ORIGIN);
        let is = |known: &String| origin.is_some_and(|origin| known.eq_ignore_ascii_case(origin));
        self.0.origins.iter().any(is)
    }
}

/// Whether nobody on the web can own the name: it has one label, or a last one that is kept for private use.
fn is_private(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is = |label: &str| PRIVATE.iter().any(|last| last.eq_ignore_ascii_case(label));
    !name.is_empty() && name.rsplit_once('.').is_none_or(|(_, last)| is(last))
}

/// Whether a page of Echo itself sends it.
fn is_own(headers: &HeaderMap) -> bool {
    let origin = text(headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, authority)| text(headers, &HOST) == Some(authority))
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
    let headers = request.headers();
    if !callers.knows_host(headers) {
        return refusal("ask by an IP address, a private name, or one given with --allowed-host");
    }
    if !callers.knows_origin(headers) && !is_own(headers) {
        return refusal(FOREIGN);
    }
    next.run(request).await
}

/// Turns down what pages send, where Echo has none of its own: then the name does not matter.
pub(in crate::serve) async fn refuse_pages(
    State(callers): State<Callers>,
    request: Request,
    next: Next,
) -> Response {
    if callers.knows_origin(request.headers()) {
        next.run(request).await
    } else {
        refusal(FOREIGN)
    }
}

/// What is said of pages.
const FOREIGN: &str = "pages of this origin may not ask; --allowed-origin allows them";

fn refusal(message: &str) -> Response {
    failure(Code::Forbidden, error_body(Code::Forbidden, message))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::http::Request;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use tower::ServiceExt;

    use super::{Callers, refuse_pages, refuse_strangers};

    fn callers() -> Callers {
        let origin = "https://app.example:3000".to_owned();
        Callers::new(vec!["echo.example.com".to_owned()], vec![origin])
    }

    async fn status(service: Router, host: &str, origin: Option<&str>) -> u16 {
        let mut request = Request::post("/").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(Body::empty()).unwrap();
        service.oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn questions_come_by_names_that_no_page_on_the_web_can_have() {
        let service = Router::new()
            .route("/", post(|| async {}))
            .layer(from_fn_with_state(callers(), refuse_strangers));
        for (host, expected) in [
            ("127.0.0.1:8081", 200),
            ("[::1]:8081", 200),
            ("localhost", 200),
            ("fleet-echo:8081", 200),
            ("fleet-echo.monitoring.svc:8081", 200),
            ("fleet-echo.monitoring.svc.cluster.local", 200),
            ("echo.INTERNAL.", 200),
            ("Echo.Example.com:443", 200),
            ("attacker.example", 403),
            ("localhost.attacker.example", 403),
            ("svc.example", 403),
            ("", 403),
            (".", 403),
            ("a b", 403),
        ] {
            assert_eq!(
                status(service.clone(), host, None).await,
                expected,
                "{host:?}"
            );
        }
    }

    #[tokio::test]
    async fn measurements_come_by_any_name_but_not_from_pages() {
        let service = Router::new()
            .route("/", post(|| async {}))
            .layer(from_fn_with_state(callers(), refuse_pages));
        for (host, origin, expected) in [
            ("echo.site.example:4318", None, 200),
            ("127.0.0.1:4318", Some("https://app.example:3000"), 200),
            ("127.0.0.1:4318", Some("https://attacker.example"), 403),
            (
                "attacker.example:4318",
                Some("http://attacker.example:4318"),
                403,
            ),
            ("127.0.0.1:4318", Some("null"), 403),
        ] {
            let status = status(service.clone(), host, origin).await;
            assert_eq!(status, expected, "{host} {origin:?}");
        }
    }
}
