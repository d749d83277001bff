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

use super::{Program, Server, echo_at};
use crate::cli::connection::EchoArgs;
use crate::cli::{CliError, Input, ask};

const TOOL: &str = "fleet.cluster.get_cost";

/// Long enough to connect to this machine.
const SOON: Duration = Duration::from_millis(500);

fn soon(address: SocketAddr) -> EchoArgs {
    EchoArgs {
        timeout: SOON,
        ..echo_at(&format!("http://{address}"))
    }
}

impl Server {
    /// One that lets everybody wait for an hour.
    pub(in crate::cli) fn silent() -> Self {
        Self::over(|| {
            Box::pin(async {
                let mut context = fixture::context_over(Arc::new(Broken::Silent));
                context.limits.deadline = Duration::from_hours(1);
                context
            })
        })
    }
}

/// An address where nobody takes the connections that others hold open.
pub(in crate::cli) struct Crowded {
    pub(in crate::cli) address: SocketAddr,
    _listener: tokio::net::TcpListener,
    _others: Vec<TcpStream>,
}

impl Crowded {
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
fn assert_late(error: &CliError) {
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
        let (printed, outcome) = server.told(&format!("{line} --timeout 500ms"));
        assert_late(&outcome.unwrap_err());
        assert_eq!(printed, "");
    }
}

#[test]
fn an_answer_that_stops_in_the_middle_comes_too_late() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let echo = soon(listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let begun = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{";
        stream.write_all(begun).unwrap();
        // Until the other side has gone.
        stream.read_to_end(&mut Vec::new()).unwrap_or(0)
    });
    assert_late(&ask(&echo, TOOL, Input::default()).unwrap_err());
    answering.join().unwrap();
}

#[tokio::test]
async fn an_address_that_nobody_answers_at_is_no_slow_echo() {
    let crowded = Crowded::new();
    let echo = soon(crowded.address);
    let asked = spawn_blocking(move || ask(&echo, TOOL, Input::default()));
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(message.starts_with("no Echo at http://"), "{message}");
}

#[test]
fn lengths_of_waiting_are_above_nothing_and_up_to_a_day() {
    let parsed =
        |length: &str| Program::try_parse_from(["fleet-echo", "cost", "--timeout", length]);
    for length in ["50ms", "90s", "1h 30m", "24h"] {
        assert!(parsed(length).is_ok(), "{length}");
    }
    for length in ["0s", "90", "25h", "all", ""] {
        let error = parsed(length).unwrap_err().to_string();
        assert!(error.contains("such as 90s"), "{error}");
    }
}
