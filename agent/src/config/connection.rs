//! Flags of whatever connects to Echo.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;
use fleet_agent_export::otlp::{EndpointError, Link, Security};
use fleet_proto::shard::{self, MAX_SHARDS, PLACEHOLDER};

/// Flags that say which of several Echos is meant, and how a connection is secured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ConnectionArgs {
    /// Number of Echos that clusters are spread over, all of which have to be told the same; where --endpoint says
    /// {shard}, the number of the one that takes this cluster is put in
    #[arg(long, value_name = "N", env = "FLEET_AGENT_SHARDS")]
    pub shards: Option<u32>,

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

/// The one of several Echos that takes a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 0 on.
    pub ordinal: u32,
    /// How many there are.
    pub count: NonZeroU32,
    /// Where it is.
    pub endpoint: String,
}

impl ConnectionArgs {
    /// The Echo that takes the cluster, where `endpoint` leaves open which one it is; or that the flags do not fit together.
    pub fn shard(&self, endpoint: &str, cluster: &str) -> Result<Option<Shard>, EndpointError> {
        let is_open = endpoint.contains(PLACEHOLDER);
        let shards = match self.shards {
            Some(shards) if is_open => shards,
            Some(shards) => {
                let url = endpoint.to_owned();
                return Err(EndpointError::NoPlaceholder { shards, url });
            }
            None if is_open => return Err(EndpointError::NoShards(endpoint.to_owned())),
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
    fn each_cluster_has_one_of_several_echos() {
        let args = parse("--shards 3").unwrap();
        let endpoint_of = |cluster| {
            let shard = args.shard("https://echo-{shard}.echo:4317", cluster);
            shard.unwrap().unwrap().endpoint
        };
        assert_eq!(endpoint_of("prod"), "https://echo-0.echo:4317");
        assert_eq!(endpoint_of("lab"), "https://echo-2.echo:4317");
        let one = parse("").unwrap().shard("http://echo:4317", "prod");
        assert_eq!(one.unwrap(), None);
    }

    #[test]
    fn a_number_of_echos_and_an_endpoint_of_several_come_together() {
        for (flags, endpoint, said) in [
            ("", "https://echo-{shard}:4317", "--shards N"),
            ("--shards 3", "https://echo:4317", "write {shard}"),
            ("--shards 3", "none", "write {shard}"),
            ("--shards 0", "https://echo-{shard}:4317", "from 1 to 1024"),
            (
                "--shards 1025",
                "https://echo-{shard}:4317",
                "from 1 to 1024",
            ),
        ] {
            let refused = parse(flags).unwrap().shard(endpoint, "prod").unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(said), "{flags} {endpoint}: {refused}");
            assert!(!refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn a_token_is_not_made_public_without_one() {
        assert!(parse("--insecure-token").is_err());
    }
}
