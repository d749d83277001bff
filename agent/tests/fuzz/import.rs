//! Traces and dumps of other tools: arbitrary bytes are refused, or analysed as the files of two
//! ranks; all numbers that follow are finite.

use fleet_agent_core::signal::Value;
use fleet_import::trace_set::TraceSet;

use super::mutate::{corpus, fuzz};

/// Pieces to which the readers are sensitive.
const PIECES: [&[u8]; 24] = [
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
];

/// Checks a file; returns whether it can be read.
fn check(bytes: &[u8]) -> bool {
    let mut set = TraceSet::default();
    let is_read = set.add("rank_5", bytes).is_ok();
    // The same content of another rank, so that ranks are compared.
    let digit = |byte: &u8| if *byte == b'5' { b'0' } else { *byte };
    let other: Vec<u8> = bytes.iter().map(digit).collect();
    let _same_rank = set.add("rank_0", &other);
    let Ok(imported) = set.finish() else {
        return is_read;
    };
    assert!(!imported.report.to_string().is_empty());
    for point in imported.points.iter().flat_map(|own| &own.blocks).flatten() {
        let is_finite = match &point.value {
            Value::Gauge(ms) => ms.is_finite(),
            Value::Summary { summary, .. } => summary.sum_ms.is_finite(),
            _ => true,
        };
        assert!(is_finite && point.start_ns <= point.time_ns, "{point:?}");
    }
    is_read
}

#[test]
fn files_of_the_corpus_are_read_as_their_names_state() {
    for (path, bytes) in corpus("import") {
        let is_sound = path.display().to_string().contains("sound");
        assert_eq!(check(&bytes), is_sound, "{}", path.display());
    }
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_readers_of_other_formats() {
    fuzz("import", &PIECES, check);
}
