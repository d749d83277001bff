use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use clap::{Parser, Subcommand};
use echo_tools::ToolContext;
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use echo_tools::registry::Registry;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::connection::EchoArgs;
use super::cost::CostArgs;
use super::explain::ExplainArgs;
use super::history::HistoryArgs;
use super::outliers::OutliersArgs;
use super::sql::SqlArgs;
use super::{CliError, Input, ask, cost, explain, history, outliers, sql};
use echo_serve::http::health::Readiness;
use echo_serve::http::metrics::Metrics;
use echo_serve::http::{RuntimeState, router, serve};
use echo_serve::listener::{Connections, ListenConfig, Listener};
use echo_serve::middleware::Middleware;
use echo_serve::tls::Encryption;

mod hidden;
mod parity;
mod pictures;
pub(super) mod waiting;

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    Outliers(OutliersArgs),
    Explain(ExplainArgs),
    Cost(CostArgs),
    History(HistoryArgs),
    Sql(SqlArgs),
}

/// A real server on a port of its own, for as long as the value lives.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

/// What a server works with, made on its own thread.
pub(super) type Making = Pin<Box<dyn Future<Output = ToolContext>>>;

pub(super) async fn usual() -> ToolContext {
    let context = fixture::context().await;
    let evidence = fixture::host_evidence();
    context.store.append(evidence).await.unwrap();
    context
}

fn feeds() -> RuntimeState {
    RuntimeState {
        judged: watch::channel(0).1,
        policies: watch::channel(Arc::default()).1,
        readiness: Readiness {
            stopping: watch::channel(false).1,
            append_deadline: Duration::from_secs(10),
        },
    }
}

/// An Echo at this address, and as long as anyone waits.
pub(super) fn echo_at(server: &str) -> EchoArgs {
    EchoArgs {
        server: server.to_owned(),
        shards: None,
        timeout: Duration::from_mins(1),
        tls_ca: None,
        token: None,
        token_file: None,
        insecure_token: false,
    }
}

/// Everything that Echo answers over HTTP.
pub(super) fn routes(context: ToolContext) -> Router {
    let terms = Middleware::without_auth(Arc::clone(&context.clock));
    let feeds = (feeds(), Metrics::default());
    router(Registry::standard(), context, feeds, &terms)
}

impl Server {
    pub(super) fn start() -> Self {
        Self::over(|| Box::pin(usual()))
    }

    pub(super) fn over(make: impl FnOnce() -> Making + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (bound, address) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let router = routes(make().await);
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                let listener =
                    Listener::new(listener, ListenConfig::default(), Connections::default());
                let shutdown = async { stopped.await.unwrap_or(()) };
                serve(listener, router, Encryption::None, shutdown).await;
            });
        });
        Self {
            address: address.blocking_recv().unwrap(),
            _stop: stop,
        }
    }

    /// What a command line prints.
    fn printed(&self, line: &str) -> Result<String, CliError> {
        let (printed, outcome) = self.told(line);
        outcome.map(|()| printed)
    }

    /// What a command line prints, and how it ends.
    fn told(&self, line: &str) -> (String, Result<(), CliError>) {
        let server = format!("http://{}", self.address);
        let words = ["fleet-echo"].into_iter().chain(line.split_whitespace());
        let words = words.chain(["--server", &server]);
        let mut out = Vec::new();
        let outcome = match Program::parse_from(words).question {
            Question::Outliers(args) => outliers::run(&args, &mut out),
            Question::Explain(args) => explain::run(&args, &mut out),
            Question::Cost(args) => cost::run(&args, &mut out),
            Question::History(args) => history::run(&args, &mut out),
            Question::Sql(args) => sql::run(&args, &mut out),
        };
        (String::from_utf8(out).unwrap(), outcome)
    }
}

#[test]
fn answers_are_printed_for_people() {
    let server = Server::start();
    for line in [
        "outliers --cluster prod --from now-10m",
        "outliers --from now-50m --to now-40m",
        "explain --cluster prod --rank 2 --from now-10m",
        "cost --from now-10m",
        "cost --from now-50m --to now-40m",
        "history --rank 2 --limit 2 --from now-10m",
        "history --metric other",
    ] {
        insta::assert_snapshot!(line.replace(' ', "_"), server.printed(line).unwrap());
    }
}

#[test]
fn json_is_printed_byte_for_byte() {
    let server = Server::start();
    let url = format!("http://{}/", server.address);
    for (line, tool) in [
        ("outliers --json", "fleet.cluster.find_outlier_nodes"),
        ("cost --json", "fleet.cluster.get_cost"),
        ("history --json", "fleet.cluster.event_history"),
    ] {
        let (body, _) = ask(&echo_at(&url), tool, Input::default()).unwrap();
        assert_eq!(server.printed(line).unwrap().as_bytes(), body, "{line}");
    }
}

#[test]
fn json_is_one_text_also_when_the_views_cannot_be_listed() {
    let server = Server::over(|| Box::pin(async { fixture::over(Arc::new(Broken::Defect)) }));
    let (printed, outcome) = server.told("sql --views --json");
    let body: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(body["error"]["code"], "internal", "{body}");
    assert_eq!(outcome.unwrap_err().exit_code(), 70);
}

#[test]
fn pages_follow_one_another() {
    let server = Server::start();
    let first = server
        .printed("history --metric fleet.rank.period_ms --limit 484 --from now-11m --to now")
        .unwrap();
    assert!(!first.contains("--cursor"), "480 events fit");
    let page = server
        .printed("history --metric fleet.rank.period_ms --limit 400")
        .unwrap();
    let cursor = page
        .lines()
        .last()
        .unwrap()
        .strip_prefix("more with --cursor ")
        .unwrap();
    let rest = server
        .printed(&format!(
            "history --metric fleet.rank.period_ms --cursor {cursor}"
        ))
        .unwrap();
    assert_eq!(rest.lines().count(), 1 + 80, "a header and what is left");
}

#[test]
fn a_wrong_question_exits_64_and_says_what_is_wrong() {
    let server = Server::start();
    for (line, message) in [
        ("cost --cluster pord", "the clusters are prod"),
        ("cost --from yesterday", "RFC 3339"),
        ("explain --rank 2", "cluster"),
        ("explain --cluster prod --rank 7", "between 0 and 3"),
        ("history --limit 100000", "the maximum of 1000"),
        ("sql FROM", "syntax error"),
        ("sql FROM --max-rows 0", "minimum of 1"),
        ("sql --file nowhere.sql", "nowhere.sql: No such file"),
    ] {
        let error = server.printed(line).unwrap_err();
        assert_eq!(error.exit_code(), 64, "{line}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let error = ask(&echo_at("ftp://127.0.0.1:1"), "x", Input::default()).unwrap_err();
    assert_eq!(error.exit_code(), 64);
}

#[test]
fn a_missing_server_exits_69_and_says_how_to_start_one() {
    // The port was free a moment ago, and nobody else is told of it.
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = ask(&echo_at(&url), "fleet.cluster.get_cost", Input::default()).unwrap_err();
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("no Echo at {url}")),
        "{message}"
    );
    assert!(message.contains("fleet-echo serve"), "{message}");
}

#[test]
fn every_kind_of_error_has_its_exit_code() {
    let exit_code = |code: &str| {
        let error = CliError::Answered {
            code: code.to_owned(),
            message: String::new(),
            body: Vec::new(),
        };
        error.exit_code()
    };
    let codes: Vec<u8> = [
        "invalid",
        "not_found",
        "too_large",
        "busy",
        "timeout",
        "internal",
        "new",
    ]
    .into_iter()
    .map(exit_code)
    .collect();
    assert_eq!(codes, [64, 64, 64, 69, 69, 70, 70]);
}
