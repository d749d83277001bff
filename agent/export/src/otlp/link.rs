//! Connection settings of a receiver: endpoint, TLS, and credentials.

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
/// HTTP/2 keepalive: a dead connection is detected halfway through a request that gets no response.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Error of the connection settings.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The endpoint is not a valid address.
    #[error("endpoint {0} is not a valid address; use http://HOST:4317 or https://HOST:4317")]
    Invalid(String),
    /// TLS flags with an endpoint without TLS.
    #[error("{flag} requires TLS, but the endpoint is {url}; use https://HOST:4317")]
    NoTls {
        /// First of the TLS flags.
        flag: &'static str,
        /// The endpoint.
        url: String,
    },
    /// A certificate or key file cannot be read.
    #[error("{flag}: cannot read {path}: {source}; use a PEM file that the agent can read")]
    File {
        /// Flag of the file.
        flag: &'static str,
        /// The file.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A file does not hold the expected PEM block.
    #[error("{flag}: {path} contains no {expected} in PEM format (-----BEGIN ...)")]
    NoPem {
        /// Flag of the file.
        flag: &'static str,
        /// The file.
        path: String,
        /// Expected content.
        expected: &'static str,
    },
    /// Certificates, key or server name cannot be used.
    #[error(
        "cannot configure TLS for {url}: {reason}; check --tls-ca, --tls-cert, --tls-key and --tls-server-name"
    )]
    Tls {
        /// Error of the TLS library.
        url: String,
        /// Reason.
        reason: String,
    },
    /// The host has no CA certificates, and none were given.
    #[error(
        "cannot verify the certificate of {0}: this host has no CA certificates; install the package ca-certificates, \
         or give the certificate of the authority with --tls-ca FILE"
    )]
    NoAuthorities(String),
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token would be sent without encryption.
    #[error(
        "the token of --token-file would be sent to {0} without encryption; use https://HOST:4317, or \
         allow it with --insecure-token"
    )]
    PlaintextToken(String),
    /// The endpoint has a {shard} placeholder, but --shards is missing.
    #[error("endpoint {0} contains {{shard}}; set the number of shards with --shards N")]
    NoShards(String),
    /// --shards is given, but the endpoint has no placeholder.
    #[error(
        "--shards {shards} requires {{shard}} in the endpoint, but it is {url}; put {{shard}} where the shard's number goes, as in \
         https://fleet-echo-{{shard}}.example:4317"
    )]
    NoPlaceholder {
        /// Number of shards.
        shards: u32,
        /// The endpoint.
        url: String,
    },
    /// Invalid number of shards.
    #[error("--shards {0} is out of range; use a number from 1 to {MAX_SHARDS}")]
    ShardCount(u32),
}

/// Security settings of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Security {
    /// CA certificates for the receiver, else those of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate of the agent and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Server name in the receiver's certificate, else that of the endpoint.
    pub server_name: Option<String>,
    /// File of the bearer token.
    pub token_file: Option<PathBuf>,
    /// Allows the token to be sent to other hosts without encryption.
    pub allow_plaintext_token: bool,
}

impl Security {
    fn first_tls_flag(&self) -> Option<&'static str> {
        let ca = self.ca.as_ref().map(|_| "--tls-ca");
        let identity = self.identity.as_ref().map(|_| "--tls-cert");
        let name = self.server_name.as_ref().map(|_| "--tls-server-name");
        ca.or(identity).or(name)
    }
}

/// Validated connection settings; opens any number of connections.
#[derive(Debug, Clone)]
pub struct Link {
    endpoint: Endpoint,
    token: Option<Arc<Token>>,
}

impl Link {
    /// Checks the endpoint, and reads certificates, key and token. Without a scheme the endpoint is
    /// plain HTTP/2.
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
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT);
        let endpoint = match endpoint.uri().scheme_str() {
            Some("https") => tls_endpoint(endpoint, &url, security)?,
            Some("http") => plain_endpoint(endpoint, &url, security)?,
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

    /// Returns a connection that is opened on first use and reopened when it is lost; each time is
    /// added to `connections`.
    pub(super) fn connect(&self, connections: &Arc<AtomicU64>) -> Channel {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // The scheme is checked above, and TLS is added on top of this connector's connections.
        connector.enforce_http(false);
        let opened = Arc::clone(connections);
        // tonic's own connector does not report how often it connected.
        let connector = connector.map_response(move |connection| {
            opened.fetch_add(1, Ordering::Relaxed);
            connection
        });
        self.endpoint.connect_with_connector_lazy(connector)
    }

    /// Adds the token to the metadata of a request.
    pub(super) fn authorize(&self, headers: &mut MetadataMap) {
        if let Some(token) = &self.token {
            headers.insert("authorization", token.header());
        }
    }
}

fn plain_endpoint(
    endpoint: Endpoint,
    url: &str,
    security: &Security,
) -> Result<Endpoint, EndpointError> {
    if let Some(flag) = security.first_tls_flag() {
        let url = url.to_owned();
        return Err(EndpointError::NoTls { flag, url });
    }
    let is_local = endpoint.uri().host().is_some_and(is_loopback);
    if security.token_file.is_some() && !security.allow_plaintext_token && !is_local {
        return Err(EndpointError::PlaintextToken(url.to_owned()));
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

fn tls_endpoint(
    endpoint: Endpoint,
    url: &str,
    security: &Security,
) -> Result<Endpoint, EndpointError> {
    let mut tls = ClientTlsConfig::new();
    tls = match &security.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read_pem(path, "--tls-ca", CERT)?)),
        None => tls.with_native_roots(),
    };
    if let Some((cert, key)) = &security.identity {
        let cert = read_pem(cert, "--tls-cert", CERT)?;
        tls = tls.identity(Identity::from_pem(cert, read_pem(key, "--tls-key", KEY)?));
    }
    if let Some(name) = &security.server_name {
        tls = tls.domain_name(name);
    }
    let uses_system = security.ca.is_none();
    endpoint.tls_config(tls).map_err(|error| {
        let (url, reason) = (url.to_owned(), root_cause(&error));
        // tonic has no type for it.
        if uses_system && reason.contains("no native certs found") {
            EndpointError::NoAuthorities(url)
        } else {
            EndpointError::Tls { url, reason }
        }
    })
}

/// Content of a PEM file: the end of its first line, and its name.
#[derive(Clone, Copy)]
struct PemKind {
    end_of_first_line: &'static str,
    name: &'static str,
}

const CERT: PemKind = PemKind {
    end_of_first_line: "CERTIFICATE-----",
    name: "certificate",
};
const KEY: PemKind = PemKind {
    end_of_first_line: "PRIVATE KEY-----",
    name: "private key",
};

// Without this check a file without certificates would only fail in the first handshake.
fn read_pem(path: &Path, flag: &'static str, kind: PemKind) -> Result<Vec<u8>, EndpointError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| EndpointError::File {
        flag,
        path: name.clone(),
        source,
    })?;
    let holds = String::from_utf8_lossy(&bytes).lines().any(|line| {
        line.starts_with("-----BEGIN ") && line.trim_end().ends_with(kind.end_of_first_line)
    });
    holds.then_some(bytes).ok_or(EndpointError::NoPem {
        flag,
        path: name,
        expected: kind.name,
    })
}

fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
