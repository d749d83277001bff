//! The process of `fleet-echo mcp --stdio`.

use std::cell::RefCell;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::testbed::{ECHO, wait_for};

#[test]
fn the_proxy_exits_when_its_output_is_closed_even_if_its_input_is_open() {
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
    wait_for("the proxy to exit", || {
        proxy.borrow_mut().try_wait().unwrap().is_some()
    });
    let ended = proxy.borrow_mut().wait().unwrap();
    assert_eq!(ended.code(), Some(74), "a write error must exit with 74");
    drop(input);
}
