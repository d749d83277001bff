//! `fleet-echo mcp --stdio`: the Model Context Protocol over standard input and output, for clients
//! that start a program. A thin proxy: each line is one message, which is sent to a running
//! instance as one request, and the response is written as one line. The proxy does not open the
//! database. A cancelled call closes its connection, upon which the server interrupts the query. A
//! line that is not a message is answered here with an error, and the session continues.

use std::collections::HashMap;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::cli::CliError;
use crate::cli::connection::ConnectionArgs;
use crate::cli::mcp::lines::{Line, Lines, MAX_LINE_BYTES};
use crate::cli::mcp::remote::Remote;

mod headers;
mod lines;
mod remote;

/// Maximum calls in flight. The server handles fewer at a time; reading pauses until one ends.
const MAX_CALLS: usize = 64;

// JSON-RPC error codes.
const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;

/// Speak the Model Context Protocol on standard input and output
#[derive(Debug, Clone, Args)]
pub struct McpArgs {
    /// Use standard input and output (required; the only transport so far)
    #[arg(long, required = true)]
    pub stdio: bool,
    /// Connection.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// List tools under names with underscores, for clients that do not accept dots
    #[arg(long, env = "FLEET_ECHO_MCP_COMPAT")]
    pub compat: bool,
}

/// Forwards messages until the input ends and every call has completed.
pub async fn run(
    args: &McpArgs,
    input: impl AsyncBufRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Result<(), CliError> {
    let mut calls = Calls::new(Remote::new(args)?);
    let mut lines = Lines::new(input);
    let mut is_open = true;
    while is_open || !calls.tasks.is_empty() {
        let answer = tokio::select! {
            line = lines.next(), if is_open && calls.tasks.len() < MAX_CALLS => {
                let line = line?;
                is_open = line.is_some();
                line.and_then(|line| calls.handle_line(&line))
            }
            Some(ended) = calls.tasks.join_next_with_id() => calls.complete(ended),
        };
        if let Some(answer) = answer {
            output.write_all(answer.as_bytes()).await?;
            output.write_all(b"\n").await?;
            output.flush().await?;
        }
    }
    Ok(())
}

/// The calls in flight.
struct Calls {
    remote: Arc<Remote>,
    tasks: JoinSet<Option<String>>,
    /// Abort handles by request ID, as JSON.
    open: HashMap<String, AbortHandle>,
}

impl Calls {
    fn new(remote: Remote) -> Self {
        Self {
            remote: Arc::new(remote),
            tasks: JoinSet::new(),
            open: HashMap::new(),
        }
    }

    /// Handles a line. Returns the response if none needs to be fetched.
    fn handle_line(&mut self, line: &Line) -> Option<String> {
        let message = match parse_message(line)? {
            Ok(message) => message,
            Err(refusal) => return Some(refusal),
        };
        if message
            .get("method")
            .is_some_and(|name| name == "notifications/cancelled")
        {
            let id = message.pointer("/params/requestId").map(Value::to_string);
            if let Some(call) = id.and_then(|id| self.open.remove(&id)) {
                call.abort();
            }
            return None;
        }
        let id = message.get("id").map(Value::to_string);
        let remote = Arc::clone(&self.remote);
        let call = self
            .tasks
            .spawn(async move { remote.forward(message).await });
        if let Some(id) = id {
            self.open.insert(id, call);
        }
        None
    }

    /// Returns the response of a completed call; `None` for a cancelled one.
    fn complete(
        &mut self,
        ended: Result<(tokio::task::Id, Option<String>), JoinError>,
    ) -> Option<String> {
        let task = ended.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        self.open.retain(|_, call| call.id() != task);
        ended.ok()?.1
    }
}

/// Parses a line into a message or an error response; `None` for a blank line.
fn parse_message(line: &Line) -> Option<Result<Value, String>> {
    let bytes = match line {
        Line::Whole(bytes) if bytes.trim_ascii().is_empty() => return None,
        Line::Whole(bytes) => bytes,
        Line::TooLong => {
            let reason = format!("the message exceeds {MAX_LINE_BYTES} bytes");
            return Some(Err(protocol_error(PARSE_ERROR, &reason)));
        }
    };
    Some(match serde_json::from_slice(bytes) {
        Ok(message @ Value::Object(_)) => Ok(message),
        // Batches exist only in revision 2025-03-26, and Echo does not accept them either.
        Ok(_) => Err(protocol_error(
            INVALID_REQUEST,
            "expected one JSON object per line",
        )),
        Err(error) => Err(protocol_error(PARSE_ERROR, &format!("not JSON: {error}"))),
    })
}

/// Returns an error response for a line without a request ID.
fn protocol_error(number: i32, reason: &str) -> String {
    let error = json!({ "code": number, "message": reason });
    json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string()
}

#[cfg(test)]
mod tests;
