//! Output of the NCCL Inspector: one JSON object per line. Dialects differ between versions, so a
//! line is read by the fields that it has. Header and metadata are in each line, or once before the
//! operations of a dump (v4.3); the fields of both may also be those of the line itself. A header
//! without `id` stands for the communicator of that many ranks.
//!
//! `coll_exec_time_us` is the longest time of a channel in microseconds, and
//! `dump_timestamp_us` is the time of the dump, not of the operation. The output of one process
//! mixes communicators, and its ranks are ranks in the communicator. A file has the lines of one
//! process, or of several if logs were joined. The last line of a process that was killed may be
//! incomplete; it is left out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::flight_recorder::nanos;
use crate::rank_name::trailing_number;
use crate::trace::{Collective, RankTrace, parse_op};

#[derive(Deserialize)]
struct Line {
    header: Option<Header>,
    metadata: Option<Metadata>,
    coll_perf: Option<CollPerf>,
    p2p_perf: Option<IgnoredAny>,
    id: Option<String>,
    rank: Option<u32>,
    n_ranks: Option<u32>,
    global_rank: Option<u32>,
    hostname: Option<String>,
    pid: Option<u64>,
}

impl Line {
    /// Returns whether it is of an operation.
    const fn has_operation(&self) -> bool {
        self.coll_perf.is_some() || self.p2p_perf.is_some()
    }

    /// Removes and returns header and metadata.
    fn take_process(&mut self) -> Option<(Header, Metadata)> {
        if let Some(header) = self.header.take() {
            return Some((header, self.metadata.take().unwrap_or_default()));
        }
        let header = Header {
            id: self.id.take(),
            rank: self.rank?,
            n_ranks: self.n_ranks?,
            global_rank: self.global_rank,
        };
        let metadata = Metadata {
            hostname: self.hostname.take(),
            pid: self.pid,
        };
        Some((header, metadata))
    }
}

#[derive(Clone, Deserialize)]
struct Header {
    id: Option<String>,
    rank: u32,
    n_ranks: u32,
    global_rank: Option<u32>,
}

#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Metadata {
    hostname: Option<String>,
    pid: Option<u64>,
}

#[derive(Deserialize)]
struct CollPerf {
    coll: String,
    coll_sn: u64,
    #[serde(default)]
    coll_msg_size_bytes: u64,
    coll_exec_time_us: f64,
}

/// Trace of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessTrace {
    /// File that has its lines.
    pub file: String,
    /// Its operations.
    pub trace: RankTrace,
    /// Its communicators.
    pub memberships: BTreeMap<String, Membership>,
}

/// Place of a process in a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Number of ranks of the communicator.
    pub n_ranks: u32,
    /// Own rank in it.
    pub rank: u32,
}

/// Returns whether a line of JSON is of the Inspector.
pub fn is_line(line: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<Line>(line);
    parsed.is_ok_and(|mut line| {
        let is_complete = line.metadata.is_some() || line.has_operation();
        is_complete && line.take_process().is_some()
    })
}

/// Reads the lines of a file. An error names the line.
pub fn read(bytes: &[u8], file: &str) -> Result<Vec<ProcessTrace>, String> {
    let mut processes: BTreeMap<Metadata, ProcessTrace> = BTreeMap::new();
    // Of the last marker.
    let mut last = None;
    let mut lines = (1..).zip(bytes.split(|byte| *byte == b'\n')).peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let mut parsed = match serde_json::from_slice::<Line>(line) {
            Err(error) if error.is_eof() && lines.peek().is_none() => break,
            parsed => parsed.map_err(|error| format!("line {number}: {error}"))?,
        };
        if let Some(process) = parsed.take_process() {
            last = Some(process);
        } else if !parsed.has_operation() {
            continue;
        }
        if let Some((header, metadata)) = last.clone() {
            let node = metadata.hostname.clone();
            let own = processes.entry(metadata).or_insert_with(|| ProcessTrace {
                file: file.to_owned(),
                trace: RankTrace {
                    node,
                    ..RankTrace::default()
                },
                ..ProcessTrace::default()
            });
            own.trace.n_transfers += u64::from(parsed.p2p_perf.is_some());
            own.add(header, parsed.coll_perf);
        }
    }
    Ok(processes.into_values().collect())
}

impl ProcessTrace {
    fn add(&mut self, header: Header, perf: Option<CollPerf>) {
        let Header { n_ranks, rank, .. } = header;
        let membership = Membership { n_ranks, rank };
        let group = header.id.unwrap_or_else(|| format!("{n_ranks} ranks"));
        self.memberships.entry(group.clone()).or_insert(membership);
        self.trace.rank = self.trace.rank.or(header.global_rank);
        let Some(perf) = perf else {
            return;
        };
        let Some(op) = parse_op(&perf.coll) else {
            self.trace.n_transfers += 1;
            return;
        };
        self.trace.collectives.push(Collective {
            group,
            seq: Some(perf.coll_sn),
            op,
            size: perf.coll_msg_size_bytes,
            start_ns: None,
            duration_ns: nanos(perf.coll_exec_time_us / 1e3),
        });
    }
}

/// Gives each process its rank in the job, and each group its ranks.
///
/// The Inspector knows ranks of communicators only. A communicator of which all other ones are
/// parts has the ranks of the job. Otherwise a process has the number in the name of its file.
pub fn place(processes: &mut [ProcessTrace]) {
    let memberships = processes.iter().flat_map(|own| &own.memberships);
    let largest = memberships.max_by_key(|(_, own)| own.n_ranks);
    let spans_job = largest.filter(|(_, own)| usize_of(own.n_ranks) >= processes.len());
    let job = spans_job.map(|(job, _)| job.clone());
    let mut groups: BTreeMap<String, BTreeMap<u32, u32>> = BTreeMap::new();
    for own in processes.iter_mut() {
        let by_job = job.as_ref().and_then(|job| own.memberships.get(job));
        let by_job = by_job.map(|own| own.rank);
        own.trace.rank = own.trace.rank.or(by_job).or_else(|| number(&own.file));
        if let Some(rank) = own.trace.rank {
            for (group, own) in &own.memberships {
                let members = groups.entry(group.clone()).or_default();
                members.insert(own.rank, rank);
            }
        }
    }
    for own in processes {
        for group in own.memberships.keys() {
            let members = groups.get(group).into_iter().flat_map(BTreeMap::values);
            let ranks = members.copied().collect();
            own.trace.groups.insert(group.clone(), ranks);
        }
    }
}

/// Number of a host or rank in the name of a log, before the process id: `worker-3-pid1003.log`.
fn number(file: &str) -> Option<u32> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let before_pid = name.split("pid").next().unwrap_or(name);
    trailing_number(before_pid)
}

fn usize_of(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"header":{"id":"0xd0","rank":1,"n_ranks":2},"metadata":{"hostname":"a","pid":7,"new":1},"coll_perf":{"coll":"AllReduce","coll_sn":3,"coll_msg_size_bytes":8,"coll_exec_time_us":5,"coll_algo":"RING"}}"#;

    #[test]
    fn a_line_is_read_by_its_fields_and_other_lines_are_skipped() {
        let text = format!("{{\"dump_stats\":{{\"overflows\":1}}}}\n{LINE}\n\n");
        let own = read(text.as_bytes(), "a.log").unwrap().remove(0);
        let membership = Membership {
            n_ranks: 2,
            rank: 1,
        };
        assert_eq!(own.memberships, [("0xd0".to_owned(), membership)].into());
        let [one] = &own.trace.collectives[..] else {
            panic!("{own:?}")
        };
        assert_eq!(
            (one.seq, one.duration_ns, one.op.name()),
            (Some(3), 5_000, "AllReduce")
        );
        assert!(is_line(LINE.as_bytes()) && !is_line(b"{\"a\":1}"));
        let damaged = read(b"{\"header\":\n{}\n", "a.log").unwrap_err();
        assert!(damaged.starts_with("line 1: "), "{damaged}");
    }

    #[test]
    fn header_and_metadata_are_in_a_marker_before_or_fields_of_the_line() {
        let perf = r#""coll_perf":{"coll":"AllReduce","coll_sn":3,"coll_exec_time_us":5.5}"#;
        let header = r#"{"header":{"id":"0xd0","rank":1,"n_ranks":2}"#;
        let marker = format!("{header},\"metadata\":{{\"pid\":7}},\"dump_stats\":{{}}}}");
        let flat = r#"{"id":"0xd0","rank":1,"n_ranks":2,"pid":7,"hostname":"a""#;
        let without_id = r#"{"header":{"rank":1,"n_ranks":2}"#;
        for (text, group) in [
            (format!("{marker}\n{{{perf}}}\n"), "0xd0"),
            (format!("{flat},{perf}}}\n"), "0xd0"),
            (format!("{without_id},{perf}}}\n"), "2 ranks"),
        ] {
            let first = text.lines().next().unwrap();
            assert!(is_line(first.as_bytes()), "{first}");
            let own = read(text.as_bytes(), "a.log").unwrap().remove(0);
            let [one] = &own.trace.collectives[..] else {
                panic!("{own:?}")
            };
            assert_eq!((one.group.as_str(), one.duration_ns), (group, 5_500));
        }
    }

    #[test]
    fn transfers_are_counted() {
        let transfer = LINE.replace("coll_perf", "p2p_perf");
        let own = read(transfer.as_bytes(), "a.log").unwrap().remove(0);
        assert_eq!((own.trace.n_transfers, own.trace.collectives.len()), (1, 0));
    }

    #[test]
    fn the_incomplete_last_line_of_a_killed_process_is_left_out() {
        let text = format!("{LINE}\n{}", LINE.split_at(LINE.len() - 9).0);
        let own = read(text.as_bytes(), "a.log").unwrap().remove(0);
        assert_eq!(own.trace.collectives.len(), 1);
    }

    #[test]
    fn a_communicator_of_the_job_gives_the_ranks() {
        let other = LINE.replace("\"rank\":1", "\"rank\":0");
        let mut processes: Vec<_> = [LINE, &other]
            .iter()
            .flat_map(|line| read(line.as_bytes(), "logs/host-9-pid7.log").unwrap())
            .collect();
        place(&mut processes);
        let ranks: Vec<_> = processes.iter().map(|own| own.trace.rank).collect();
        assert_eq!(ranks, [Some(1), Some(0)]);
        assert_eq!(processes[0].trace.groups["0xd0"], [0, 1]);
    }
}
