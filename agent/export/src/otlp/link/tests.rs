use std::fs;

use rcgen::{CertificateParams, KeyPair};

use super::*;

fn security(change: impl FnOnce(&mut Security)) -> Security {
    let mut security = Security::default();
    change(&mut security);
    security
}

fn refusal(endpoint: &str, security: &Security) -> String {
    let error = Link::new(endpoint, security).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// Directory with a certificate, its key, another key, a token, and an unrelated file.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["echo".to_owned()]).unwrap();
    let cert = params.self_signed(&key).unwrap();
    for (name, content) in [
        ("cert.pem", cert.pem()),
        ("key.pem", key.serialize_pem()),
        ("other.pem", KeyPair::generate().unwrap().serialize_pem()),
        ("token", "secret".to_owned()),
        ("notes", "buy bread".to_owned()),
    ] {
        fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

#[test]
fn an_endpoint_needs_a_host_and_one_of_two_schemes() {
    let none = Security::default();
    for good in ["localhost:4317", "http://[::1]:4317", "http://echo"] {
        assert!(Link::new(good, &none).is_ok(), "{good}");
    }
    for bad in ["not an address", "ftp://echo:4317", "http://"] {
        let message = refusal(bad, &none);
        assert!(message.contains("https://HOST:4317"), "{message}");
    }
}

#[tokio::test]
async fn tls_accepts_a_ca_an_identity_and_a_server_name() {
    let dir = files();
    let path = |name| dir.path().join(name);
    let all = security(|security| {
        security.ca = Some(path("cert.pem"));
        security.identity = Some((path("cert.pem"), path("key.pem")));
        security.server_name = Some("echo".to_owned());
        security.token_file = Some(path("token"));
    });
    let link = Link::new("https://10.0.0.1:4317", &all).unwrap();
    let mut headers = MetadataMap::new();
    link.authorize(&mut headers);
    assert_eq!(headers.get("authorization").unwrap(), "Bearer secret");
}

#[test]
fn unusable_files_are_named_with_their_flag() {
    let dir = files();
    let path = |name| dir.path().join(name);
    for (broken, expected) in [
        (security(|s| s.ca = Some(path("none"))), "--tls-ca"),
        (security(|s| s.ca = Some(path("notes"))), "no certificate"),
        (security(|s| s.ca = Some(path("key.pem"))), "no certificate"),
        (
            security(|s| s.identity = Some((path("cert.pem"), path("notes")))),
            "--tls-key",
        ),
        (
            security(|s| s.identity = Some((path("cert.pem"), path("other.pem")))),
            "cannot configure TLS",
        ),
        (
            security(|s| {
                s.ca = Some(path("cert.pem"));
                s.server_name = Some("not a name".to_owned());
            }),
            "--tls-server-name",
        ),
        (
            security(|s| {
                s.ca = Some(path("cert.pem"));
                s.token_file = Some(path("none"));
            }),
            "--token-file",
        ),
    ] {
        // Without a CA file the identity would require the system's certificates.
        let broken = Security {
            ca: broken.ca.clone().or_else(|| Some(path("cert.pem"))),
            ..broken
        };
        let error = refusal("https://echo:4317", &broken);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn tls_flags_without_tls_are_refused_rather_than_ignored() {
    let named = security(|security| security.server_name = Some("echo".to_owned()));
    let error = refusal("http://echo:4317", &named);
    assert!(
        error.starts_with("--tls-server-name requires TLS"),
        "{error}"
    );
}

#[test]
fn a_token_is_sent_without_encryption_only_if_allowed() {
    let dir = files();
    let with_token = security(|security| security.token_file = Some(dir.path().join("token")));
    for here in ["localhost:4317", "127.0.0.1:4317", "http://[::1]:4317"] {
        assert!(Link::new(here, &with_token).is_ok(), "{here}");
    }
    for away in ["echo:4317", "http://10.0.0.1:4317", "localhost.example:1"] {
        let error = refusal(away, &with_token);
        assert!(error.contains("--insecure-token"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        let allowed = Security {
            allow_plaintext_token: true,
            ..with_token.clone()
        };
        assert!(Link::new(away, &allowed).is_ok(), "{away}");
    }
}
