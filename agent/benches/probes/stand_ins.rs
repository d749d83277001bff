//! The stand-ins for NCCL and CUDA, and programs that call them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/fake-gpu");
/// A program of the stand-ins that found its functions in another state than it was told to measure.
const DISTURBED: i32 = 4;
/// How often a measurement is tried in which another agent or job of this host came or went, and how long it may take to go.
const TRIES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// The libraries and the program, compiled.
#[derive(Debug)]
pub(crate) struct StandIns {
    folder: TempDir,
}

/// Whether an agent watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It does.
    Probed,
    /// Nobody does.
    Plain,
}

/// Programs that wait to be let go, then run; killed when they are dropped.
#[derive(Debug)]
pub(crate) struct Callers {
    children: Vec<Child>,
    comms: TempDir,
}

impl StandIns {
    /// Compiles them.
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

    /// The libraries.
    pub(crate) fn libraries(&self) -> [PathBuf; 2] {
        ["libnccl.so.2", "libcudart.so.13"].map(|name| self.folder.path().join(name))
    }

    /// Measures what a call costs, pinned to a core: lines of a name and nanoseconds.
    pub(crate) fn time(
        &self,
        state: State,
        (core, bursts, calls): (usize, usize, usize),
    ) -> anyhow::Result<Callers> {
        let args = [core, bursts, calls].map(|number| number.to_string());
        self.start("time", state, [args.to_vec()])
    }

    /// Ranks of one job that issue `ops` collectives each `period_us` and wait for them.
    pub(crate) fn pace(
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

    /// Ranks of one job that issue collectives as fast as they can.
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
    /// Lets them go.
    pub(crate) fn go(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
    }

    /// What they print, when they have ended; none where another agent disturbed them.
    pub(crate) fn finish(mut self) -> anyhow::Result<Option<Vec<String>>> {
        self.go();
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
            // Already gone when it broke off.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Measures until nobody has disturbed it.
pub(crate) fn undisturbed<T>(
    mut measure: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    for _try in 0..TRIES {
        if let Some(measured) = measure()? {
            return Ok(measured);
        }
        sleep(PATIENCE);
    }
    bail!("another agent watches this host, or another job runs on it: stop that first")
}

fn compile<const N: usize>(
    source: &str,
    out: &Path,
    args: [impl AsRef<std::ffi::OsStr>; N],
) -> anyhow::Result<()> {
    let source = PathBuf::from(SOURCES).join(source);
    // Without optimisation functions begin with a push, as those of the real libraries do; anything else is stepped over one by
    // one at thirty times the cost.
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
