//! Receivers to compare.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::echo::Echo;
use crate::process::Process;
use crate::programs::Programs;

/// Timeout for a receiver to listen.
const START: Duration = Duration::from_secs(20);

/// Kind of receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// `fleet-echo serve`: checks, stores durably, and runs the detector.
    Echo,
    /// Rotel, which decodes and discards (its blackhole exporter).
    Rotel,
    /// tonic with the official messages, which decodes and discards.
    Prost,
}

impl Kind {
    /// True when its program is available.
    pub(crate) const fn is_among(self, programs: &Programs) -> bool {
        !matches!(self, Self::Rotel) || programs.rotel.is_some()
    }

    /// Name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "Echo (durable, queryable, judged)",
            Self::Rotel => "Rotel (discards)",
            Self::Prost => "tonic + prost (discards)",
        }
    }
}

/// A running receiver.
#[derive(Debug)]
pub(crate) enum Receiver {
    /// An instance of Echo.
    Echo(Echo),
    /// A receiver that stores nothing.
    Other {
        /// The process.
        process: Process,
        /// Address for OTLP over gRPC.
        otlp: String,
    },
}

impl Receiver {
    /// Starts a receiver.
    pub(crate) async fn start(kind: Kind, programs: &Programs) -> anyhow::Result<Self> {
        match (kind, &programs.rotel) {
            (Kind::Echo, _) => Echo::start(&programs.echo()?, &[]).map(Self::Echo),
            (Kind::Rotel, Some(program)) => rotel(program).await,
            (Kind::Rotel, None) => bail!("no program of Rotel: pass it as --rotel PATH"),
            (Kind::Prost, _) => prost(),
        }
    }

    /// The process.
    pub(crate) const fn process(&self) -> &Process {
        match self {
            Self::Echo(echo) => &echo.process,
            Self::Other { process, .. } => process,
        }
    }

    /// Address for OTLP over gRPC.
    pub(crate) fn otlp(&self) -> &str {
        match self {
            Self::Echo(echo) => &echo.otlp,
            Self::Other { otlp, .. } => otlp,
        }
    }

    /// Waits until the receiver has processed everything it received.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        match self {
            Self::Echo(echo) => echo.settle().await,
            Self::Other { .. } => Ok(()),
        }
    }
}

fn prost() -> anyhow::Result<Receiver> {
    let mut command = Command::new(std::env::current_exe()?);
    let (process, ready) = Process::start_ready(command.arg("--serve-prost"))?;
    let otlp = ready.trim().to_owned();
    Ok(Receiver::Other { process, otlp })
}

async fn rotel(program: &Path) -> anyhow::Result<Receiver> {
    let folder = TempDir::new()?;
    let (grpc, http) = (free_address()?, free_address()?);
    let mut command = Command::new(program);
    command
        .args(["start", "--exporter", "blackhole"])
        .args(["--otlp-grpc-endpoint", &grpc.to_string()])
        .args(["--otlp-http-endpoint", &http.to_string()])
        .arg("--pid-file")
        .arg(folder.path().join("pid"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = Process::start(&mut command)?;
    let begin = Instant::now();
    while TcpStream::connect(grpc).is_err() {
        if begin.elapsed() > START {
            bail!("Rotel does not listen on {grpc}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    let otlp = grpc.to_string();
    Ok(Receiver::Other { process, otlp })
}

/// Returns an address that is currently free.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
