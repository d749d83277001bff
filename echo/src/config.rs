//! The command line and the environment, turned into each component's own configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use echo_analysis::settings::Settings;
use echo_store::limits::Amount;

use crate::feedback::health::HealthConfig;

pub mod allowed_origins;
pub mod bounds;
pub mod limits;
pub mod security;
pub mod shard;
pub mod trace;

use allowed_origins::AllowedOriginArgs;
use bounds::BoundArgs;
use limits::LimitArgs;
use security::SecurityArgs;
use shard::ShardArgs;
use trace::TraceArgs;

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Least severe level to log, or a filter such as `echo_store=debug,info`
    /// [default: info for serve, else warn]
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "FLEET_ECHO_LOG",
        global = true
    )]
    pub filter: Option<String>,

    /// Form of the log lines on standard error
    #[arg(
        long = "log-format",
        value_enum,
        default_value = "text",
        env = "FLEET_ECHO_LOG_FORMAT",
        global = true
    )]
    pub format: LogFormat,
}

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
#[command(after_help = SERVE_HELP, args_override_self = true)]
pub struct ServeArgs {
    /// Database file; made when it does not exist
    #[arg(long, value_name = "PATH", env = "FLEET_ECHO_DB")]
    pub db: PathBuf,

    /// Address for OTLP over gRPC
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:4317",
        env = "FLEET_ECHO_OTLP_LISTEN"
    )]
    pub otlp_listen: SocketAddr,

    /// Address for OTLP over HTTP (protobuf or JSON)
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:4318",
        env = "FLEET_ECHO_OTLP_HTTP_LISTEN"
    )]
    pub otlp_http_listen: SocketAddr,

    /// Address for questions over HTTP
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8081",
        env = "FLEET_ECHO_HTTP_LISTEN"
    )]
    pub http_listen: SocketAddr,

    /// GPU-hour prices (YAML); without it costs are reported in GPU-hours only
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_RATES")]
    pub rates: Option<PathBuf>,

    /// Memory that the database may use: `2GB`, or a share of what the machine or the container has, such as `25%`
    #[arg(long, value_name = "SIZE", default_value = "2GB", value_parser = limits::parse_memory, env = "FLEET_ECHO_MEMORY_LIMIT")]
    pub memory_limit: Amount,

    /// Smallest slowdown of a job, as a share of its period, for which a rank is named
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().effect_gate, env = "FLEET_ECHO_EFFECT_GATE")]
    pub effect_gate: f64,

    /// Ingero health scores: robust deviations below the median of the peers at which the threshold lies (Ingero's own 2
    /// flags healthy nodes all the time)
    #[arg(long, value_name = "K", default_value_t = HealthConfig::default().k, env = "FLEET_ECHO_INGERO_K")]
    pub ingero_k: f64,

    /// Ingero health scores: weight of a threshold computed five seconds after the one before
    #[arg(long, value_name = "WEIGHT", default_value_t = HealthConfig::default().ema_alpha, env = "FLEET_ECHO_INGERO_EMA")]
    pub ingero_ema: f64,

    /// Ingero health scores: nodes of a cluster that have to report within a minute for a threshold
    #[arg(long, value_name = "NODES", default_value_t = HealthConfig::default().quorum, env = "FLEET_ECHO_INGERO_QUORUM")]
    pub ingero_quorum: usize,

    // Last, because their headings stay for what follows.
    /// How it is encrypted, and who may call
    #[command(flatten)]
    pub security: SecurityArgs,

    /// How much is kept
    #[command(flatten)]
    pub limits: LimitArgs,

    /// How much is done at the same time
    #[command(flatten)]
    pub bounds: BoundArgs,

    /// Who may ask
    #[command(flatten)]
    pub allowed_origins: AllowedOriginArgs,

    /// Where Echo's own spans go
    #[command(flatten)]
    pub trace: TraceArgs,

    /// Which of several Echos this one is
    #[command(flatten)]
    pub shard: ShardArgs,
}

const SERVE_HELP: &str = "\
Ready when one line on standard output names the addresses in use (port 0 picks a free one).
Point any OpenTelemetry exporter at it:
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc your-program
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf your-program
Clusters can be spread over several Echos; agents and questions find the one of a cluster with the same N:
  fleet-echo serve --db 0.duckdb --shard 0 --shards 3 --shard-url https://echo-{shard}.example:8081 ...
  fleet-agent run --endpoint https://echo-{shard}.example:4317 --shards 3 --cluster NAME ...
  fleet-echo outliers --server https://echo-{shard}.example:8081 --shards 3 --cluster NAME";

/// Flags of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Recordings to replay, or folders of them
    #[arg(value_name = "FILE", default_values = ["testdata/recordings/real-loops/hf-ddp-loader1.jsonl.gz", "testdata/recordings"])]
    pub recordings: Vec<PathBuf>,

    /// Stay up afterwards, so that the printed commands can be tried
    #[arg(long)]
    pub keep: bool,

    /// How many times faster than recorded
    #[arg(long, value_name = "X", default_value = "5")]
    pub speed: String,

    /// Clocks of the four hosts are off by up to this much
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub clock_skew: String,

    /// GPU-hour prices (YAML)
    #[arg(long, value_name = "FILE", default_value = "testdata/rates.yaml")]
    pub rates: PathBuf,

    /// The agent to run [default: fleet-agent beside this program]
    #[arg(long, value_name = "PROGRAM", env = "FLEET_ECHO_DEMO_AGENT")]
    pub agent: Option<PathBuf>,
}

/// What is wrong with the flags, all of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(Vec<String>);

impl ConfigError {
    /// One mistake that shows only when Echo runs.
    pub fn new(wrong: String) -> Self {
        Self(vec![wrong])
    }
}

impl ServeArgs {
    /// Checks what the parser cannot, and reports every mistake at once.
    pub fn check(&self) -> Result<(Settings, HealthConfig), ConfigError> {
        let mut wrong = Vec::new();
        let listeners = [
            ("--otlp-listen", self.otlp_listen),
            ("--otlp-http-listen", self.otlp_http_listen),
            ("--http-listen", self.http_listen),
        ];
        self.security.check(listeners, &mut wrong);
        if !(self.effect_gate > 0.0 && self.effect_gate < 1.0) {
            wrong.push(format!(
                "--effect-gate {} is not a share between 0 and 1",
                self.effect_gate
            ));
        }
        self.check_health(&mut wrong);
        self.shard.check(&mut wrong);
        if self.bounds.idle_timeout < self.bounds.query_deadline {
            wrong.push(
                "--idle-timeout is shorter than --query-deadline: a connection would be closed while its question is answered"
                    .to_owned(),
            );
        }
        if !wrong.is_empty() {
            return Err(ConfigError(wrong));
        }
        let settings = Settings {
            effect_gate: self.effect_gate,
            ..Settings::default()
        };
        let health = HealthConfig {
            k: self.ingero_k,
            ema_alpha: self.ingero_ema,
            quorum: self.ingero_quorum,
        };
        Ok((settings, health))
    }

    fn check_health(&self, wrong: &mut Vec<String>) {
        if !(self.ingero_k.is_finite() && self.ingero_k > 0.0) {
            wrong.push(format!("--ingero-k {} is not above 0", self.ingero_k));
        }
        if !(self.ingero_ema > 0.0 && self.ingero_ema <= 1.0) {
            wrong.push(format!(
                "--ingero-ema {} is not above 0 and up to 1",
                self.ingero_ema
            ));
        }
        if self.ingero_quorum < 2 {
            wrong.push(format!(
                "--ingero-quorum {} is too few to compare, at least 2",
                self.ingero_quorum
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServeArgs;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn serve(flags: &str) -> ServeArgs {
        let words = ["serve", "--db", "x.duckdb"];
        Serve::parse_from(words.into_iter().chain(flags.split_whitespace())).args
    }

    #[test]
    fn without_a_certificate_plain_text_has_to_be_asked_for_by_name() {
        let error = serve("").check().unwrap_err().to_string();
        assert!(
            error.contains("--tls-cert") && error.contains("--insecure-no-tls"),
            "{error}"
        );
        for flags in [
            "--insecure-no-tls",
            "--insecure-no-tls=loopback",
            "--insecure-no-tls=any --insecure-no-auth --http-listen 0.0.0.0:80",
            "--tls-cert a --tls-key b --access c --http-listen 0.0.0.0:80",
        ] {
            assert!(serve(flags).check().is_ok(), "{flags}");
        }
    }

    #[test]
    fn a_connection_outlives_its_questions() {
        let error = serve("--insecure-no-tls --idle-timeout 30s --query-deadline 1m");
        let error = error.check().unwrap_err().to_string();
        assert!(error.contains("--query-deadline"), "{error}");
    }

    #[test]
    fn plain_text_leaves_the_host_only_where_that_was_said() {
        let flags = "--insecure-no-tls --otlp-listen 0.0.0.0:4317 --http-listen 10.1.2.3:80";
        let error = serve(flags).check().unwrap_err().to_string();
        assert!(
            error.contains("--otlp-listen") && error.contains("--http-listen"),
            "{error}"
        );
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let error = serve("--effect-gate 5 --ingero-k 0 --ingero-quorum 1 --insecure-no-tls")
            .check()
            .unwrap_err();
        assert_eq!(error.to_string().matches("; ").count(), 2, "{error}");
    }

    #[test]
    fn the_health_threshold_is_tuned_by_flags_that_are_checked() {
        let flags = "--insecure-no-tls --ingero-k 2 --ingero-ema 0.5 --ingero-quorum 3";
        let (_, health) = serve(flags).check().unwrap();
        assert_eq!((health.k, health.ema_alpha, health.quorum), (2.0, 0.5, 3));
        let wrong = "--insecure-no-tls --ingero-k NaN --ingero-ema 0 --ingero-quorum 1";
        let error = serve(wrong).check().unwrap_err().to_string();
        for flag in ["--ingero-k", "--ingero-ema", "--ingero-quorum"] {
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn a_flag_that_is_said_twice_counts_the_second_time() {
        let args = serve("--http-listen 127.0.0.1:1 --http-listen 127.0.0.1:2");
        assert_eq!(args.http_listen.port(), 2);
    }
}
