//! Flags for the lake.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use echo_lake::committer::CommitterConfig;
use echo_lake::location::{CatalogSource, LakeConfig};
use echo_lake::maintenance::MaintenanceConfig;

use super::limits::{Bound, parse_bytes, parse_length};

/// Default memory limit of the engine for the lake, bytes.
const MEMORY_BYTES: u64 = 1 << 30;

/// Location of a lake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Lake")]
pub struct LakeLocationArgs {
    /// Catalog of a `DuckLake` that committed events and conclusions are copied to:
    /// `ducklake:postgres:dbname=lake host=db user=echo`, or ducklake:FILE for one instance;
    /// requires --lake-data and --duckdb-extensions
    #[arg(long, value_name = "CATALOG", env = "FLEET_ECHO_LAKE")]
    pub lake: Option<String>,

    /// File with the catalog, instead of --lake, since it may hold a password
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_LAKE_CATALOG_FILE")]
    pub lake_catalog_file: Option<PathBuf>,

    /// Folder or `s3://BUCKET/PREFIX` of the Parquet files of the lake
    #[arg(long, value_name = "LOCATION", env = "FLEET_ECHO_LAKE_DATA")]
    pub lake_data: Option<String>,

    /// File with the keys of the object store, in lines such as `AWS_ACCESS_KEY_ID=...`,
    /// `AWS_SECRET_ACCESS_KEY=`, `AWS_REGION=` and `AWS_ENDPOINT_URL=`
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_LAKE_S3_KEY_FILE")]
    pub lake_s3_key_file: Option<PathBuf>,

    /// Folder of the extensions of DuckDB that a lake needs, as `echo/get-duckdb --extensions`
    /// fetches them
    #[arg(long, value_name = "DIR", env = "FLEET_ECHO_DUCKDB_EXTENSIONS")]
    pub duckdb_extensions: Option<PathBuf>,
}

/// Lake.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Lake")]
pub struct LakeArgs {
    /// Location.
    #[command(flatten)]
    pub location: LakeLocationArgs,

    /// Serve the rows of the lake, of all instances: tools, pages, SQL and metrics. There are no
    /// OTLP listeners, and --db is not used
    #[arg(long, env = "FLEET_ECHO_READ_ONLY")]
    pub read_only: bool,

    /// Time between two commits to the lake; five million events are committed at once
    #[arg(long, value_name = "LENGTH", default_value = "1m", value_parser = parse_interval, env = "FLEET_ECHO_LAKE_EVERY")]
    pub lake_every: Duration,

    /// Memory limit of the engine that writes to the lake, in addition to --memory-limit, and of the
    /// one that reads it with --read-only
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory_bytes, env = "FLEET_ECHO_LAKE_MEMORY")]
    pub lake_memory: u64,

    /// Time between two runs of the maintenance of the lake, by one of its instances: small files
    /// are merged, and files that are not used any more are deleted; `off` for none by this one
    #[arg(long, value_name = "LENGTH", default_value = "1h", value_parser = parse_length, env = "FLEET_ECHO_LAKE_MAINTENANCE_EVERY")]
    pub lake_maintenance_every: Bound<Duration>,

    /// Age from which states of the lake are forgotten that only time travel shows, and their files
    /// deleted; longer than any query of the lake
    #[arg(long, value_name = "LENGTH", default_value = "1d", value_parser = parse_interval, env = "FLEET_ECHO_LAKE_SNAPSHOT_AGE")]
    pub lake_snapshot_age: Duration,

    /// Delete days of events and samples from the lake that ended longer ago: `400d`, or `off` to
    /// keep them. Incidents and costs stay
    #[arg(long, value_name = "LENGTH", default_value = "off", value_parser = parse_length, env = "FLEET_ECHO_LAKE_RETENTION")]
    pub lake_retention: Bound<Duration>,
}

impl Default for LakeArgs {
    fn default() -> Self {
        Self {
            location: LakeLocationArgs::default(),
            read_only: false,
            lake_every: Duration::from_mins(1),
            lake_memory: MEMORY_BYTES,
            lake_maintenance_every: Bound::At(Duration::from_hours(1)),
            lake_snapshot_age: Duration::from_hours(24),
            lake_retention: Bound::Off,
        }
    }
}

impl LakeLocationArgs {
    /// Returns the lake, if one is named, or appends the problems to `wrong`.
    pub fn lake(&self, wrong: &mut Vec<String>) -> Option<LakeConfig> {
        let catalog = match (&self.lake, &self.lake_catalog_file) {
            (Some(_), Some(_)) => {
                wrong.push("--lake and --lake-catalog-file exclude each other".to_owned());
                return None;
            }
            (Some(text), None) => CatalogSource::Text(text.clone()),
            (None, Some(path)) => CatalogSource::File(path.clone()),
            (None, None) => {
                if self.lake_data.is_some() || self.lake_s3_key_file.is_some() {
                    wrong.push(
                        "--lake-data and --lake-s3-key-file require --lake or --lake-catalog-file"
                            .to_owned(),
                    );
                }
                return None;
            }
        };
        let (Some(data), Some(extensions)) = (&self.lake_data, &self.duckdb_extensions) else {
            wrong.push(
                "a lake requires --lake-data and --duckdb-extensions, a folder that `echo/get-duckdb --extensions` fills"
                    .to_owned(),
            );
            return None;
        };
        let lake = LakeConfig {
            catalog,
            data: data.clone(),
            keys: self.lake_s3_key_file.clone(),
            extensions: extensions.clone(),
            scratch: None,
            memory_bytes: MEMORY_BYTES,
        };
        wrong.extend(lake.check());
        Some(lake)
    }
}

impl LakeArgs {
    /// Appends the problems with the flags to `wrong`.
    pub fn check(&self, wrong: &mut Vec<String>) {
        let lake = self.location.lake(wrong);
        if self.read_only && lake.is_none() && wrong.is_empty() {
            wrong.push("--read-only requires --lake or --lake-catalog-file".to_owned());
        }
    }

    /// Returns the settings of the thread that copies the database at `db`; `None` without a lake.
    pub fn committer(&self, db: &Path) -> Option<CommitterConfig> {
        let lake = self.location.lake(&mut Vec::new())?;
        let mut scratch = db.as_os_str().to_owned();
        scratch.push(".lake-tmp");
        Some(CommitterConfig {
            lake: LakeConfig {
                scratch: Some(scratch.into()),
                memory_bytes: self.lake_memory,
                ..lake
            },
            every: self.lake_every,
            maintenance: MaintenanceConfig {
                every: self.lake_maintenance_every.value(),
                snapshot_age: self.lake_snapshot_age,
                retention: self.lake_retention.value(),
            },
        })
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_length(text)? {
        Bound::At(every) if every >= Duration::from_secs(1) => Ok(every),
        Bound::At(_) | Bound::Off => Err("expected a duration of at least 1s".to_owned()),
    }
}

fn parse_memory_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        Bound::At(bytes) if bytes >= 128 << 20 => Ok(bytes),
        Bound::At(_) | Bound::Off => Err("expected a size of at least 128MiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use echo_lake::committer::CommitterConfig;

    use super::LakeArgs;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        lake: LakeArgs,
    }

    fn lake(flags: &str) -> Result<Option<CommitterConfig>, Vec<String>> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let args = Serve::try_parse_from(words).unwrap().lake;
        let mut wrong = Vec::new();
        args.check(&mut wrong);
        if wrong.is_empty() {
            Ok(args.committer(Path::new("/var/lib/fleet.duckdb")))
        } else {
            Err(wrong)
        }
    }

    #[test]
    fn without_flags_there_is_no_lake() {
        assert_eq!(lake(""), Ok(None));
        assert_eq!(lake("--duckdb-extensions /usr/lib/fleet-echo"), Ok(None));
    }

    #[test]
    fn a_lake_has_a_catalog_data_and_extensions() {
        let flags = "--lake ducklake:/tmp/c --lake-data /tmp/d --duckdb-extensions /tmp/e";
        let lake = lake(flags).unwrap().unwrap();
        assert_eq!(lake.every.as_secs(), 60);
        assert_eq!(lake.maintenance.every.unwrap().as_secs(), 3_600);
        assert_eq!(lake.maintenance.retention, None);
        let scratch = lake.lake.scratch.unwrap();
        assert_eq!(scratch, Path::new("/var/lib/fleet.duckdb.lake-tmp"));
    }

    #[test]
    fn every_problem_is_reported() {
        for (flags, expected) in [
            ("--lake-data /tmp/d", "--lake-catalog-file"),
            ("--read-only", "--lake"),
            ("--lake ducklake:/tmp/c", "--duckdb-extensions"),
            ("--lake ducklake:/tmp/c --lake-catalog-file f", "exclude"),
            (
                "--lake postgres:x --lake-data /tmp/d --duckdb-extensions /tmp/e",
                "ducklake:FILE",
            ),
            (
                "--lake ducklake:/tmp/c --lake-data s3://b/p --duckdb-extensions /tmp/e",
                "--lake-s3-key-file",
            ),
        ] {
            let wrong = lake(flags).unwrap_err();
            assert!(wrong.concat().contains(expected), "{flags}: {wrong:?}");
        }
    }
}
