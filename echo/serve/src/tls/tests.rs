//! TLS handshakes with generated certificates.
#![expect(
    clippy::disallowed_methods,
    reason = "a server has to run beside its client"
)]

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::authority::Authority;
use super::{Encryption, TlsError, TlsFiles, provider};
use crate::http;
use crate::listener::{Connections, ListenConfig, Listener};
use echo_ingest::memory_account::ClientCertificate;

fn files(folder: &Path, (cert, key): &(String, String), client_ca: Option<&str>) -> TlsFiles {
    let path = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        cert: path("cert.pem", cert),
        key: path("key.pem", key),
        client_ca: client_ca.map(|text| path("ca.pem", text)),
    }
}

/// A listener that responds with the names in the client certificate.
struct Server {
    port: u16,
    seen: Connections,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(encryption: Encryption) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Connections::default();
        let listener = Listener::new(listener, ListenConfig::default(), seen.clone());
        let names = |certificate: Option<Extension<ClientCertificate>>| async move {
            certificate.map_or_else(
                || "no certificate".to_owned(),
                |Extension(certificate)| certificate.0.join(","),
            )
        };
        let router = Router::new().route("/", get(names));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(http::serve(listener, router, encryption, async {
            stopped.await.unwrap_or(());
        }));
        Self {
            port,
            seen,
            stop,
            task,
        }
    }

    /// Returns the body of an HTTP/1.1 response, or the error.
    async fn get_body(&self, client: Arc<ClientConfig>) -> Result<String, std::io::Error> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("echo.test").unwrap();
        let mut stream = TlsConnector::from(client).connect(name, stream).await?;
        let request = b"GET / HTTP/1.1\r\nHost: echo.test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        Ok(body.to_owned())
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// Builds a client that trusts an authority, with a certificate if it has one.
fn client(trusted: &Authority, certificate: Option<&(String, String)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match certificate {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    })
}

#[tokio::test]
async fn a_replaced_certificate_is_used_for_the_next_connection() {
    let (before, after) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let load = |authority: &Authority| {
        let own = authority.certify(&["echo.test"]);
        Arc::new(files(folder.path(), &own, None).load().unwrap())
    };
    let (replace, identity) = watch::channel(load(&before));
    let server = Server::start(Encryption::Api(identity)).await;
    assert_eq!(
        server.get_body(client(&before, None)).await.unwrap(),
        "no certificate"
    );
    replace.send_replace(load(&after));
    assert!(server.get_body(client(&before, None)).await.is_err());
    assert_eq!(
        server.get_body(client(&after, None)).await.unwrap(),
        "no certificate"
    );
    assert_eq!(server.seen.failed_handshakes(), 1);
    server.stop().await;
}

#[tokio::test]
async fn agents_must_present_a_certificate_of_the_client_ca() {
    let (own, of_agents, other) = (Authority::new(), Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let files = files(
        folder.path(),
        &own.certify(&["echo.test"]),
        Some(&of_agents.pem()),
    );
    let (_keep, identity) = watch::channel(Arc::new(files.load().unwrap()));
    let server = Server::start(Encryption::Otlp(identity.clone())).await;
    let known = of_agents.certify(&["gpu-17", "gpu-17.example"]);
    let body = server.get_body(client(&own, Some(&known))).await;
    assert_eq!(body.unwrap(), "gpu-17,gpu-17.example");
    let foreign = other.certify(&["gpu-17"]);
    assert!(server.get_body(client(&own, Some(&foreign))).await.is_err());
    assert!(server.get_body(client(&own, None)).await.is_err());
    server.stop().await;
    let server = Server::start(Encryption::Api(identity)).await;
    assert_eq!(
        server.get_body(client(&own, None)).await.unwrap(),
        "no certificate"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_handshake_times_out() {
    let own = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), &own.certify(&["echo.test"]), None);
    let (_keep, identity) = watch::channel(Arc::new(files.load().unwrap()));
    let server = Server::start(Encryption::Api(identity)).await;
    let mut silent = TcpStream::connect(("127.0.0.1", server.port))
        .await
        .unwrap();
    silent.write_all(&[0x16, 0x03]).await.unwrap();
    assert_eq!(silent.read(&mut [0; 8]).await.unwrap(), 0, "it is closed");
    assert_eq!(server.seen.failed_handshakes(), 1);
    assert_eq!(server.seen.open(), 0);
    server.stop().await;
}

#[test]
fn errors_of_tls_files_name_the_file_and_the_cause() {
    let own = Authority::new();
    let (good, other) = (own.certify(&["echo.test"]), own.certify(&["echo.test"]));
    let loaded = |own: (&str, &str), ca: Option<&str>| -> String {
        let folder = tempfile::tempdir().unwrap();
        let own = (own.0.to_owned(), own.1.to_owned());
        let error: TlsError = files(folder.path(), &own, ca).load().unwrap_err();
        echo_core::error::chain(&error)
    };
    for (message, parts) in [
        (
            loaded(("", &good.1), None),
            ["cert.pem", "no CERTIFICATE block"],
        ),
        (
            loaded(("garbage", &good.1), None),
            ["cert.pem", "no CERTIFICATE block"],
        ),
        (loaded((&good.0, ""), None), ["key.pem", "no private key"]),
        (
            loaded((&good.0, &other.1), None),
            ["key.pem", "cannot be used"],
        ),
        (
            loaded((&good.0, &good.1), Some("")),
            ["ca.pem", "no CERTIFICATE block"],
        ),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn a_certificate_matches_its_names_and_a_wildcard_one_label() {
    let own = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let files = files(
        folder.path(),
        &own.certify(&["echo.test", "*.fleet.test"]),
        None,
    );
    let identity = files.load().unwrap();
    let certificate = identity.certificate();
    for (host, is_named) in [
        ("echo.test", true),
        ("ECHO.test", true),
        ("a.fleet.test", true),
        ("a.b.fleet.test", false),
        ("fleet.test", false),
        ("test", false),
    ] {
        assert_eq!(certificate.is_for(host), is_named, "{host}");
    }
    assert!(certificate.not_after_s() > 1_700_000_000);
}
