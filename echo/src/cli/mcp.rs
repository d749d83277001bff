//! `fleet-echo mcp --stdio`: the Model Context Protocol on standard input and output, for clients that start a program.
//!
//! A thin proxy: each line is one message, which goes to a running Echo as one request, and its answer comes back as one
//! line. A second process could not open the database, and needs not. A call that is cancelled is hung up on, which Echo
//! feels and interrupts the query. A line that is no message is answered here, and ends nothing.

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

/// Most calls under way. Echo answers fewer at a time; reading waits for one to end.
const MAX_CALLS: usize = 64;

// Numbers of JSON-RPC.
const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;

/// Speak the Model Context Protocol on standard input and output
#[derive(Debug, Clone, Args)]
pub struct McpArgs {
    /// Speak over standard input and output (required; the only transport so far)
    #[arg(long, required = true)]
    pub stdio: bool,
    /// Which Echo.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// List tools under names with underscores, for clients that take no dots
    #[arg(long, env = "FLEET_ECHO_MCP_COMPAT")]
    pub compat: bool,
}

/// Passes messages on until the input ends and everything is answered.
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

/// The calls under way.
struct Calls {
    remote: Arc<Remote>,
    tasks: JoinSet<Option<String>>,
    /// By the number that the client gave, as JSON.
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

    /// Takes a line. What can be answered without asking is answered at once.
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

    /// The answer of a call that ended; nothing for one that was cancelled.
    fn complete(
        &mut self,
        ended: Result<(tokio::task::Id, Option<String>), JoinError>,
    ) -> Option<String> {
        let task = ended.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        self.open.retain(|_, call| call.id() != task);
        ended.ok()?.1
    }
}

/// The message of a line, or the answer to what is none; nothing for a blank line.
fn parse_message(line: &Line) -> Option<Result<Value, String>> {
    let bytes = match line {
        Line::Whole(bytes) if bytes.trim_ascii().is_empty() => return None,
        Line::Whole(bytes) => bytes,
        Line::TooLong => {
            let reason = format!("a message has at most {MAX_LINE_BYTES} bytes");
            return Some(Err(protocol_error(PARSE_ERROR, &reason)));
        }
    };
    Some(match serde_json::from_slice(bytes) {
        Ok(message @ Value::Object(_)) => Ok(message),
        // Batches, which only revision 2025-03-26 had, are nothing that Echo takes either.
        Ok(_) => Err(protocol_error(
            INVALID_REQUEST,
            "a message is one JSON object on a line of its own",
        )),
        Err(error) => Err(protocol_error(PARSE_ERROR, &format!("not JSON: {error}"))),
    })
}

/// The answer to what is no message, and so has no number.
fn protocol_error(number: i32, reason: &str) -> String {
    let error = json!({ "code": number, "message": reason });
    json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string()
}

#[cfg(test)]
mod tests;
