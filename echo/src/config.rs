//! Configuration from the command line and the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use echo_analysis::settings::Settings;
use echo_core::ids::ClusterId;
use echo_ingest::accept::IngestConfig;
use echo_store::limits::Amount;

use crate::feedback::health::HealthConfig;

pub mod allowed_origins;
pub mod bounds;
pub mod contexts;
pub mod lake;
pub mod limits;
pub mod security;
pub mod shard;
pub mod trace;

use allowed_origins::AllowedOriginArgs;
use bounds::BoundArgs;
use lake::LakeArgs;
use limits::LimitArgs;
use security::SecurityArgs;
use shard::ShardArgs;
use trace::TraceArgs;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Log flags.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Minimum level to log, or a filter such as `echo_store=debug,info`
    /// [default: info for serve, else warn]
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "FLEET_ECHO_LOG",
        help_heading = "Logging",
        global = true
    )]
    pub filter: Option<String>,

    /// Format of the log lines on standard error
    #[arg(
        long = "log-format",
        value_enum,
        default_value = "text",
        env = "FLEET_ECHO_LOG_FORMAT",
        help_heading = "Logging",
        global = true
    )]
    pub format: LogFormat,
}

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct ServeArgs {
    /// Database file; created if missing. Required, unless --read-only
    #[arg(
        long,
        value_name = "PATH",
        required = false,
        required_unless_present = "read_only",
        default_value_if("read_only", ArgPredicate::IsPresent, "-"),
        env = "FLEET_ECHO_DB"
    )]
    pub db: PathBuf,

    /// Listen address for OTLP over gRPC
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:4317",
        env = "FLEET_ECHO_OTLP_LISTEN"
    )]
    pub otlp_listen: SocketAddr,

    /// Listen address for OTLP over HTTP (protobuf or JSON)
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:4318",
        env = "FLEET_ECHO_OTLP_HTTP_LISTEN"
    )]
    pub otlp_http_listen: SocketAddr,

    /// Listen address for the HTTP API, pages, metrics and MCP
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8081",
        env = "FLEET_ECHO_HTTP_LISTEN"
    )]
    pub http_listen: SocketAddr,

    /// GPU-hour rates (YAML); without it, costs are reported in GPU-hours only
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_RATES")]
    pub rates: Option<PathBuf>,

    /// Policy of actions (YAML): which incidents are reported to which systems; without it, none
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_ACTIONS")]
    pub actions: Option<PathBuf>,

    /// Memory limit of the database: `2GB`, or a share of the memory of the machine or container,
    /// such as `25%`
    #[arg(long, value_name = "SIZE", default_value = "2GB", value_parser = limits::parse_memory, env = "FLEET_ECHO_MEMORY_LIMIT")]
    pub memory_limit: Amount,

    /// Cluster of OTLP points, log records and spans that name none; without it they are rejected
    #[arg(long, value_name = "NAME", env = "FLEET_ECHO_DEFAULT_CLUSTER")]
    pub default_cluster: Option<ClusterId>,

    /// Minimum lag of a rank, as a share of an iteration, for which its agent says that it is late
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().effect_gate, env = "FLEET_ECHO_EFFECT_GATE")]
    pub effect_gate: f64,

    /// Time without progress after which a collective that ranks have not entered is a hang; longer
    /// than two report intervals of the agents
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = bounds::parse_length, env = "FLEET_ECHO_HANG_AFTER")]
    pub hang_after: Duration,

    /// Ingero health scores: threshold below the median of the peers, in robust standard deviations
    /// (Ingero's own default of 2 flags healthy nodes all the time)
    #[arg(long, value_name = "K", default_value_t = HealthConfig::default().k, env = "FLEET_ECHO_INGERO_K")]
    pub ingero_k: f64,

    /// Ingero health scores: weight of a new threshold in the moving average, per five seconds
    #[arg(long, value_name = "WEIGHT", default_value_t = HealthConfig::default().ema_alpha, env = "FLEET_ECHO_INGERO_EMA")]
    pub ingero_ema: f64,

    /// Ingero health scores: number of nodes of a cluster that must report within a minute
    #[arg(long, value_name = "NODES", default_value_t = HealthConfig::default().quorum, env = "FLEET_ECHO_INGERO_QUORUM")]
    pub ingero_quorum: usize,

    // Last, because their headings apply to all flags that follow.
    /// Encryption and access
    #[command(flatten)]
    pub security: SecurityArgs,

    /// Retention and limits
    #[command(flatten)]
    pub limits: LimitArgs,

    /// Concurrency and timeouts
    #[command(flatten)]
    pub bounds: BoundArgs,

    /// Allowed hosts and origins
    #[command(flatten)]
    pub allowed_origins: AllowedOriginArgs,

    /// Tracing of Echo itself
    #[command(flatten)]
    pub trace: TraceArgs,

    /// Sharding
    #[command(flatten)]
    pub shard: ShardArgs,

    /// Lake
    #[command(flatten)]
    pub lake: LakeArgs,
}

/// Flags of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Recordings to replay, or directories of recordings [default: seven built-in recordings]
    #[arg(value_name = "FILE")]
    pub recordings: Vec<PathBuf>,

    /// Keep running afterwards, for the page and the printed commands
    #[arg(long)]
    pub keep: bool,

    /// Replay speed as a multiple of the recorded speed, or `max`
    #[arg(long, value_name = "X", default_value = "50")]
    pub speed: String,

    /// Maximum clock error of the simulated hosts
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub clock_skew: String,

    /// GPU-hour rates (YAML) [default: built-in example rates]
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,

    /// Agent program [default: fleet-agent in the directory of this program]
    #[arg(long, value_name = "PROGRAM", env = "FLEET_ECHO_DEMO_AGENT")]
    pub agent: Option<PathBuf>,
}

/// All problems found in the flags.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(Vec<String>);

impl ConfigError {
    /// A single problem, found at startup.
    pub fn new(wrong: String) -> Self {
        Self(vec![wrong])
    }
}

impl ServeArgs {
    /// Returns the settings of the ingest path.
    pub fn ingest(&self) -> IngestConfig {
        IngestConfig {
            default_cluster: self.default_cluster.clone(),
            ..IngestConfig::default()
        }
    }

    /// Validates what the parser cannot, and reports all problems at once.
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
                "--effect-gate {} must be between 0 and 1, exclusive",
                self.effect_gate
            ));
        }
        self.check_health(&mut wrong);
        self.shard.check(&mut wrong);
        self.lake.check(&mut wrong);
        if self.lake.read_only && self.actions.is_some() {
            wrong.push("--actions does not work with --read-only, which detects nothing: give it to the instances that write the lake".to_owned());
        }
        if self.bounds.idle_timeout < self.bounds.query_deadline {
            wrong.push(
                "--idle-timeout must not be shorter than --query-deadline: connections would be closed during queries"
                    .to_owned(),
            );
        }
        if !wrong.is_empty() {
            return Err(ConfigError(wrong));
        }
        let settings = Settings {
            effect_gate: self.effect_gate,
            hang_after_ms: self.hang_after.as_secs_f64() * 1e3,
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
            wrong.push(format!("--ingero-k {} must be above 0", self.ingero_k));
        }
        if !(self.ingero_ema > 0.0 && self.ingero_ema <= 1.0) {
            wrong.push(format!(
                "--ingero-ema {} must be above 0 and at most 1",
                self.ingero_ema
            ));
        }
        if self.ingero_quorum < 2 {
            wrong.push(format!(
                "--ingero-quorum {} must be at least 2",
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
    fn a_database_is_required_except_to_read_a_lake() {
        let parsed = |flags: &str| {
            let words = ["serve"].into_iter().chain(flags.split_whitespace());
            Serve::try_parse_from(words)
        };
        assert!(parsed("").is_err());
        assert!(parsed("--db x.duckdb").is_ok());
        assert!(parsed("--read-only").unwrap().args.lake.read_only);
    }

    #[test]
    fn actions_require_an_instance_with_a_detector() {
        let flags = "--insecure-no-tls --read-only --lake ducklake:/tmp/c --lake-data /tmp/d --duckdb-extensions /tmp/e";
        assert!(serve(flags).check().is_ok());
        let acting = serve(&format!("{flags} --actions a.yaml"));
        let error = acting.check().unwrap_err().to_string();
        assert!(error.contains("--actions"), "{error}");
    }

    #[test]
    fn plain_text_requires_an_explicit_flag() {
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
    fn an_idle_timeout_below_the_query_deadline_is_rejected() {
        let error = serve("--insecure-no-tls --idle-timeout 30s --query-deadline 1m");
        let error = error.check().unwrap_err().to_string();
        assert!(error.contains("--query-deadline"), "{error}");
    }

    #[test]
    fn plain_text_on_a_public_address_requires_an_explicit_flag() {
        let flags = "--insecure-no-tls --otlp-listen 0.0.0.0:4317 --http-listen 10.1.2.3:80";
        let error = serve(flags).check().unwrap_err().to_string();
        assert!(
            error.contains("--otlp-listen") && error.contains("--http-listen"),
            "{error}"
        );
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let error = serve("--effect-gate 5 --ingero-k 0 --ingero-quorum 1 --insecure-no-tls")
            .check()
            .unwrap_err();
        assert_eq!(error.to_string().matches("; ").count(), 2, "{error}");
    }

    #[test]
    fn health_threshold_flags_are_applied_and_validated() {
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
    fn the_last_of_repeated_flags_wins() {
        let args = serve("--http-listen 127.0.0.1:1 --http-listen 127.0.0.1:2");
        assert_eq!(args.http_listen.port(), 2);
    }
}
