//! Files of an import: found in folders, and unpacked within bounds.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use fleet_import::format::SQLITE_MAGIC;
use fleet_import::trace_set::{ImportError, Imported, TraceSet};
use indicatif::ProgressBar;

use crate::import::{ImportFailure, nsys};

/// Maximum size of a file, unpacked.
const MAX_BYTES: u64 = 8 << 30;
/// Maximum ratio of unpacked to packed bytes; traces have about 20.
const MAX_RATIO: u64 = 400;
/// Unpacked bytes below which the ratio does not matter.
const SMALL: u64 = 16 << 20;
/// Maximum number of files of a folder.
const MAX_FILES: usize = 100_000;
/// Maximum number of folders that are listed.
const MAX_LISTED: usize = 16;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads and analyses all files. A file of a folder that cannot be used is listed in the report, one
/// that was named is an error.
pub(super) fn read(paths: &[PathBuf], progress: &ProgressBar) -> Result<Imported, ImportFailure> {
    let mut files = Vec::new();
    for path in paths {
        find(path, MAX_FILES, &mut files).map_err(|source| unreadable(path, source))?;
    }
    for file in &files {
        let metadata = file.path.metadata();
        progress.inc_length(metadata.map_or(0, |metadata| metadata.len()));
    }
    let (mut set, mut first_error) = (TraceSet::default(), None);
    for file in &files {
        match add(&file.path, &mut set, progress) {
            Ok(()) => {}
            Err(ImportFailure::Content(error)) if file.is_found && is_skipped(&error) => {
                set.skip(&error);
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    set.finish().map_err(|error| match (error, first_error) {
        (ImportError::Empty, Some(first)) => first.into(),
        (error, _) => error.into(),
    })
}

/// Returns whether the other files of a folder are of use without this one.
const fn is_skipped(error: &ImportError) -> bool {
    matches!(error, ImportError::Unknown(_) | ImportError::Damaged { .. })
}

/// File to read.
struct Input {
    path: PathBuf,
    /// Set if it was found in a folder, and not named.
    is_found: bool,
}

/// Adds a file, or the files of a folder in order of their names.
fn find(path: &Path, max_files: usize, files: &mut Vec<Input>) -> io::Result<()> {
    if !path.metadata()?.is_dir() {
        files.push(Input {
            path: path.to_owned(),
            is_found: false,
        });
        return Ok(());
    }
    let (mut found, mut folders) = (Vec::new(), Vec::new());
    for entry in path.read_dir()? {
        if found.len() >= max_files {
            let reason = format!("it has {max_files} files or more, more than any job has ranks");
            return Err(io::Error::other(reason));
        }
        let entry = entry?.path();
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // Not pipes and devices, which do not end.
        if !is_hidden && entry.is_file() {
            found.push(entry);
        } else if !is_hidden && folders.len() < max_files && entry.is_dir() {
            folders.push(entry);
        }
    }
    match &folders[..] {
        [only] if found.is_empty() => return find(only, max_files, files),
        [_, _, ..] if found.is_empty() => return Err(several(folders)),
        _ => {}
    }
    found.sort();
    files.extend(found.into_iter().map(|path| Input {
        path,
        is_found: true,
    }));
    Ok(())
}

/// The error of a folder without files that has several folders.
fn several(mut folders: Vec<PathBuf>) -> io::Error {
    folders.sort();
    let more = folders.len().saturating_sub(MAX_LISTED);
    let names = folders.iter().take(MAX_LISTED);
    let mut names: Vec<String> = names.map(|folder| folder.display().to_string()).collect();
    names.extend((more > 0).then(|| format!("and {more} more")));
    io::Error::other(format!(
        "it has no files but folders: give one of {}",
        names.join(", ")
    ))
}

/// Adds a file to the set. A database is read in place, any other file as a whole.
fn add(path: &Path, set: &mut TraceSet, progress: &ProgressBar) -> Result<(), ImportFailure> {
    let failed = |source| unreadable(path, source);
    let file = File::open(path).map_err(failed)?;
    let packed_len = file.metadata().map_err(failed)?.len();
    let mut reader = progress.wrap_read(file);
    let mut start = Vec::new();
    (&mut reader)
        .take(SQLITE_MAGIC.len() as u64)
        .read_to_end(&mut start)
        .map_err(failed)?;
    let name = path.display().to_string();
    if start == SQLITE_MAGIC {
        let gpus = nsys::read(path).map_err(|error| ImportError::Damaged {
            file: name.clone(),
            reason: error.to_string(),
        })?;
        progress.inc(packed_len);
        return Ok(set.add_gpus(&name, gpus)?);
    }
    let whole = start.as_slice().chain(reader);
    let (bytes, is_cut) = if start.starts_with(&GZIP_MAGIC) {
        let limit = packed_len.saturating_mul(MAX_RATIO).clamp(SMALL, MAX_BYTES);
        bounded(MultiGzDecoder::new(whole), limit, &name)?
    } else {
        bounded(whole, MAX_BYTES, &name)?
    };
    set.add(&name, &bytes)?;
    if is_cut {
        let (file, reason) = (name, "its end, which is missing".to_owned());
        set.skip(&ImportError::Damaged { file, reason });
    }
    Ok(())
}

/// Reads to the end, and returns whether that is missing, as after a crash; an error if that is more
/// than `limit` bytes.
fn bounded(reader: impl Read, limit: u64, name: &str) -> Result<(Vec<u8>, bool), ImportFailure> {
    let refused = |reason: String| ImportError::Damaged {
        file: name.to_owned(),
        reason,
    };
    let mut bytes = Vec::new();
    let read = reader.take(limit + 1).read_to_end(&mut bytes);
    let is_cut = match read {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !bytes.is_empty() => true,
        Err(error) => return Err(refused(format!("cannot be read to its end: {error}")).into()),
    };
    if bytes.len() as u64 > limit {
        return Err(refused(format!(
            "unpacks to more than {limit} bytes, more than any trace"
        ))
        .into());
    }
    Ok((bytes, is_cut))
}

fn unreadable(path: &Path, source: io::Error) -> ImportFailure {
    ImportFailure::Unreadable {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read_folder(files: &[(&str, &[u8])]) -> Result<Imported, ImportFailure> {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        read(&[folder.path().to_owned()], &ProgressBar::hidden())
    }

    #[test]
    fn a_gzip_bomb_is_refused() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![0; 1 << 20];
        for _ in 0..40 {
            encoder.write_all(&zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 50_000);
        let error = read_folder(&[("rank0.json.gz", &bomb)])
            .unwrap_err()
            .to_string();
        assert!(error.contains("unpacks to more than"), "{error}");
    }

    #[test]
    fn a_folder_of_twenty_thousand_small_files_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for rank in 0..20_000 {
            let path = folder.path().join(format!("rank_{rank}.json"));
            std::fs::write(path, br#"{"traceEvents":[]}"#).unwrap();
        }
        let imported = read(&[folder.path().to_owned()], &ProgressBar::hidden()).unwrap();
        assert_eq!(imported.report.files, 20_000);
        let refusal = imported.report.refusal.unwrap();
        assert!(refusal.starts_with("no collective operation"), "{refusal}");
    }

    #[test]
    fn a_folder_with_more_files_than_the_limit_is_refused_and_not_read_in_part() {
        let folder = tempfile::tempdir().unwrap();
        for rank in 0..3 {
            std::fs::write(folder.path().join(format!("rank{rank}")), "").unwrap();
        }
        let found = |max_files| {
            let mut files = Vec::new();
            find(folder.path(), max_files, &mut files).map(|()| files.len())
        };
        assert_eq!(found(4).unwrap(), 3);
        assert!(found(2).unwrap_err().to_string().contains("2 files"));
    }

    #[test]
    fn a_folder_without_a_known_format_names_the_file_and_the_formats() {
        let error = read_folder(&[("notes.txt", b"hello")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("notes.txt: none of the formats") && error.contains("Inspector"),
            "{error}"
        );
        let error = read_folder(&[]).unwrap_err().to_string();
        assert!(error.contains("or in one folder below it"), "{error}");
    }

    #[test]
    fn a_damaged_file_beside_others_is_listed_and_alone_an_error() {
        let files: [(&str, &[u8]); 2] = [
            ("rank0", b"\x80\x02}X\x07\x00\x00\x00entries]s."),
            ("rank1", b"\x80\x02cos\nsystem\n."),
        ];
        let imported = read_folder(&files).unwrap();
        let skipped = &imported.report.skipped[0].reason;
        assert!(
            skipped.ends_with("a pickle with globals is not read"),
            "{skipped}"
        );
        let error = read_folder(&files[1..]).unwrap_err().to_string();
        assert!(error.contains("Python object os.system"), "{error}");
    }
}
