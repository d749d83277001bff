//! Tables of call times: CSV with the columns `rank`, `op_count` and `call_time_s`, as
//! gf-bench/nccl_log_rca_bench derives them from `NCCL_DEBUG` logs.
//!
//! A call time is of the host. If the calls of all ranks alternate, each rank waits for the last
//! one before it issues its next operation, so the time from its call to the last one is its wait.
//! The clocks of the ranks are taken as they are: a clock that is behind looks like an early rank.

use std::collections::BTreeMap;

use fleet_agent_core::event::Op;
use serde::{Deserialize, Deserializer, de};

use crate::trace::{Collective, RankTrace, parse_op};

/// Columns that a table has, with any others.
const COLUMNS: [&str; 3] = ["rank", "op_count", "call_time_s"];
/// Longest header of a table, bytes.
const MAX_HEADER: usize = 4_096;
/// Name of the only group of a table.
const GROUP: &str = "all";
/// Latest time, seconds: the year 2255, so that nanoseconds fit.
const MAX_TIME_S: f64 = 9e9;

#[derive(Deserialize)]
struct Row {
    rank: u32,
    op_count: u64,
    #[serde(rename = "call_time_s", deserialize_with = "nanos")]
    time_ns: u64,
    #[serde(default)]
    op: Option<String>,
}

/// Call of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    time_ns: u64,
    op: Op,
}

/// Calls of all ranks, by rank and by number of the operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    by_rank: BTreeMap<u32, BTreeMap<u64, Call>>,
}

/// Returns whether text begins with the header of a table.
pub fn is_table(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    if line.len() > MAX_HEADER {
        return false;
    }
    let text = String::from_utf8_lossy(line);
    let is_quote = |letter: char| letter == '"' || letter.is_whitespace();
    let names: Vec<&str> = text
        .split(',')
        .map(|name| name.trim_matches(is_quote))
        .collect();
    COLUMNS.iter().all(|column| names.contains(column))
}

/// Reads a table. An error names the line.
pub fn read(bytes: &[u8]) -> Result<Calls, csv::Error> {
    let mut calls = Calls::default();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(bytes);
    for row in reader.deserialize::<Row>() {
        let row = row?;
        let call = Call {
            time_ns: row.time_ns,
            // Without names, any operation of all ranks: only their times are compared.
            op: row
                .op
                .as_deref()
                .and_then(parse_op)
                .unwrap_or(Op::AllReduce),
        };
        let own = calls.by_rank.entry(row.rank).or_default();
        own.entry(row.op_count).or_insert(call);
    }
    Ok(calls)
}

impl Calls {
    /// Ranks of the table.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_rank.keys().copied()
    }

    /// Adds the ranks of another table.
    pub fn extend(&mut self, other: Self) {
        self.by_rank.extend(other.by_rank);
    }

    /// Returns the operations with the time that each rank waited in them, or the reason why the
    /// times do not show it.
    pub fn traces(&self) -> Result<BTreeMap<u32, RankTrace>, String> {
        let ranks: Vec<u32> = self.ranks().collect();
        let spans = self.spans();
        let pairs = spans.values().zip(spans.values().skip(1));
        let n_apart = pairs
            .filter(|(one, next)| one.last_ns >= next.first_ns)
            .count();
        if n_apart * 2 > spans.len() {
            return Err(
                "the calls of the ranks do not alternate, so that their times show no waits: the clocks of the hosts are apart, or the calls do not wait for the GPU"
                    .to_owned(),
            );
        }
        let trace = |(rank, own): (&u32, &BTreeMap<u64, Call>)| {
            let collective = |(seq, call): (&u64, &Call)| {
                let last_ns = spans.get(seq)?.last_ns;
                Some(Collective {
                    group: GROUP.to_owned(),
                    seq: Some(*seq),
                    op: call.op,
                    size: 0,
                    start_ns: Some(call.time_ns),
                    duration_ns: last_ns.saturating_sub(call.time_ns),
                })
            };
            let trace = RankTrace {
                rank: Some(*rank),
                groups: [(GROUP.to_owned(), ranks.clone())].into(),
                collectives: own.iter().filter_map(collective).collect(),
                ..RankTrace::default()
            };
            (*rank, trace)
        };
        Ok(self.by_rank.iter().map(trace).collect())
    }

    /// First and last call of each operation that all ranks called.
    fn spans(&self) -> BTreeMap<u64, Span> {
        let mut spans: BTreeMap<u64, Span> = BTreeMap::new();
        for (seq, call) in self.by_rank.values().flatten() {
            let span = spans.entry(*seq).or_insert(Span {
                first_ns: u64::MAX,
                last_ns: 0,
                n_ranks: 0,
            });
            span.first_ns = span.first_ns.min(call.time_ns);
            span.last_ns = span.last_ns.max(call.time_ns);
            span.n_ranks += 1;
        }
        spans.retain(|_, span| span.n_ranks == self.by_rank.len());
        spans
    }
}

/// Calls of one operation.
struct Span {
    first_ns: u64,
    last_ns: u64,
    n_ranks: usize,
}

/// Reads seconds as nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the limits are within those of the type"
)]
fn nanos<'de, D: Deserializer<'de>>(seconds: D) -> Result<u64, D::Error> {
    let s = f64::deserialize(seconds)?;
    if !(0.0..=MAX_TIME_S).contains(&s) {
        let limits = format_args!("{s} is not a time from 0 to {MAX_TIME_S} s");
        return Err(de::Error::custom(limits));
    }
    Ok((s * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(u32, u64, f64)]) -> Calls {
        let row = |(rank, op, s): &(u32, u64, f64)| format!("{rank},{op},{s}\n");
        let rows: String = rows.iter().map(row).collect();
        read(format!("rank,op_count,call_time_s\n{rows}").as_bytes()).unwrap()
    }

    #[test]
    fn a_wait_ends_with_the_last_call() {
        let calls = table(&[(0, 1, 10.0), (1, 1, 16.0), (0, 2, 17.0), (1, 2, 23.0)]);
        let traces = calls.traces().unwrap();
        let waits = |rank: u32| -> Vec<u64> {
            let ops = traces[&rank].collectives.iter();
            ops.map(|op| op.duration_ns / 1_000_000_000).collect()
        };
        assert_eq!((waits(0), waits(1)), (vec![6, 6], vec![0, 0]));
    }

    #[test]
    fn clocks_that_are_hours_apart_are_refused() {
        let calls = table(&[
            (0, 1, 10.0),
            (1, 1, 7_216.0),
            (0, 2, 17.0),
            (1, 2, 7_223.0),
            (0, 3, 24.0),
            (1, 3, 7_230.0),
        ]);
        let reason = calls.traces().unwrap_err();
        assert!(
            reason.contains("the clocks of the hosts are apart"),
            "{reason}"
        );
    }

    #[test]
    fn a_table_is_recognised_by_its_columns_and_an_error_names_the_line() {
        assert!(is_table(b"op_count, rank ,call_time_s,op\r\n") && !is_table(b"rank,time\n"));
        assert!(is_table(b"\"rank\",\"op_count\",\"call_time_s\"\r\n"));
        for time in ["x", "NaN", "-1", "1e300"] {
            let text = format!("rank,op_count,call_time_s\n0,1,{time}\n");
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("line: 2"), "{error}");
        }
    }
}
