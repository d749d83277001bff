//! Layout of all pages: frame, style sheet and security headers.

use aws_lc_rs::digest::{SHA256, digest};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::view_query::{PAUSED, ViewQuery};

/// Style sheet, inlined so that a page loads nothing else.
const STYLE: &str = include_str!("style.css");

/// Favicon: three ranks on time and one late.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect \
    width='16' height='16' rx='3' fill='%23155e75'/%3E%3Cpath d='M3 4h7M3 7h7M3 13h7' stroke='%23fff' \
    stroke-width='1.6'/%3E%3Cpath d='M3 10h10' stroke='%23fdba74' stroke-width='1.6'/%3E%3C/svg%3E";

/// Header that forbids other sites to load a page's resources.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Visitor of a page.
#[derive(Debug)]
pub(super) struct Visitor<'a> {
    /// Name in logs.
    pub(super) name: &'a str,
    /// Whether the visitor has signed in and can sign out.
    pub(super) is_signed_in: bool,
}

/// Header that makes browsers load the page again.
const REFRESH: HeaderName = HeaderName::from_static("refresh");

/// Seconds after which browsers load a page again, and one of which a part is being made.
const RELOAD_AFTER_S: u16 = 30;
const RELOAD_AWAITED_AFTER_S: u16 = 3;

/// Reloading of a page that shows the current state.
#[derive(Debug)]
pub(super) struct Reload {
    is_paused: bool,
    after_s: u16,
    /// URL of the same page with reloading paused or resumed.
    toggle: String,
}

impl Reload {
    /// Reads the state from the URL of the page.
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let parameters = uri.query().unwrap_or_default().split('&');
        let parameters = parameters.filter(|parameter| !parameter.is_empty());
        let is_paused = parameters.clone().any(|parameter| parameter == PAUSED);
        let others = parameters.filter(|parameter| !parameter.starts_with("refresh="));
        let toggled: Vec<&str> = others.chain((!is_paused).then_some(PAUSED)).collect();
        let toggle = format!("{}?{}", uri.path(), toggled.join("&"));
        Self {
            is_paused,
            after_s: RELOAD_AFTER_S,
            toggle,
        }
    }

    /// Reloads soon, because a part of the page is being made.
    pub(super) fn soon(self) -> Self {
        Self {
            after_s: RELOAD_AWAITED_AFTER_S,
            ..self
        }
    }
}

/// Renders a page.
pub(super) fn page(title: &str, top: &Top<'_>, body: &Markup) -> Response {
    let mut headers = headers();
    if let Some(reload) = top.reload.filter(|reload| !reload.is_paused) {
        headers.insert(REFRESH, HeaderValue::from(reload.after_s));
    }
    (headers, frame(title, top, body)).into_response()
}

/// Content of the top bar.
#[derive(Debug, Default)]
pub(super) struct Top<'a> {
    /// Visitor.
    pub(super) visitor: Option<&'a Visitor<'a>>,
    /// Reloading of the page.
    pub(super) reload: Option<&'a Reload>,
    /// State that links keep.
    pub(super) view: Option<&'a ViewQuery>,
}

/// Renders the page of an error, from the error body. Returns it with its headers.
pub(super) fn error_page(status: StatusCode, body: &Value) -> (HeaderMap, String) {
    let text = |field: &str| {
        let field = body.pointer(field).and_then(Value::as_str);
        field.unwrap_or_default().to_owned()
    };
    let reason = status.canonical_reason().unwrap_or("Error");
    let markup = html! {
        h1 { (reason) }
        p.lead { (text("/error/message")) }
        p { a href="/" { "All clusters" } }
        p.quiet { "Error " (status.as_u16()) ", request " code { (text("/error/request_id")) } }
    };
    (headers(), frame(reason, &Top::default(), &markup))
}

fn frame(title: &str, top: &Top<'_>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " \u{b7} Echo" }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top { (top_bar(top)) }
                main id="main" tabindex="-1" { (body) }
                footer { (footer()) }
            }
        }
    };
    page.into_string()
}

fn footer() -> Markup {
    html! {
        p {
            "Echo " (env!("CARGO_PKG_VERSION")) ". Times are UTC. "
            a href="/api/v1/openapi.json" { "API documentation" } " "
            a href="/metrics" { "Metrics" }
        }
    }
}

fn top_bar(top: &Top<'_>) -> Markup {
    let home = top.view.map(|view| view.link("/", ""));
    html! {
        a.brand href=(home.as_deref().unwrap_or("/")) { "Echo" }
        @if let Some(Reload { is_paused, after_s, toggle }) = top.reload {
            span.quiet.reload {
                @if *is_paused { "Reloading is paused. " a href=(toggle) { "Resume" } }
                @else { "Reloads every " (after_s) "\u{a0}s. " a href=(toggle) { "Pause" } }
            }
        }
        @if let Some(visitor) = top.visitor.filter(|visitor| visitor.is_signed_in) {
            form method="post" action="/logout" {
                span.quiet { "Signed in as " b { (visitor.name) } }
                " "
                button.plain type="submit" { "Sign out" }
            }
        }
    }
}

/// Security headers: nothing is loaded, run, framed or cached; forms are sent to Echo only. Without
/// the referrer policy `same-origin`, forms would be sent without an origin.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let hash = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src 'self' data:; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (REFERRER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
        (VARY, "accept, cookie"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}
