//! Traces and dumps of other tools: arbitrary bytes are refused, or analysed as the files of two
//! ranks; all numbers that follow are finite. Each format is a target of its own.

use std::path::PathBuf;

use fleet_agent::import::nsys;
use fleet_agent_core::signal::Value;
use fleet_import::trace_set::{Imported, TraceSet};

use super::mutate::{corpus, fuzz, fuzz_files};

/// Pieces to which the readers are sensitive.
const PIECES: [&[u8]; 31] = [
    b"{",
    b"}",
    b"]",
    b"\n",
    b"null",
    b"-1",
    b"1e308",
    b"18446744073709551615",
    b"4294967295",
    b"\"Seq\":7,",
    b"\"ts\":0,",
    b"\"dur\":1e99,",
    b"\"rank\":0,",
    b"\"ranks\":\"[0, 1, ...]\"",
    b"\"state\":\"scheduled\",",
    b"\"duration_ms\":-1,",
    b"\"coll_sn\":0,",
    b"\x80\x02",
    b"(",
    b"h\x00",
    b"q\x00",
    b"u",
    b"X\xff\xff\xff\x7f",
    b"\x93",
    b"\"is_p2p\":true,",
    b"\"p2p_seq_id\":3,",
    b"nccl:recv 1<-0",
    b",1e400",
    b"\xff\xff\xff\xff\x0f",
    b"PAR1",
    b"\x15\x00",
];

/// Checks a file; returns whether it can be read.
fn check(bytes: &[u8]) -> bool {
    let mut set = TraceSet::default();
    let is_read = set.add("rank_5", bytes).is_ok();
    // The same content of another rank, so that ranks are compared.
    let digit = |byte: &u8| if *byte == b'5' { b'0' } else { *byte };
    let other: Vec<u8> = bytes.iter().map(digit).collect();
    let _same_rank = set.add("rank_0", &other);
    if let Ok(imported) = set.finish() {
        check_numbers(&imported);
    }
    is_read
}

/// Checks an export of Nsight Systems; returns whether it can be read.
fn check_export(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.sqlite");
    std::fs::write(&path, bytes).unwrap();
    let Ok(gpus) = nsys::read(&path) else {
        return false;
    };
    let mut set = TraceSet::default();
    set.add_gpus("report.sqlite", gpus).unwrap();
    check_numbers(&set.finish().unwrap());
    true
}

/// Checks that the report can be printed, and that the numbers of all points are finite.
fn check_numbers(imported: &Imported) {
    assert!(!imported.report.to_string().is_empty());
    for point in imported.points.iter().flat_map(|own| &own.blocks).flatten() {
        let is_finite = match &point.value {
            Value::Gauge(ms) => ms.is_finite(),
            Value::Summary { summary, .. } => summary.sum_ms.is_finite(),
            _ => true,
        };
        assert!(is_finite && point.start_ns <= point.time_ns, "{point:?}");
    }
}

/// Fuzzes the files of the corpus whose names contain one of the words.
fn fuzz_format(target: &str, words: &[&str]) {
    let is_kept = |(path, _): &(PathBuf, Vec<u8>)| {
        let name = path.display().to_string();
        words.iter().any(|word| name.contains(word))
    };
    let files: Vec<_> = corpus("import").into_iter().filter(is_kept).collect();
    assert!(!files.is_empty(), "{target} has no corpus");
    fuzz_files(target, &files, &PIECES, check);
}

#[test]
fn files_of_the_corpus_are_read_as_their_names_state() {
    for (path, bytes) in corpus("import") {
        let is_sound = path.display().to_string().contains("sound");
        assert_eq!(check(&bytes), is_sound, "{}", path.display());
    }
}

#[test]
fn exports_of_the_corpus_are_read_as_their_names_state() {
    for (path, bytes) in corpus("import-nsys") {
        let is_sound = path.display().to_string().contains("sound");
        assert_eq!(check_export(&bytes), is_sound, "{}", path.display());
    }
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_kineto_traces() {
    fuzz_format("import kineto", &["trace"]);
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_pickles() {
    fuzz_format("import pickle", &["pickle"]);
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_flight_recorder_json() {
    fuzz_format("import flight recorder", &["dump.json", "transfers"]);
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_inspector_lines() {
    fuzz_format("import inspector", &["inspector"]);
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_call_times() {
    fuzz_format("import calls", &["calls"]);
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_parquet() {
    fuzz_format("import parquet", &["parquet"]);
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_reader_of_nsight_systems_exports() {
    fuzz("import-nsys", &PIECES, check_export);
}
