//! The agent as in production, except that it sends nothing and its probes are not pinned.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::process::{Usage, usage};
use crate::stand_ins::Callers;

/// Timeout for the start of the agent, and for the removal of its probes at the end.
const PATIENCE: Duration = Duration::from_mins(1);
const ATTACHED_WITHIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// Path of the agent.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// The agent [default: the one that cargo built for this benchmark]
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_fleet-agent"), hide_default_value = true)]
    agent: PathBuf,
}

/// Running agent, killed on drop.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    metrics: SocketAddr,
    log: NamedTempFile,
}

/// Metrics of the agent, by name with labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(BTreeMap<String, f64>);

impl Programs {
    /// Starts an agent that watches this host.
    pub(crate) fn start(&self, args: &[&str]) -> anyhow::Result<Agent> {
        let log = NamedTempFile::new()?;
        // The port was free a moment ago, which is good enough.
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(&self.agent)
            .args([
                "run",
                "--endpoint",
                "none",
                "--cluster",
                "bench",
                "--node",
                "bench",
            ])
            .args(["--pin", "none", "--metrics-listen", &metrics.to_string()])
            .args(args)
            .stdin(Stdio::null())
            .stderr(log.reopen()?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.agent.display()))?;
        let mut agent = Agent {
            child,
            metrics,
            log,
        };
        agent.wait_until_watching()?;
        Ok(agent)
    }
}

impl Agent {
    /// Returns its resource usage so far.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        usage(self.child.id())
    }

    /// Returns its metrics.
    pub(crate) fn counts(&self) -> anyhow::Result<Counts> {
        let text = self.get_page("/metrics")?;
        let samples = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Counts(samples.collect()))
    }

    /// Waits until it has probed these libraries, then releases the programs that use them; none if
    /// that does not happen, which an agent that has probed them before can cause.
    pub(crate) fn release(&self, mut callers: Callers, libraries: [PathBuf; 2]) -> Option<Callers> {
        let begin = Instant::now();
        while begin.elapsed() < ATTACHED_WITHIN {
            let log = self.log();
            let is_probed = |path: &PathBuf| {
                let line = format!("watching path=\"{}\"", path.display());
                log.contains(&line)
            };
            if libraries.iter().all(is_probed) {
                callers.release();
                return Some(callers);
            }
            sleep(POLL);
        }
        None
    }

    /// Sends a signal, such as SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Stops it and waits until its probes are removed.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the agent ended with {status}: {}", self.log()),
                None => sleep(POLL),
            }
        }
        bail!("the agent did not stop in time: {}", self.log())
    }

    fn wait_until_watching(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            // The endpoint responds once the agent is watching.
            if self.get_page("/healthz").is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the agent ended with {status}: {}", self.log());
            }
            sleep(POLL);
        }
        bail!("the agent did not start in time: {}", self.log())
    }

    fn get_page(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.metrics)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_else(|error| format!("no log: {error}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It has already ended if it was stopped.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Counts {
    /// Returns the calls captured.
    pub(crate) fn calls(&self) -> f64 {
        self.get("fleet_agent_events_total{source=\"calls\"}")
    }

    /// Returns the events lost.
    pub(crate) fn lost(&self) -> f64 {
        let lost = |reason: &str| {
            self.get(&format!(
                "fleet_agent_events_lost_total{{reason=\"{reason}\"}}"
            ))
        };
        lost("ring") + lost("in_flight")
    }

    /// Returns the ranks traced now.
    pub(crate) fn ranks(&self) -> f64 {
        self.get("fleet_agent_processes")
    }

    /// Returns the points created.
    pub(crate) fn points(&self) -> f64 {
        self.get("fleet_agent_points_created_total")
    }

    /// Returns the ranks that started or ended.
    pub(crate) fn changes(&self) -> f64 {
        self.get("fleet_agent_events_total{source=\"processes\"}")
    }

    fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }
}
