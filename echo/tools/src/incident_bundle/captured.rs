//! Files that an agent made about a rank when its job hung.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use echo_core::units::Nanos;
use echo_store::process_reports::FilePart;
use flate2::read::GzDecoder;

/// Maximum number of parts that are read of one rank: those of ten files of the largest size.
pub(super) const MAX_PARTS: usize = 256;

/// Largest size of a file, bytes; what exceeds it is cut off.
const MAX_BYTES: u64 = 8 << 20;

/// Longest name.
const MAX_NAME: usize = 64;

/// What a file is for.
pub(super) fn about(name: &str) -> &'static str {
    match name {
        "threads.txt" => "states of its threads and of its descendants",
        "flight_recorder.pickle" => {
            "the last operations that PyTorch recorded: fleet-echo import reads it"
        }
        "ras.json" | "ras.txt" => "what NCCL's RAS subsystem answered about the job",
        "capture.txt" => "what of this could be read, and why not",
        _ => "file of the agent",
    }
}

/// Returns the files of which all parts are there, by name: of several with one name the first, which shows
/// the beginning of the hang. `parts` are in order of time.
pub(super) fn files(parts: &[FilePart]) -> BTreeMap<&str, Vec<u8>> {
    let mut whole: BTreeMap<(Nanos, Option<u32>, &str), BTreeMap<u32, &FilePart>> = BTreeMap::new();
    for part in parts.iter().filter(|part| is_name(&part.name)) {
        let key = (part.at, part.process.pid, part.name.as_str());
        whole.entry(key).or_default().insert(part.part, part);
    }
    let mut files = BTreeMap::new();
    for ((_, _, name), parts) in whole {
        if !files.contains_key(name)
            && let Some(content) = content(&parts)
        {
            files.insert(name, content);
        }
    }
    files
}

/// Content of a file; `None` if a part is missing or is no part of one.
fn content(parts: &BTreeMap<u32, &FilePart>) -> Option<Vec<u8>> {
    let counts: BTreeSet<u32> = parts.values().map(|part| part.parts).collect();
    if !counts.into_iter().eq([u32::try_from(parts.len()).ok()?]) {
        return None;
    }
    let mut gzip = Vec::new();
    for part in parts.values() {
        STANDARD.decode_vec(&part.content, &mut gzip).ok()?;
    }
    let mut content = Vec::new();
    let mut bounded = GzDecoder::new(gzip.as_slice()).take(MAX_BYTES);
    bounded.read_to_end(&mut content).ok()?;
    Some(content)
}

/// Returns true if a name is that of a file in a folder, and nothing else. It comes from an agent.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use echo_store::process_reports::ProcessKey;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Parts of a file with this content, of 20 bytes each.
    fn parts(second: i64, name: &str, content: &str) -> Vec<FilePart> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(content.as_bytes()).unwrap();
        let gzip = encoder.finish().unwrap();
        let parts = gzip.chunks(20);
        let n_parts = u32::try_from(parts.len()).unwrap();
        let parts = (0..).zip(parts).map(|(part, bytes)| FilePart {
            process: ProcessKey {
                cluster: "c".parse().unwrap(),
                node: "n".parse().unwrap(),
                job: None,
                rank: None,
                pid: Some(4_711),
                name: None,
            },
            at: Nanos::new(second * 1_000_000_000),
            name: name.to_owned(),
            part,
            parts: n_parts,
            content: STANDARD.encode(bytes),
        });
        parts.collect()
    }

    fn texts(parts: &[FilePart]) -> Vec<(String, String)> {
        let files = files(parts).into_iter();
        let texts =
            files.map(|(name, content)| (name.to_owned(), String::from_utf8(content).unwrap()));
        texts.collect()
    }

    #[test]
    fn a_file_is_put_together_from_its_parts_and_the_first_of_a_name_is_kept() {
        let text = "the state of each thread, line by line";
        let sent = [
            parts(1, "threads.txt", text),
            parts(700, "threads.txt", "later"),
        ]
        .concat();
        assert!(sent.len() > 3);
        let expected = [("threads.txt".to_owned(), text.to_owned())];
        assert_eq!(texts(&sent), expected);
    }

    #[test]
    fn a_file_without_one_of_its_parts_is_left_out() {
        let mut sent = parts(1, "threads.txt", "the state of each thread, line by line");
        sent.remove(1);
        assert_eq!(texts(&sent), []);
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_left_out() {
        for name in ["../threads.txt", "/etc/passwd", "a/b", ".profile", ""] {
            assert_eq!(texts(&parts(1, name, "text")), [], "{name}");
        }
    }
}
