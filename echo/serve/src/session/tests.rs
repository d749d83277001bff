use axum::body::Body;
use axum::extract::Request;

use super::{session_cookie, token, wants_page};

/// Builds a request with these headers, one per line.
fn request(method: &str, headers: &str) -> Request {
    let mut request = Request::builder().method(method).uri("/");
    for line in headers.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    request.body(Body::empty()).unwrap()
}

#[test]
fn a_cookie_authorizes_only_reads_from_own_pages() {
    let cookie = "host: echo.svc:8081\ncookie: a=b; fleet-echo=kept";
    for (method, more, expected) in [
        ("GET", "", Some("kept")),
        ("HEAD", "", Some("kept")),
        ("GET", "\nsec-fetch-site: same-origin", Some("kept")),
        ("GET", "\nsec-fetch-site: none", Some("kept")),
        ("GET", "\norigin: https://echo.svc:8081", Some("kept")),
        ("GET", "\nauthorization: Bearer shown", Some("shown")),
        ("GET", "\nauthorization: Basic shown", Some("")),
        ("POST", "\nauthorization: Bearer shown", Some("shown")),
        ("POST", "", None),
        ("POST", "\nsec-fetch-site: same-origin", None),
        ("PUT", "", None),
        ("GET", "\nsec-fetch-site: same-site", None),
        ("GET", "\nsec-fetch-site: cross-site", None),
        ("GET", "\norigin: https://echo.svc:3000", None),
        ("GET", "\norigin: null", None),
    ] {
        let request = request(method, &format!("{cookie}{more}"));
        assert_eq!(token(&request), expected, "{method} {more}");
    }
}

#[test]
fn the_host_prefixed_cookie_takes_precedence() {
    let both = request("GET", "cookie: fleet-echo=plain; __Host-fleet-echo=secure");
    assert_eq!(token(&both), Some("secure"));
}

#[test]
fn scripts_and_other_sites_never_see_the_cookie() {
    let plain = session_cookie("token", false).unwrap();
    assert_eq!(plain, "fleet-echo=token; HttpOnly; SameSite=Strict; Path=/");
    let secure = session_cookie("token", true).unwrap();
    assert_eq!(
        secure,
        "__Host-fleet-echo=token; HttpOnly; SameSite=Strict; Secure; Path=/"
    );
}

#[test]
fn a_token_that_does_not_fit_a_cookie_is_rejected() {
    for token in ["a;b", "a b", "a,b", "a\"b", "a\\b", "ü", &"x".repeat(4_096)] {
        assert_eq!(session_cookie(token, false), None, "{token}");
    }
}

#[test]
fn pages_are_served_to_browsers_only() {
    for (method, headers, expected) in [
        (
            "GET",
            "accept: text/html,application/xhtml+xml,*/*;q=0.8",
            true,
        ),
        ("GET", "accept: */*", false),
        ("GET", "accept: application/json", false),
        ("POST", "accept: text/html", false),
        ("GET", "accept: text/html\nauthorization: Bearer a", false),
    ] {
        assert_eq!(wants_page(&request(method, headers)), expected, "{headers}");
    }
}
