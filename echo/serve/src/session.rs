//! Browser sessions: a cookie that contains the bearer token, without state on the server.
//!
//! Any page can make a browser send a request with cookies, but not with an `Authorization` header.
//! So a token from a cookie is accepted only for reads, and only if the request is not from another
//! origin; no `POST` is authorized by it.

use axum::extract::Request;
use axum::http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use cookie::{Cookie, SameSite};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Names of the cookie, with and without TLS. Browsers accept the `__Host-` prefix only from this
/// host over TLS.
const SECURE_NAME: &str = "__Host-fleet-echo";
const PLAIN_NAME: &str = "fleet-echo";

/// Path of the login form.
pub(super) const LOGIN_PATH: &str = "/login";

/// Size limit of browsers for a cookie with its name and attributes, in bytes.
pub(super) const MAX_COOKIE_BYTES: usize = 4_096;

/// Header in which browsers send the relation between the page's site and this one.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the token of a request: from its header, else from the cookie if the request is a read
/// from one of Echo's pages.
pub(super) fn token(request: &Request) -> Option<&str> {
    if let Some(shown) = request.headers().get(AUTHORIZATION) {
        return Some(bearer(shown).unwrap_or_default());
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    (is_read && is_from_own_page(request.headers(), request.uri()))
        .then(|| cookie_token(request.headers()))
        .flatten()
}

/// Returns the token of `Bearer TOKEN`; the scheme is case-insensitive.
pub(super) fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the token in the cookie.
fn cookie_token(headers: &HeaderMap) -> Option<&str> {
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

/// Returns the cookie that stores a token until the browser is closed; `None` if browsers would not
/// accept it.
pub(super) fn session_cookie(token: &str, is_encrypted: bool) -> Option<HeaderValue> {
    let is_plain =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\');
    let cookie = cookie(token, is_encrypted).to_string();
    (token.bytes().all(is_plain) && cookie.len() <= MAX_COOKIE_BYTES)
        .then(|| HeaderValue::from_str(&cookie).ok())
        .flatten()
}

/// Returns the cookies that remove the token.
pub(super) fn removal_cookies() -> [Option<HeaderValue>; 2] {
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

/// Returns whether the request is from a browser that navigates, rather than from a program.
pub(super) fn wants_page(request: &Request) -> bool {
    let headers = request.headers();
    let accepted = headers.get_all(ACCEPT).iter();
    matches!(*request.method(), Method::GET | Method::HEAD)
        && !headers.contains_key(AUTHORIZATION)
        && accepted
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.contains("text/html"))
}

/// Returns whether the request is from one of Echo's pages, or from no page: a typed URL, a
/// bookmark, a program.
pub(super) fn is_from_own_page(headers: &HeaderMap, uri: &Uri) -> bool {
    let is_trusted = |site: &str| matches!(site, "same-origin" | "none");
    text(headers, &SITE).is_none_or(is_trusted)
        && (!headers.contains_key(ORIGIN) || is_own_origin(headers, uri))
}

/// Returns whether the request's origin is this server.
pub(super) fn is_own_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let origin = text(headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
    // HTTP/2 has the host in the URI.
    let host = text(headers, &HOST).or_else(|| uri.authority().map(Authority::as_str));
    origin.is_some_and(|(_, authority)| host == Some(authority))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the URL of the login form that leads to `wanted`.
pub(super) fn login_url(wanted: &Uri) -> String {
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
