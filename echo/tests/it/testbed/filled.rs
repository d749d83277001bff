//! Databases that several tests start from, filled once per run of all tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::Echo;

/// Copies the database `name` to `db`. The first process of a run that needs it fills it.
pub(crate) fn once_per_run(name: &str, db: &Path, fill: impl FnOnce(&Echo)) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let lock = File::create(target.join("filled.lock")).unwrap();
    lock.lock().unwrap();
    let folder = folder_of_run(&target.join("filled"));
    let shared = folder.join(format!("{name}.duckdb"));
    if !shared.exists() {
        // A test that fails while it fills leaves nothing that the next one would take.
        let new = tempfile::tempdir_in(&folder).unwrap();
        let filling = new.path().join("fleet.duckdb");
        let echo = Echo::serve(&filling);
        fill(&echo);
        assert_eq!(echo.terminate(), 0);
        fs::rename(filling, &shared).unwrap();
    }
    fs::copy(shared, db).unwrap();
}

/// Returns the folder of this run. The programs may have changed since other runs, whose folders go.
#[expect(
    clippy::disallowed_methods,
    reason = "the runner passes the run as a variable"
)]
fn folder_of_run(runs: &Path) -> PathBuf {
    let own = std::process::id().to_string();
    let folder = runs.join(std::env::var("NEXTEST_RUN_ID").unwrap_or(own));
    if !folder.is_dir() {
        let _no_other_runs = fs::remove_dir_all(runs);
        fs::create_dir_all(&folder).unwrap();
    }
    folder
}
