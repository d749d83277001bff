//! The first hour of a new user: the script plays it with the archive of a release in a root folder
//! that holds Debian's base programs only, without network, and its transcript is the page of the
//! guide.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clean_root::CleanRoot;
use regex::Regex;

use crate::testbed::{ECHO, recording, repository};

mod clean_root;

/// Page that the script prints.
const PAGE: &str = "echo/docs/guide/first-hour.md";

/// Parts of the transcript that differ between two runs, and what the comparison reads instead.
const VARIABLE: [(&str, &str); 22] = [
    // The server is at another address where there is no clean root.
    (r" --server http://127\.0\.0\.1:\d+ lists all", " lists all"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"127\.0\.0\.1:[1-9]\d*", "127.0.0.1:PORT"),
    (r"in use by pid \d+ on \S+", "in use by pid PID on HOST"),
    (r"/\S+/fleet\.duckdb", "DIR/fleet.duckdb"),
    (r"\d+\.\d s$", "TIME s"),
    (r"All of it took \d+ s", "All of it took TIME s"),
    (r"last event \d+\.\d s", "last event TIME s"),
    (r"\d+ hours are not closed", "N hours are not closed"),
    // A job that reports right after the hour counts as allocated from the hour on.
    (r"\d+\.\d % of \d+\.\d+ allocated", "N % of N allocated"),
    (r"on_demand +\d+\.\d+ +\d+\.\d+ ", "on_demand N N "),
    // How agents group their points, and what they know while a job runs, depends on the machine.
    (r"in \d+ batches", "in N batches"),
    // So do the windows in which the recording of GPUs is evaluated, and the figures by them.
    (
        r"\d+\.\d ms late, iterations \d+\.\d % longer",
        "N ms late, iterations N % longer",
    ),
    (
        r"since iteration \d+, raised at \d+",
        "since iteration N, raised at N",
    ),
    (r"waits \d+ ms per second", "waits N ms per second"),
    (
        r"takes \d+\.\d ms instead of \d+\.\d ms",
        "takes N ms instead of N ms",
    ),
    (
        r"\d+\.\d+ GPU-seconds lost, USD [\d.]+ .*",
        "N GPU-seconds lost, USD N",
    ),
    (r"sent \d+ points", "sent N points"),
    (
        r"(after 0 retries: .*; )?\d+ points were not",
        "N points were not",
    ),
    (r"\d+ versions pushed", "N versions pushed"),
    (r"v\d+: device_wait center .*", "vN: device_wait center"),
    (
        r"policy v\d+(; \d+ self-verdicts raised)?$|with a lag of -?\d+\.\d ms",
        "SELF-VERDICT",
    ),
];

/// Programs that a release needs beside its own, all of Debian's base system but curl.
const PROGRAMS: [&str; 23] = [
    "basename", "bash", "cat", "chmod", "cp", "curl", "date", "env", "grep", "gzip", "head",
    "mkdir", "mktemp", "rm", "sed", "sh", "sleep", "sort", "tail", "tar", "uname", "uniq", "wc",
];

/// Makes the archive of a release from the programs under test.
fn archive(folder: &Path) -> PathBuf {
    let built = Path::new(ECHO).parent().unwrap();
    let made = Command::new(repository("deploy/package/archive"))
        .arg(built)
        .arg(folder.join("staged"))
        .arg(folder)
        .env("COMPRESS", "gzip -1")
        .output()
        .unwrap();
    PathBuf::from(printed(&made).trim_end())
}

/// Returns the standard output of a command that succeeded.
fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Plays the first hour in a clean root folder, or where none can be made in an empty folder with an
/// empty environment.
fn play(archive: &Path, folder: &Path) -> String {
    let script = repository("deploy/package/first-hour");
    let job = recording("host-sleep-rank2");
    let staged = ["fleet-echo", "fleet-agent"].map(|name| folder.join("staged").join(name));
    // The staged program does not find its engine before it is unpacked, and so not what that needs.
    let engine = Path::new(ECHO).with_file_name("../lib/fleet-echo/libduckdb.so");
    let libraries = [&staged[..], &[engine]].concat();
    let output = match CleanRoot::new(&folder.join("root"), &PROGRAMS, &libraries) {
        Ok(root) => root.run(&script, &[archive, &job]),
        Err(why) => {
            eprintln!("no clean root, an empty folder instead: {why}");
            play_in_folder(&folder.join("home"), &script, &[archive, &job])
        }
    };
    printed(&output)
}

/// Runs the script with ports that are free on this machine.
fn play_in_folder(home: &Path, script: &Path, arguments: &[&Path]) -> Output {
    std::fs::create_dir(home).unwrap();
    let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [otlp, otlp_http, http] = sockets.map(|socket| socket.local_addr().unwrap().to_string());
    Command::new("bash")
        .arg(script)
        .args(arguments)
        .current_dir(home)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("FLEET_ECHO_OTLP_LISTEN", otlp)
        .env("FLEET_ECHO_OTLP_HTTP_LISTEN", otlp_http)
        .env("FLEET_ECHO_SERVER", format!("http://{http}"))
        .env("FLEET_ECHO_HTTP_LISTEN", http)
        .output()
        .unwrap()
}

/// Replaces what differs between two runs.
fn normalize(page: &str) -> Vec<String> {
    let variable = VARIABLE.map(|(pattern, name)| (Regex::new(pattern).unwrap(), name));
    let replace = |line: String, (pattern, name): &(Regex, &str)| {
        pattern.replace_all(&line, *name).into_owned()
    };
    page.lines()
        .map(|line| variable.iter().fold(line.to_owned(), replace))
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "insta reads the same variable")]
fn is_update() -> bool {
    std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always")
}

#[test]
fn the_first_hour_of_a_new_user_is_as_the_guide_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let transcript = play(&archive, folder.path());
    if is_update() {
        std::fs::write(repository(PAGE), &transcript).unwrap();
    }
    let page = std::fs::read_to_string(repository(PAGE)).unwrap();
    let (played, shown) = (normalize(&transcript), normalize(&page));
    let differs = played.iter().zip(&shown).find(|(new, old)| new != old);
    assert_eq!(
        differs, None,
        "left is played, right is {PAGE}; INSTA_UPDATE=always replaces the page\n{transcript}"
    );
    assert_eq!(played.len(), shown.len(), "{transcript}");
}
