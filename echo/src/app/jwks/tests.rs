#![expect(
    clippy::disallowed_methods,
    reason = "the test stands in for `app`, which owns the tasks"
)]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use echo_access::signed::{SigningKey, at, claims, every_form, jwk, signed};
use echo_access::{Access, Rejected};
use echo_core::clock::{Clock, ManualClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{advance, sleep};
use tower::ServiceExt;

use self::issuer::{Answer, Issuer};
use super::fetch::{Limits, fetch};
use super::{JwksRefresher, REFRESH};
use echo_serve::auth::Authenticator;
use echo_serve::jwks::JwksCache;
use echo_serve::middleware::Middleware;

mod issuer;

/// Short limits for tests.
const LIMITS: Limits = Limits {
    time: Duration::from_millis(300),
    bytes: 64 * 1024,
};

/// An issuer, an access file that names it, and the refresher of its keys.
struct Lab {
    issuer: Issuer,
    folder: TempDir,
    access: watch::Sender<Arc<Access>>,
    sets: JwksCache,
    stop: watch::Sender<bool>,
}

fn key(number: usize) -> &'static SigningKey {
    every_form()[number].key
}

fn key_set(keys: &[(&SigningKey, &str)]) -> String {
    let keys: Vec<Value> = keys.iter().map(|(key, id)| jwk(key, id)).collect();
    json!({ "keys": keys }).to_string()
}

fn token(key: &SigningKey, id: &str) -> String {
    let algorithm = format!("{:?}", key.algorithm);
    signed(
        &json!({ "typ": "JWT", "alg": algorithm, "kid": id }),
        &claims(),
        key,
    )
}

impl Lab {
    /// Creates an issuer with one key, and adds these lines to its entry.
    fn new(more: &str) -> Self {
        let issuer = Issuer::with(&key_set(&[(key(1), "first")]));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), &issuer.authority).unwrap();
        std::fs::write(folder.path().join("token"), "one\n").unwrap();
        let address = issuer.address;
        let yaml = format!(
            "issuers:\n  - issuer: https://idp.example\n    audience: echo\n    \
             jwks_url: https://{address}/keys\n    jwks_ca: ca.pem\n{more}"
        );
        let read = |path: &std::path::Path| std::fs::read(folder.path().join(path));
        let access = Access::parse(&yaml, &read).unwrap();
        Self {
            issuer,
            access: watch::channel(Arc::new(access)).0,
            sets: JwksCache::default(),
            stop: watch::channel(false).0,
            folder,
        }
    }

    fn start_refresher(&self) {
        let base_dir = self.folder.path().to_owned();
        let mut refresher =
            JwksRefresher::new(self.sets.clone(), self.access.subscribe(), base_dir);
        refresher.limits = LIMITS;
        tokio::spawn(refresher.run(self.stop.subscribe()));
    }

    fn identify(&self, token: &str) -> Result<(), Rejected> {
        let access = Arc::clone(&self.access.borrow());
        let identified = access.identify_with(token, at(0), &self.sets.published());
        identified.map(|_| ())
    }

    /// Returns the numbers of successful and failed fetches.
    fn counts(&self) -> (u64, u64) {
        let counts = self.sets.counts();
        let fetches = &counts["https://idp.example"];
        (fetches.succeeded, fetches.failed)
    }

    async fn until(&self, is_so: impl Fn((u64, u64)) -> bool) {
        while self.sets.counts().is_empty() || !is_so(self.counts()) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Fetches once and returns the error, if any.
    fn fetch_error(&self) -> Option<String> {
        let access = Arc::clone(&self.access.borrow());
        let source = access.key_sources().next().unwrap();
        let fetched = fetch(source, self.folder.path(), LIMITS);
        fetched.err().map(|error| echo_core::error::chain(&error))
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_at_startup_and_refreshed() {
    let lab = Lab::new("");
    let (first, second) = (token(key(1), "first"), token(key(2), "second"));
    assert_eq!(lab.identify(&first), Err(Rejected::NoKeys));
    lab.start_refresher();
    lab.until(|counts| counts == (1, 0)).await;
    assert_eq!(lab.identify(&first), Ok(()));
    assert_eq!(lab.identify(&second), Err(Rejected::UnknownKey));
    lab.issuer.publish(&key_set(&[(key(2), "second")]));
    advance(REFRESH).await;
    lab.until(|counts| counts == (2, 0)).await;
    assert_eq!(lab.identify(&second), Ok(()));
    assert_eq!(lab.identify(&first), Err(Rejected::UnknownKey));
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_unavailable_at_startup_is_retried_each_minute() {
    let lab = Lab::new("");
    lab.issuer.answer(Answer::Text("503 Away", String::new()));
    lab.start_refresher();
    lab.until(|counts| counts == (0, 2)).await;
    assert_eq!(lab.identify(&token(key(1), "first")), Err(Rejected::NoKeys));
    lab.issuer.publish(&key_set(&[(key(1), "first")]));
    lab.until(|counts| counts.0 == 1).await;
    assert_eq!(lab.identify(&token(key(1), "first")), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_is_rejected_at_once_and_fetched_at_most_once_a_minute() {
    let lab = Lab::new("");
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(at(0)));
    let auth = Authenticator::new(Some(lab.access.subscribe()), Arc::clone(&clock));
    let middleware = Middleware {
        auth: auth.with_jwks(lab.sets.clone()),
        ..Middleware::without_auth(clock)
    };
    let service = middleware.wrap(Router::new().route("/", get(|| async {})));
    let status_of = async |token: &str| {
        let request = Request::get("/")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {token}"))
            .body(Body::empty())
            .unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        response.status().as_u16()
    };
    lab.start_refresher();
    lab.until(|counts| counts == (1, 0)).await;
    let both = [(key(1), "first"), (key(2), "second")];
    lab.issuer.publish(&key_set(&both));
    let second = token(key(2), "second");
    assert_eq!(status_of(&second).await, 401);
    lab.until(|counts| counts == (2, 0)).await;
    assert_eq!(status_of(&second).await, 200);
    // Invented keys do not cause more fetches.
    for _ in 0..55 {
        assert_eq!(status_of(&token(key(3), "third")).await, 401);
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(lab.issuer.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn keys_stay_valid_for_a_day_without_the_issuer() {
    let lab = Lab::new("");
    let first = token(key(1), "first");
    lab.start_refresher();
    lab.until(|counts| counts == (1, 0)).await;
    lab.issuer
        .answer(Answer::Text("200 OK", "no keys".to_owned()));
    advance(Duration::from_hours(23)).await;
    lab.until(|counts| counts == (1, 1)).await;
    assert_eq!(lab.identify(&first), Ok(()));
    advance(Duration::from_hours(1)).await;
    lab.until(|counts| counts == (1, 2)).await;
    assert_eq!(lab.identify(&first), Err(Rejected::NoKeys));
    lab.issuer.publish(&key_set(&[(key(1), "first")]));
    lab.until(|counts| counts.0 == 2).await;
    assert_eq!(lab.identify(&first), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_issuer_removed_from_the_file_is_dropped() {
    let lab = Lab::new("");
    lab.start_refresher();
    lab.until(|counts| counts == (1, 0)).await;
    let without = "tokens:\n  - { id: x, sha256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, query: { clusters: ['*'] } }";
    let without = Access::parse(without, &|_| Err(std::io::ErrorKind::NotFound.into()));
    let before = lab.access.send_replace(Arc::new(without.unwrap()));
    while !lab.sets.counts().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let first = token(key(1), "first");
    let error = before.identify_with(&first, at(0), &lab.sets.published());
    assert_eq!(error, Err(Rejected::NoKeys));
}

#[test]
fn an_invalid_response_is_reported_in_one_line() {
    let lab = Lab::new("");
    assert_eq!(lab.fetch_error(), None);
    let elsewhere = format!("302 Found\r\nlocation: https://{}/keys", lab.issuer.address);
    let elsewhere: &'static str = elsewhere.leak();
    let secret = json!({ "keys": [{ "kty": "oct", "alg": "HS256", "kid": "a", "k": "c2VjcmV0" }] });
    let many = json!({ "keys": vec![jwk(key(1), "a"); 101] });
    let text = |text: &str| Answer::Text("200 OK", text.to_owned());
    for (answer, part) in [
        (
            Answer::Text("500 Broken", String::new()),
            "unexpected status 500",
        ),
        (
            Answer::Text(elsewhere, String::new()),
            "unexpected status 302",
        ),
        (text(""), "is not a JSON Web Key Set"),
        (text("<html>"), "is not a JSON Web Key Set"),
        (text("{\"keys\":[]}"), "has no supported signature key"),
        (text(&secret.to_string()), "has no supported signature key"),
        (
            text(&many.to_string()),
            "has 101 keys, more than the limit of 100",
        ),
        (text(&" ".repeat(64 * 1024 + 1)), "limit"),
        (Answer::Endless, "limit"),
        (Answer::Silent, "timeout"),
    ] {
        lab.issuer.answer(answer.clone());
        let error = lab.fetch_error().unwrap();
        assert!(error.contains(part), "{answer:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn the_issuer_is_verified_and_its_files_are_read_each_time() {
    let lab = Lab::new("    jwks_token: token\n");
    assert_eq!(lab.fetch_error(), None);
    std::fs::write(lab.folder.path().join("token"), "two").unwrap();
    assert_eq!(lab.fetch_error(), None);
    let requests = lab.issuer.requests();
    assert!(
        requests[0].contains("authorization: Bearer one\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[1].contains("authorization: Bearer two\r\n"),
        "{requests:?}"
    );
    let other_issuer = Issuer::with("");
    std::fs::write(lab.folder.path().join("ca.pem"), &other_issuer.authority).unwrap();
    let error = lab.fetch_error().unwrap();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(
        lab.issuer.requests().len(),
        2,
        "the token was not sent to it"
    );
    std::fs::write(lab.folder.path().join("ca.pem"), "").unwrap();
    let error = lab.fetch_error().unwrap();
    assert!(error.contains("ca.pem contains no certificate"), "{error}");
    std::fs::write(lab.folder.path().join("ca.pem"), &lab.issuer.authority).unwrap();
    std::fs::remove_file(lab.folder.path().join("token")).unwrap();
    let error = lab.fetch_error().unwrap();
    assert!(error.contains("cannot read"), "{error}");
}
