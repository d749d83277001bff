//! Queries to NCCL's RAS subsystem, which listens on a port of each host of a job.
//!
//! The protocol consists of lines: the client states its version, asks for a timeout and a format,
//! then for the status, and the server closes the connection after it. NCCL before 2.28 does not
//! know the format JSON and sends text.

mod network_namespace;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fleet_agent_core::ras::Status;
use fleet_import::ras::{RasFormatError, parse_json, parse_text};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use crate::ras::network_namespace::{NetworkNamespace, listening};

/// Port on which NCCL listens by default, on the loopback interface.
pub const DEFAULT_PORT: u16 = 28028;

/// Version of the protocol in NCCL 2.24 to 2.30.
const PROTOCOL: &str = "CLIENT PROTOCOL 2\n";

/// Maximum bytes of a line before the status.
const MAX_LINE: u64 = 4096;

/// Limits of a query.
#[derive(Debug, Clone, Copy)]
pub struct RasLimits {
    /// Maximum duration of a query.
    pub timeout: Duration,
    /// Maximum size of an answer, bytes.
    pub max_bytes: u64,
}

impl Default for RasLimits {
    /// Limits for the largest jobs: 10,000 ranks in 5 communicators are 40 MiB.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(15),
            max_bytes: 64 << 20,
        }
    }
}

/// Error of a query.
#[derive(Debug, Error)]
pub enum RasError {
    /// Nothing listens, or the connection broke.
    #[error("connection: {0}")]
    Connection(#[from] io::Error),
    /// The answer took longer than the limit.
    #[error("no answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The answer is larger than the limit.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
    /// Something else listens on the port.
    #[error("not NCCL: expected {expected:?}, received {received:?}")]
    Protocol {
        /// Expected beginning of the line.
        expected: &'static str,
        /// Beginning of the received line.
        received: String,
    },
    /// The answer is malformed.
    #[error(transparent)]
    Format(#[from] RasFormatError),
}

/// Returns the address where NCCL listens by default.
pub fn default_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))
}

/// Parses the value of `NCCL_RAS_ADDR`, `HOST:PORT`. The value comes from the environment of a job,
/// which must not direct the agent to other hosts: [`query_local`] checks that it is on this one.
pub fn listen_address(value: &str) -> Option<SocketAddr> {
    let named = || {
        Some((
            Ipv4Addr::LOCALHOST,
            value.strip_prefix("localhost:")?.parse().ok()?,
        ))
    };
    let parsed = value.parse().ok().or_else(|| named().map(SocketAddr::from));
    let mut address: SocketAddr = parsed?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Some(address)
}

/// Returns whether an address is one of this host's: only those can be bound.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Status of a job, and which of its hosts is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalStatus {
    /// Status of the job.
    pub status: Status,
    /// Addresses of hosts that are addresses of this host, as seen from where the job listens.
    pub local_hosts: BTreeSet<String>,
}

/// Answer about the status of a job, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RasAnswer {
    /// The answer.
    pub text: String,
    /// Whether it is JSON.
    pub is_json: bool,
}

impl RasAnswer {
    fn status(&self) -> Result<Status, RasFormatError> {
        if self.is_json {
            parse_json(&self.text)
        } else {
            parse_text(&self.text)
        }
    }
}

/// Returns what the job that listens at an address of this host answers.
async fn answer_local(address: SocketAddr, limits: RasLimits) -> Result<RasAnswer, RasError> {
    if !is_local(address.ip()) {
        return Err(RasError::Connection(io::ErrorKind::AddrNotAvailable.into()));
    }
    let answered = timeout(limits.timeout, exchange(address, limits));
    answered
        .await
        .unwrap_or(Err(RasError::TimedOut(limits.timeout)))
}

/// Where the job of a process answers.
#[derive(Debug)]
pub struct RasSource {
    /// `None` for the network namespace of the agent.
    namespace: Option<NetworkNamespace>,
    address: SocketAddr,
}

impl RasSource {
    /// Returns where the job of a process answers that listens at this address; `None` if the process has
    /// ended.
    pub fn of(proc: &Path, pid: u32, address: SocketAddr) -> Option<Self> {
        let namespace = NetworkNamespace::other_than_own(proc, pid);
        let is_there = namespace.is_some() || proc.join(pid.to_string()).join("ns/net").exists();
        is_there.then_some(Self { namespace, address })
    }

    /// Returns the answer.
    pub async fn answer(self, limits: RasLimits, proc: PathBuf) -> Result<RasAnswer, RasError> {
        let address = self.address;
        match self.namespace {
            None => answer_local(address, limits).await,
            Some(namespace) => inside(namespace, proc, move || answer_local(address, limits)).await,
        }
    }
}

/// Queries the status of the job that listens at an address of this host.
pub async fn query_local(address: SocketAddr, limits: RasLimits) -> Result<LocalStatus, RasError> {
    let status = answer_local(address, limits).await?.status()?;
    let mut local_hosts: BTreeSet<String> = status.hosts().map(str::to_owned).collect();
    local_hosts.retain(|host| host.parse().is_ok_and(is_local));
    Ok(LocalStatus {
        status,
        local_hosts,
    })
}

/// Queries the status of the job that listens at an address in another network namespace. `proc` is
/// the `/proc` of the host.
pub async fn query_in(
    namespace: NetworkNamespace,
    address: SocketAddr,
    limits: RasLimits,
    proc: PathBuf,
) -> Result<LocalStatus, RasError> {
    inside(namespace, proc, move || query_local(address, limits)).await
}

/// Runs a query by a thread of its own, which enters a network namespace.
async fn inside<T, F>(
    namespace: NetworkNamespace,
    proc: PathBuf,
    query: impl FnOnce() -> F + Send + 'static,
) -> Result<T, RasError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, RasError>>,
{
    let (answer, answered) = oneshot::channel();
    let inside = move || {
        namespace.enter(&proc)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(query())
    };
    let thread = thread::Builder::new().name("ras-namespace".to_owned());
    thread.spawn(move || answer.send(inside()))?;
    answered
        .await
        .unwrap_or_else(|_stopped| Err(RasError::Connection(io::ErrorKind::BrokenPipe.into())))
}

async fn exchange(address: SocketAddr, limits: RasLimits) -> Result<RasAnswer, RasError> {
    let mut server = BufReader::new(TcpStream::connect(address).await?);
    request(&mut server, PROTOCOL, "SERVER PROTOCOL ").await?;
    // A third of the time for each of NCCL's rounds, so that it still answers about unresponsive
    // ranks within the limit.
    let seconds = (limits.timeout.as_secs() / 3).max(1);
    request(&mut server, &format!("TIMEOUT {seconds}\n"), "OK").await?;
    let is_json = match request(&mut server, "SET FORMAT JSON\n", "OK").await {
        Err(RasError::Protocol { received, .. }) if received.starts_with("ERROR") => false,
        other => other.map(|()| true)?,
    };
    let command = if is_json {
        "STATUS\n"
    } else {
        "VERBOSE STATUS\n"
    };
    server.write_all(command.as_bytes()).await?;
    let mut answer = Vec::new();
    server
        .take(limits.max_bytes + 1)
        .read_to_end(&mut answer)
        .await?;
    if u64::try_from(answer.len()).is_ok_and(|bytes| bytes > limits.max_bytes) {
        return Err(RasError::TooLarge(limits.max_bytes));
    }
    Ok(RasAnswer {
        text: String::from_utf8_lossy(&answer).into_owned(),
        is_json,
    })
}

/// Sends a line and reads one that begins with `expected`.
async fn request(
    server: &mut BufReader<TcpStream>,
    line: &str,
    expected: &'static str,
) -> Result<(), RasError> {
    server.write_all(line.as_bytes()).await?;
    let mut received = Vec::new();
    let mut bounded = server.take(MAX_LINE);
    bounded.read_until(b'\n', &mut received).await?;
    if received.starts_with(expected.as_bytes()) {
        return Ok(());
    }
    let received = String::from_utf8_lossy(&received);
    Err(RasError::Protocol {
        expected,
        received: received.chars().take(80).collect(),
    })
}

#[cfg(test)]
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
