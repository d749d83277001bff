//! Layout of all pages: frame, style sheet and security headers.

use aws_lc_rs::digest::{SHA256, digest};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

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

/// Renders a page.
pub(super) fn page(title: &str, visitor: Option<&Visitor<'_>>, body: Markup) -> Response {
    (headers(), frame(title, visitor, body)).into_response()
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
    (headers(), frame(reason, None, markup))
}

fn frame(title: &str, visitor: Option<&Visitor<'_>>, body: Markup) -> String {
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
                header.top { (top(visitor)) }
                main id="main" tabindex="-1" { (body) }
                footer { p { "Echo " (env!("CARGO_PKG_VERSION")) ". Times are UTC. " a href="/api/v1/openapi.json" { "API" } } }
            }
        }
    };
    page.into_string()
}

fn top(visitor: Option<&Visitor<'_>>) -> Markup {
    html! {
        a.brand href="/" { "Echo" }
        @if let Some(visitor) = visitor.filter(|visitor| visitor.is_signed_in) {
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
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; form-action 'self'; \
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
