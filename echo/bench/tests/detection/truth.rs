//! Measurements of the recorded training loops themselves, which only tests read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::repository;

/// Steps of each rank: number, begin in nanoseconds, and at index 5 whether it had the fault.
pub(crate) fn ranks(name: &str) -> Vec<Vec<Value>> {
    let path = repository("testdata/recordings").join(format!("{name}.jsonl.gz"));
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let ranks = lines.filter(|line| line["kind"] == "truth");
    let rows = |rank: Value| rank["rows"].as_array().unwrap().clone();
    ranks.map(rows).collect()
}

/// Numbers of the steps with the fault. The rank that has it marks them.
pub(crate) fn faulty_steps(ranks: &[Vec<Value>]) -> BTreeSet<i64> {
    let rows = ranks.iter().flatten();
    let faulty = rows.filter(|row| row[5].as_f64() > Some(0.0));
    faulty.map(|row| row[0].as_i64().unwrap()).collect()
}
