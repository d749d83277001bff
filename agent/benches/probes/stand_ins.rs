//! Stand-ins for NCCL and CUDA, and programs that call them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/fake-gpu");
/// Exit code of a program whose functions were not in the expected state, probed or not.
const DISTURBED: i32 = 4;
/// Attempts of a measurement that another agent or job disturbs, and the pause between them.
const TRIES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// Compiled libraries and program.
#[derive(Debug)]
pub(crate) struct StandIns {
    folder: TempDir,
}

/// Expected state of the functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// An agent has probed them.
    Probed,
    /// They are not probed.
    Plain,
}

/// Programs that wait for their release, then run; killed on drop.
#[derive(Debug)]
pub(crate) struct Callers {
    children: Vec<Child>,
    comms: TempDir,
}

impl StandIns {
    /// Compiles the stand-ins.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let built = Self {
            folder: TempDir::new()?,
        };
        let [nccl, cuda] = &built.libraries();
        let library = ["-shared", "-fPIC"];
        compile("nccl.c", nccl, library)?;
        compile("cudart.c", cuda, library)?;
        compile("calls.c", &built.folder.path().join("calls"), [nccl, cuda])?;
        Ok(built)
    }

    /// Returns the paths of the libraries.
    pub(crate) fn libraries(&self) -> [PathBuf; 2] {
        ["libnccl.so.2", "libcudart.so.13"].map(|name| self.folder.path().join(name))
    }

    /// Measures the cost of a call, pinned to a core: prints lines of a name and nanoseconds.
    pub(crate) fn time(
        &self,
        state: State,
        (core, bursts, calls): (usize, usize, usize),
    ) -> anyhow::Result<Callers> {
        let args = [core, bursts, calls].map(|number| number.to_string());
        self.start("time", state, [args.to_vec()])
    }

    /// Starts the ranks of a job that issue `ops` collectives each `period_us` and wait for them.
    pub(crate) fn issue_periodically(
        &self,
        world: usize,
        (seconds, period_us, ops): (u64, u64, u64),
    ) -> anyhow::Result<Callers> {
        let ranks = (0..world).map(|rank| {
            let numbers = [rank as u64, world as u64, seconds, period_us, ops];
            numbers.map(|number| number.to_string()).to_vec()
        });
        self.start("pace", State::Probed, ranks)
    }

    /// Starts the ranks of a job that issue collectives as fast as possible.
    pub(crate) fn storm(&self, world: usize, seconds: u64) -> anyhow::Result<Callers> {
        let ranks = (0..world).map(|rank| {
            let numbers = [rank as u64, world as u64, seconds];
            numbers.map(|number| number.to_string()).to_vec()
        });
        self.start("storm", State::Probed, ranks)
    }

    fn start(
        &self,
        mode: &str,
        state: State,
        args: impl IntoIterator<Item = Vec<String>>,
    ) -> anyhow::Result<Callers> {
        let state = match state {
            State::Probed => "probed",
            State::Plain => "plain",
        };
        let mut callers = Callers {
            children: Vec::new(),
            comms: TempDir::new()?,
        };
        for args in args {
            let mut command = Command::new(self.folder.path().join("calls"));
            command.args([mode, state]).args(args);
            command.env("FAKE_NCCL_DIR", callers.comms.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            callers.children.push(command.spawn()?);
        }
        Ok(callers)
    }
}

impl Callers {
    /// Releases the programs.
    pub(crate) fn release(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
    }

    /// Returns what they printed; none if another agent disturbed them.
    pub(crate) fn finish(mut self) -> anyhow::Result<Option<Vec<String>>> {
        self.release();
        let mut printed = Vec::new();
        while let Some(child) = self.children.pop() {
            let output = child.wait_with_output()?;
            if output.status.code() == Some(DISTURBED) {
                return Ok(None);
            }
            if !output.status.success() {
                bail!(
                    "a program that calls the stand-ins ended with {}",
                    output.status
                );
            }
            printed.push(String::from_utf8(output.stdout)?);
        }
        Ok(Some(printed))
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It has already ended if it failed.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Repeats a measurement until nothing disturbs it.
pub(crate) fn undisturbed<T>(
    mut measure: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    for _try in 0..TRIES {
        if let Some(measured) = measure()? {
            return Ok(measured);
        }
        sleep(PATIENCE);
    }
    bail!("another agent watches this host, or another GPU job runs on it: stop it first")
}

fn compile<const N: usize>(
    source: &str,
    out: &Path,
    args: [impl AsRef<std::ffi::OsStr>; N],
) -> anyhow::Result<()> {
    let source = PathBuf::from(SOURCES).join(source);
    // Without optimization functions begin with a push, like those of the real libraries; other
    // instructions are single-stepped at thirty times the cost.
    let compiled = Command::new("cc")
        .args(["-O0", "-o"])
        .args([out, &source])
        .args(args)
        .arg("-ldl")
        .status()
        .context("cannot run cc: install a C compiler")?;
    if !compiled.success() {
        bail!("cc cannot compile {}", source.display());
    }
    Ok(())
}
