//! Puts the plugin for NCCL's profiler interface where the containers of jobs find it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// File name of the plugin.
pub const PLUGIN: &str = "libfleet_nccl_profiler.so";

/// Where the plugin lies from the folder of the agent's program: beside it where both were built, else where packages and images
/// have libraries.
const PLACES: [&str; 2] = [".", "../lib"];

/// Why the plugin was not installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// It is not where it is looked for.
    #[error("no {PLUGIN} beside {} or in ../lib from there; say with --plugin where it is (cargo build --release -p fleet-nccl-profiler makes it)", .0.display())]
    NoPlugin(PathBuf),
    /// The folder cannot be written, or the plugin not be read.
    #[error("cannot copy {} to {}: {source}", .from.display(), .to.display())]
    Copy {
        /// The plugin.
        from: PathBuf,
        /// Its copy.
        to: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// The plugin that belongs to this program.
pub fn own_plugin(program: &Path) -> Result<PathBuf, InstallError> {
    let folder = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = PLACES.map(|place| folder.join(place).join(PLUGIN));
    let found = places.into_iter().find(|place| place.is_file());
    found.ok_or_else(|| InstallError::NoPlugin(program.to_owned()))
}

/// Copies the plugin into a folder, which is made if need be; says where it is then. A job that starts meanwhile loads the old one or the new one, never
/// half of one, and a job that runs keeps what it has loaded.
pub fn install(plugin: &Path, folder: &Path) -> Result<PathBuf, InstallError> {
    let to = folder.join(PLUGIN);
    let copied = || {
        fs::create_dir_all(folder)?;
        let unfinished = folder.join(format!(".{PLUGIN}.new"));
        fs::copy(plugin, &unfinished)?;
        // Jobs run as whoever they like.
        fs::set_permissions(&unfinished, Permissions::from_mode(0o755))?;
        fs::rename(unfinished, &to)
    };
    match copied() {
        Ok(()) => Ok(to),
        Err(source) => Err(InstallError::Copy {
            from: plugin.to_owned(),
            to,
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_plugin_is_found_beside_the_program_and_where_images_have_it() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("bin/fleet-agent");
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::create_dir_all(root.path().join("lib")).unwrap();
        let missing = own_plugin(&program).unwrap_err().to_string();
        assert!(missing.contains("--plugin"), "{missing}");
        for place in ["lib", "bin"] {
            fs::write(root.path().join(place).join(PLUGIN), place).unwrap();
            let found = own_plugin(&program).unwrap();
            assert_eq!(fs::read_to_string(found).unwrap(), place);
        }
    }

    #[test]
    fn a_job_that_has_loaded_the_old_one_keeps_it() {
        let root = tempfile::tempdir().unwrap();
        let (plugin, folder) = (root.path().join("new.so"), root.path().join("opt/echo"));
        fs::write(&plugin, "first").unwrap();
        let installed = install(&plugin, &folder).unwrap();
        let loaded = fs::File::open(&installed).unwrap();
        fs::write(&plugin, "second").unwrap();
        assert_eq!(install(&plugin, &folder).unwrap(), installed);
        assert_eq!(fs::read_to_string(&installed).unwrap(), "second");
        let now = fs::metadata(&installed).unwrap();
        assert_ne!(loaded.metadata().unwrap().ino(), now.ino());
        assert_eq!(now.permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let root = tempfile::tempdir().unwrap();
        let plugin = root.path().join(PLUGIN);
        fs::write(&plugin, "").unwrap();
        let refused = install(&plugin, &plugin.join("opt")).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("cannot copy"), "{refused}");
        assert!(refused.contains("/opt/"), "{refused}");
    }
}
