//! Flags of the connection to Echo.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;
use fleet_agent_export::otlp::{EndpointError, Link, Security};
use fleet_proto::shard::{self, MAX_SHARDS, PLACEHOLDER};

/// Endpoint to which nothing is sent.
pub const NO_ENDPOINT: &str = "none";

/// Flags that select the shard and secure the connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ConnectionArgs {
    /// Number of Echo shards, the same for every agent; the {shard} in --endpoint is replaced by
    /// the number of the shard that stores this cluster
    #[arg(long, value_name = "N", env = "FLEET_AGENT_SHARDS")]
    pub shards: Option<u32>,

    /// CA certificates (PEM) that Echo's certificate is checked against [default: the system's]
    #[arg(long, value_name = "FILE", env = "FLEET_AGENT_TLS_CA")]
    pub tls_ca: Option<PathBuf>,

    /// Client certificate (PEM) of this agent, with --tls-key
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_AGENT_TLS_CERT",
        requires = "tls_key"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_AGENT_TLS_KEY",
        requires = "tls_cert"
    )]
    pub tls_key: Option<PathBuf>,

    /// Host name in Echo's certificate [default: the host of --endpoint]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_TLS_SERVER_NAME")]
    pub tls_server_name: Option<String>,

    /// File with the bearer token for Echo, read again for every request
    #[arg(long, value_name = "FILE", env = "FLEET_AGENT_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Allow the token to be sent to other hosts without TLS
    #[arg(long, env = "FLEET_AGENT_INSECURE_TOKEN", requires = "token_file")]
    pub insecure_token: bool,
}

/// Shard that stores a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Number of the shard, from 0.
    pub ordinal: u32,
    /// Number of shards.
    pub count: NonZeroU32,
    /// Endpoint of the shard.
    pub endpoint: String,
}

impl ConnectionArgs {
    /// Resolves the shard of a cluster when `endpoint` contains {shard}; fails when flags and
    /// endpoint contradict each other.
    pub fn resolve_shard(
        &self,
        endpoint: &str,
        cluster: &str,
    ) -> Result<Option<Shard>, EndpointError> {
        let has_placeholder = endpoint.contains(PLACEHOLDER);
        let shards = match self.shards {
            Some(shards) if has_placeholder => shards,
            Some(shards) => {
                let url = endpoint.to_owned();
                return Err(EndpointError::NoPlaceholder { shards, url });
            }
            None if has_placeholder => return Err(EndpointError::NoShards(endpoint.to_owned())),
            None => return Ok(None),
        };
        let count = NonZeroU32::new(shards).filter(|_| shards <= MAX_SHARDS);
        let count = count.ok_or(EndpointError::ShardCount(shards))?;
        let ordinal = shard::for_cluster(cluster, count);
        let endpoint = shard::address(endpoint, ordinal);
        Ok(Some(Shard {
            ordinal,
            count,
            endpoint,
        }))
    }

    /// Builds the connection to `endpoint`; fails on flags, files or an endpoint that cannot be
    /// used.
    pub fn link(&self, endpoint: &str) -> Result<Link, EndpointError> {
        let security = Security {
            ca: self.tls_ca.clone(),
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
            server_name: self.tls_server_name.clone(),
            token_file: self.token_file.clone(),
            allow_plaintext_token: self.insecure_token,
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
        assert!(refused.contains("/no/such/ca"), "{refused}");
        let args = parse("--token-file /no/such/token --insecure-token").unwrap();
        let refused = args.link("http://echo:4317").unwrap_err().to_string();
        assert!(refused.contains("/no/such/token"), "{refused}");
        assert!(args.link("not an address").is_err());
        assert!(parse("").unwrap().link("http://echo:4317").is_ok());
    }

    #[test]
    fn each_cluster_belongs_to_one_shard() {
        let args = parse("--shards 3").unwrap();
        let endpoint_of = |cluster| {
            let shard = args.resolve_shard("https://echo-{shard}.echo:4317", cluster);
            shard.unwrap().unwrap().endpoint
        };
        assert_eq!(endpoint_of("prod"), "https://echo-0.echo:4317");
        assert_eq!(endpoint_of("lab"), "https://echo-2.echo:4317");
        let one = parse("").unwrap().resolve_shard("http://echo:4317", "prod");
        assert_eq!(one.unwrap(), None);
    }

    #[test]
    fn shards_and_the_endpoint_placeholder_require_each_other() {
        for (flags, endpoint, expected) in [
            ("", "https://echo-{shard}:4317", "--shards N"),
            ("--shards 3", "https://echo:4317", "requires {shard}"),
            ("--shards 3", "none", "requires {shard}"),
            ("--shards 0", "https://echo-{shard}:4317", "from 1 to 1024"),
            (
                "--shards 1025",
                "https://echo-{shard}:4317",
                "from 1 to 1024",
            ),
        ] {
            let refused = parse(flags)
                .unwrap()
                .resolve_shard(endpoint, "prod")
                .unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(expected), "{flags} {endpoint}: {refused}");
            assert!(!refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn insecure_token_requires_a_token_file() {
        assert!(parse("--insecure-token").is_err());
    }
}
