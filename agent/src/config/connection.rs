//! Flags of whatever connects to Echo.

use std::path::PathBuf;

use clap::Args;

use crate::export::otlp::{EndpointError, Link, Security};

/// Flags that say how a connection is secured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ConnectionArgs {
    /// Certificates (PEM) of the authorities that may vouch for Echo [default: those of this host]
    #[arg(long, value_name = "FILE", env = "FLEET_AGENT_TLS_CA")]
    pub tls_ca: Option<PathBuf>,

    /// Certificate (PEM) by which Echo may know this agent, with --tls-key
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_AGENT_TLS_CERT",
        requires = "tls_key"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Key (PEM) of --tls-cert
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_AGENT_TLS_KEY",
        requires = "tls_cert"
    )]
    pub tls_key: Option<PathBuf>,

    /// Name that Echo's certificate is made for [default: the host of --endpoint]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_TLS_SERVER_NAME")]
    pub tls_server_name: Option<String>,

    /// File with the bearer token to show to Echo, read again whenever it changes
    #[arg(long, value_name = "FILE", env = "FLEET_AGENT_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Send the token to other hosts in clear text, too
    #[arg(long, env = "FLEET_AGENT_INSECURE_TOKEN", requires = "token_file")]
    pub insecure_token: bool,
}

impl ConnectionArgs {
    /// The way to `endpoint`, or what is wrong with the flags, their files or the endpoint.
    pub fn link(&self, endpoint: &str) -> Result<Link, EndpointError> {
        let security = Security {
            ca: self.tls_ca.clone(),
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
            server_name: self.tls_server_name.clone(),
            token_file: self.token_file.clone(),
            token_in_clear: self.insecure_token,
        };
        Link::new(endpoint, &security)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Any {
        #[command(flatten)]
        connection: ConnectionArgs,
    }

    fn parse(flags: &str) -> Result<ConnectionArgs, clap::Error> {
        let words = ["any"].into_iter().chain(flags.split_whitespace());
        Any::try_parse_from(words).map(|any| any.connection)
    }

    #[test]
    fn a_certificate_and_its_key_come_together() {
        assert!(parse("--tls-cert c").is_err());
        assert!(parse("--tls-key k").is_err());
        assert!(parse("--tls-cert c --tls-key k").is_ok());
    }

    #[test]
    fn the_flags_reach_the_connection() {
        let args = parse("--tls-ca /no/such/ca --tls-server-name echo").unwrap();
        let refused = args.link("https://10.0.0.1:4317").unwrap_err().to_string();
        assert!(refused.contains("--tls-ca /no/such/ca"), "{refused}");
        let args = parse("--token-file /no/such/token --insecure-token").unwrap();
        let refused = args.link("http://echo:4317").unwrap_err().to_string();
        assert!(refused.contains("--token-file /no/such/token"), "{refused}");
        assert!(args.link("not an address").is_err());
        assert!(parse("").unwrap().link("http://echo:4317").is_ok());
    }

    #[test]
    fn a_token_is_not_made_public_without_one() {
        assert!(parse("--insecure-token").is_err());
    }
}
