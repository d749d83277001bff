//! HTML pages in a real browser.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fleet_test_harness::{NIGHTLY, Need};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Lab, client};
use crate::testbed::{ECHO, Echo, recording, replay_all, repository};

mod crowd;

/// A browser.
pub(super) static CHROMIUM: Need = Need::program("chromium", "chromium");

/// Runs the steps of a plan in the browser.
#[track_caller]
fn browse(plan: &[Value]) {
    let mut browser = Command::new("python3");
    browser
        .arg(client("browser.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut browser = browser.spawn().unwrap();
    let mut input = browser.stdin.take().unwrap();
    input.write_all(json!(plan).to_string().as_bytes()).unwrap();
    drop(input);
    let Output { status, stderr, .. } = browser.wait_with_output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}

fn go(url: &str) -> Value {
    json!({ "go": url })
}

fn expect(expression: &str) -> Value {
    json!({ "expect": expression })
}

/// Expects this text on the page.
fn expect_text(words: &str) -> Value {
    let words = json!(words.to_lowercase());
    expect(&format!(
        "document.body.innerText.toLowerCase().replaceAll('\\u00a0', ' ').includes({words})"
    ))
}

/// Saves screenshots of the page, light, dark and narrow, in the folder `FLEET_ECHO_PICTURES`, if
/// set.
#[expect(
    clippy::disallowed_methods,
    reason = "screenshots are for manual review"
)]
fn pictures(name: &str) -> Vec<Value> {
    let Ok(folder) = std::env::var("FLEET_ECHO_PICTURES") else {
        return Vec::new();
    };
    let looks = [
        ("light", json!({})),
        ("dark", json!({ "dark": true })),
        ("narrow", json!({ "width": 400 })),
    ];
    let shots = looks.into_iter().flat_map(|(look, how)| {
        let file = Path::new(&folder).join(format!("{name}-{look}.png"));
        [json!({ "look": how }), json!({ "shot": file })]
    });
    shots.chain([json!({ "look": {} })]).collect()
}

#[test]
#[needs(NIGHTLY, CHROMIUM)]
fn a_browser_shows_the_recorded_incident_on_its_rank() {
    let lab = Lab::new();
    let mut plan = vec![
        go(&lab.url("/")),
        expect_text("lab"),
        expect("document.querySelectorAll('.card').length === 1"),
    ];
    plan.extend(pictures("front"));
    plan.extend([
        json!({ "click": ".card a" }),
        expect_text("no events in this window"),
        json!({ "click": ".tabs a[href$=all]" }),
        expect_text("rank 2"),
        expect(
            "document.querySelector('.map .former th, .map .culprit th').innerText.startsWith('2')",
        ),
        expect("document.querySelectorAll('.map tbody tr').length === 4"),
        // The late rank has dark cells, the others have none. A cell of five seconds is the mean of
        // seven iterations here, so one of another rank can exceed the gate, but not twice the gate.
        expect("document.querySelectorAll('.map .culprit :is(.s4, .s5), .map .former :is(.s4, .s5)').length > 0"),
        expect("document.querySelectorAll('.map tr:not(.former, .culprit) :is(.s4, .s5)').length === 0"),
        // The culprit is the first row, with a line where its incident began.
        expect("document.querySelector('.map tbody tr').matches('.former, .culprit')"),
        expect("document.querySelectorAll('.map tbody tr:first-child .opened').length > 0"),
        expect("document.documentElement.scrollWidth <= window.innerWidth"),
    ]);
    plan.extend(pictures("cluster"));
    plan.extend([
        json!({ "look": { "width": 400 } }),
        expect("document.documentElement.scrollWidth <= window.innerWidth"),
        json!({ "look": {} }),
        json!({ "click": ".map tbody tr:first-child a" }),
        expect_text("rank 2 on node-2"),
        expect("document.querySelector('svg.plot').getBoundingClientRect().width > 0"),
        expect("document.querySelectorAll('svg.plot rect > title').length > 0"),
        json!({ "click": "a[href*='format=json']" }),
        expect_text("\"lag_series\""),
    ]);
    browse(&plan);
}

#[test]
#[needs(NIGHTLY, CHROMIUM)]
fn a_browser_shows_an_empty_database_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let mut plan = vec![
        go(&format!("http://{}/", echo.http)),
        expect_text("no events are stored yet"),
        expect_text(&format!("--endpoint http://{}", echo.otlp)),
    ];
    plan.extend(pictures("empty"));
    plan.extend([
        go(&format!("http://{}/clusters/lab", echo.http)),
        expect_text("not found"),
    ]);
    browse(&plan);
}

/// An instance with TLS and two clusters, and a token for one of them.
struct Guarded {
    echo: Echo,
    token: String,
    _folder: TempDir,
}

impl Guarded {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let db = folder.path().join("fleet.duckdb");
        let before = Echo::serve(&db);
        for cluster in ["lab", "secret-fleet"] {
            replay_all(&recording("host-sleep-rank2"), &before, cluster, "50");
        }
        before.caught_up();
        assert_eq!(before.terminate(), 0);
        let run = |arguments: &[&str]| Command::new(ECHO).args(arguments).output().unwrap();
        assert!(run(&["dev-cert", "--dir", &path("tls")]).status.success());
        let made = run(&["token", "new", "--id", "tenant", "--cluster", "lab"]);
        let made = String::from_utf8(made.stdout).unwrap();
        let (token, entry) = made.split_once('\n').unwrap();
        std::fs::write(path("access.yaml"), format!("tokens:\n{entry}")).unwrap();
        let mut command = Command::new(ECHO);
        command
            .args(["serve", "--db", &path("fleet.duckdb"), "--log", "warn"])
            .args([
                "--tls-cert",
                &path("tls/cert.pem"),
                "--tls-key",
                &path("tls/key.pem"),
            ])
            .args(["--access", &path("access.yaml")])
            .args([
                "--otlp-listen",
                "127.0.0.1:0",
                "--otlp-http-listen",
                "127.0.0.1:0",
            ])
            .args(["--http-listen", "127.0.0.1:0", "--rates"])
            .arg(repository("testdata/rates.yaml"));
        let (echo, _log) = Echo::spawn(command);
        Self {
            echo,
            token: token.to_owned(),
            _folder: folder,
        }
    }
}

#[test]
#[needs(NIGHTLY, CHROMIUM)]
fn a_browser_signs_in_sees_only_its_own_cluster_and_signs_out() {
    let guarded = Guarded::new();
    let url = |path: &str| format!("https://{}{path}", guarded.echo.http);
    let at = |path: &str| expect(&format!("location.pathname + location.search === {path:?}"));
    let mut plan = vec![
        go(&url("/clusters/lab?window=all")),
        expect("location.pathname === '/login'"),
    ];
    plan.extend(pictures("login"));
    plan.extend([
        json!({ "fill": ["#token", "nonsense"] }),
        json!({ "click": "main button" }),
        expect_text("this token is not valid"),
        json!({ "fill": ["#token", guarded.token] }),
        json!({ "click": "main button" }),
        at("/clusters/lab?window=all"),
        expect_text("signed in as tenant"),
        expect_text("rank 2"),
        expect("document.cookie === ''"),
        json!({ "click": ".brand" }),
        expect("document.querySelectorAll('.card').length === 1"),
        expect("!document.documentElement.innerHTML.includes('secret')"),
        go(&url("/clusters/secret-fleet")),
        expect_text("not found"),
        expect("!document.body.innerText.includes('node-')"),
        go(&url("/")),
        json!({ "click": "header button" }),
        at("/login"),
        go(&url("/")),
        at("/login"),
    ]);
    browse(&plan);
}
