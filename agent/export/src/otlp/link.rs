//! The way to a receiver: its address, TLS, and what proves who sends.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_proto::shard::MAX_SHARDS;
use hyper_util::client::legacy::connect::HttpConnector;
use thiserror::Error;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt;

use crate::token::{Token, TokenError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection whose other end has vanished is found by asking it, half way through a request that is not answered.
const ASK_AFTER: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why there can be no connection to an endpoint.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// It is not an address.
    #[error("endpoint {0} is not an address; give it as http://HOST:4317 or https://HOST:4317")]
    Invalid(String),
    /// Flags of TLS without TLS.
    #[error("{flag} has no use with endpoint {url}; give the endpoint as https://HOST:4317")]
    NoTls {
        /// The first of the flags.
        flag: &'static str,
        /// The endpoint.
        url: String,
    },
    /// A file of certificates or a key cannot be read.
    #[error("{flag} {path} cannot be read: {source}; give a PEM file that the agent may read")]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{flag} {path} holds no {expected} in PEM form (-----BEGIN ...); give the right file")]
    NoPem {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// Certificates, key or name cannot be used.
    #[error(
        "TLS to {url} cannot be set up: {reason}; check --tls-ca, --tls-cert, --tls-key and --tls-server-name"
    )]
    Tls {
        /// The endpoint.
        url: String,
        /// Why.
        reason: String,
    },
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Everybody on the way could read the token.
    #[error(
        "the token of --token-file would go to {0} in clear text; give the endpoint as https://HOST:4317, or \
         allow it with --insecure-token"
    )]
    TokenInClear(String),
    /// It names one of several receivers, and nobody says of how many.
    #[error("endpoint {0} has {{shard}} in it; say with --shards N how many Echos there are")]
    NoShards(String),
    /// It names one receiver, and there are several.
    #[error(
        "--shards {shards} has no use with endpoint {url}; write {{shard}} where the number of the Echo goes, as in \
         https://fleet-echo-{{shard}}.example:4317"
    )]
    NoPlaceholder {
        /// How many there are.
        shards: u32,
        /// The endpoint.
        url: String,
    },
    /// So many receivers there cannot be.
    #[error("--shards {0} is no number of Echos; give one from 1 to {MAX_SHARDS}")]
    ShardCount(u32),
}

/// What a connection is secured by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Security {
    /// Certificates of the authorities that may vouch for the receiver, else those of the host's system.
    pub ca: Option<PathBuf>,
    /// Certificate of the agent and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name in the receiver's certificate, else that of the endpoint.
    pub server_name: Option<String>,
    /// The file of the bearer token.
    pub token_file: Option<PathBuf>,
    /// Whether the token may leave the host in clear text.
    pub token_in_clear: bool,
}

impl Security {
    fn first_tls_flag(&self) -> Option<&'static str> {
        let ca = self.ca.as_ref().map(|_| "--tls-ca");
        let identity = self.identity.as_ref().map(|_| "--tls-cert");
        let name = self.server_name.as_ref().map(|_| "--tls-server-name");
        ca.or(identity).or(name)
    }
}

/// Everything that is needed to connect, checked; opens any number of connections.
#[derive(Debug, Clone)]
pub struct Link {
    endpoint: Endpoint,
    token: Option<Arc<Token>>,
}

impl Link {
    /// Checks the address, and reads certificates, key and token. Without a scheme the endpoint is plain HTTP/2.
    pub fn new(endpoint: &str, security: &Security) -> Result<Self, EndpointError> {
        let url = if endpoint.contains("://") {
            endpoint.to_owned()
        } else {
            format!("http://{endpoint}")
        };
        let endpoint = Endpoint::from_shared(url.clone())
            .ok()
            .filter(|endpoint| endpoint.uri().host().is_some_and(|host| !host.is_empty()))
            .ok_or_else(|| EndpointError::Invalid(url.clone()))?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .http2_keep_alive_interval(ASK_AFTER)
            .keep_alive_timeout(ANSWER_WITHIN);
        let endpoint = match endpoint.uri().scheme_str() {
            Some("https") => secured(endpoint, &url, security)?,
            Some("http") => in_clear(endpoint, &url, security)?,
            _ => return Err(EndpointError::Invalid(url)),
        };
        let token = security
            .token_file
            .as_deref()
            .map(|path| Token::open("--token-file", path))
            .transpose()?;
        Ok(Self {
            endpoint,
            token: token.map(Arc::new),
        })
    }

    /// A connection, opened when it is needed and again whenever it is lost, which adds to `connections` each time.
    pub(super) fn connect(&self, connections: &Arc<AtomicU64>) -> Channel {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // The scheme is checked above, and TLS is put on top of what this connector opens.
        connector.enforce_http(false);
        let opened = Arc::clone(connections);
        // The connector that tonic makes itself cannot be asked how often it had to connect.
        let connector = connector.map_response(move |connection| {
            opened.fetch_add(1, Ordering::Relaxed);
            connection
        });
        self.endpoint.connect_with_connector_lazy(connector)
    }

    /// Adds what proves who sends.
    pub(super) fn authorize(&self, keys: &mut MetadataMap) {
        if let Some(token) = &self.token {
            keys.insert("authorization", token.header());
        }
    }
}

fn in_clear(endpoint: Endpoint, url: &str, security: &Security) -> Result<Endpoint, EndpointError> {
    if let Some(flag) = security.first_tls_flag() {
        let url = url.to_owned();
        return Err(EndpointError::NoTls { flag, url });
    }
    let stays_here = endpoint.uri().host().is_some_and(is_loopback);
    if security.token_file.is_some() && !security.token_in_clear && !stays_here {
        return Err(EndpointError::TokenInClear(url.to_owned()));
    }
    Ok(endpoint)
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn secured(endpoint: Endpoint, url: &str, security: &Security) -> Result<Endpoint, EndpointError> {
    let mut tls = ClientTlsConfig::new();
    tls = match &security.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(pem(path, "--tls-ca", CERT)?)),
        None => tls.with_native_roots(),
    };
    if let Some((cert, key)) = &security.identity {
        let cert = pem(cert, "--tls-cert", CERT)?;
        tls = tls.identity(Identity::from_pem(cert, pem(key, "--tls-key", KEY)?));
    }
    if let Some(name) = &security.server_name {
        tls = tls.domain_name(name);
    }
    endpoint
        .tls_config(tls)
        .map_err(|error| EndpointError::Tls {
            url: url.to_owned(),
            reason: first_cause(&error),
        })
}

/// What a PEM file should hold: the end of its first line, and the word for it.
type Expected = (&'static str, &'static str);
const CERT: Expected = ("CERTIFICATE-----", "certificate");
const KEY: Expected = ("PRIVATE KEY-----", "private key");

// A file without certificates would otherwise be found out by the first handshake only.
fn pem(
    path: &Path,
    flag: &'static str,
    (label, expected): Expected,
) -> Result<Vec<u8>, EndpointError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| EndpointError::File {
        flag,
        path: name.clone(),
        source,
    })?;
    let holds = String::from_utf8_lossy(&bytes)
        .lines()
        .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(label));
    holds.then_some(bytes).ok_or(EndpointError::NoPem {
        flag,
        path: name,
        expected,
    })
}

fn first_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
