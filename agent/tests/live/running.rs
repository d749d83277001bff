//! Running agent process.

pub(crate) mod output;

use std::io::{Read, Write, stderr};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::task::Poll;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::Gpu;
use crate::job::{Job, wait_for};
use crate::running::output::Output;

/// Running agent.
pub(crate) struct Running {
    pub(crate) child: Child,
    log: Output,
    metrics: String,
}

impl Running {
    /// Starts the agent with `command`, which ends with its program, and waits until it is
    /// watching.
    pub(crate) fn start(command: Command, flags: &[&str]) -> Self {
        Self::reporting(command, "none", flags)
    }

    /// Like `start`, with an endpoint.
    pub(crate) fn reporting(mut command: Command, endpoint: &str, flags: &[&str]) -> Self {
        // The port was free a moment ago, and nothing else on this host takes arbitrary ports.
        let metrics = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        command.args([
            "run",
            "--endpoint",
            endpoint,
            "--cluster",
            "live",
            "--interval",
            "200ms",
            "--report-period",
            "1s",
        ]);
        command.args(["--metrics-listen", &metrics]).args(flags);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Output::read(child.stderr.take().unwrap());
        let mut running = Self {
            child,
            log,
            metrics,
        };
        running.wait_for_log("watching this host");
        running
    }

    /// Reads the log up to a line that contains `words`; returns everything read.
    #[track_caller]
    pub(crate) fn wait_for_log(&mut self, words: &str) -> String {
        self.wait_for_lines(&format!("{words:?} in the log"), |log| log.contains(words))
    }

    /// Reads the log until it is enough; returns everything read.
    #[track_caller]
    pub(crate) fn wait_for_lines(
        &mut self,
        what: &str,
        is_enough: impl Fn(&str) -> bool,
    ) -> String {
        let mut log_text = String::new();
        wait_for(what, || {
            while let Poll::Ready(line) = self.log.next() {
                let Some(line) = line else {
                    panic!("the agent ended:\n{log_text}");
                };
                log_text += &line;
                if is_enough(&log_text) {
                    return Ok(());
                }
            }
            Err(log_text.clone())
        });
        log_text
    }

    /// Releases a job once it is probed.
    pub(crate) fn follow(&mut self, gpu: &Gpu, job: &Job) {
        self.wait_for_probes(gpu, ["libnccl.so.2", "libcudart.so.13"]);
        job.release();
    }

    /// Waits until the libraries of a job are probed.
    pub(crate) fn wait_for_probes(&mut self, gpu: &Gpu, libraries: [&str; 2]) {
        let paths = libraries.map(|name| gpu.path().join(name).display().to_string());
        self.wait_for_lines("probes of the libraries", |log| {
            paths.iter().all(|path| log.contains(path))
        });
    }

    /// Returns the text of all metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Returns one of the agent's metrics.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        value_of(&text, name).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    #[track_caller]
    pub(crate) fn wait_for_metric(&self, name: &str, is_enough: impl Fn(u64) -> bool) -> u64 {
        wait_for(name, || {
            // A counter with labels is absent until it is counted.
            let value = value_of(&self.metrics(), name).unwrap_or(0);
            if is_enough(value) {
                Ok(value)
            } else {
                Err(value)
            }
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Stops the agent; returns the rest of its log.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let mut log_text = String::new();
        wait_for("the end of the agent", || {
            while let Poll::Ready(line) = self.log.next() {
                match line {
                    Some(line) => log_text += &line,
                    None => return Ok(()),
                }
            }
            Err(log_text.clone())
        });
        assert!(self.child.wait().unwrap().success(), "{log_text}");
        log_text
    }
}

fn value_of(metrics: &str, name: &str) -> Option<u64> {
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map(|value| value.parse().unwrap())
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only an agent left by a failed test still runs.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if thread::panicking() {
            let mut log_text = "The rest of the agent's log:\n".to_owned();
            while let Poll::Ready(Some(line)) = self.log.next() {
                log_text += &line;
            }
            let _shown = stderr().write_all(log_text.as_bytes());
        }
    }
}
