//! Timeouts and their error messages.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use tokio::net::TcpSocket;
use tokio::task::spawn_blocking;

use super::{Program, Server, connection_to};
use crate::cli::connection::ConnectionArgs;
use crate::cli::{CliError, ToolInput, call_tool};

const TOOL: &str = "fleet.cluster.get_cost";

/// Long enough to connect to this host.
const SOON: Duration = Duration::from_millis(500);

fn soon(address: SocketAddr) -> ConnectionArgs {
    ConnectionArgs {
        timeout: SOON,
        ..connection_to(&format!("http://{address}"))
    }
}

impl Server {
    /// Starts a server that does not respond for an hour.
    pub(in crate::cli) fn silent() -> Self {
        Self::with_context(|| {
            Box::pin(async {
                let mut context = fixture::context_over(Arc::new(Broken::Silent));
                context.limits.deadline = Duration::from_hours(1);
                context
            })
        })
    }
}

/// An address whose accept backlog is full.
pub(in crate::cli) struct FullBacklog {
    pub(in crate::cli) address: SocketAddr,
    _listener: tokio::net::TcpListener,
    _others: Vec<TcpStream>,
}

impl FullBacklog {
    pub(in crate::cli) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let another = || TcpStream::connect_timeout(&address, SOON).ok();
        let others = std::iter::from_fn(another).collect();
        Self {
            address,
            _listener: listener,
            _others: others,
        }
    }
}

#[track_caller]
fn assert_timeout(error: &CliError) {
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(message.starts_with("no response from http://"), "{message}");
    assert!(
        message.contains("within 500ms: raise --timeout"),
        "{message}"
    );
}

#[test]
fn a_slow_response_exits_69_with_advice() {
    let server = Server::silent();
    for line in ["cost", "history --json", "sql SELECT(1)", "sql --views"] {
        let (printed, outcome) = server.run(&format!("{line} --timeout 500ms"));
        assert_timeout(&outcome.unwrap_err());
        assert_eq!(printed, "");
    }
}

#[test]
fn a_response_that_stops_midway_times_out() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connection = soon(listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let begun = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{";
        stream.write_all(begun).unwrap();
        // Blocks until the client disconnects.
        stream.read_to_end(&mut Vec::new()).unwrap_or(0)
    });
    assert_timeout(&call_tool(&connection, TOOL, ToolInput::default()).unwrap_err());
    answering.join().unwrap();
}

#[tokio::test]
async fn a_connect_timeout_is_reported_as_unreachable() {
    let full_backlog = FullBacklog::new();
    let connection = soon(full_backlog.address);
    let result = spawn_blocking(move || call_tool(&connection, TOOL, ToolInput::default()));
    let error = result.await.unwrap().unwrap_err();
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(message.starts_with("cannot reach http://"), "{message}");
}

#[test]
fn timeouts_are_above_zero_and_up_to_a_day() {
    let parsed =
        |length: &str| Program::try_parse_from(["fleet-connection", "cost", "--timeout", length]);
    for length in ["50ms", "90s", "1h 30m", "24h"] {
        assert!(parsed(length).is_ok(), "{length}");
    }
    for length in ["0s", "90", "25h", "all", ""] {
        let error = parsed(length).unwrap_err().to_string();
        assert!(error.contains("such as 90s"), "{error}");
    }
}
