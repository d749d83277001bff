//! Connection flags: address, shard, timeout, TLS and token.

use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use echo_access::published::is_insecure_url;
use echo_http_client::{FileError, authorities, config, is_printable};
use fleet_proto::shard::{self, MAX_SHARDS, PLACEHOLDER};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use ureq::Agent;

use crate::cli::CliError;

/// Default address of the API listener.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// Maximum time to connect; a longer wait does not help.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connection to a running instance.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Context of `fleet-echo context` to use instead of the current one
    #[arg(
        help_heading = "Connection",
        long,
        value_name = "NAME",
        env = "FLEET_ECHO_CONTEXT"
    )]
    pub context: Option<String>,
    /// Server address
    #[arg(help_heading = "Connection", long, value_name = "URL", env = "FLEET_ECHO_SERVER", default_value = DEFAULT_SERVER)]
    pub server: String,
    /// Number of shards: {shard} in --server is replaced by the shard number of --cluster
    #[arg(
        help_heading = "Connection",
        long,
        value_name = "N",
        env = "FLEET_ECHO_SHARDS"
    )]
    pub shards: Option<u32>,
    /// Request timeout; should exceed the --query-deadline of the server
    #[arg(help_heading = "Connection", long, value_name = "LENGTH", env = "FLEET_ECHO_TIMEOUT", default_value = "60s", value_parser = parse_timeout)]
    pub timeout: Duration,
    /// CA certificates to verify the server, in PEM [default: those of the system]
    #[arg(
        help_heading = "Connection",
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_TLS_CA"
    )]
    pub tls_ca: Option<PathBuf>,
    /// Bearer token; prefer the environment variable, since other users can see command lines
    #[arg(
        help_heading = "Connection",
        long,
        value_name = "TOKEN",
        env = "FLEET_ECHO_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub token: Option<String>,
    /// File with the bearer token
    #[arg(
        help_heading = "Connection",
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_TOKEN_FILE"
    )]
    pub token_file: Option<PathBuf>,
    /// Send the token to another host in plain text
    #[arg(help_heading = "Connection", long, env = "FLEET_ECHO_INSECURE_TOKEN")]
    pub insecure_token: bool,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    /// Upper bound of the flag.
    const MAX_TIMEOUT: Duration = Duration::from_hours(24);
    let timeout = text.parse::<jiff::SignedDuration>().ok();
    let timeout = timeout.and_then(|timeout| Duration::try_from(timeout).ok());
    timeout
        .filter(|timeout| !timeout.is_zero() && *timeout <= MAX_TIMEOUT)
        .ok_or_else(|| "expected a duration above 0s and up to 24h, such as 90s".to_owned())
}

impl ConnectionArgs {
    /// Returns the connection to the shard of this cluster; unchanged if the address names one
    /// instance.
    pub(super) fn for_cluster(&self, cluster: Option<&str>) -> Result<Self, CliError> {
        let server = &self.server;
        if !server.contains(PLACEHOLDER) {
            return Ok(self.clone());
        }
        let wrong = |what: &str| CliError::Usage(format!("--server {server} {what}"));
        let shards = self.shards.filter(|shards| *shards <= MAX_SHARDS);
        let count = shards.and_then(NonZeroU32::new);
        let (count, cluster) = match (self.shards, count, cluster) {
            (None, ..) => {
                return Err(wrong("needs --shards N to select a shard"));
            }
            (_, None, _) => return Err(wrong(&format!("needs --shards from 1 to {MAX_SHARDS}"))),
            (_, _, None) => {
                return Err(wrong(
                    "needs --cluster NAME to select a shard; or replace {shard} by a shard number",
                ));
            }
            (_, Some(count), Some(cluster)) => (count, cluster),
        };
        Ok(Self {
            server: shard::address(server, shard::for_cluster(cluster, count)),
            ..self.clone()
        })
    }

    /// Returns the name of the context that is used; `None` if the server is given, or the default.
    pub(super) fn context(&self) -> Option<&str> {
        self.context.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the address without trailing slashes.
    pub(super) fn base(&self) -> Result<&str, CliError> {
        let server = self.server.trim_end_matches('/');
        if server.contains(PLACEHOLDER) {
            return Err(CliError::InvalidServer {
                server: server.to_owned(),
                reason: "this request goes to one instance: replace {shard} by a shard number",
            });
        }
        if server.starts_with("http://") || server.starts_with("https://") {
            return Ok(server);
        }
        Err(CliError::InvalidServer {
            server: server.to_owned(),
            reason: "must have the form https://HOST:PORT or http://HOST:PORT",
        })
    }

    /// Returns the connect timeout, which is shorter than the request timeout, so that the two are
    /// distinguishable.
    pub(super) fn connect_timeout(&self) -> Duration {
        CONNECT_TIMEOUT.min(self.timeout / 2)
    }

    /// Returns the value of the `Authorization` header; `None` without a token.
    pub(super) fn authorization(&self) -> Result<Option<String>, CliError> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(path)) => String::from_utf8_lossy(&read(path)?).into_owned(),
            (None, None) => return Ok(None),
        };
        self.base()?;
        let token = token.trim();
        if !is_printable(token) {
            let message =
                "invalid token: it is empty or contains characters outside of printable ASCII";
            return Err(CliError::Usage(message.to_owned()));
        }
        if !self.insecure_token && is_insecure_url(&self.server) {
            let server = &self.server;
            let message = format!(
                "the token would be sent to {server} in plain text: use https://, or give --insecure-token"
            );
            return Err(CliError::Usage(message));
        }
        Ok(Some(format!("Bearer {token}")))
    }

    /// Returns the blocking HTTP client.
    pub(super) fn agent(&self) -> Result<Agent, CliError> {
        // Echo runs on this host or behind a tunnel; a web proxy, which `config` excludes, reaches
        // neither.
        let config = config(&self.roots()?, self.timeout);
        let config = config.timeout_connect(Some(self.connect_timeout()));
        Ok(Agent::new_with_config(config.build()))
    }

    /// Returns the TLS configuration of the asynchronous client.
    pub(super) fn tls(&self) -> Result<ClientConfig, CliError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(self.roots()?);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(builder.with_root_certificates(store).with_no_client_auth())
    }

    /// Returns the trusted CA certificates; none without TLS.
    fn roots(&self) -> Result<Vec<CertificateDer<'static>>, CliError> {
        let roots = authorities(self.base()?, self.tls_ca.as_deref());
        roots.map_err(|error| match error {
            FileError::Unreadable { path, source } => unreadable(&path, &source),
            FileError::Empty { .. } => CliError::Usage(format!("--tls-ca {error}")),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::Usage(format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ConnectionArgs;

    fn args(server: &str, token: Option<&str>) -> ConnectionArgs {
        ConnectionArgs {
            context: None,
            server: server.to_owned(),
            shards: None,
            timeout: Duration::from_mins(1),
            tls_ca: None,
            token: token.map(str::to_owned),
            token_file: None,
            insecure_token: false,
        }
    }

    #[test]
    fn a_token_is_sent_over_tls_or_loopback_only() {
        for server in [
            "https://echo.example:8081",
            "http://127.0.0.1:8081",
            "http://[::1]:8081/",
            "http://localhost",
        ] {
            let header = args(server, Some("echo_x")).authorization().unwrap();
            assert_eq!(header.as_deref(), Some("Bearer echo_x"), "{server}");
        }
        for server in [
            "http://echo.example:8081",
            "http://localhost.attacker.example",
            "http://10.0.0.1",
            "http://[2001:db8::1]:8081",
        ] {
            let mut connection = args(server, Some("echo_x"));
            let refused = connection.authorization().unwrap_err().to_string();
            assert!(refused.contains("--insecure-token"), "{refused}");
            connection.insecure_token = true;
            assert!(connection.authorization().unwrap().is_some());
        }
        assert_eq!(args("http://10.0.0.1", None).authorization().unwrap(), None);
    }

    #[test]
    fn a_query_goes_to_the_shard_of_its_cluster() {
        let mut connection = args("https://echo-{shard}.lab:8081", None);
        let refused = connection.for_cluster(Some("lab")).unwrap_err().to_string();
        assert!(refused.contains("--shards N"), "{refused}");
        connection.shards = Some(3);
        assert_eq!(
            connection.for_cluster(Some("lab")).unwrap().server,
            "https://echo-2.lab:8081"
        );
        assert_eq!(
            connection.for_cluster(Some("prod")).unwrap().server,
            "https://echo-0.lab:8081"
        );
        let refused = connection.for_cluster(None).unwrap_err();
        assert_eq!(refused.exit_code(), 64);
        assert!(refused.to_string().contains("--cluster"), "{refused}");
        let refused = connection.base().unwrap_err();
        assert_eq!(refused.exit_code(), 64);
        connection.shards = Some(0);
        assert!(connection.for_cluster(Some("lab")).is_err());
        // The environment variable is also one of `serve`, and may be set for a local instance.
        let one = ConnectionArgs {
            server: "http://localhost".to_owned(),
            ..connection
        };
        assert_eq!(one.for_cluster(Some("lab")).unwrap().server, one.server);
    }

    #[test]
    fn a_token_file_may_end_with_a_line_feed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut connection = args("http://127.0.0.1:8081", None);
        connection.token_file = Some(path.clone());
        assert!(connection.authorization().is_err(), "the file is missing");
        for (text, shown) in [
            ("echo_x\n", Some("Bearer echo_x")),
            ("", None),
            ("two words", None),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = connection.authorization().ok().flatten();
            assert_eq!(found.as_deref(), shown, "{text:?}");
        }
    }
}
