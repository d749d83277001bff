//! Profile of a process, as text and as JSON. Pure.

use std::fmt;

use fleet_agent_core::event::{Frame, StackSample};
use fleet_agent_core::printable::printable;
use fleet_agent_stacks::sampler::Counts;
use serde_json::{Value, json};

/// Maximum number of lines of the program in the text.
const MAX_LINES: usize = 10;
/// Maximum number of frames of a stack in the text.
const MAX_FRAMES: usize = 24;
/// Maximum number of characters of a frame in the text.
const MAX_TEXT: usize = 160;

/// Samples of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The process.
    pub pid: u32,
    /// Its command name.
    pub name: String,
    /// Duration of sampling, nanoseconds.
    pub lasted_ns: u64,
    /// CPU time that sampling used, nanoseconds.
    pub cpu_ns: u64,
    /// Whether the process exited meanwhile.
    pub has_exited: bool,
    /// Reasons why a part of the stacks is missing.
    pub limits: Vec<String>,
    /// Counts of samples.
    pub counts: Counts,
    /// Stacks, most frequent first.
    pub samples: Vec<StackSample>,
}

/// Samples with one line, in one call.
struct Line<'a> {
    samples: u64,
    stacks: Vec<&'a StackSample>,
}

impl Profile {
    /// Returns the profile as JSON.
    pub fn to_json(&self) -> Value {
        let stacks = self.samples.iter().map(|sample| {
            json!({
                "tid": sample.tid,
                "samples": sample.samples,
                "share": self.share(sample.samples),
                "call": sample.call,
                "line": line_of(sample).map(ToString::to_string),
                "frames": sample.stack.frames.iter().map(frame).collect::<Vec<_>>(),
            })
        });
        json!({
            "pid": self.pid,
            "name": self.name,
            "duration_s": seconds(self.lasted_ns),
            "cpu_s": seconds(self.cpu_ns),
            "exited": self.has_exited,
            "limits": self.limits,
            "samples": self.counts.samples,
            "torn": self.counts.torn,
            "dropped": self.counts.dropped,
            "stacks": stacks.collect::<Vec<_>>(),
        })
    }

    fn total(&self) -> u64 {
        self.samples.iter().map(|sample| sample.samples).sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "shares are rounded for display")]
    fn share(&self, samples: u64) -> f64 {
        samples as f64 / self.total().max(1) as f64
    }

    /// Returns the samples by thread, line and call, most frequent first.
    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for sample in &self.samples {
            let is_same = |line: &&mut Line<'_>| {
                let first = line.stacks.first();
                first.is_some_and(|first| {
                    (first.tid, &first.call, line_of(first))
                        == (sample.tid, &sample.call, line_of(sample))
                })
            };
            match lines.iter_mut().find(is_same) {
                Some(line) => {
                    line.samples += sample.samples;
                    line.stacks.push(sample);
                }
                None => lines.push(Line {
                    samples: sample.samples,
                    stacks: vec![sample],
                }),
            }
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.samples));
        lines
    }

    fn write_line(&self, f: &mut fmt::Formatter<'_>, line: &Line<'_>) -> fmt::Result {
        // The stacks are sorted, and there is one at least.
        let Some(sample) = line.stacks.first() else {
            return Ok(());
        };
        let title = line_of(sample).map(ToString::to_string).unwrap_or_default();
        let share = 100.0 * self.share(line.samples);
        write!(f, "\n{share:5.1} %  {}", printable(&title, MAX_TEXT))?;
        if let Some(call) = &sample.call {
            write!(f, ", in {}", printable(call, MAX_TEXT))?;
        }
        if self.samples.iter().any(|other| other.tid != self.pid) {
            write!(f, " (thread {})", sample.tid)?;
        }
        writeln!(f)?;
        let frames = sample.stack.lines();
        for frame in frames.iter().take(MAX_FRAMES) {
            writeln!(f, "          {}", printable(frame, MAX_TEXT))?;
        }
        match frames.len().checked_sub(MAX_FRAMES) {
            Some(more @ 1..) => writeln!(f, "          and {more} more"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name, .. } = self;
        let samples = self.counts.samples;
        let (lasted, cpu) = (seconds(self.lasted_ns), seconds(self.cpu_ns));
        writeln!(
            f,
            "Process {pid} ({name}): {samples} samples in {lasted:.1} s, which took {cpu:.2} s of CPU"
        )?;
        if self.has_exited {
            writeln!(f, "The process exited.")?;
        }
        for limit in &self.limits {
            writeln!(f, "Missing: {}", printable(limit, MAX_TEXT))?;
        }
        let Counts { torn, dropped, .. } = self.counts;
        if torn + dropped > 0 {
            writeln!(f, "Incomplete: {torn} samples; without a stack: {dropped}")?;
        }
        let lines = self.lines();
        for line in lines.iter().take(MAX_LINES) {
            self.write_line(f, line)?;
        }
        match lines.len().checked_sub(MAX_LINES) {
            Some(more @ 1..) => writeln!(f, "\nand {more} more lines"),
            _ => Ok(()),
        }
    }
}

/// Returns the innermost Python line, else the innermost frame.
fn line_of(sample: &StackSample) -> Option<&Frame> {
    let innermost = sample.stack.frames.first();
    sample.stack.python_line().or(innermost)
}

fn frame(frame: &Frame) -> Value {
    match frame {
        Frame::Python {
            file,
            line,
            function,
        } => json!({ "file": file, "line": line, "function": function }),
        Frame::Native {
            symbol,
            module,
            offset,
        } => json!({ "symbol": symbol, "module": module, "offset": offset }),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "durations are rounded for display"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::Stack;

    use super::*;

    fn sample(line: u32, call: Option<&str>, samples: u64) -> StackSample {
        let python = Frame::Python {
            file: "/app/train.py".to_owned(),
            line,
            function: "forward".to_owned(),
        };
        let native = call.map(|symbol| Frame::Native {
            symbol: Some(symbol.to_owned()),
            module: Some("/opt/libcudart.so.13".to_owned()),
            offset: samples,
        });
        StackSample {
            ts_ns: 1,
            pid: 7,
            tid: 7,
            is_worker: false,
            call: call.map(str::to_owned),
            stack: Stack {
                frames: native.into_iter().chain([python]).collect(),
            },
            samples,
            outside: 0,
        }
    }

    fn profile() -> Profile {
        Profile {
            pid: 7,
            name: "python3".to_owned(),
            lasted_ns: 10_000_000_000,
            cpu_ns: 40_000_000,
            has_exited: false,
            limits: Vec::new(),
            counts: Counts {
                samples: 250,
                torn: 0,
                dropped: 0,
            },
            samples: vec![
                sample(142, Some("cudaStreamSynchronize"), 120),
                sample(90, None, 75),
                sample(142, Some("cudaStreamSynchronize"), 55),
            ],
        }
    }

    #[test]
    fn stacks_with_one_line_and_call_are_added_up_below_it() {
        let text = profile().to_string();
        let expected = "\
Process 7 (python3): 250 samples in 10.0 s, which took 0.04 s of CPU

 70.0 %  train.py:142 in forward(), in cudaStreamSynchronize
          cudaStreamSynchronize+0x78 (libcudart.so.13)
          [Python] train.py:142 in forward()

 30.0 %  train.py:90 in forward()
          train.py:90 in forward()
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = Profile {
            has_exited: true,
            limits: vec!["not a Python program".to_owned()],
            counts: Counts {
                samples: 3,
                torn: 2,
                dropped: 1,
            },
            ..profile()
        }
        .to_string();
        for part in [
            "The process exited.\n",
            "Missing: not a Python program\n",
            "Incomplete: 2 samples; without a stack: 1\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn json_has_each_stack_with_its_frames() {
        let json = profile().to_json();
        let first = &json["stacks"][0];
        assert_eq!(first["call"], "cudaStreamSynchronize");
        assert_eq!(first["line"], "train.py:142 in forward()");
        assert_eq!(first["share"], 0.48);
        assert_eq!(first["frames"][1]["file"], "/app/train.py");
    }

    #[test]
    fn names_from_the_process_cannot_control_the_terminal() {
        let mut hostile = profile();
        hostile.samples = vec![sample(1, Some("\u{1b}[2J"), 1)];
        assert!(!hostile.to_string().contains('\u{1b}'));
    }
}
