//! Installs the NCCL profiler plugin where the containers of jobs can load it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// File name of the plugin.
pub const PLUGIN: &str = "libfleet_nccl_profiler.so";

/// Directories of the plugin relative to the agent's program: the same one after a build, `../lib`
/// in packages and images.
const PLUGIN_DIRS: [&str; 2] = [".", "../lib"];

/// Error of an installation.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The plugin was not found.
    #[error("{PLUGIN} not found next to {} or in ../lib; name it with --plugin (built by cargo build --release -p fleet-nccl-profiler)", .0.display())]
    NoPlugin(PathBuf),
    /// The directory cannot be written, or the plugin cannot be read.
    #[error("cannot copy {} to {}: {source}", .from.display(), .to.display())]
    Copy {
        /// The plugin.
        from: PathBuf,
        /// Destination.
        to: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Finds the plugin that was installed with this program.
pub fn find_plugin(program: &Path) -> Result<PathBuf, InstallError> {
    let folder = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = PLUGIN_DIRS.map(|place| folder.join(place).join(PLUGIN));
    let found = places.into_iter().find(|place| place.is_file());
    found.ok_or_else(|| InstallError::NoPlugin(program.to_owned()))
}

/// Copies the plugin into a directory, which is created if it does not exist, and returns the path
/// of the copy. The copy is atomic: a job that starts meanwhile loads the old or the new plugin,
/// and a running job keeps the one it has loaded.
pub fn install(plugin: &Path, folder: &Path) -> Result<PathBuf, InstallError> {
    let to = folder.join(PLUGIN);
    let copied = || {
        fs::create_dir_all(folder)?;
        let partial = folder.join(format!(".{PLUGIN}.new"));
        fs::copy(plugin, &partial)?;
        // Jobs can run as any user.
        fs::set_permissions(&partial, Permissions::from_mode(0o755))?;
        fs::rename(partial, &to)
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
        let missing = find_plugin(&program).unwrap_err().to_string();
        assert!(missing.contains("--plugin"), "{missing}");
        for place in ["lib", "bin"] {
            fs::write(root.path().join(place).join(PLUGIN), place).unwrap();
            let found = find_plugin(&program).unwrap();
            assert_eq!(fs::read_to_string(found).unwrap(), place);
        }
    }

    #[test]
    fn a_job_keeps_the_plugin_that_it_has_loaded() {
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
