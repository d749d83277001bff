//! Flags for tracing of Echo itself.

use clap::Args;

/// Tracing of Echo itself.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Tracing of Echo itself")]
pub struct TraceArgs {
    /// Send Echo's own spans (ingest requests, commits, queries, maintenance) to the collector at
    /// this address, `http://HOST:PORT`, by OTLP over gRPC; must not be this instance
    #[arg(long, value_name = "URL", value_parser = parse_endpoint, env = "FLEET_ECHO_TRACE_ENDPOINT")]
    pub trace_endpoint: Option<String>,

    /// Share of ingest requests, commits and detector steps to sample; queries and maintenance are
    /// always sampled
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = parse_share, env = "FLEET_ECHO_TRACE_SAMPLE")]
    pub trace_sample: f64,

    /// Cluster attribute of Echo's own spans
    #[arg(
        long,
        value_name = "NAME",
        default_value = "echo",
        env = "FLEET_ECHO_TRACE_CLUSTER"
    )]
    pub trace_cluster: String,
}

impl Default for TraceArgs {
    fn default() -> Self {
        Self {
            trace_endpoint: None,
            trace_sample: 0.01,
            trace_cluster: "echo".to_owned(),
        }
    }
}

impl TraceArgs {
    /// Returns host and port of the collector.
    pub fn authority(&self) -> Option<&str> {
        let rest = self.trace_endpoint.as_deref()?.strip_prefix("http://")?;
        rest.split('/').next()
    }
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    let authority = text
        .strip_prefix("http://")
        .and_then(|rest| rest.split('/').next());
    let port = authority.and_then(|authority| authority.rsplit_once(':'));
    match port {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err(
            "expected http://HOST:PORT; spans are sent in plain text, so use a collector on this host or behind an encrypting proxy"
                .to_owned(),
        ),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::TraceArgs;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        trace: TraceArgs,
    }

    fn trace(flags: &str) -> Result<TraceArgs, String> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let serve = Serve::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(serve.trace)
    }

    #[test]
    fn without_flags_nothing_is_sent() {
        assert_eq!(trace(""), Ok(TraceArgs::default()));
    }

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        let args = trace("--trace-endpoint http://[::1]:4317/").unwrap();
        assert_eq!(args.authority(), Some("[::1]:4317"));
        for wrong in [
            "https://a:1",
            "a:4317",
            "http://a",
            "http://:1",
            "http://a:b",
        ] {
            let error = trace(&format!("--trace-endpoint {wrong}")).unwrap_err();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
        assert!(trace("--trace-sample 1.5").is_err());
    }
}
