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
fn a_cookie_counts_for_reading_alone_and_never_for_a_page_from_elsewhere() {
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
fn the_cookie_that_only_an_encrypted_connection_can_set_comes_first() {
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
fn a_token_that_a_cookie_cannot_hold_is_not_put_into_one() {
    for token in ["a;b", "a b", "a,b", "a\"b", "a\\b", "ü", &"x".repeat(4_096)] {
        assert_eq!(session_cookie(token, false), None, "{token}");
    }
}

#[test]
fn a_page_is_for_browsers() {
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
