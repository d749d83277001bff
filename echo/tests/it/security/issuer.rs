//! A token issuer that signs tokens and publishes its keys.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::site::{Site, metrics};
use crate::testbed::wait_for;

/// Private key of RFC 8037, appendix A, in PKCS #8.
const PRIVATE: [u8; 48] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20\
\x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4\
\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b\xac\x03\x1c\xae\x7f\x60";

/// Public key of RFC 8037, appendix A.
const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn token() -> String {
    signed(json!({
        "iss": "https://idp.example", "sub": "ci", "aud": "echo", "echo": { "clusters": ["lab"] },
    }))
}

/// Returns a token with these claims, valid for ten minutes.
pub(crate) fn signed(mut claims: Value) -> String {
    let now = jiff::Timestamp::now().as_second();
    claims["iat"] = now.into();
    claims["exp"] = (now + 600).into();
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some("rfc".to_owned());
    encode(&header, &claims, &EncodingKey::from_ed_der(&PRIVATE)).unwrap()
}

/// Returns the key set that verifies the signatures.
pub(crate) fn key_set() -> String {
    let keys = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "rfc", "x": PUBLIC }] });
    keys.to_string()
}

/// Serves the key set to every client.
fn publish(listener: &TcpListener) {
    let keys = key_set();
    let length = keys.len();
    for connection in listener.incoming() {
        let mut connection = connection.unwrap();
        let _head = connection.read(&mut [0; 4_096]).unwrap();
        write!(
            connection,
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{keys}"
        )
        .unwrap();
    }
}

#[test]
fn tokens_of_an_issuer_are_accepted_once_its_keys_are_fetched() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let known = std::fs::read_to_string(site.path("access.yaml")).unwrap();
    let issuer = format!(
        "issuers:\n  - {{ issuer: https://idp.example, audience: echo, jwks_url: 'http://{address}/keys' }}\n"
    );
    std::fs::write(site.path("access.yaml"), known + &issuer).unwrap();
    std::thread::spawn(move || publish(&listener));
    let echo = site.serve(&[]);
    let status = || {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--output",
                "/dev/null",
                "--write-out",
                "%{http_code}",
            ])
            .args(["--cacert", &site.text("tls/ca.pem")])
            .args(["--header", &format!("Authorization: Bearer {}", token())])
            .arg(format!("https://{}/api/v1/tools/list", echo.http))
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    wait_for("the keys to be fetched", || status() == "200");
    let grafana = std::fs::read_to_string(site.path("grafana")).unwrap();
    let metrics = metrics(&echo, &grafana);
    let line = "echo_jwks_fetches_total{issuer=\"https://idp.example\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    assert_eq!(echo.terminate(), 0);
}
