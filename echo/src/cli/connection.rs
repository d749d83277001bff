//! How the Echo that is asked is reached: where, for how long, by whose word, and with which token.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use echo_access::published::is_insecure_url;
use fleet_proto::shard::{self, MAX_SHARDS, PLACEHOLDER};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::cli::CliError;

/// Where Echo listens unless told otherwise.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// Longest time to connect: where that takes longer nobody listens, and waiting on does not help.
const CONNECTING: Duration = Duration::from_secs(10);

/// Which Echo is asked, how long it may take, and who asks.
#[derive(Debug, Clone, Args)]
pub struct EchoArgs {
    /// Address of a running Echo
    #[arg(long, value_name = "URL", env = "FLEET_ECHO_SERVER", default_value = DEFAULT_SERVER)]
    pub server: String,
    /// Number of Echos that clusters are spread over: where --server says {shard}, the number of the one that has the --cluster is
    /// put in
    #[arg(long, value_name = "N", env = "FLEET_ECHO_SHARDS")]
    pub shards: Option<u32>,
    /// Longest wait for an answer; give more than the --query-deadline of that Echo
    #[arg(long, value_name = "LENGTH", env = "FLEET_ECHO_TIMEOUT", default_value = "60s", value_parser = wait)]
    pub timeout: Duration,
    /// Authorities that vouch for that Echo, in PEM; those of the system when absent
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// Bearer token to show; others can see it on a command line, so put it into the environment
    #[arg(
        long,
        value_name = "TOKEN",
        env = "ECHO_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub token: Option<String>,
    /// File that holds the bearer token
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Show the token to another host although it is reached in plain text
    #[arg(long, env = "FLEET_ECHO_INSECURE_TOKEN")]
    pub insecure_token: bool,
}

fn wait(text: &str) -> Result<Duration, String> {
    /// Nobody reads an answer of yesterday.
    const LONGEST: Duration = Duration::from_hours(24);
    let wait = text.parse::<jiff::SignedDuration>().ok();
    let wait = wait.and_then(|wait| Duration::try_from(wait).ok());
    wait.filter(|wait| !wait.is_zero() && *wait <= LONGEST)
        .ok_or_else(|| "give a length above 0s and up to 24h, such as 90s".to_owned())
}

impl EchoArgs {
    /// The one of several Echos that has this cluster; the same where one is named.
    pub(super) fn of(&self, cluster: Option<&str>) -> Result<Self, CliError> {
        let server = &self.server;
        if !server.contains(PLACEHOLDER) {
            return Ok(self.clone());
        }
        let wrong = |what: &str| CliError::Usage(format!("--server {server} {what}"));
        let shards = self.shards.filter(|shards| *shards <= MAX_SHARDS);
        let count = shards.and_then(NonZeroU32::new);
        let (count, cluster) = match (self.shards, count, cluster) {
            (None, ..) => {
                return Err(wrong(
                    "leaves open which Echo: say with --shards N how many there are",
                ));
            }
            (_, None, _) => return Err(wrong(&format!("needs --shards from 1 to {MAX_SHARDS}"))),
            (_, _, None) => {
                return Err(wrong(
                    "leaves open which Echo: name a cluster with --cluster, or one Echo by its number in the place of {shard}",
                ));
            }
            (_, Some(count), Some(cluster)) => (count, cluster),
        };
        Ok(Self {
            server: shard::address(server, shard::of(cluster, count)),
            ..self.clone()
        })
    }

    /// The address without what callers add behind it.
    pub(super) fn base(&self) -> Result<&str, CliError> {
        let server = self.server.trim_end_matches('/');
        if server.contains(PLACEHOLDER) {
            return Err(CliError::Server {
                server: server.to_owned(),
                reason: "leaves open which Echo, and this is asked of one: put its number in the place of {shard}",
            });
        }
        if server.starts_with("http://") || server.starts_with("https://") {
            return Ok(server);
        }
        Err(CliError::Server {
            server: server.to_owned(),
            reason: "is not of the form https://HOST:PORT or http://HOST:PORT",
        })
    }

    /// Longest time to connect. It ends before the wait for the answer does, so that the two can be told apart.
    pub(super) fn connecting(&self) -> Duration {
        CONNECTING.min(self.timeout / 2)
    }

    /// What to show in the header `Authorization`; nothing without a token.
    pub(super) fn authorization(&self) -> Result<Option<String>, CliError> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(path)) => String::from_utf8_lossy(&read(path)?).into_owned(),
            (None, None) => return Ok(None),
        };
        self.base()?;
        let token = token.trim();
        if token.is_empty() || !token.chars().all(|c| matches!(c, '!'..='~')) {
            let message = "the token is empty, or has characters that no token has";
            return Err(CliError::Usage(message.to_owned()));
        }
        if !self.insecure_token && is_insecure_url(&self.server) {
            let server = &self.server;
            let message = format!(
                "the token would go to {server} in plain text: use https://, or say --insecure-token"
            );
            return Err(CliError::Usage(message));
        }
        Ok(Some(format!("Bearer {token}")))
    }

    /// What asks over HTTP and waits.
    pub(super) fn agent(&self) -> Result<Agent, CliError> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(self.timeout))
            .timeout_connect(Some(self.connecting()))
            // Echo is on this machine or at the end of a tunnel; a proxy for the web knows neither.
            .proxy(None);
        if self.base()?.starts_with("https://") {
            let roots = self.roots()?;
            let roots: Vec<_> = roots
                .iter()
                .map(|root| Certificate::from_der(root).to_owned())
                .collect();
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::new_with_certs(&roots))
                .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
            config = config.tls_config(tls.build());
        }
        Ok(Agent::new_with_config(config.build()))
    }

    /// How others are believed to be who they say, where they are asked without waiting.
    pub(super) fn tls(&self) -> Result<ClientConfig, CliError> {
        let mut store = RootCertStore::empty();
        if self.base()?.starts_with("https://") {
            store.add_parsable_certificates(self.roots()?);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(builder.with_root_certificates(store).with_no_client_auth())
    }

    /// The authorities that are believed.
    fn roots(&self) -> Result<Vec<CertificateDer<'static>>, CliError> {
        let Some(path) = &self.tls_ca else {
            return Ok(rustls_native_certs::load_native_certs().certs);
        };
        let text = read(path)?;
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let roots = roots.ok().filter(|roots| !roots.is_empty());
        roots.ok_or_else(|| {
            CliError::Usage(format!(
                "--tls-ca {}: holds no certificate in PEM",
                path.display()
            ))
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let unread = |error| CliError::Usage(format!("cannot read {}: {error}", path.display()));
    std::fs::read(path).map_err(unread)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::EchoArgs;

    fn asking(server: &str, token: Option<&str>) -> EchoArgs {
        EchoArgs {
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
    fn a_token_is_shown_where_nobody_can_overhear_it() {
        for server in [
            "https://echo.example:8081",
            "http://127.0.0.1:8081",
            "http://[::1]:8081/",
            "http://localhost",
        ] {
            let shown = asking(server, Some("echo_x")).authorization().unwrap();
            assert_eq!(shown.as_deref(), Some("Bearer echo_x"), "{server}");
        }
        for server in [
            "http://echo.example:8081",
            "http://localhost.attacker.example",
            "http://10.0.0.1",
            "http://[2001:db8::1]:8081",
        ] {
            let mut args = asking(server, Some("echo_x"));
            let refused = args.authorization().unwrap_err().to_string();
            assert!(refused.contains("--insecure-token"), "{refused}");
            args.insecure_token = true;
            assert!(args.authorization().unwrap().is_some());
        }
        assert_eq!(
            asking("http://10.0.0.1", None).authorization().unwrap(),
            None
        );
    }

    #[test]
    fn a_cluster_is_asked_about_at_the_echo_that_has_it() {
        let mut args = asking("https://echo-{shard}.lab:8081", None);
        let refused = args.of(Some("lab")).unwrap_err().to_string();
        assert!(refused.contains("--shards N"), "{refused}");
        args.shards = Some(3);
        assert_eq!(
            args.of(Some("lab")).unwrap().server,
            "https://echo-2.lab:8081"
        );
        assert_eq!(
            args.of(Some("prod")).unwrap().server,
            "https://echo-0.lab:8081"
        );
        let refused = args.of(None).unwrap_err();
        assert_eq!(refused.exit_code(), 64);
        assert!(refused.to_string().contains("--cluster"), "{refused}");
        let refused = args.base().unwrap_err();
        assert_eq!(refused.exit_code(), 64);
        args.shards = Some(0);
        assert!(args.of(Some("lab")).is_err());
        // The variable is that of `serve`, and may be there for an Echo of one's own.
        let one = EchoArgs {
            server: "http://localhost".to_owned(),
            ..args
        };
        assert_eq!(one.of(Some("lab")).unwrap().server, one.server);
    }

    #[test]
    fn a_file_may_end_its_token_with_a_line_feed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut args = asking("http://127.0.0.1:8081", None);
        args.token_file = Some(path.clone());
        assert!(args.authorization().is_err(), "there is no file");
        for (text, shown) in [
            ("echo_x\n", Some("Bearer echo_x")),
            ("", None),
            ("two words", None),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = args.authorization().ok().flatten();
            assert_eq!(found.as_deref(), shown, "{text:?}");
        }
    }
}
