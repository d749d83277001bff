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

use super::clusters::ClustersArgs;
use super::connection::ConnectionArgs;
use super::cost::CostArgs;
use super::explain::ExplainArgs;
use super::history::HistoryArgs;
use super::host::HostArgs;
use super::job::JobArgs;
use super::outliers::OutliersArgs;
use super::screen::Screen;
use super::sql::SqlArgs;
use super::status::StatusArgs;
use super::{
    CliError, ToolInput, call_tool, clusters, cost, explain, history, job, outliers, sql, status,
};
use echo_serve::http::health::Readiness;
use echo_serve::http::metrics::Metrics;
use echo_serve::http::{RuntimeState, router, serve};
use echo_serve::listener::{Connections, ListenConfig, Listener};
use echo_serve::middleware::Middleware;
use echo_serve::tls::Encryption;

mod formats;
mod hidden;
mod host;
mod incidents;
mod parity;
mod pictures;
mod terminal;
pub(super) mod waiting;

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    command: ToolCommand,
}

#[derive(Debug, Subcommand)]
enum ToolCommand {
    Status(StatusArgs),
    Clusters(ClustersArgs),
    Outliers(OutliersArgs),
    Explain(ExplainArgs),
    Cost(CostArgs),
    Job(JobArgs),
    History(HistoryArgs),
    Host(HostArgs),
    Sql(SqlArgs),
}

/// A real server on its own port; stops when dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

/// Future of the context of a server, which runs on the thread of the server.
pub(super) type ContextFuture = Pin<Box<dyn Future<Output = ToolContext>>>;

pub(super) async fn default_context() -> ToolContext {
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

/// Returns a connection to this address with a long timeout.
pub(super) fn connection_to(server: &str) -> ConnectionArgs {
    ConnectionArgs {
        context: None,
        server: server.to_owned(),
        shards: None,
        timeout: Duration::from_mins(1),
        tls_ca: None,
        token: None,
        token_file: None,
        insecure_token: false,
    }
}

/// Returns all API routes.
pub(super) fn routes(context: ToolContext) -> Router {
    let middleware = Middleware::without_auth(Arc::clone(&context.clock));
    let feeds = (feeds(), Metrics::default());
    router(Registry::standard(), context, feeds, &middleware)
}

impl Server {
    pub(super) fn start() -> Self {
        Self::with_context(|| Box::pin(default_context()))
    }

    pub(super) fn with_context(make: impl FnOnce() -> ContextFuture + Send + 'static) -> Self {
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

    /// Runs a command line and returns its output.
    fn output(&self, line: &str) -> Result<String, CliError> {
        let (printed, outcome) = self.run(line);
        outcome.map(|()| printed)
    }

    /// Runs a command line with its output in a pipe, and returns its output and result.
    fn run(&self, line: &str) -> (String, Result<(), CliError>) {
        self.run_on(line, None, false)
    }

    /// Runs a command line on a terminal of this width, and returns its output and result.
    fn run_on(
        &self,
        line: &str,
        width: Option<u16>,
        has_color: bool,
    ) -> (String, Result<(), CliError>) {
        let server = format!("http://{}", self.address);
        let words = ["fleet-echo"].into_iter().chain(line.split_whitespace());
        let words = words.chain(["--server", &server]);
        let mut out = Vec::new();
        let mut screen = Screen::plain(&mut out);
        (screen.width, screen.has_color) = (width, has_color);
        let screen = &mut screen;
        let outcome = match Program::parse_from(words).command {
            ToolCommand::Status(args) => status::run(&args, screen),
            ToolCommand::Clusters(args) => clusters::run(&args, screen),
            ToolCommand::Outliers(args) => outliers::run(&args, screen),
            ToolCommand::Explain(args) => explain::run(&args, screen),
            ToolCommand::Cost(args) => cost::run(&args, screen),
            ToolCommand::Job(args) => job::run(&args, screen),
            ToolCommand::History(args) => history::run(&args, screen),
            ToolCommand::Host(args) => super::host::run(&args, screen),
            ToolCommand::Sql(args) => sql::run(&args, screen),
        };
        (String::from_utf8(out).unwrap(), outcome)
    }
}

#[test]
fn results_are_printed_as_text() {
    let server = Server::start();
    for line in [
        "outliers --cluster prod --from now-10m",
        "outliers --from now-50m --to now-40m",
        "explain --cluster prod --rank 2 --from now-10m",
        "cost --from now-10m",
        "cost --from now-50m --to now-40m",
        "job llama",
        "history --rank 2 --limit 2 --from now-10m",
        "history --metric other",
    ] {
        insta::assert_snapshot!(line.replace(' ', "_"), server.output(line).unwrap());
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
        let (body, _) = call_tool(&connection_to(&url), tool, ToolInput::default()).unwrap();
        assert_eq!(server.output(line).unwrap().as_bytes(), body, "{line}");
    }
}

#[test]
fn json_output_of_a_failed_view_list_is_one_document() {
    let server = Server::with_context(|| {
        Box::pin(async { fixture::context_over(Arc::new(Broken::Defect)) })
    });
    let (printed, outcome) = server.run("sql --views --json");
    let body: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(body["error"]["code"], "internal", "{body}");
    assert_eq!(outcome.unwrap_err().exit_code(), 70);
}

#[test]
fn a_cursor_continues_with_the_next_page() {
    let server = Server::start();
    let first = server
        .output("history --metric fleet.rank.period_ms --limit 484 --from now-11m --to now")
        .unwrap();
    assert!(!first.contains("--cursor"), "480 events fit");
    let page = server
        .output("history --metric fleet.rank.period_ms --limit 400")
        .unwrap();
    let cursor = page
        .lines()
        .last()
        .unwrap()
        .strip_prefix("next page: --cursor ")
        .unwrap();
    let rest = server
        .output(&format!(
            "history --metric fleet.rank.period_ms --limit 100 --cursor {cursor}"
        ))
        .unwrap();
    assert_eq!(
        rest.lines().count(),
        1 + 80,
        "a header and the remaining events"
    );
}

#[test]
fn an_invalid_request_exits_64_with_the_reason() {
    let server = Server::start();
    for (line, message) in [
        ("cost --cluster pord", "(known: prod)"),
        ("job lama", "of job llama"),
        ("cost --from yesterday", "such as 2026-11-20T08:00:00Z"),
        ("cost --window 15", "--window: \"15\" has no unit"),
        ("cost --window 15m --to now", "--window cannot be combined"),
        ("explain --cluster prod --rank 7", "ranks 0 to 3 did"),
        ("history --limit 100000", "--limit: 100000 is"),
        ("sql FROM", "syntax error"),
        (
            "sql FROM --max-rows 0",
            "--max-rows: 0 is less than the minimum of 1",
        ),
        ("sql --file nowhere.sql", "nowhere.sql: No such file"),
    ] {
        let error = server.output(line).unwrap_err();
        assert_eq!(error.exit_code(), 64, "{line}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let error = call_tool(
        &connection_to("ftp://127.0.0.1:1"),
        "x",
        ToolInput::default(),
    )
    .unwrap_err();
    assert_eq!(error.exit_code(), 64);
}

#[test]
fn an_unreachable_server_exits_69_with_the_command_to_start_one() {
    // The port was free a moment ago, and no other process knows it.
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = call_tool(
        &connection_to(&url),
        "fleet.cluster.get_cost",
        ToolInput::default(),
    )
    .unwrap_err();
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("cannot reach {url}")),
        "{message}"
    );
    assert!(message.contains("fleet-echo serve"), "{message}");
}

#[test]
fn every_kind_of_error_has_its_exit_code() {
    let exit_code = |code: &str| {
        let error = CliError::Api {
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
