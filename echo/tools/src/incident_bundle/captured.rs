//! Files that an agent made about a rank when its job hung.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use echo_store::process_reports::FilePart;
use flate2::read::GzDecoder;

/// Maximum number of parts that are read: those of 50 files of the largest size.
pub(super) const MAX_PARTS: usize = 1024;

/// Largest size of a file, bytes.
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

/// Returns the files by name, or why one is left out: of several with one name the first that is whole, which
/// shows the beginning of the hang. `parts` are those of one rank, in order of time.
pub(super) fn files<'p>(
    parts: impl Iterator<Item = &'p FilePart>,
) -> BTreeMap<&'p str, Result<Vec<u8>, String>> {
    let mut whole: BTreeMap<_, BTreeMap<u32, &FilePart>> = BTreeMap::new();
    for part in parts.filter(|part| is_name(&part.name)) {
        let key = (part.at, &part.process, part.name.as_str());
        whole.entry(key).or_default().insert(part.part, part);
    }
    let mut files: BTreeMap<&str, Result<Vec<u8>, String>> = BTreeMap::new();
    for ((_, _, name), parts) in whole {
        if files.get(name).is_none_or(Result::is_err) {
            files.insert(name, content(&parts));
        }
    }
    files
}

/// Content of a file, or why it is left out.
fn content(parts: &BTreeMap<u32, &FilePart>) -> Result<Vec<u8>, String> {
    let announced = parts.values().map(|part| part.parts).max().unwrap_or(0);
    if usize::try_from(announced) != Ok(parts.len()) {
        return Err(format!(
            "{} of {announced} parts were received",
            parts.len()
        ));
    }
    let mut gzip = Vec::new();
    for part in parts.values() {
        let decoded = STANDARD.decode_vec(&part.content, &mut gzip);
        decoded.map_err(|error| format!("damaged: {error}"))?;
    }
    let mut content = Vec::new();
    let mut bounded = GzDecoder::new(gzip.as_slice()).take(MAX_BYTES + 1);
    let read = bounded.read_to_end(&mut content);
    read.map_err(|error| format!("damaged: {error}"))?;
    if content.len() as u64 > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    Ok(content)
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

    use echo_core::units::Nanos;
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

    fn texts(parts: &[FilePart]) -> Vec<(String, Result<String, String>)> {
        let files = files(parts.iter()).into_iter();
        let texts = files.map(|(name, content)| {
            let text = content.map(|content| String::from_utf8(content).unwrap());
            (name.to_owned(), text)
        });
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
        let expected = [("threads.txt".to_owned(), Ok(text.to_owned()))];
        assert_eq!(texts(&sent), expected);
    }

    #[test]
    fn a_file_without_one_of_its_parts_is_left_out_with_the_reason_unless_a_later_one_is_whole() {
        let mut sent = parts(1, "threads.txt", "the state of each thread, line by line");
        let n = sent.len();
        sent.remove(1);
        let reason = format!("{} of {n} parts were received", n - 1);
        assert_eq!(texts(&sent), [("threads.txt".to_owned(), Err(reason))]);
        sent.extend(parts(700, "threads.txt", "later"));
        assert_eq!(
            texts(&sent),
            [("threads.txt".to_owned(), Ok("later".to_owned()))]
        );
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_left_out() {
        for name in ["../threads.txt", "/etc/passwd", "a/b", ".profile", ""] {
            assert_eq!(texts(&parts(1, name, "text")), [], "{name}");
        }
    }
}
