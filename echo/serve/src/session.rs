//! How a browser stays signed in: a cookie that holds the bearer token, and nothing on the side of Echo.
//!
//! A cookie is sent by whatever page makes a browser ask, a header is not. So a token from a cookie counts for reading alone, and
//! only where the request does not come from another origin; nothing that Echo does at the word of a `POST` heeds it.

use axum::extract::Request;
use axum::http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use cookie::{Cookie, SameSite};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Names of the cookie, with encryption and without. Browsers take the first only from here, and only if it is encrypted.
const SECURE_NAME: &str = "__Host-fleet-echo";
const PLAIN_NAME: &str = "fleet-echo";

/// Path of the form by which somebody signs in.
pub(super) const LOGIN_PATH: &str = "/login";

/// What browsers keep of one cookie, its name and attributes among it, in bytes.
pub(super) const MAX_COOKIE_BYTES: usize = 4_096;

/// Header by which browsers say whose page sends a request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The token that a request shows: in its head, else in the cookie of a browser that reads a page of Echo's.
pub(super) fn token(request: &Request) -> Option<&str> {
    if let Some(shown) = request.headers().get(AUTHORIZATION) {
        return Some(bearer(shown).unwrap_or_default());
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    (reads && is_of_own_page(request.headers(), request.uri()))
        .then(|| kept(request.headers()))
        .flatten()
}

/// The token of `Bearer TOKEN`, in any case of the first word.
pub(super) fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The token in the cookie.
fn kept(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter();
    let cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(Cookie::split_parse)
        .filter_map(Result::ok);
    let mut tokens: Vec<(bool, &str)> = cookies
        .filter(|cookie| [SECURE_NAME, PLAIN_NAME].contains(&cookie.name()))
        .filter_map(|cookie| Some((cookie.name() == PLAIN_NAME, cookie.value_raw()?)))
        .collect();
    tokens.sort_unstable_by_key(|(is_plain, _)| *is_plain);
    tokens.first().map(|(_, token)| *token)
}

/// The cookie that keeps a token until the browser is closed; nothing when browsers would not keep it.
pub(super) fn keeping(token: &str, is_encrypted: bool) -> Option<HeaderValue> {
    let is_plain =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\');
    let cookie = cookie(token, is_encrypted).to_string();
    (token.bytes().all(is_plain) && cookie.len() <= MAX_COOKIE_BYTES)
        .then(|| HeaderValue::from_str(&cookie).ok())
        .flatten()
}

/// The cookies that make a browser forget.
pub(super) fn forgetting() -> [Option<HeaderValue>; 2] {
    [true, false].map(|is_encrypted| {
        let mut cookie = cookie("", is_encrypted);
        cookie.make_removal();
        HeaderValue::from_str(&cookie.to_string()).ok()
    })
}

fn cookie(token: &str, is_encrypted: bool) -> Cookie<'_> {
    let name = if is_encrypted {
        SECURE_NAME
    } else {
        PLAIN_NAME
    };
    Cookie::build((name, token))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(is_encrypted)
        .build()
}

/// Whether a person waits for a page: a browser that follows a link or reads an address, and not a program.
pub(super) fn wants_page(request: &Request) -> bool {
    let headers = request.headers();
    let accepted = headers.get_all(ACCEPT).iter();
    matches!(*request.method(), Method::GET | Method::HEAD)
        && !headers.contains_key(AUTHORIZATION)
        && accepted
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.contains("text/html"))
}

/// Whether the request comes from a page of Echo's, or from none: an address that was typed, a bookmark, a program.
pub(super) fn is_of_own_page(headers: &HeaderMap, uri: &Uri) -> bool {
    let is_near = |site: &str| matches!(site, "same-origin" | "none");
    text(headers, &SITE).is_none_or(is_near)
        && (!headers.contains_key(ORIGIN) || is_own_origin(headers, uri))
}

/// Whether the request names this very server as the origin of the page that sends it.
pub(super) fn is_own_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let origin = text(headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
    // HTTP/2 names the server in the address.
    let called = text(headers, &HOST).or_else(|| uri.authority().map(Authority::as_str));
    origin.is_some_and(|(_, authority)| called == Some(authority))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Where somebody signs in who is on the way to `wanted`.
pub(super) fn login_address(wanted: &Uri) -> String {
    let path = wanted.path_and_query().map_or("/", PathAndQuery::as_str);
    if path == "/" {
        return LOGIN_PATH.to_owned();
    }
    format!(
        "{LOGIN_PATH}?next={}",
        utf8_percent_encode(path, NON_ALPHANUMERIC)
    )
}

#[cfg(test)]
mod tests;
