//! A `PostgreSQL` server of the Debian package.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fleet_test_harness::Need;
use tempfile::TempDir;

use crate::clients::done;
use crate::testbed::free_port;

/// An installed `PostgreSQL`.
pub(super) static POSTGRES: Need = Need::new("postgresql", || {
    let reason = "no PostgreSQL (apt-get install postgresql)";
    programs().is_none().then(|| reason.to_owned())
});

/// Returns the folder of the programs of the newest installed version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    programs
        .max()
        .filter(|programs| programs.join("initdb").is_file())
}

/// A `PostgreSQL` server in a folder of its own, stopped on drop.
pub(super) struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
}

impl Postgres {
    /// Starts a server with a database `lake`.
    pub(super) fn start() -> Self {
        let programs = programs().unwrap();
        let port = free_port();
        let folder = tempfile::tempdir().unwrap();
        let server = Self {
            folder,
            programs,
            port,
        };
        // The server refuses to run as root.
        std::fs::set_permissions(server.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(server.data()).unwrap();
        if rustix::process::geteuid().is_root() {
            let ids = done(
                Command::new("id").args(["-u", "postgres"]),
                "no account postgres",
            );
            let id = String::from_utf8(ids.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            chown(server.folder.path(), Some(id), None).unwrap();
            chown(server.data(), Some(id), None).unwrap();
        }
        done(
            server
                .program("initdb")
                .args(["-A", "trust", "-U", "echo", "-D"])
                .arg(server.data()),
            "initdb",
        );
        server.run();
        let port = server.port.to_string();
        done(
            server
                .program("createdb")
                .args(["-h", "127.0.0.1", "-U", "echo", "-p", &port, "lake"]),
            "createdb",
        );
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command
                .args([
                    "--reuid",
                    "postgres",
                    "--regid",
                    "postgres",
                    "--clear-groups",
                ])
                .arg(program);
            command.current_dir("/");
            command
        } else {
            Command::new(program)
        }
    }

    /// Starts the server again.
    pub(super) fn run(&self) {
        let options = format!(
            "-k {} -p {} -c listen_addresses=127.0.0.1",
            self.folder.path().display(),
            self.port
        );
        let mut start = self.program("pg_ctl");
        start
            .arg("-D")
            .arg(self.data())
            .args(["-w", "-l"])
            .arg(self.folder.path().join("log"));
        // The server inherits standard output, and a pipe would stay open.
        let started = start
            .args(["-o", &options, "start"])
            .stdout(Stdio::null())
            .status();
        assert!(started.unwrap().success());
    }

    /// Ends the server as SIGQUIT does: without a checkpoint, like a crash.
    pub(super) fn crash(&self) {
        let mut stop = self.program("pg_ctl");
        stop.arg("-D")
            .arg(self.data())
            .args(["-m", "immediate", "-w", "stop"]);
        done(&mut stop, "pg_ctl stop");
    }

    /// Returns an interactive client of the database.
    pub(super) fn client(&self) -> Command {
        let mut client = self.program("psql");
        let port = self.port.to_string();
        client.args(["-h", "127.0.0.1", "-U", "echo", "-p", &port, "-d", "lake"]);
        client
    }

    /// Runs a statement and returns its only value.
    pub(super) fn query(&self, sql: &str) -> String {
        let output = done(self.client().args(["-XAtc", sql]), "psql");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Catalog of a lake in its database.
    pub(super) fn catalog(&self) -> String {
        format!(
            "ducklake:postgres:dbname=lake host=127.0.0.1 port={} user=echo",
            self.port
        )
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        stop.arg("-D")
            .arg(self.data())
            .args(["-m", "immediate", "stop"]);
        // It may be stopped already.
        let _stopped = stop.output();
    }
}
