//! Output of the NCCL Inspector: one JSON object per line. Dialects differ between versions, so a
//! line is read by the fields that it has.
//!
//! `coll_exec_time_us` is the longest time of a channel in whole microseconds, and
//! `dump_timestamp_us` is the time of the dump, not of the operation. The output of one process
//! mixes communicators, and its ranks are ranks in the communicator.

use serde::Deserialize;

use crate::trace::{Collective, RankTrace, parse_op};

#[derive(Deserialize)]
struct Line {
    header: Option<Header>,
    metadata: Option<Metadata>,
    coll_perf: Option<CollPerf>,
}

#[derive(Deserialize)]
struct Header {
    id: String,
    rank: u32,
    n_ranks: u32,
    global_rank: Option<u32>,
}

#[derive(Deserialize)]
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
    coll_exec_time_us: u64,
}

/// Trace of one process, and the identity of the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessTrace {
    /// Its operations.
    pub trace: RankTrace,
    /// Its communicators: number of ranks and own rank in each.
    pub memberships: Vec<(String, u32, u32)>,
    /// Its host and process id, if the lines have them.
    pub process: Option<(String, u64)>,
}

/// Returns whether a line of JSON is of the Inspector.
pub fn is_line(line: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<Line>(line);
    parsed.is_ok_and(|line| line.header.is_some() && line.metadata.is_some())
}

/// Reads the lines of one process. An error names the line.
pub fn read(bytes: &[u8]) -> Result<ProcessTrace, String> {
    let mut own = ProcessTrace::default();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed = serde_json::from_slice::<Line>(line);
        let parsed = parsed.map_err(|error| format!("line {number}: {error}"))?;
        if let (Some(header), Some(perf)) = (parsed.header, parsed.coll_perf) {
            own.add(header, parsed.metadata, perf);
        }
    }
    Ok(own)
}

impl ProcessTrace {
    fn add(&mut self, header: Header, metadata: Option<Metadata>, perf: CollPerf) {
        let known = |(group, _, _): &(String, u32, u32)| *group == header.id;
        if !self.memberships.iter().any(known) {
            let membership = (header.id.clone(), header.n_ranks, header.rank);
            self.memberships.push(membership);
        }
        if let Some(metadata) = metadata {
            let host = metadata.hostname.clone().unwrap_or_default();
            self.process = metadata.pid.map(|pid| (host, pid));
            self.trace.node = metadata.hostname;
        }
        self.trace.rank = self.trace.rank.or(header.global_rank);
        let Some(op) = parse_op(&perf.coll) else {
            self.trace.n_transfers += 1;
            return;
        };
        self.trace.collectives.push(Collective {
            group: header.id,
            seq: Some(perf.coll_sn),
            op,
            size: perf.coll_msg_size_bytes,
            start_ns: None,
            duration_ns: perf.coll_exec_time_us.saturating_mul(1_000),
        });
    }
}

/// Gives each process its rank in the job, and each group its ranks.
///
/// The Inspector knows ranks of communicators only. A communicator of which all other ones are
/// parts has the ranks of the job. Otherwise processes are numbered in the order of `number`, the
/// numbers in the names of their files.
pub fn place(processes: &mut [(Option<u32>, ProcessTrace)]) {
    let largest = processes
        .iter()
        .flat_map(|(_, own)| &own.memberships)
        .max_by_key(|(_, n_ranks, _)| *n_ranks)
        .cloned();
    let spans_job = largest.filter(|(_, n_ranks, _)| usize_of(*n_ranks) >= processes.len());
    for (number, own) in processes.iter_mut() {
        let by_job = spans_job.as_ref().and_then(|(job, _, _)| {
            let own = own.memberships.iter().find(|(group, _, _)| group == job);
            own.map(|(_, _, rank)| *rank)
        });
        own.trace.rank = own.trace.rank.or(by_job).or(*number);
    }
    let mut members: Vec<(String, u32, u32)> = processes
        .iter()
        .flat_map(|(_, own)| {
            let rank = own.trace.rank;
            let of = move |(group, _, index): &(String, u32, u32)| {
                rank.map(|rank| (group.clone(), *index, rank))
            };
            own.memberships.iter().filter_map(of)
        })
        .collect();
    members.sort();
    for (_, own) in processes.iter_mut() {
        for (group, _, _) in &own.memberships {
            let of_group = members.iter().filter(|(name, _, _)| name == group);
            let ranks = of_group.map(|(_, _, rank)| *rank).collect();
            own.trace.groups.insert(group.clone(), ranks);
        }
    }
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
        let own = read(text.as_bytes()).unwrap();
        assert_eq!(own.process, Some(("a".to_owned(), 7)));
        assert_eq!(own.memberships, [("0xd0".to_owned(), 2, 1)]);
        let [one] = &own.trace.collectives[..] else {
            panic!("{own:?}")
        };
        assert_eq!(
            (one.seq, one.duration_ns, one.op.name()),
            (Some(3), 5_000, "AllReduce")
        );
        assert!(is_line(LINE.as_bytes()) && !is_line(b"{\"a\":1}"));
        assert!(read(b"{\"header\":").unwrap_err().starts_with("line 1: "));
    }

    #[test]
    fn a_communicator_of_the_job_gives_the_ranks() {
        let other = LINE.replace("\"rank\":1", "\"rank\":0");
        let mut processes: Vec<_> = [LINE, &other]
            .iter()
            .map(|line| (Some(9), read(line.as_bytes()).unwrap()))
            .collect();
        place(&mut processes);
        let ranks: Vec<_> = processes.iter().map(|(_, own)| own.trace.rank).collect();
        assert_eq!(ranks, [Some(1), Some(0)]);
        assert_eq!(processes[0].1.trace.groups["0xd0"], [0, 1]);
    }
}
