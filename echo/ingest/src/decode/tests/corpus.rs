//! Requests stored as files, which a test replays and the fuzzers start from.

use std::fs::{read, read_dir};
use std::path::{Path, PathBuf};

use crate::decode::Payload;

/// Returns the requests of a target with their payload, which is the first part of the file name,
/// in the order of file names.
pub(in crate::decode) fn corpus(target: &str) -> Vec<(String, Payload, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fuzz");
    let entries = read_dir(folder.join(target)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no corpus");
    let request = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let payload = match name.split('-').next() {
            Some("metrics") => Payload::Metrics,
            Some("logs") => Payload::Logs,
            Some("traces") => Payload::Traces,
            _ => panic!("{name} does not begin with a payload kind"),
        };
        (name, payload, read(path).unwrap())
    };
    paths.into_iter().map(request).collect()
}
