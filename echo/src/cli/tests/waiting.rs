//! How long is waited, and what is said then.

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

/// Long enough to connect to this machine.
const SOON: Duration = Duration::from_millis(500);

fn soon(address: SocketAddr) -> ConnectionArgs {
    ConnectionArgs {
        timeout: SOON,
        ..connection_to(&format!("http://{address}"))
    }
}

impl Server {
    /// One that lets everybody wait for an hour.
    pub(in crate::cli) fn silent() -> Self {
        Self::with_context(|| {
            Box::pin(async {
                let mut context = fixture::over(Arc::new(Broken::Silent));
                context.limits.deadline = Duration::from_hours(1);
                context
            })
        })
    }
}

/// An address where nobody takes the connections that others hold open.
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
    assert!(message.starts_with("no answer from http://"), "{message}");
    assert!(
        message.contains("within 500ms: raise --timeout"),
        "{message}"
    );
}

#[test]
fn an_answer_that_takes_too_long_exits_69_and_says_what_to_do() {
    let server = Server::silent();
    for line in ["cost", "history --json", "sql SELECT(1)", "sql --views"] {
        let (printed, outcome) = server.run(&format!("{line} --timeout 500ms"));
        assert_timeout(&outcome.unwrap_err());
        assert_eq!(printed, "");
    }
}

#[test]
fn an_answer_that_stops_in_the_middle_comes_too_late() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connection = soon(listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let begun = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{";
        stream.write_all(begun).unwrap();
        // Until the other side has gone.
        stream.read_to_end(&mut Vec::new()).unwrap_or(0)
    });
    assert_timeout(&call_tool(&connection, TOOL, ToolInput::default()).unwrap_err());
    answering.join().unwrap();
}

#[tokio::test]
async fn an_address_that_nobody_answers_at_is_no_slow_echo() {
    let full_backlog = FullBacklog::new();
    let connection = soon(full_backlog.address);
    let result = spawn_blocking(move || call_tool(&connection, TOOL, ToolInput::default()));
    let error = result.await.unwrap().unwrap_err();
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(message.starts_with("no Echo at http://"), "{message}");
}

#[test]
fn lengths_of_waiting_are_above_nothing_and_up_to_a_day() {
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
