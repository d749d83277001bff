//! What all pages share: the frame, the look, and the headers that keep everything else out.

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

/// The look. It stands in the page, which asks for nothing else.
const STYLE: &str = include_str!("style.css");

/// Three ranks on time and one late, as the sign of the browser's tab.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect \
    width='16' height='16' rx='3' fill='%23155e75'/%3E%3Cpath d='M3 4h7M3 7h7M3 13h7' stroke='%23fff' \
    stroke-width='1.6'/%3E%3Cpath d='M3 10h10' stroke='%23fdba74' stroke-width='1.6'/%3E%3C/svg%3E";

/// Lets other pages load nothing of this one.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Who looks at a page.
#[derive(Debug)]
pub(super) struct Visitor<'a> {
    /// The name in logs.
    pub(super) name: &'a str,
    /// Whether there is something to sign out of.
    pub(super) is_signed_in: bool,
}

/// A whole page.
pub(super) fn page(title: &str, visitor: Option<&Visitor<'_>>, body: Markup) -> Response {
    (headers(), framed(title, visitor, body)).into_response()
}

/// The page of an error, from the error's body, with its headers.
pub(super) fn problem(status: StatusCode, body: &Value) -> (HeaderMap, String) {
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
    (headers(), framed(reason, None, markup))
}

fn framed(title: &str, visitor: Option<&Visitor<'_>>, body: Markup) -> String {
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

/// Nothing is loaded, run, framed or kept; forms go to Echo alone. Without `same-origin` a form would not say where it comes from.
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
