//! Delivery over TLS, with certificates created by the tests, and with tokens.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fleet_agent_export::otlp::{Link, Otlp, Security};
use fleet_agent_export::sender::{Sender, Settings};
use fleet_agent_export::{Ack, ExportError, Forward};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::collector::{Collector, listen};
use crate::spool::{batch, until};

/// A CA, a collector with its certificate for `echo.test`, and an agent.
struct TestPki {
    dir: TempDir,
    server: Identity,
    ca: String,
}

impl TestPki {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let issue = |name: &str, usage| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            let cert = params.signed_by(&key, &issuer).unwrap();
            (cert.pem(), key.serialize_pem())
        };
        let server = issue("echo.test", ExtendedKeyUsagePurpose::ServerAuth);
        let agent = issue("agent.test", ExtendedKeyUsagePurpose::ClientAuth);
        for (name, content) in [
            ("ca.pem", ca.as_str()),
            ("agent.pem", &agent.0),
            ("agent.key", &agent.1),
            ("token", "first"),
        ] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        Self {
            dir,
            server: Identity::from_pem(server.0, server.1),
            ca,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns valid settings of an agent.
    fn security(&self) -> Security {
        Security {
            ca: Some(self.path("ca.pem")),
            identity: Some((self.path("agent.pem"), self.path("agent.key"))),
            server_name: Some("echo.test".to_owned()),
            token_file: Some(self.path("token")),
            allow_plaintext_token: false,
        }
    }

    /// Runs `client` against a collector that requires client certificates.
    async fn serve<T>(&self, collector: &Collector, client: impl AsyncFnOnce(String) -> T) -> T {
        let tls = ServerTlsConfig::new()
            .identity(self.server.clone())
            .client_ca_root(Certificate::from_pem(&self.ca));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("https://{}", listener.local_addr().unwrap());
        tokio::select! {
            () = Box::pin(listen(collector, Some(tls), listener)) => unreachable!("the server never ends"),
            done = Box::pin(client(endpoint)) => done,
        }
    }
}

fn requiring(token: &str) -> Collector {
    Collector {
        token: Some(Arc::new(Mutex::new(token.to_owned()))),
        ..Collector::default()
    }
}

async fn send(endpoint: &str, security: &Security) -> Result<Ack, ExportError> {
    let link = Link::new(endpoint, security).unwrap();
    let otlp = Otlp::with_link(&link, 1, &Arc::default());
    otlp.forward(&otlp.encode(&batch(1))).await
}

#[tokio::test]
async fn mutual_tls_with_a_token_delivers() {
    let (world, collector) = (TestPki::new(), requiring("first"));
    let sent = async |endpoint: String| send(&endpoint, &world.security()).await;
    world.serve(&collector, sent).await.unwrap();
    assert_eq!(collector.stored.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_untrusted_collector_gets_nothing_and_the_error_has_the_cause() {
    let (world, collector) = (TestPki::new(), Collector::default());
    let other = TestPki::new();
    for (wrong, expected) in [
        (
            Security {
                ca: Some(other.path("ca.pem")),
                ..world.security()
            },
            "invalid peer certificate",
        ),
        (
            Security {
                server_name: Some("elsewhere.test".to_owned()),
                ..world.security()
            },
            "not valid for name",
        ),
    ] {
        let sent = async |endpoint: String| send(&endpoint, &wrong).await;
        let error = world.serve(&collector, sent).await.unwrap_err();
        assert!(matches!(error, ExportError::Later { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(collector.stored.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_agent_without_a_certificate_keeps_its_batches() {
    let (world, collector) = (TestPki::new(), Collector::default());
    let unknown = Security {
        identity: None,
        ..world.security()
    };
    let sent = async |endpoint: String| send(&endpoint, &unknown).await;
    let error = world.serve(&collector, sent).await.unwrap_err();
    assert!(matches!(error, ExportError::Later { .. }), "{error}");
    assert!(collector.stored.lock().unwrap().is_empty());
}

#[tokio::test]
async fn plaintext_to_a_collector_with_tls_is_retried() {
    let (world, collector) = (TestPki::new(), Collector::default());
    let sent = async |endpoint: String| {
        let plain = endpoint.replace("https", "http");
        send(&plain, &Security::default()).await
    };
    let error = world.serve(&collector, sent).await.unwrap_err();
    assert!(matches!(error, ExportError::Later { .. }), "{error}");
}

#[tokio::test]
async fn an_agent_with_tls_sends_nothing_to_a_plaintext_server() {
    let world = TestPki::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let answer = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut received = vec![0; 64 * 1024];
        let length = peer.read(&mut received).await.unwrap();
        received.truncate(length);
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        // An alert and the end of the stream, if anything.
        drop(peer.read_to_end(&mut received).await);
        received
    };
    let security = world.security();
    let (received, sent) = tokio::join!(answer, send(&endpoint, &security));
    assert!(matches!(sent, Err(ExportError::Later { .. })), "{sent:?}");
    assert_eq!(received[0], 0x16, "a handshake and nothing else");
    assert!(
        !received.windows(5).any(|part| part == b"first"),
        "the token"
    );
}

/// Responds to the first call over HTTP/2 with a redirect, as a compromised proxy would.
async fn redirect(listener: &TcpListener, to: &str) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const SETTINGS_ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];
    let (mut peer, _) = listener.accept().await.unwrap();
    // `:status` and `location` by their indices in the static table of HPACK.
    let mut headers = b"\x08\x03307\x0f\x1f".to_vec();
    headers.push(u8::try_from(to.len()).unwrap());
    headers.extend_from_slice(to.as_bytes());
    let length = u8::try_from(headers.len()).unwrap();
    // End of the headers and of the stream.
    let frame = [0, 0, length, 1, 5, 0, 0, 0, 1];
    peer.write_all(&[&SETTINGS[..], &SETTINGS_ACK].concat())
        .await
        .unwrap();
    let mut preface = [0; 24];
    peer.read_exact(&mut preface).await.unwrap();
    // Skip frames before the headers of the call, which have type 1.
    loop {
        let mut header = [0; 9];
        peer.read_exact(&mut header).await.unwrap();
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        peer.read_exact(&mut payload).await.unwrap();
        if header[3] == 1 {
            break;
        }
    }
    peer.write_all(&[&frame[..], &headers].concat())
        .await
        .unwrap();
    drop(peer.read_to_end(&mut Vec::new()).await);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_batch_is_kept() {
    let world = TestPki::new();
    let [here, elsewhere] = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let to = format!("http://{}/", elsewhere.local_addr().unwrap());
    let endpoint = format!("http://{}", here.local_addr().unwrap());
    let security = Security {
        token_file: Some(world.path("token")),
        allow_plaintext_token: true,
        ..Security::default()
    };
    let sent = tokio::select! {
        sent = send(&endpoint, &security) => sent,
        () = redirect(&here, &to) => panic!("the agent closed the connection"),
        _ = elsewhere.accept() => panic!("the agent followed the redirect"),
    };
    assert!(matches!(sent, Err(ExportError::Later { .. })), "{sent:?}");
}

#[tokio::test]
async fn a_replaced_token_is_used_without_a_restart_and_without_losses() {
    let (world, collector) = (TestPki::new(), requiring("second"));
    let report = world
        .serve(&collector, async |endpoint: String| {
            let link = Link::new(&endpoint, &world.security()).unwrap();
            let otlp = Otlp::with_link(&link, 1, &Arc::default());
            let settings = Settings {
                queue_points: 100,
                spool_after: Duration::from_mins(1),
            };
            let (mut outbox, shutdown, sender) = Sender::new(otlp, settings, None);
            let vitals = sender.vitals();
            let sending = async {
                outbox.send(batch(1)).await;
                until(|| vitals.read().retries > 0).await;
                assert!(!vitals.read().is_connected);
                fs::write(world.path("token"), "second\n").unwrap();
                until(|| vitals.read().sent.batches == 1).await;
                shutdown.stop_within(Duration::from_secs(5));
                drop(outbox);
            };
            tokio::join!(sender.run(), sending).0
        })
        .await;
    assert_eq!((report.batches_acked, report.points_dropped), (1, 0));
    assert!(report.retries > 0);
}

#[tokio::test]
async fn a_replay_and_a_simulation_are_sent_over_tls_with_a_token() {
    let (world, collector) = (TestPki::new(), requiring("first"));
    let recording = crate::collect::recording("healthy").display().to_string();
    let replay = format!("replay {recording} --speed max");
    let simulate = "simulate --nodes 1 --speed max --duration 10s";
    for command in [replay.as_str(), simulate] {
        let before = collector.stored.lock().unwrap().len();
        let output = world
            .serve(&collector, async |endpoint: String| {
                tokio::process::Command::new(env!("CARGO_BIN_EXE_fleet-agent"))
                    .args(command.split(' '))
                    .args(["--cluster", "lab", "--endpoint", &endpoint])
                    .arg("--tls-ca")
                    .arg(world.path("ca.pem"))
                    .arg("--tls-cert")
                    .arg(world.path("agent.pem"))
                    .arg("--tls-key")
                    .arg(world.path("agent.key"))
                    .args(["--tls-server-name", "echo.test", "--token-file"])
                    .arg(world.path("token"))
                    .output()
                    .await
                    .unwrap()
            })
            .await;
        assert!(output.status.success(), "{output:?}");
        assert!(
            collector.stored.lock().unwrap().len() > before,
            "{output:?}"
        );
    }
}
