use std::os::unix::fs::PermissionsExt;

use super::*;

fn batch(number: u64) -> EncodedBatch {
    EncodedBatch {
        instance: 0xa,
        number,
        points: number * 10,
        request: Bytes::from(vec![b'x'; 100]),
    }
}

fn open(dir: &Path) -> Spool {
    Spool::open(dir, 1 << 20).unwrap()
}

/// Removes all batches and returns their numbers, oldest first.
fn drain(spool: &mut Spool) -> Vec<u64> {
    std::iter::from_fn(|| {
        let (sequence, batch) = spool.front()?;
        spool.remove(sequence);
        Some(batch.number)
    })
    .collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn batches_are_returned_unchanged_in_the_order_of_insertion() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path());
    for number in [3, 1, 2] {
        spool.push(&batch(number), None).unwrap();
    }
    assert_eq!(spool.front().unwrap().1, batch(3));
    assert_eq!(drain(&mut spool), [3, 1, 2]);
    assert_eq!((spool.n_batches(), spool.bytes()), (0, 0));
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn batches_of_an_earlier_agent_come_before_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path());
    spool.push(&batch(7), None).unwrap();
    spool.push(&batch(8), None).unwrap();
    let bytes = spool.bytes();
    drop(spool);
    let mut spool = open(dir.path());
    assert_eq!((spool.n_batches(), spool.bytes()), (2, bytes));
    spool.push(&batch(1), None).unwrap();
    assert_eq!(drain(&mut spool), [7, 8, 1]);
}

#[test]
fn two_agents_cannot_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let error = Spool::open(dir.path(), 1).unwrap_err();
    assert!(matches!(error, SpoolError::InUse(_)), "{error}");
    assert!(error.to_string().contains("a separate directory per agent"));
    assert!(!error.to_string().contains('\n'));
    drop(first);
    open(dir.path());
}

#[test]
fn a_directory_that_cannot_be_created_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for wrong in [file.join("below"), file] {
        let error = Spool::open(&wrong, 1).unwrap_err();
        assert!(matches!(error, SpoolError::Unusable { .. }), "{error}");
    }
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Only root can change the owner of a directory.
    if std::os::unix::fs::chown(dir.path(), Some(65_534), None).is_ok() {
        let error = Spool::open(dir.path(), 1).unwrap_err();
        assert!(matches!(error, SpoolError::Unusable { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("owned by user 65534"), "{message}");
    }
}

#[test]
fn the_directory_is_accessible_only_to_its_user() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("var/spool");
    open(&deep);
    let mode = fs::metadata(&deep).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn the_oldest_batches_are_evicted_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 3 * BLOCK_BYTES).unwrap();
    for number in 1..=5 {
        spool.push(&batch(number), None).unwrap();
        assert!(spool.bytes() <= 3 * BLOCK_BYTES);
    }
    let evicted = Amount {
        batches: 2,
        points: 30,
    };
    assert_eq!(spool.take_losses().evicted, evicted);
    assert_eq!(spool.take_losses(), Losses::default());
    assert_eq!(drain(&mut spool), [3, 4, 5]);
}

#[test]
fn the_batch_that_is_being_sent_can_be_protected_from_eviction() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 3 * BLOCK_BYTES).unwrap();
    let first = spool.push(&batch(1), None).unwrap();
    for number in 2..=5 {
        spool.push(&batch(number), Some(first)).unwrap();
    }
    assert!(spool.contains(first));
    assert_eq!(spool.take_losses().evicted.batches, 2);
    assert_eq!(drain(&mut spool), [1, 4, 5]);
    assert!(!spool.contains(first));
}

#[test]
fn a_batch_larger_than_the_limit_evicts_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 2 * BLOCK_BYTES).unwrap();
    let first = spool.push(&batch(1), None).unwrap();
    let large = EncodedBatch {
        request: Bytes::from(vec![0; 2 * 4096]),
        ..batch(2)
    };
    for protected in [None, Some(first)] {
        let error = spool.push(&large, protected).unwrap_err();
        assert!(matches!(error, PushError::TooLarge { .. }), "{error}");
    }
    assert_eq!(spool.take_losses(), Losses::default());
    assert_eq!(drain(&mut spool), [1]);
}

#[test]
fn a_smaller_limit_applies_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path());
    for number in 1..=5 {
        spool.push(&batch(number), None).unwrap();
    }
    drop(spool);
    let mut spool = Spool::open(dir.path(), 2 * BLOCK_BYTES).unwrap();
    assert_eq!(spool.take_losses().evicted.batches, 3);
    assert_eq!(drain(&mut spool), [4, 5]);
}

#[test]
fn a_partial_file_of_a_killed_writer_is_not_read_as_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).push(&batch(1), None).unwrap();
    let partial = FileName::Partial(2).to_string();
    fs::write(dir.path().join(&partial), "half a ba").unwrap();
    let mut spool = open(dir.path());
    assert_eq!(spool.take_losses().damaged_files, 1);
    assert!(!names(dir.path()).contains(&partial));
    assert_eq!(drain(&mut spool), [1]);
}

#[test]
fn damaged_files_are_counted_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path());
    let sequences: Vec<u64> = (1..=6)
        .map(|number| spool.push(&batch(number), None).unwrap())
        .collect();
    let path = |index: usize| {
        dir.path()
            .join(FileName::Batch(sequences[index]).to_string())
    };
    let whole = fs::read(path(0)).unwrap();
    fs::write(path(0), &whole[..whole.len() - 1]).unwrap();
    fs::write(path(1), "").unwrap();
    fs::write(path(2), "unrelated").unwrap();
    let mut torn = whole;
    torn.splice(60..80, [0; 20]);
    fs::write(path(3), torn).unwrap();
    fs::remove_file(path(4)).unwrap();
    assert_eq!(drain(&mut spool), [6]);
    assert_eq!(spool.take_losses().damaged_files, 5);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn unrelated_files_are_counted_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("README"), "do not remove").unwrap();
    let like_ours = FileName::Batch(9).to_string();
    fs::create_dir(dir.path().join(&like_ours)).unwrap();
    std::os::unix::fs::symlink("README", dir.path().join(FileName::Batch(10).to_string())).unwrap();
    let mut spool = open(dir.path());
    assert_eq!(spool.take_losses().damaged_files, 3);
    assert_eq!(spool.n_batches(), 0);
    spool.push(&batch(1), None).unwrap();
    assert_eq!(drain(&mut spool), [1]);
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn a_missing_directory_is_an_error_and_is_used_again_when_it_reappears() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("spool");
    let mut spool = open(&dir);
    spool.push(&batch(1), None).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let error = spool.push(&batch(2), None).unwrap_err();
    assert!(matches!(error, PushError::Disk(_)), "{error}");
    fs::create_dir(&dir).unwrap();
    spool.push(&batch(3), None).unwrap();
    assert_eq!(drain(&mut spool), [3]);
    assert_eq!(spool.take_losses().damaged_files, 1);
}
