//! Production-like instance of Echo: with TLS and tokens.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use crate::process::Process;

/// Running instance with a certificate and the tokens of an agent and of a reader.
#[derive(Debug)]
pub(super) struct Site {
    /// The process.
    pub(super) process: Process,
    /// Address for OTLP over gRPC.
    pub(super) otlp: String,
    /// Address for OTLP over HTTP.
    pub(super) otlp_http: String,
    /// Address of API, MCP and metrics.
    pub(super) http: String,
    /// Token of the agents (OTLP).
    pub(super) agent_token: String,
    /// Token of a reader (API).
    pub(super) reader_token: String,
    trusted: Arc<ClientConfig>,
    _folder: TempDir,
}

impl Site {
    /// Creates certificate and tokens, and starts Echo on an empty database.
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        run(program, &["dev-cert", "--dir", &path("tls")])?;
        let (agent_token, agent) = token(program, &["--id", "agents", "--write"])?;
        let (reader_token, reader) = token(program, &["--id", "reader"])?;
        std::fs::write(path("access.yaml"), format!("tokens:\n{agent}{reader}"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--log", "error", "--db", &path("echo.duckdb")]);
        command.args(["--tls-cert", &path("tls/cert.pem")]);
        command.args(["--tls-key", &path("tls/key.pem")]);
        command.args(["--access", &path("access.yaml")]);
        for listener in ["--otlp-listen", "--otlp-http-listen", "--http-listen"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        let (process, ready) = Process::start_ready(command.stderr(Stdio::inherit()))?;
        let word = |name: &str| {
            let mut words = ready.split_whitespace();
            let value = words.find_map(|word| word.strip_prefix(name));
            let value = value.with_context(|| format!("no {name} in {ready:?}"));
            value.map(str::to_owned)
        };
        Ok(Self {
            process,
            otlp: word("otlp=")?,
            otlp_http: word("otlp-http=")?,
            http: word("http=")?,
            agent_token,
            reader_token,
            trusted: trusted(&std::fs::read(path("tls/ca.pem"))?)?,
            _folder: folder,
        })
    }

    /// Returns a connector for HTTP/2.
    pub(super) fn http2(&self) -> TlsConnector {
        self.connector(b"h2")
    }

    /// Returns a connector for HTTP/1.1.
    pub(super) fn http1(&self) -> TlsConnector {
        self.connector(b"http/1.1")
    }

    fn connector(&self, protocol: &[u8]) -> TlsConnector {
        let mut config = ClientConfig::clone(&self.trusted);
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config).into()
    }
}

fn trusted(authority: &[u8]) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Creates a token; returns it and its entry for the access file.
fn token(program: &Path, flags: &[&str]) -> anyhow::Result<(String, String)> {
    let printed = run(program, &[&["token", "new"], flags].concat())?;
    let (token, entry) = printed.split_once('\n').context("no token was printed")?;
    Ok((token.to_owned(), entry.to_owned()))
}

fn run(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
