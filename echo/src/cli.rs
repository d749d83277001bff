//! The tools from the shell: `fleet-echo outliers`, `explain`, `cost`, `report`, `history` and `sql` ask a running Echo over HTTP.
//!
//! With `--json` they print what the server answered, byte for byte; otherwise a text for people. Nothing is computed
//! here, so the shell, Grafana and an agent see the same numbers.
//!
//! `assert` asks the same tools for a build pipeline. Beside them stands what needs no running Echo: `token`, `rates`, and the
//! work on a database file.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use echo_core::error::Code;
use echo_core::text::visible;
use echo_store::StoreError;
use serde_json::{Map, Value};
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder, Timeout};

use crate::cli::connection::ConnectionArgs;

pub mod assert;
pub mod connection;
pub mod cost;
pub mod dev_cert;
pub mod explain;
pub mod history;
pub mod mcp;
pub mod offline;
pub mod outliers;
pub mod rates;
pub mod report;
pub mod sql;
pub mod token;
mod view;

/// Longest accepted answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;

/// Which Echo is asked, and how the answer is printed.
#[derive(Debug, Clone, Args)]
pub struct ClientArgs {
    /// Which Echo.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print the server's JSON as it is
    #[arg(long, env = "FLEET_ECHO_JSON")]
    pub json: bool,
}

/// Which events are meant.
#[derive(Debug, Clone, Default, Args)]
pub struct ScopeArgs {
    /// Cluster; all clusters when absent
    #[arg(long, env = "FLEET_ECHO_CLUSTER")]
    pub cluster: Option<String>,
    /// Beginning: RFC 3339, Unix milliseconds or `now-15m`; one hour before the end when absent
    #[arg(long, value_name = "TIME", env = "FLEET_ECHO_FROM")]
    pub from: Option<String>,
    /// End, in the same forms; now when absent
    #[arg(long, value_name = "TIME", env = "FLEET_ECHO_TO")]
    pub to: Option<String>,
    /// Instead of --from and --to: `all`, or the last `15m`, `24h`, `7d`
    #[arg(long, value_name = "LENGTH", env = "FLEET_ECHO_WINDOW")]
    pub window: Option<String>,
}

/// Why nothing was answered.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The address cannot be asked.
    #[error("--server {server}: {reason}")]
    InvalidServer {
        /// The address.
        server: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Nobody answers there.
    #[error(
        "no Echo at {server} ({reason}): start one with `fleet-echo serve --db PATH --insecure-no-tls`, or name another with --server"
    )]
    Unreachable {
        /// The address.
        server: String,
        /// What happened.
        reason: String,
    },
    /// Somebody is there, and needs longer than the caller waits.
    #[error(
        "no answer from {server} within {timeout:?}: raise --timeout, or ask about a shorter window"
    )]
    Timeout {
        /// The address.
        server: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// Somebody answers who is no Echo.
    #[error("{server} answers, but not as Echo does (status {status})")]
    NotEcho {
        /// The address.
        server: String,
        /// Status of the response.
        status: u16,
    },
    /// Echo answers with an error.
    #[error("{message}")]
    Api {
        /// The kind, as the error body names it.
        code: String,
        /// What Echo says.
        message: String,
        /// The whole answer, as it came.
        body: Vec<u8>,
    },
    /// The flags do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The rates file has mistakes.
    #[error("{file} cannot be used:{}", indented(.mistakes))]
    Rates {
        /// The file.
        file: String,
        /// What is wrong with it, a sentence each with its place.
        mistakes: Vec<String>,
    },
    /// The database file cannot be worked on.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No token can be made.
    #[error("cannot make a token")]
    Token(#[source] io::Error),
    /// The answer cannot be written.
    #[error("the answer cannot be written")]
    Output(#[from] io::Error),
}

impl CliError {
    /// Exit code, after `sysexits.h`: 64 the question is wrong, 65 so is the file that it is about, 69 nobody answers (now, or in time), 70 a defect,
    /// 74 the output is broken.
    pub fn exit_code(&self) -> u8 {
        const USAGE: u8 = 64;
        const DATA: u8 = 65;
        const UNAVAILABLE: u8 = 69;
        const DEFECT: u8 = 70;
        const OUTPUT: u8 = 74;
        match self {
            Self::InvalidServer { .. } | Self::Usage(_) => USAGE,
            Self::Rates { .. } => DATA,
            Self::Store(error) => store_exit_code(error),
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::NotEcho { .. } => UNAVAILABLE,
            Self::Output(_) | Self::Token(_) => OUTPUT,
            Self::Api { code, .. } => {
                match Code::ALL.into_iter().find(|known| known.name() == code) {
                    Some(Code::Internal) | None => DEFECT,
                    Some(Code::Busy | Code::Timeout | Code::TooMany) => UNAVAILABLE,
                    Some(_) => USAGE,
                }
            }
        }
    }
}

/// Exit code of an error of the store, after `sysexits.h`: 64 the place is wrong, 65 it is no database of this Echo, 74 it
/// cannot be read or written, 75 somebody else holds it.
pub const fn store_exit_code(error: &StoreError) -> u8 {
    match error {
        StoreError::Unsuitable { .. } => 64,
        StoreError::Newer { .. }
        | StoreError::Changed { .. }
        | StoreError::Unreadable { .. }
        | StoreError::DamagedLog { .. } => 65,
        StoreError::Fatal { .. } | StoreError::Unwritable { .. } => 74,
        StoreError::Locked { .. } => 75,
        _ => 70,
    }
}

/// Sentences, each on a line of its own below.
fn indented(sentences: &[String]) -> String {
    let lines = sentences.iter().flat_map(|one| ["\n  ", one]);
    lines.collect()
}

/// The input of a tool in the making: what the caller did not say is left out.
#[derive(Debug, Default)]
struct ToolInput(Map<String, Value>);

impl ToolInput {
    fn from_scope(scope: &ScopeArgs) -> Self {
        Self::default()
            .with("cluster", scope.cluster.clone())
            .with("from", scope.from.clone())
            .with("to", scope.to.clone())
            .with("window", scope.window.clone())
    }

    fn with(mut self, name: &str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The cluster that is asked about, if it is one.
    fn cluster(&self) -> Option<&str> {
        self.0.get("cluster")?.as_str()
    }
}

/// Asks a tool for whoever reads: the answer to be put into words, or nothing when it has been printed as it came.
fn query(
    client: &ClientArgs,
    tool: &str,
    input: ToolInput,
    out: &mut dyn Write,
) -> Result<Option<Value>, CliError> {
    for_display(client, call_tool(&client.connection, tool, input), out)
}

/// The answer to be put into words, or nothing when it has been printed as it came. With `--json` an error is printed like
/// an answer, too, so that a script always has one JSON text to read.
fn for_display(
    client: &ClientArgs,
    asked: Result<(Vec<u8>, Value), CliError>,
    out: &mut dyn Write,
) -> Result<Option<Value>, CliError> {
    if !client.json {
        return asked.map(|(_, answer)| Some(view::sanitize(answer)));
    }
    match &asked {
        Ok((body, _)) | Err(CliError::Api { body, .. }) => out.write_all(body)?,
        Err(_) => {}
    }
    asked.map(|_printed| None)
}

/// Asks a tool. The answer is the body as it came, with what it says.
fn call_tool(
    connection: &ConnectionArgs,
    tool: &str,
    input: ToolInput,
) -> Result<(Vec<u8>, Value), CliError> {
    let connection = &connection.for_cluster(input.cluster())?;
    parse_json(
        connection.base()?,
        send(connection, tool_request(tool, input))?,
    )
}

/// Asks a tool for what is no JSON.
fn call_tool_for_bytes(
    connection: &ConnectionArgs,
    tool: &str,
    input: ToolInput,
) -> Result<Vec<u8>, CliError> {
    let connection = &connection.for_cluster(input.cluster())?;
    parse_bytes(
        connection.base()?,
        send(connection, tool_request(tool, input))?,
    )
}

/// Gets what is no tool's answer.
fn get_json(connection: &ConnectionArgs, path: &str) -> Result<(Vec<u8>, Value), CliError> {
    parse_json(
        connection.base()?,
        send(connection, path_request(path, &[]))?,
    )
}

/// Gets what is no JSON.
fn get_bytes(
    connection: &ConnectionArgs,
    path: &str,
    query: &[(&str, String)],
) -> Result<Vec<u8>, CliError> {
    let cluster = query.iter().find(|(name, _)| *name == "cluster");
    let connection = &connection.for_cluster(cluster.map(|(_, name)| name.as_str()))?;
    parse_bytes(
        connection.base()?,
        send(connection, path_request(path, query))?,
    )
}

fn parse_bytes(server: &str, (status, body): (u16, Vec<u8>)) -> Result<Vec<u8>, CliError> {
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let answer = serde_json::from_slice(&body).ok();
    Err(response_error(server, status, (body, answer)))
}

/// The request of something at a path, with what is asked in the query.
fn path_request<'a>(
    path: &'a str,
    query: &'a [(&'a str, String)],
) -> impl FnOnce(&Agent, &str, Option<&str>) -> Result<Response<Body>, ureq::Error> + 'a {
    move |agent, server, token| {
        let request = agent.get(format!("{server}{path}"));
        let request = query
            .iter()
            .fold(request, |request, (name, value)| request.query(name, value));
        with_token(request, token).call()
    }
}

/// The request of a tool's answer.
fn tool_request(
    tool: &str,
    input: ToolInput,
) -> impl FnOnce(&Agent, &str, Option<&str>) -> Result<Response<Body>, ureq::Error> {
    let input = Value::Object(input.0).to_string();
    let path = format!("/api/v1/tools/{tool}");
    move |agent, server, token| {
        let request = agent.post(format!("{server}{path}"));
        with_token(request, token)
            .header("Content-Type", "application/json")
            .send(input)
    }
}

/// The request with a token, if there is one.
fn with_token<B>(request: RequestBuilder<B>, token: Option<&str>) -> RequestBuilder<B> {
    match token {
        Some(token) => request.header("Authorization", token),
        None => request,
    }
}

fn parse_json(server: &str, (status, body): (u16, Vec<u8>)) -> Result<(Vec<u8>, Value), CliError> {
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    match answer {
        Some(answer) if (200..300).contains(&status) => Ok((body, answer)),
        answer => Err(response_error(server, status, (body, answer))),
    }
}

/// Sends a request. Status and body of what comes back.
fn send(
    connection: &ConnectionArgs,
    request: impl FnOnce(&Agent, &str, Option<&str>) -> Result<Response<Body>, ureq::Error>,
) -> Result<(u16, Vec<u8>), CliError> {
    let server = connection.base()?;
    let transport_error = |error: ureq::Error| transport_error(server, connection.timeout, error);
    let (agent, token) = (connection.agent()?, connection.authorization()?);
    let mut response = request(&agent, server, token.as_deref()).map_err(transport_error)?;
    let status = response.status().as_u16();
    let reader = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
    let body = reader.read_to_vec().map_err(transport_error)?;
    Ok((status, body))
}

/// What it means that nothing came back.
fn transport_error(server: &str, timeout: Duration, error: ureq::Error) -> CliError {
    let server = server.to_owned();
    let reason = match error {
        ureq::Error::Timeout(Timeout::Connect) => "it takes too long to connect".to_owned(),
        ureq::Error::Timeout(_) => return CliError::Timeout { server, timeout },
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    CliError::Unreachable { server, reason }
}

fn response_error(server: &str, status: u16, (body, answer): (Vec<u8>, Option<Value>)) -> CliError {
    let part = |name: &str| {
        let text = answer.as_ref()?.get("error")?.get(name)?.as_str()?;
        let lines: Vec<_> = text.lines().map(visible).collect();
        Some(lines.join("\n"))
    };
    match (part("code"), part("message")) {
        (Some(code), Some(message)) => CliError::Api {
            code,
            message: match part("hint") {
                Some(hint) => format!("{message}\n  {hint}"),
                None => message,
            },
            body,
        },
        _ => CliError::NotEcho {
            server: server.to_owned(),
            status,
        },
    }
}

#[cfg(test)]
mod tests;
