//! `fleet-echo top` on a terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::testbed::{ECHO, Echo, recording, replay_all};

/// Most pieces that are read until a text is drawn: the program draws every second.
const MAX_PIECES: usize = 300;

/// A terminal of 100 columns and 24 rows, and what a program drew on it since the last look.
struct Terminal {
    controller: File,
    drawn: String,
}

impl Terminal {
    /// Returns a terminal and its end for a program.
    fn open() -> (Self, File) {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&controller, size).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let path = OsStr::from_bytes(name.as_bytes());
        let program = File::options().read(true).write(true).open(path).unwrap();
        let terminal = Self {
            controller: File::from(controller),
            drawn: String::new(),
        };
        (terminal, program)
    }

    /// Reads until this is drawn, after what was waited for before.
    fn wait_for(&mut self, text: &str) {
        let mut piece = [0; 4096];
        for _ in 0..MAX_PIECES {
            if let Some((_, after)) = self.drawn.split_once(text) {
                self.drawn = after.to_owned();
                return;
            }
            // An error is the end: the program has closed its end.
            let n = self.controller.read(&mut piece).unwrap_or(0);
            assert!(n > 0, "ended without {text:?}: {}", self.drawn);
            self.drawn.push_str(&String::from_utf8_lossy(&piece[..n]));
        }
        panic!("no {text:?} in {}", self.drawn);
    }

    fn press(&mut self, key: &str) {
        self.controller.write_all(key.as_bytes()).unwrap();
    }
}

/// Starts the program on a terminal of its own.
fn top(server: &str) -> (Terminal, Child) {
    let (terminal, program) = Terminal::open();
    let mut command = Command::new(ECHO);
    command
        .args(["top", "--window=all", "--every=1", "--server"])
        .arg(format!("http://{server}"))
        .env("TERM", "xterm")
        .stdin(program.try_clone().unwrap())
        .stdout(program)
        .stderr(Stdio::null());
    (terminal, command.spawn().unwrap())
}

#[test]
fn top_draws_the_open_incidents_in_the_chosen_order_until_q_is_pressed() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    replay_all(
        &recording("four-gpus/graphs-neighbour2"),
        &echo,
        "lab",
        "max",
    );
    echo.caught_up();
    let (mut terminal, mut top) = top(&echo.http);
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("PER HOUR");
    terminal.wait_for("node-2");
    terminal.wait_for("by cost per hour: c cost, s slowdown, a age, q quits");
    // Drawn again without a key.
    terminal.wait_for("node-2");
    terminal.press("s");
    terminal.wait_for("by slowdown: ");
    terminal.press("q");
    // The screen of before is back.
    terminal.wait_for("\x1b[?1049l");
    assert!(top.wait().unwrap().success());
}

#[test]
fn top_obeys_keys_while_the_server_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let (mut terminal, mut top) = top(&echo.http);
    terminal.wait_for("no open incidents");
    echo.signal("STOP");
    terminal.wait_for("no answer yet");
    terminal.press("a");
    terminal.wait_for("by age: ");
    terminal.press("q");
    terminal.wait_for("\x1b[?1049l");
    assert!(top.wait().unwrap().success());
}

#[test]
fn top_prints_once_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let server = format!("http://{}", echo.http);
    let output = Command::new(ECHO)
        .args(["top", "--server", &server])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert!(printed.ends_with("\nno open incidents\n"), "{printed}");
    assert!(!printed.contains('\x1b'), "{printed}");
}
