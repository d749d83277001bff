//! Runs a statement in a process of its own, and ends that process when the statement has to end.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::duckdb::sql::message::{Reply, Request};
use crate::duckdb::sql::problem::failed;
use crate::duckdb::sql::worker;
use crate::sql::{SqlError, SqlTable};

/// Variable with the folders of shared libraries.
const LIBRARIES: &str = "LD_LIBRARY_PATH";
/// Length of a reply beyond its rows, bytes: names of columns and messages.
const REPLY_BYTES: u64 = 1 << 20;
/// Length of what a process that fails says, bytes.
const MESSAGE_BYTES: u64 = 4096;

/// Words of a process that ends because it gets no memory. The kernel kills one in a control group that has none.
const OUT_OF_MEMORY: [&str; 3] = ["bad_alloc", "OutOfMemory", "memory allocation of"];

/// What a process left when it ended.
struct Ended {
    status: ExitStatus,
    output: Vec<u8>,
    message: Vec<u8>,
}

/// Runs a statement in a process of `program`. Dropping the future kills the process.
pub(super) async fn answer(program: &Path, request: &Request) -> Result<SqlTable, SqlError> {
    let ended = exchange(program, request).await;
    let ended = ended.map_err(|error| failed(format!("cannot start a process: {error}")))?;
    if let Ok(reply) = serde_json::from_slice::<Reply>(&ended.output) {
        return Ok(reply?);
    }
    let message = String::from_utf8_lossy(&ended.message);
    Err(match ended.status.signal() {
        // Its limit of CPU time, which is later than the deadline.
        Some(signal) if signal == Signal::XCPU.as_raw() => SqlError::Timeout {
            deadline: request.query.deadline,
        },
        Some(signal) if signal == Signal::KILL.as_raw() => SqlError::TooMuchMemory,
        _ if OUT_OF_MEMORY.iter().any(|words| message.contains(words)) => SqlError::TooMuchMemory,
        _ => failed(format!("{}: {}", ended.status, message.trim())),
    })
}

/// Command that starts a process for a statement. Dropping the handle of the process kills it.
fn command(program: &Path) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "a setting of the loader, and all that the process needs of the environment"
    )]
    let libraries = env::var_os(LIBRARIES);
    let mut command = Command::new(program);
    command
        .arg0(OsStr::from_bytes(worker::NAME.to_bytes()))
        .env_clear()
        .envs(libraries.map(|folders| (LIBRARIES, folders)))
        // Signals of a terminal are for the store.
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

async fn exchange(program: &Path, request: &Request) -> std::io::Result<Ended> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let mut child = command(program).spawn()?;
    let (mut output, mut message) = (Vec::new(), Vec::new());
    // Kept open until the reply has been read: the process ends when its standard input is closed.
    let mut stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(stdin) = &mut stdin {
            // Its end says more than a broken pipe.
            let _ended = stdin.write_all(&line).await;
        }
    };
    let most = REPLY_BYTES.saturating_add(request.query.max_bytes as u64);
    let read = async {
        match stdout {
            Some(stdout) => stdout.take(most).read_to_end(&mut output).await,
            None => Ok(0),
        }
    };
    let listen = async {
        match stderr {
            Some(stderr) => stderr.take(MESSAGE_BYTES).read_to_end(&mut message).await,
            None => Ok(0),
        }
    };
    let ((), read, listened) = tokio::join!(write, read, listen);
    read.and(listened)?;
    Ok(Ended {
        status: child.wait().await?,
        output,
        message,
    })
}
