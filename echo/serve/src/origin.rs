//! By which names Echo may be called, and which web pages may do so.
//!
//! A page on the web can point a name of its own at this machine and have a browser ask here. Such a request carries that
//! name; honest ones carry an address, a name that only this machine or a Kubernetes cluster gives, or one that the operator
//! allowed. A page can also have a browser ask here without reading the answer; browsers mark such requests.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use echo_core::error::Code;
use echo_tools::error_body;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::response::failure;
use crate::session::is_own_origin;
use crate::tls::Encryption;

/// Headers by which browsers say whose page sends a request, and what for. Pages cannot change them.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Names, or ends of names, that neither the web nor the local network can give: RFC 6761, and services of Kubernetes.
const PRIVATE: [&str; 4] = ["localhost", ".localhost", ".svc", ".svc.cluster.local"];

/// What the operator allows beside addresses and private names. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    allowed: Arc<Allowed>,
    certified: Option<Encryption>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Callers {
    /// Allows these names of this machine, and pages of these origins, such as `https://grafana.example`.
    pub fn new(hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self {
            allowed: Arc::new(Allowed { hosts, origins }),
            certified: None,
        }
    }

    /// The same, and the names in the certificate that is in force.
    #[must_use]
    pub fn certified(self, encryption: Encryption) -> Self {
        Self {
            certified: Some(encryption),
            ..self
        }
    }

    /// Whether they are answered on encrypted connections.
    pub(crate) fn are_encrypted(&self) -> bool {
        let identity = self.certified.as_ref().and_then(Encryption::identity);
        identity.is_some()
    }

    fn is_certified(&self, name: &str) -> bool {
        let identity = self.certified.as_ref().and_then(Encryption::identity);
        identity.is_some_and(|identity| identity.certificate().is_for(name))
    }

    /// Whether the request calls this machine by one name, which it goes by. HTTP/2 has the name in the address, HTTP/1 in a
    /// header; both may have it in both, and a proxy may go by either.
    fn knows_host(&self, request: &Request) -> bool {
        let in_address = request.uri().authority().cloned().map(Some);
        let headers = request.headers().get_all(HOST).iter();
        let in_headers = headers.map(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let mut names = in_address.into_iter().chain(in_headers);
        let Some(name) = names.next() else {
            return true;
        };
        let is_one = names.all(|other| other == name);
        name.filter(|_| is_one).is_some_and(|authority| {
            let name = authority.host();
            let bare = name.trim_start_matches('[').trim_end_matches(']');
            let is = |known: &String| known.eq_ignore_ascii_case(name);
            is_private(name)
                || bare.parse::<IpAddr>().is_ok()
                || self.allowed.hosts.iter().any(is)
                || self.is_certified(name)
        })
    }

    /// Whether no page sends it, or one that is allowed.
    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(ORIGIN) {
            return !is_of_foreign_page(headers);
        }
        let origin = text(headers, &ORIGIN);
        let is = |known: &String| origin.is_some_and(|origin| known.eq_ignore_ascii_case(origin));
        self.allowed.origins.iter().any(is)
    }

    /// What tells browsers that pages of the allowed origins may read answers; nothing without such origins.
    pub(crate) fn cors(&self) -> Option<CorsLayer> {
        let origins = self.allowed.origins.iter();
        let origins: Vec<HeaderValue> = origins.filter_map(|origin| origin.parse().ok()).collect();
        (!origins.is_empty()).then(|| {
            CorsLayer::new()
                .allow_origin(AllowOrigin::list(origins))
                .allow_methods([Method::GET, Method::POST])
                .allow_headers(AllowHeaders::mirror_request())
                .expose_headers(Any)
        })
    }
}

/// Whether the name is one that only this machine or its cluster gives.
fn is_private(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    PRIVATE.iter().any(|known| match known.strip_prefix('.') {
        Some(_) => name
            .strip_suffix(known)
            .is_some_and(|rest| !rest.is_empty()),
        None => name == *known,
    })
}

/// Whether a browser says that a page from elsewhere made it ask: an image, a form, a script that cannot read the answer.
/// Whoever follows a link asks for a document.
fn is_of_foreign_page(headers: &HeaderMap) -> bool {
    let is_foreign = matches!(text(headers, &SITE), Some("cross-site" | "same-site"));
    is_foreign && text(headers, &DESTINATION) != Some("document")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Turns down who calls by another name, or from elsewhere.
pub(crate) async fn refuse_strangers(
    State(callers): State<Callers>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !callers.knows_host(&request) {
        return refusal(
            "ask by one name: an IP address, localhost, or one given with --allowed-host",
        );
    }
    if !callers.knows_origin(headers) && !is_own_origin(headers, request.uri()) {
        return refusal(FOREIGN);
    }
    next.run(request).await
}

/// Turns down what pages send, where Echo has none of its own: then the name does not matter.
pub(crate) async fn refuse_pages(
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
    use axum::http::{HeaderMap, Request};
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use tower::ServiceExt;

    use super::{Callers, refuse_pages, refuse_strangers};

    fn callers() -> Callers {
        let origin = "https://app.example:3000".to_owned();
        Callers::new(vec!["echo.example.com".to_owned()], vec![origin])
    }

    fn questions() -> Router {
        let routes = Router::new().route("/", post(|| async {}).get(|| async {}));
        let routes = routes.layer(callers().cors().unwrap());
        routes.layer(from_fn_with_state(callers(), refuse_strangers))
    }

    fn measurements() -> Router {
        let routes = Router::new().route("/", post(|| async {}));
        routes.layer(from_fn_with_state(callers(), refuse_pages))
    }

    /// Status and headers of the answer to a request with these headers, one to a line.
    async fn sent(service: Router, method: &str, headers: &str) -> (u16, HeaderMap) {
        sent_to(service, (method, "/"), headers).await
    }

    async fn sent_to(
        service: Router,
        (method, address): (&str, &str),
        headers: &str,
    ) -> (u16, HeaderMap) {
        let mut request = Request::builder().method(method).uri(address);
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        (response.status().as_u16(), response.headers().clone())
    }

    #[tokio::test]
    async fn questions_come_by_names_that_no_page_can_have() {
        for (host, expected) in [
            ("127.0.0.1:8081", 200),
            ("[::1]:8081", 200),
            ("localhost", 200),
            ("echo.localhost:8081", 200),
            ("fleet-echo.monitoring.svc:8081", 200),
            ("fleet-echo.monitoring.SVC.cluster.local.", 200),
            ("Echo.Example.com:443", 200),
            ("attacker.example", 403),
            ("localhost.attacker.example", 403),
            ("svc.example", 403),
            ("printer.local", 403),
            ("printer", 403),
            (".svc", 403),
            (".", 403),
            ("a b", 403),
        ] {
            let headers = format!("host: {host}");
            assert_eq!(
                sent(questions(), "POST", &headers).await.0,
                expected,
                "{host}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_in_the_address_counts_like_one_in_a_header_and_both_are_the_same() {
        for (address, headers, expected) in [
            ("https://127.0.0.1:8081/", "", 200),
            ("https://attacker.example/", "", 403),
            ("https://localhost:8081/", "host: LOCALHOST:8081", 200),
            ("https://127.0.0.1:8081/", "host: attacker.example", 403),
            ("https://attacker.example/", "host: 127.0.0.1:8081", 403),
            ("https://localhost/", "host: 127.0.0.1", 403),
            ("https://localhost/", "host: a b", 403),
            ("/", "host: localhost\nhost: attacker.example", 403),
        ] {
            let (status, _) = sent_to(questions(), ("GET", address), headers).await;
            assert_eq!(status, expected, "{address} {headers}");
        }
    }

    #[tokio::test]
    async fn a_page_from_elsewhere_cannot_make_a_browser_ask() {
        for (headers, expected) in [
            ("sec-fetch-site: cross-site\nsec-fetch-dest: image", 403),
            ("sec-fetch-site: cross-site\nsec-fetch-dest: iframe", 403),
            ("sec-fetch-site: same-site\nsec-fetch-dest: empty", 403),
            ("sec-fetch-site: cross-site", 403),
            ("sec-fetch-site: cross-site\nsec-fetch-dest: document", 200),
            (
                "sec-fetch-site: cross-site\norigin: https://app.example:3000",
                200,
            ),
            ("sec-fetch-site: same-origin\nsec-fetch-dest: image", 200),
            ("sec-fetch-site: none", 200),
        ] {
            let headers = format!("host: 127.0.0.1:8081\n{headers}");
            assert_eq!(
                sent(questions(), "GET", &headers).await.0,
                expected,
                "{headers}"
            );
        }
    }

    #[tokio::test]
    async fn an_allowed_page_may_read_what_it_is_answered() {
        let page = "host: 127.0.0.1:8081\norigin: https://app.example:3000";
        let (status, headers) = sent(questions(), "GET", page).await;
        assert_eq!(status, 200);
        assert_eq!(
            headers["access-control-allow-origin"],
            "https://app.example:3000"
        );
        let before = format!(
            "{page}\naccess-control-request-method: POST\naccess-control-request-headers: content-type,mcp-method"
        );
        let (status, headers) = sent(questions(), "OPTIONS", &before).await;
        assert_eq!(status, 200);
        assert_eq!(
            headers["access-control-allow-headers"],
            "content-type,mcp-method"
        );
        let other = "host: 127.0.0.1:8081\norigin: https://attacker.example";
        let (status, headers) = sent(questions(), "OPTIONS", other).await;
        assert_eq!(status, 403);
        assert!(!headers.contains_key("access-control-allow-origin"));
    }

    #[tokio::test]
    async fn measurements_come_by_any_name_but_not_from_pages() {
        for (headers, expected) in [
            ("host: echo.site.example:4318", 200),
            (
                "host: 127.0.0.1:4318\norigin: https://app.example:3000",
                200,
            ),
            (
                "host: 127.0.0.1:4318\norigin: https://attacker.example",
                403,
            ),
            (
                "host: attacker.example:4318\norigin: http://attacker.example:4318",
                403,
            ),
            ("host: 127.0.0.1:4318\norigin: null", 403),
        ] {
            assert_eq!(
                sent(measurements(), "POST", headers).await.0,
                expected,
                "{headers}"
            );
        }
    }
}
