//! Checks of the host name and of the origin of a request.
//!
//! A web page can resolve a name of its own to this host and make a browser send requests (DNS
//! rebinding). Such a request contains that name; legitimate ones contain an IP address, a name
//! that only this host or a Kubernetes cluster can assign, or one allowed by the operator. A page
//! can also make a browser send requests without reading the response; browsers mark such requests.

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

/// Headers in which browsers send the site of the page and the destination of the request. Pages
/// cannot change them.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Names and suffixes that neither public nor local DNS can assign: RFC 6761, and Kubernetes
/// services.
const PRIVATE: [&str; 4] = ["localhost", ".localhost", ".svc", ".svc.cluster.local"];

/// Host names and origins allowed besides addresses and private names. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct OriginPolicy {
    allowed: Arc<Allowed>,
    with_certificate: Option<Encryption>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl OriginPolicy {
    /// Allows these names of this host, and pages of these origins, such as
    /// `https://grafana.example`.
    pub fn new(hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self {
            allowed: Arc::new(Allowed { hosts, origins }),
            with_certificate: None,
        }
    }

    /// Also allows the names in the current certificate.
    #[must_use]
    pub fn with_certificate(self, encryption: Encryption) -> Self {
        Self {
            with_certificate: Some(encryption),
            ..self
        }
    }

    /// Returns whether requests arrive over TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        let identity = self
            .with_certificate
            .as_ref()
            .and_then(Encryption::identity);
        identity.is_some()
    }

    fn is_certified(&self, name: &str) -> bool {
        let identity = self
            .with_certificate
            .as_ref()
            .and_then(Encryption::identity);
        identity.is_some_and(|identity| identity.certificate().is_for(name))
    }

    /// Returns whether the request has exactly one host name, which is allowed. HTTP/2 has it in
    /// the URI, HTTP/1 in a header; both may have both, and a proxy may use either.
    fn allows_host(&self, request: &Request) -> bool {
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

    /// Returns whether the request is from no page, or from one that is allowed.
    fn allows_origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(ORIGIN) {
            return !is_from_foreign_page(headers);
        }
        let origin = text(headers, &ORIGIN);
        let is = |known: &String| origin.is_some_and(|origin| known.eq_ignore_ascii_case(origin));
        self.allowed.origins.iter().any(is)
    }

    /// Returns the CORS layer, which lets pages of allowed origins read responses; `None` without
    /// such origins.
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

/// Returns whether only this host or its cluster can assign the name.
fn is_private(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    PRIVATE.iter().any(|known| match known.strip_prefix('.') {
        Some(_) => name
            .strip_suffix(known)
            .is_some_and(|rest| !rest.is_empty()),
        None => name == *known,
    })
}

/// Returns whether a browser marks the request as from another site's page: an image, a form, or a
/// script that cannot read the response. Following a link requests a document.
fn is_from_foreign_page(headers: &HeaderMap) -> bool {
    let is_foreign = matches!(text(headers, &SITE), Some("cross-site" | "same-site"));
    is_foreign && text(headers, &DESTINATION) != Some("document")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Rejects requests with another host name, or from another origin.
pub(crate) async fn check_host_and_origin(
    State(callers): State<OriginPolicy>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !callers.allows_host(&request) {
        return refusal(
            "the request must have one host name: an IP address, localhost, or one given with --allowed-host",
        );
    }
    if !callers.allows_origin(headers) && !is_own_origin(headers, request.uri()) {
        return refusal(FOREIGN);
    }
    next.run(request).await
}

/// Rejects requests from pages on listeners that serve no pages, where the host name does not
/// matter.
pub(crate) async fn check_origin(
    State(callers): State<OriginPolicy>,
    request: Request,
    next: Next,
) -> Response {
    if callers.allows_origin(request.headers()) {
        next.run(request).await
    } else {
        refusal(FOREIGN)
    }
}

/// Error message for requests from pages.
const FOREIGN: &str =
    "requests from pages of this origin are not allowed; allow the origin with --allowed-origin";

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

    use super::{OriginPolicy, check_host_and_origin, check_origin};

    fn origins() -> OriginPolicy {
        let origin = "https://app.example:3000".to_owned();
        OriginPolicy::new(vec!["echo.example.com".to_owned()], vec![origin])
    }

    fn api_routes() -> Router {
        let routes = Router::new().route("/", post(|| async {}).get(|| async {}));
        let routes = routes.layer(origins().cors().unwrap());
        routes.layer(from_fn_with_state(origins(), check_host_and_origin))
    }

    fn ingest_routes() -> Router {
        let routes = Router::new().route("/", post(|| async {}));
        routes.layer(from_fn_with_state(origins(), check_origin))
    }

    /// Sends a request with these headers, one per line. Returns status and headers of the
    /// response.
    async fn send(service: Router, method: &str, headers: &str) -> (u16, HeaderMap) {
        send_to(service, (method, "/"), headers).await
    }

    async fn send_to(
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
    async fn queries_need_a_host_name_that_pages_cannot_rebind() {
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
                send(api_routes(), "POST", &headers).await.0,
                expected,
                "{host}"
            );
        }
    }

    #[tokio::test]
    async fn host_names_in_uri_and_header_must_match() {
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
            let (status, _) = send_to(api_routes(), ("GET", address), headers).await;
            assert_eq!(status, expected, "{address} {headers}");
        }
    }

    #[tokio::test]
    async fn cross_site_requests_are_rejected() {
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
                send(api_routes(), "GET", &headers).await.0,
                expected,
                "{headers}"
            );
        }
    }

    #[tokio::test]
    async fn pages_of_allowed_origins_can_read_responses() {
        let page = "host: 127.0.0.1:8081\norigin: https://app.example:3000";
        let (status, headers) = send(api_routes(), "GET", page).await;
        assert_eq!(status, 200);
        assert_eq!(
            headers["access-control-allow-origin"],
            "https://app.example:3000"
        );
        let before = format!(
            "{page}\naccess-control-request-method: POST\naccess-control-request-headers: content-type,mcp-method"
        );
        let (status, headers) = send(api_routes(), "OPTIONS", &before).await;
        assert_eq!(status, 200);
        assert_eq!(
            headers["access-control-allow-headers"],
            "content-type,mcp-method"
        );
        let other = "host: 127.0.0.1:8081\norigin: https://attacker.example";
        let (status, headers) = send(api_routes(), "OPTIONS", other).await;
        assert_eq!(status, 403);
        assert!(!headers.contains_key("access-control-allow-origin"));
    }

    #[tokio::test]
    async fn ingest_accepts_any_host_name_but_no_pages() {
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
                send(ingest_routes(), "POST", headers).await.0,
                expected,
                "{headers}"
            );
        }
    }
}
