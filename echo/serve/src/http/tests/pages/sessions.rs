//! Login and logout, and the scope of the session cookie.

use axum::Router;
use echo_tools::fixture;

use super::{BROWSER, FORM, Page, TENANT, get_json, guarded, send};
use crate::http::tests::service;
use crate::http::tests::tenants::HIDDEN;

const SENDER: &str = "id: agents, write: { clusters: [\"*\"] }";

async fn signed_in(echo: &Router, token: &str) -> String {
    let body = format!("token={token}&next=%2Fclusters%2Fprod");
    let own = format!("{FORM}\norigin: http://127.0.0.1:8081\nsec-fetch-site: same-origin");
    let Page(status, headers, body) = send(echo, ("POST", "/login"), &own, &body).await;
    assert_eq!(status, 303, "{body}");
    assert_eq!(headers["location"], "/clusters/prod");
    let cookie = headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"),
        "{cookie}"
    );
    format!("{BROWSER}\ncookie: {}", cookie.split(';').next().unwrap())
}

#[tokio::test]
async fn browsers_without_a_token_are_redirected_to_login_and_programs_rejected() {
    let (echo, site) = guarded(&[TENANT]).await;
    let Page(status, headers, _) = get_json(&echo, "/clusters/prod?window=24h").await;
    assert_eq!(status, 303);
    let form = "/login?next=%2Fclusters%2Fprod%3Fwindow%3D24h";
    assert_eq!(headers["location"], form);
    let Page(status, _, page) = get_json(&echo, form).await;
    assert_eq!(status, 200);
    assert!(
        page.contains("value=\"/clusters/prod?window=24h\""),
        "{page}"
    );
    let Page(status, headers, _) = send(&echo, ("GET", "/"), "accept: */*", "").await;
    assert_eq!(status, 401);
    assert_eq!(headers["content-type"], "application/json");
    let stale = format!("{BROWSER}\nauthorization: Bearer unknown");
    assert_eq!(send(&echo, ("GET", "/"), &stale, "").await.0, 401);
    let lines = site.log.lines();
    assert_eq!(lines[0]["outcome"], "unauthenticated", "{lines:?}");
}

#[tokio::test]
async fn a_signed_in_caller_sees_its_cluster_and_is_logged() {
    let (echo, site) = guarded(&[TENANT]).await;
    let cookie = signed_in(&echo, &site.tokens[0]).await;
    let Page(status, _, front) = send(&echo, ("GET", "/"), &cookie, "").await;
    assert_eq!(status, 200, "{front}");
    assert!(front.contains("Signed in as <b>tenant</b>"), "{front}");
    for path in ["/", "/clusters/prod?window=all", "/clusters/hidden-fleet"] {
        let Page(status, _, page) = send(&echo, ("GET", path), &cookie, "").await;
        let known = page.replace("hidden-fleet", "");
        let expected = if path.contains("hidden") { 404 } else { 200 };
        assert_eq!(status, expected, "{path}");
        for part in HIDDEN {
            assert!(!known.contains(part), "{path}: {page}");
        }
    }
    let picture = "/api/v1/tools/fleet.cluster.explain_rank?cluster=prod&rank=2&format=svg";
    let Page(status, headers, _) = send(&echo, ("GET", picture), &cookie, "").await;
    assert_eq!(
        (status, &headers["content-type"]),
        (200, &"image/svg+xml".parse().unwrap())
    );
    let lines = site.log.lines();
    assert!(
        lines.iter().all(|line| line["principal"] == "tenant"),
        "{lines:?}"
    );
    let log = format!("{lines:?}");
    assert!(!log.contains(&site.tokens[0]), "{log}");
}

#[tokio::test]
async fn the_page_of_a_forbidden_cluster_equals_that_of_a_missing_one() {
    let (echo, site) = guarded(&[TENANT]).await;
    let cookie = signed_in(&echo, &site.tokens[0]).await;
    let mut pages = Vec::new();
    for name in ["hidden-fleet", "nowhere"] {
        let path = format!("/clusters/{name}");
        let request = format!("{cookie}\nx-request-id: same");
        let Page(status, _, page) = send(&echo, ("GET", &path), &request, "").await;
        pages.push((status, page.replace(name, "NAME")));
    }
    assert_eq!(pages[0], pages[1]);
    assert_eq!(pages[0].0, 404);
}

#[tokio::test]
async fn a_cookie_does_not_authorize_post_or_cross_site_requests() {
    let (echo, site) = guarded(&[TENANT]).await;
    let cookie = signed_in(&echo, &site.tokens[0]).await;
    let tool = "/api/v1/tools/fleet.cluster.get_cost";
    let own = format!("{cookie}\norigin: http://127.0.0.1:8081\nsec-fetch-site: same-origin");
    assert_eq!(send(&echo, ("POST", tool), &own, "").await.0, 401);
    assert_eq!(send(&echo, ("POST", "/mcp"), &own, "").await.0, 401);
    let other = format!("{cookie}\nsec-fetch-site: same-site\nsec-fetch-dest: document");
    assert_eq!(send(&echo, ("GET", "/"), &other, "").await.0, 303);
    let image = format!("{cookie}\nsec-fetch-site: cross-site\nsec-fetch-dest: image");
    assert_eq!(send(&echo, ("GET", tool), &image, "").await.0, 403);
}

#[tokio::test]
async fn forms_of_other_origins_cannot_log_in_or_out() {
    let (echo, site) = guarded(&[TENANT]).await;
    let body = format!("token={}", site.tokens[0]);
    for (path, headers) in [
        ("/login", "origin: https://evil.example"),
        ("/login", "origin: null"),
        (
            "/login",
            "sec-fetch-site: same-site\nsec-fetch-dest: document",
        ),
        ("/logout", "origin: https://evil.example"),
        (
            "/logout",
            "sec-fetch-site: cross-site\nsec-fetch-dest: document",
        ),
    ] {
        let headers = format!("{FORM}\n{headers}");
        let Page(status, headers, _) = send(&echo, ("POST", path), &headers, &body).await;
        assert_eq!(status, 403, "{path}");
        assert!(!headers.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn login_rejects_invalid_and_write_only_tokens() {
    let (echo, site) = guarded(&[TENANT, SENDER]).await;
    for (token, status, message) in [
        ("nonsense", 401, "this token is not valid"),
        ("", 401, "this token is not valid"),
        (
            site.tokens[1].as_str(),
            403,
            "may send measurements but not query",
        ),
    ] {
        let body = format!("token={token}");
        let Page(get_json, headers, page) = send(&echo, ("POST", "/login"), FORM, &body).await;
        assert_eq!(get_json, status, "{page}");
        assert!(
            page.contains(message) && page.contains("role=\"alert\""),
            "{page}"
        );
        assert!(!headers.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn login_failures_are_rate_limited_like_header_failures() {
    let (echo, _door) = guarded(&[TENANT]).await;
    let echo = echo.layer(axum::Extension(echo_ingest::memory_account::Peer(
        "192.0.2.7:1234".parse().unwrap(),
    )));
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(send(&echo, ("POST", "/login"), FORM, "token=guess").await.0);
    }
    assert_eq!((statuses[0], statuses[39]), (401, 429));
}

#[tokio::test]
async fn logout_removes_both_cookies() {
    let (echo, _door) = guarded(&[TENANT]).await;
    let own = "origin: http://127.0.0.1:8081";
    let Page(status, headers, _) = send(&echo, ("POST", "/logout"), own, "").await;
    assert_eq!(
        (status, &headers["location"]),
        (303, &"/login".parse().unwrap())
    );
    let forgotten: Vec<&str> = headers
        .get_all("set-cookie")
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    assert_eq!(forgotten.len(), 2);
    assert!(
        forgotten.iter().all(|cookie| cookie.contains("Max-Age=0")),
        "{forgotten:?}"
    );
}

#[tokio::test]
async fn without_authentication_login_redirects() {
    let echo = service(fixture::context().await);
    let Page(status, headers, _) = get_json(&echo, "/login?next=%2Fclusters%2Fprod").await;
    assert_eq!(
        (status, &headers["location"]),
        (303, &"/clusters/prod".parse().unwrap())
    );
}

#[tokio::test]
async fn sections_of_forbidden_tools_are_omitted() {
    let entry = "id: cost, query: { clusters: [\"*\"], tools: [\"fleet.cluster.get_*\"] }";
    let (echo, site) = guarded(&[entry]).await;
    let cookie = signed_in(&echo, &site.tokens[0]).await;
    let path = "/clusters/prod?window=all";
    let Page(status, _, page) = send(&echo, ("GET", path), &cookie, "").await;
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("Cost per day"), "{page}");
    assert!(
        !page.contains("Lag of ranks") && !page.contains("Past incidents"),
        "{page}"
    );
}
