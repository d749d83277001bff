//! Process of one statement: it reads a request, limits itself, opens the database for reading, replies, and ends.
//!
//! Some statements can neither be interrupted nor limited in memory inside of a process; the process can be killed.

use std::env;
use std::ffi::CStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{self, ExitCode};
use std::thread;

use echo_core::error::chain;
use rustix::thread::set_name;

use crate::duckdb::file_headers::FileHeaders;
use crate::duckdb::lock::beside;
use crate::duckdb::open;
use crate::duckdb::sql::message::{Reply, Request};
use crate::duckdb::sql::problem::Problem;
use crate::duckdb::sql::{confinement, statement};

/// Name under which a store starts its own program for a statement, as lists of processes show it.
pub(super) const NAME: &CStr = c"fleet-echo-sql";

/// Stack of the thread that waits for the end of the store, bytes.
const WATCH_STACK_BYTES: usize = 64 << 10;

/// Error of a process that cannot reply.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error("cannot read a request or write a reply")]
    Exchange(#[from] io::Error),
    #[error("the request is not valid")]
    Request(#[from] serde_json::Error),
    #[error("cannot limit its time or memory")]
    Limits(#[source] io::Error),
    #[error("cannot limit its system calls: SQL needs seccomp filters")]
    SystemCalls(#[from] seccompiler::Error),
    #[error("cannot read the headers of the database")]
    Headers(#[source] io::Error),
}

/// Returns whether a store started this process to run a statement.
pub fn is_requested() -> bool {
    env::args_os()
        .next()
        .is_some_and(|name| name.as_bytes() == NAME.to_bytes())
}

/// Runs the statement in the request on standard input, and writes the reply to standard output.
pub fn run() -> ExitCode {
    match exchange(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _broken_pipe = writeln!(io::stderr(), "{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn exchange(output: &mut impl Write) -> Result<(), WorkerError> {
    // The kernel would show that of the link to the program.
    let _name = set_name(NAME);
    let request = requested()?;
    confinement::limit_time(request.query.deadline).map_err(WorkerError::Limits)?;
    confinement::refuse_locks()?;
    let reply = reply(&request)?;
    serde_json::to_writer(&mut *output, &reply)?;
    output.flush()?;
    Ok(())
}

/// Reads the request, a line. Standard input stays open as long as the store waits for the reply: this process
/// ends with the store, however that ends.
fn requested() -> Result<Request, WorkerError> {
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    input.read_line(&mut line)?;
    let watch = thread::Builder::new().stack_size(WATCH_STACK_BYTES);
    watch.spawn(move || {
        let _ended = input.read_line(&mut String::new());
        process::abort();
    })?;
    Ok(serde_json::from_str(&line)?)
}

fn reply(request: &Request) -> Result<Reply, WorkerError> {
    let headers = FileHeaders::read(&request.database).map_err(WorkerError::Headers)?;
    let answered = answer(request)?;
    // Pages of two states may have been read if a checkpoint has changed the file.
    let have_changed = headers.have_changed().map_err(WorkerError::Headers)?;
    Ok(if have_changed {
        Err(Problem::Overtaken)
    } else {
        answered
    })
}

fn answer(request: &Request) -> Result<Reply, WorkerError> {
    let attach = request.attach.as_deref();
    // Rows of the log stay in memory: at most twice its size.
    let log = fs::metadata(beside(&request.database, ".wal")).map_or(0, |log| log.len());
    let memory = log.saturating_mul(2).saturating_add(request.memory_bytes);
    let connection = match open::beside_writer(&request.database, memory, attach) {
        Ok(connection) => connection,
        Err(error) => {
            let reason = chain(&error);
            return Ok(Err(Problem::Failed { reason }));
        }
    };
    // After opening: the engine checks an extension for lakes with many threads.
    confinement::limit_memory(request.memory_bytes).map_err(WorkerError::Limits)?;
    if attach.is_none() {
        confinement::refuse_reaching_out()?;
    }
    Ok(statement::answer(&connection, &request.query))
}
