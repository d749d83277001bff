//! Recordings: arbitrary bytes yield events that a replay can pace, or an error that names the
//! line.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use fleet_agent_core::event::Event;
use fleet_agent_sources::recording::Recording;
use fleet_agent_sources::source::{EventSource, SourceError};

use super::mutate::{corpus, fuzz};

/// Pieces to which JSON and the reader are sensitive.
const PIECES: [&[u8]; 28] = [
    b"\n",
    b"\r\n",
    b"{",
    b"}",
    b"\"",
    b"\\u0000",
    b"null",
    b"-1",
    b"1e99",
    b"18446744073709551615",
    b"18446744073709551616",
    b"4294967296",
    b"\"kind\":\"call\",",
    b"\"kind\":\"launches\",",
    b"\"kind\":\"entered\",",
    b"\"kind\":\"returned\",",
    b"\"kind\":\"copies\",",
    b"\"kind\":\"quiet\",",
    b"\"kind\":\"sched_switch\",",
    b"\"kind\":\"truth\",",
    b"\"ts\":0,",
    b"\"dur\":18446744073709551615,",
    b"\"fn\":\"ncclCommInitRank\",",
    b"\"unique_id_splitmix64\":\"0xffffffffffffffff\",",
    b"\"world_size\":0,",
    b"\"processes\":[],",
    b"\xff\xfe",
    b"\x1f\x8b",
];

/// Maximum step between two events that a replay waits for, nanoseconds.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Result of reading a recording: its number of processes, its events, and its error.
type Read = (usize, Vec<Event>, Option<String>);

fn read(bytes: &[u8]) -> Read {
    let mut recording = match Recording::new("file", Cursor::new(bytes.to_vec())) {
        Ok(recording) => recording,
        Err(error) => return (0, Vec::new(), Some(described(&error, bytes))),
    };
    for process in recording.processes() {
        assert!(process.rank < process.world_size, "{process:?}");
    }
    let mut events = Vec::new();
    let error = loop {
        match recording.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => break None,
            Err(error) => break Some(described(&error, bytes)),
        }
    };
    (recording.processes().len(), events, error)
}

/// Formats the error; checks that it names a line of the file, or the one after the last.
fn described(error: &SourceError, bytes: &[u8]) -> String {
    let (SourceError::Foreign { line, .. }
    | SourceError::Truncated { line, .. }
    | SourceError::Damaged { line, .. }) = error
    else {
        panic!("{error}");
    };
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b]);
    assert!(
        *line >= 1 && (is_compressed || *line <= lines(bytes) + 1),
        "{error}"
    );
    error.to_string()
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.split_inclusive(|byte| *byte == b'\n').count() as u64
}

/// Checks a recording; returns whether it can be read to its end.
fn check(bytes: &[u8]) -> bool {
    let plain = read(bytes);
    let (processes, events, error) = &plain;
    for pair in events.windows(2) {
        let step = pair[0].ts_ns().abs_diff(pair[1].ts_ns());
        assert!(step <= HOUR_NS, "{pair:?}");
    }
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        assert!(events.len() as u64 <= lines(bytes), "{bytes:02x?}");
        assert!(*processes <= bytes.len());
        assert_eq!(plain, read(&gzip(bytes)), "gzipped: {bytes:02x?}");
    }
    error.is_none()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn recordings_of_the_corpus_are_read_as_their_names_state() {
    for (path, bytes) in corpus("recording") {
        let is_sound = path.display().to_string().contains("sound");
        assert_eq!(check(&bytes), is_sound, "{}", path.display());
    }
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_recording_reader() {
    fuzz("recording", &PIECES, check);
}
