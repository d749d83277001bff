//! Client commands query a running instance over HTTP. With `--json` they print the response byte
//! for byte (indented on a terminal; SQL rows as objects), otherwise as text. Nothing is computed here, so the shell, Grafana and a model see the
//! same numbers. `token`, `rates`, `actions`, `lake` and offline commands need no running instance.

use clap::Args;
use echo_core::error::Code;
use echo_core::text::visible;
use serde_json::{Map, Value};
use ureq::{Agent, Body, RequestBuilder, http::Response};

use crate::cli::connection::ConnectionArgs;
pub use crate::cli::error::{CliError, store_exit_code};
use crate::cli::output::OutputArgs;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;

pub mod actions;
mod age;
pub mod assert;
pub mod bundle;
pub mod clusters;
mod column;
pub mod completion;
pub mod connection;
pub mod context;
pub mod cost;
pub mod dev_cert;
pub mod error;
pub mod explain;
mod hang;
pub mod help;
pub mod history;
pub mod host;
pub mod job;
mod json_output;
pub mod lake;
pub mod mcp;
pub(crate) mod next_command;
pub mod offline;
pub mod outliers;
pub mod output;
pub mod rates;
pub mod report;
pub mod scope;
pub mod screen;
pub mod sql;
mod sql_permission;
pub mod status;
mod table;
pub mod token;
pub mod top;
mod transport;
mod view;
pub mod watch;
mod wording;

/// Maximum response size, in bytes.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;

/// What to do about a missing or invalid token.
const TOKEN_HINT: &str = "give a valid token with --token-file FILE, or in the environment variable FLEET_ECHO_TOKEN where no context is \
                          used";

/// Connection and output format of a client command.
#[derive(Debug, Clone, Args)]
pub struct ClientArgs {
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Connection.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Input of a tool, as a JSON object; absent values are left out.
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

    /// Returns the cluster, if the input has exactly one.
    fn cluster(&self) -> Option<&str> {
        self.0.get("cluster")?.as_str()
    }
}

/// Calls a tool. Returns the result to print as text, or `None` if the JSON has been printed.
fn query(
    client: &ClientArgs,
    tool: &str,
    input: ToolInput,
    screen: &mut Screen<'_>,
) -> Result<Option<Value>, CliError> {
    for_display(client, call_tool(&client.connection, tool, input), screen)
}

/// Returns the result to print as text, or prints the JSON body and returns `None`. With `--json`
/// an error body is printed too, so that scripts always read one JSON document. Lines of JSON have
/// the texts of the response unchanged.
fn for_display(
    client: &ClientArgs,
    response: Result<(Vec<u8>, Value), CliError>,
    screen: &mut Screen<'_>,
) -> Result<Option<Value>, CliError> {
    if client.output.is_json() {
        match &response {
            Ok((body, _)) | Err(CliError::Api { body, .. }) => json_output::print(body, screen)?,
            Err(_) => {}
        }
        return response.map(|_printed| None);
    }
    let (_, answer) = response?;
    Ok(Some(if client.output.is_jsonl() {
        answer
    } else {
        wording::reworded_answer(view::sanitize(answer))
    }))
}

/// Calls a tool. Returns the response body and its parsed JSON.
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

/// Calls a tool that returns something other than JSON.
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

/// Gets JSON from a path outside of the tools.
fn get_json(connection: &ConnectionArgs, path: &str) -> Result<(Vec<u8>, Value), CliError> {
    let sent = send(connection, path_request(path, &[]))?;
    parse_json(connection.base()?, sent)
}

/// Gets a body that may not be JSON.
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
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    Err(response_error(server, status, body, answer.as_ref()))
}

/// Builds a GET request with query parameters.
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

/// Builds the request of a tool call.
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

/// Adds the token to the request, if there is one.
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
        answer => Err(response_error(server, status, body, answer.as_ref())),
    }
}

/// Sends a request. Returns status and body of the response.
fn send(
    connection: &ConnectionArgs,
    request: impl FnOnce(&Agent, &str, Option<&str>) -> Result<Response<Body>, ureq::Error>,
) -> Result<(u16, Vec<u8>), CliError> {
    let server = connection.base()?;
    let transport_error =
        |error: ureq::Error| transport::request_error(server, connection.timeout, error);
    let (agent, token) = (connection.agent()?, connection.authorization()?);
    let mut response = request(&agent, server, token.as_deref()).map_err(transport_error)?;
    let status = response.status().as_u16();
    let reader = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
    let body = reader.read_to_vec().map_err(transport_error)?;
    Ok((status, body))
}

fn response_error(server: &str, status: u16, body: Vec<u8>, answer: Option<&Value>) -> CliError {
    let error = answer.and_then(|answer| answer.get("error"));
    let shown = |text: &str| {
        let lines: Vec<_> = text.lines().map(visible).collect();
        wording::reworded(&lines.join("\n"))
    };
    let part = |name: &str| Some(shown(error?.get(name)?.as_str()?));
    let violations = error.and_then(wording::violations).map(|text| shown(&text));
    match (part("code"), violations.or_else(|| part("message"))) {
        (Some(code), Some(message)) => {
            let (message, hint) = if code == Code::Unauthenticated.name() {
                let message = message.split(';').next().unwrap_or(&message).to_owned();
                (message, Some(TOKEN_HINT.to_owned()))
            } else {
                (message, part("hint"))
            };
            CliError::Api {
                code,
                message: match hint {
                    Some(hint) => format!("{message}\n  {hint}"),
                    None => message,
                },
                body,
            }
        }
        _ => CliError::NotEcho {
            server: server.to_owned(),
            status,
        },
    }
}

#[cfg(test)]
mod tests;
