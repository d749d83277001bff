//! The proxy on standard input and output, as a process.

use std::cell::RefCell;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::testbed::{ECHO, wait_for};

#[test]
fn the_proxy_ends_when_nobody_reads_its_answers_though_its_input_stays_open() {
    let mut proxy = Command::new(ECHO)
        .args(["mcp", "--stdio", "--server", "http://127.0.0.1:1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(proxy.stdout.take());
    let mut input = proxy.stdin.take().unwrap();
    input
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n")
        .unwrap();
    let proxy = RefCell::new(proxy);
    wait_for("the proxy to end", || {
        proxy.borrow_mut().try_wait().unwrap().is_some()
    });
    let ended = proxy.borrow_mut().wait().unwrap();
    assert_eq!(ended.code(), Some(74), "it could not write");
    drop(input);
}
