use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use echo_access::{Access, mint};
use echo_core::clock::{Clock, ManualClock};
use echo_tools::fixture::at;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use super::{Authenticator, authorize_ingest};
use crate::audit::log::AuditLog;
use crate::audit::{AuditContext, audit_refusals};
use crate::middleware::Middleware;
use echo_ingest::memory_account::Peer;

/// Some tokens, and middleware that accepts them.
pub(crate) struct Site {
    pub(crate) middleware: Middleware,
    pub(crate) log: AuditLog,
    pub(crate) tokens: Vec<String>,
    access: watch::Sender<Arc<Access>>,
}

impl Site {
    /// Creates a token for each entry, and middleware that accepts them.
    pub(crate) fn with_tokens(entries: &[&str]) -> Self {
        let (access, tokens) = access(entries);
        let (access, current) = watch::channel(Arc::new(access));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(at(600)));
        let log = AuditLog::memory();
        let open = Middleware::without_auth(Arc::clone(&clock));
        let middleware = Middleware {
            auth: Authenticator::new(Some(current), Arc::clone(&clock)),
            audit: AuditContext {
                log: log.clone(),
                clock,
            },
            ..open
        };
        Self {
            middleware,
            log,
            tokens,
            access,
        }
    }
}

fn access(entries: &[&str]) -> (Access, Vec<String>) {
    let minted: Vec<(String, String)> =
        entries.iter().map(|_| mint::new_token().unwrap()).collect();
    let lines = entries
        .iter()
        .zip(&minted)
        .map(|(entry, (_, sha256))| format!("  - {{ sha256: {sha256}, {entry} }}\n"));
    let yaml = format!("tokens:\n{}", lines.collect::<String>());
    let access = Access::parse(&yaml, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    (access, minted.into_iter().map(|(token, _)| token).collect())
}

const READER: &str = "id: grafana, query: { clusters: [\"*\"] }";
const WRITER: &str = "id: agents, write: { clusters: [\"*\"] }";

fn api_routes(middleware: &Middleware) -> Router {
    let routes = Router::new()
        .route("/api/v1/tools/list", get(|| async {}))
        .route("/healthz", get(|| async {}))
        .route("/api/versions", get(|| async {}));
    middleware.wrap(routes)
}

async fn send(
    service: &Router,
    path: &str,
    authorization: Option<&str>,
) -> (u16, HeaderMap, Value) {
    let mut request = Request::builder()
        .uri(path)
        .header("host", "127.0.0.1:8081");
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let mut request = request.body(Body::empty()).unwrap();
    let peer = SocketAddr::from(([10, 0, 0, 7], 4_711));
    request.extensions_mut().insert(Peer(peer));
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    (parts.status.as_u16(), parts.headers, body)
}

#[tokio::test]
async fn rejections_do_not_reveal_their_reason() {
    let site = Site::with_tokens(&[READER, WRITER]);
    let service = api_routes(&site.middleware);
    let (reader, writer) = (&site.tokens[0], &site.tokens[1]);
    let other = mint::new_token().unwrap().0;
    let long = "x".repeat(7_000);
    for (authorization, status, challenge, rejected) in [
        (None, 401, "Bearer realm=\"echo\"", Some("no_token")),
        (
            Some(String::new()),
            401,
            "error=\"invalid_token\"",
            Some("malformed"),
        ),
        (
            Some(format!("Basic {reader}")),
            401,
            "error=\"invalid_token\"",
            Some("malformed"),
        ),
        (
            Some(format!("Bearer {other}")),
            401,
            "error=\"invalid_token\"",
            Some("unknown"),
        ),
        (
            Some(format!("Bearer {long}")),
            401,
            "error=\"invalid_token\"",
            Some("unknown"),
        ),
        (
            Some(format!("Bearer {writer}")),
            403,
            "error=\"insufficient_scope\"",
            None,
        ),
    ] {
        let shown = authorization.as_deref();
        let (found, headers, body) = send(&service, "/api/v1/tools/list", shown).await;
        assert_eq!(found, status, "{shown:?}");
        let header = headers["www-authenticate"].to_str().unwrap();
        assert!(header.contains(challenge), "{shown:?}: {header}");
        assert!(body["error"]["request_id"].is_string(), "{body}");
        let line = site.log.lines().pop().unwrap();
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(
            line.get("rejected").and_then(Value::as_str),
            rejected,
            "{line}"
        );
        assert_eq!(line["peer"], "10.0.0.7");
        assert!(!line.to_string().contains(reader.as_str()), "{line}");
    }
}

#[tokio::test]
async fn authenticated_callers_are_logged_by_name() {
    let site = Site::with_tokens(&[READER]);
    let service = api_routes(&site.middleware);
    let good = format!("bearer {}", site.tokens[0]);
    assert_eq!(
        send(&service, "/api/v1/tools/list", Some(&good)).await.0,
        200
    );
    let line = site.log.lines().pop().unwrap();
    assert_eq!(line["principal"], "grafana");
    assert_eq!(line["auth_kind"], "opaque");
    assert_eq!(line["outcome"], "ok");
    assert_eq!(site.log.lines().len(), 1);
}

#[tokio::test]
async fn public_paths_need_no_token() {
    let site = Site::with_tokens(&[READER]);
    let service = api_routes(&site.middleware);
    for shown in [None, Some("Bearer nonsense")] {
        assert_eq!(send(&service, "/healthz", shown).await.0, 200);
        assert_eq!(send(&service, "/api/versions", shown).await.0, 200);
    }
    assert!(
        site.log
            .lines()
            .iter()
            .all(|line| line["path"] != "/healthz")
    );
}

#[tokio::test]
async fn a_token_removed_from_the_file_is_rejected_at_once() {
    let site = Site::with_tokens(&[READER]);
    let service = api_routes(&site.middleware);
    let shown = format!("Bearer {}", site.tokens[0]);
    assert_eq!(
        send(&service, "/api/v1/tools/list", Some(&shown)).await.0,
        200
    );
    site.access.send_replace(Arc::new(access(&[READER]).0));
    assert_eq!(
        send(&service, "/api/v1/tools/list", Some(&shown)).await.0,
        401
    );
}

#[tokio::test]
async fn rate_limited_requests_get_retry_after_and_are_logged() {
    let entry = "id: cron, query: { clusters: [\"*\"] }, rate: { per_second: 1, burst: 2 }";
    let site = Site::with_tokens(&[entry]);
    let service = api_routes(&site.middleware);
    let shown = format!("Bearer {}", site.tokens[0]);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let (status, headers, _) = send(&service, "/api/v1/tools/list", Some(&shown)).await;
        assert_eq!(status == 429, headers.contains_key("retry-after"));
        statuses.push(status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    let line = site.log.lines().pop().unwrap();
    assert_eq!(
        (&line["principal"], &line["outcome"]),
        (&"cron".into(), &"too_many".into())
    );
    assert_eq!(site.middleware.auth.limited(), 1);
}

#[tokio::test]
async fn failures_of_an_address_are_limited_and_valid_tokens_still_work() {
    let site = Site::with_tokens(&[READER]);
    let service = api_routes(&site.middleware);
    let mut statuses = Vec::new();
    for _ in 0..60 {
        let guess = format!("Bearer {}", mint::new_token().unwrap().0);
        statuses.push(send(&service, "/api/v1/tools/list", Some(&guess)).await.0);
    }
    assert_eq!(statuses[0], 401);
    assert!(statuses.ends_with(&[429]), "{statuses:?}");
    let shown = format!("Bearer {}", site.tokens[0]);
    assert_eq!(
        send(&service, "/api/v1/tools/list", Some(&shown)).await.0,
        200
    );
}

#[tokio::test]
async fn write_only_tokens_can_read_the_threshold() {
    let site = Site::with_tokens(&[WRITER]);
    let routes = Router::new().route("/api/v1/threshold", get(|| async {}));
    let service = site.middleware.wrap(routes);
    let shown = format!("Bearer {}", site.tokens[0]);
    assert_eq!(
        send(&service, "/api/v1/threshold", Some(&shown)).await.0,
        200
    );
    assert_eq!(send(&service, "/api/v1/threshold", None).await.0, 401);
}

#[tokio::test]
async fn ingest_needs_a_write_token_and_rejections_are_logged() {
    let site = Site::with_tokens(&[READER, WRITER]);
    let service = Router::new()
        .route("/v1/metrics", post(|| async {}).get(|| async {}))
        .layer(from_fn_with_state(
            site.middleware.auth.clone(),
            authorize_ingest,
        ))
        .layer(from_fn_with_state(
            site.middleware.audit.clone(),
            audit_refusals,
        ));
    let (reader, writer) = (&site.tokens[0], &site.tokens[1]);
    for (shown, status) in [
        (None, 401),
        (Some("Bearer nonsense".to_owned()), 401),
        (Some(format!("Bearer {reader}")), 403),
        (Some(format!("Bearer {writer}")), 200),
    ] {
        assert_eq!(
            send(&service, "/v1/metrics", shown.as_deref()).await.0,
            status
        );
    }
    let lines = site.log.lines();
    let outcomes: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["outcome"].as_str())
        .collect();
    assert_eq!(
        outcomes,
        ["unauthenticated", "unauthenticated", "forbidden"]
    );
}
