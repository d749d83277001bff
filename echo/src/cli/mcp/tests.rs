use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use echo_core::clock::SystemClock;
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, duplex,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::lines::MAX_LINE_BYTES;
use super::{McpArgs, run};
use crate::cli::connection::ConnectionArgs;
use crate::cli::tests::waiting::FullBacklog;
use crate::cli::tests::{ContextFuture, Server, connection_to, default_context, routes};
use echo_serve::http::startup::{current_router, startup_router};
use echo_serve::middleware::Middleware;

fn args(server: &str) -> McpArgs {
    McpArgs {
        stdio: true,
        connection: ConnectionArgs {
            token: Some("secret".to_owned()),
            ..connection_to(server)
        },
        compat: false,
    }
}

fn call(id: u64, tool: &str, newer: bool) -> Value {
    let mut params = json!({ "name": tool, "arguments": { "cluster": "prod" } });
    if newer {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// Runs the proxy on these lines and returns the responses.
async fn proxied(server: &str, lines: &[impl AsRef<[u8]> + Sync]) -> Vec<Value> {
    let lines: Vec<&[u8]> = lines.iter().map(AsRef::as_ref).collect();
    let input = lines.join(&b'\n');
    let mut output = Vec::new();
    run(&args(server), input.as_slice(), &mut output)
        .await
        .unwrap();
    let output = String::from_utf8(output).unwrap();
    let mut answers: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    answers
}

#[tokio::test]
async fn messages_of_both_eras_are_forwarded() {
    let server = spawn_blocking(Server::start).await.unwrap();
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    });
    let lines = [
        initialize.to_string(),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string(),
        String::new(),
        call(2, "fleet.cluster.get_cost", false).to_string(),
        call(3, "fleet_cluster_get_cost", true).to_string(),
        call(4, "fleet.cluster.reboot", true).to_string(),
    ];
    let answers = proxied(&format!("http://{}", server.address), &lines).await;
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answers[1]["result"]["isError"], false);
    assert_eq!(
        answers[1]["result"]["structuredContent"],
        answers[2]["result"]["structuredContent"]
    );
    assert_eq!(answers[3]["error"]["code"], -32_602);
}

#[tokio::test]
async fn an_invalid_line_is_answered_locally_and_later_lines_are_forwarded() {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let longest = " ".repeat(MAX_LINE_BYTES - message.len());
    for (line, code) in [
        (b"{".to_vec(), -32_700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec(),
            -32_700,
        ),
        (format!(" {longest}{message}").into_bytes(), -32_700),
        (format!("[{message}]").into_bytes(), -32_600),
        (b"5".to_vec(), -32_600),
    ] {
        let lines = [line, format!("{longest}{message}").into_bytes()];
        let answers = proxied("http://127.0.0.1:1", &lines).await;
        assert_eq!(answers.len(), 2, "{answers:?}");
        assert_eq!(answers[0]["error"]["code"], code, "{answers:?}");
        assert_eq!(answers[0]["id"], Value::Null);
        assert_eq!(answers[1]["id"], 1);
    }
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_with_the_command_to_start_one() {
    // The port was free a moment ago, and no other process knows it.
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let lines = [call(1, "fleet.cluster.get_cost", false).to_string()];
    let answers = proxied(&url, &lines).await;
    let message = answers[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("fleet-echo serve"), "{message}");
}

#[tokio::test]
async fn a_timeout_is_distinguished_from_an_unreachable_server() {
    let server = spawn_blocking(Server::silent).await.unwrap();
    let full_backlog = FullBacklog::new();
    let line = call(1, "fleet.cluster.get_cost", false).to_string();
    for (address, expected) in [
        (server.address, "within 500ms: raise --timeout"),
        (full_backlog.address, "cannot reach http://"),
    ] {
        let mut mcp_args = args(&format!("http://{address}"));
        mcp_args.connection.timeout = Duration::from_millis(500);
        let mut output = Vec::new();
        run(&mcp_args, line.as_bytes(), &mut output).await.unwrap();
        let answer: Value = serde_json::from_slice(&output).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn an_invalid_address_is_rejected_at_once() {
    let wrong = super::Remote::new(&args("ftp://127.0.0.1:1")).unwrap_err();
    assert_eq!(wrong.exit_code(), 64);
}

async fn send(input: &mut DuplexStream, message: &Value) {
    let line = format!("{message}\n");
    input.write_all(line.as_bytes()).await.unwrap();
}

async fn receive(answers: &mut Lines<BufReader<DuplexStream>>) -> Value {
    let line = answers.next_line().await.unwrap().unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Makes two calls, the first while the server answers with `before`, and returns the responses.
async fn call_twice(before: Router) -> [Value; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server_args = args(&format!("http://{}", listener.local_addr().unwrap()));
    let (current, routed) = watch::channel(before);
    let (mut input, theirs) = duplex(4_096);
    let (answers, output) = duplex(65_536);
    let client = async {
        let mut answers = BufReader::new(answers).lines();
        send(&mut input, &call(1, "fleet.cluster.get_cost", true)).await;
        let first = receive(&mut answers).await;
        let _before = current.send_replace(routes(default_context().await));
        send(&mut input, &call(2, "fleet.cluster.get_cost", true)).await;
        [first, receive(&mut answers).await]
    };
    tokio::select! {
        answers = client => answers,
        passed = run(&server_args, BufReader::new(theirs), output) => panic!("ended: {passed:?}"),
        served = axum::serve(listener, current_router(routed)) => panic!("ended: {served:?}"),
    }
}

#[tokio::test]
async fn a_call_recovers_once_the_tools_can_be_listed() {
    const REFUSAL: &str = r#"{"error":{"code":"unauthenticated","message":"missing token"}}"#;
    for (before, expected) in [
        (
            startup_router(&Middleware::without_auth(Arc::new(SystemClock))),
            "Echo is starting",
        ),
        (
            Router::new().fallback(async || (StatusCode::UNAUTHORIZED, REFUSAL)),
            "missing token",
        ),
        (
            Router::new().fallback(async || "{}"),
            "is not the API of a fleet-echo server",
        ),
    ] {
        let [first, second] = call_twice(before).await;
        let message = first["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{first}");
        assert_eq!(second["result"]["isError"], false, "{second}");
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_at_the_server_without_a_response() {
    let (send_limit, places) = tokio::sync::oneshot::channel();
    let silent = move || -> ContextFuture {
        Box::pin(async move {
            let mut context = fixture::context_over(Arc::new(Broken::Silent));
            context.limits.deadline = Duration::from_hours(1);
            send_limit.send(context.query_limit.clone()).unwrap();
            context
        })
    };
    let server = spawn_blocking(|| Server::with_context(silent))
        .await
        .unwrap();
    let query_limit = places.await.unwrap();
    let (mut input, theirs) = duplex(4_096);
    let (answers, output) = duplex(4_096);
    let server_args = args(&format!("http://{}", server.address));
    let client = async {
        send(&mut input, &call(1, "fleet.cluster.get_cost", true)).await;
        while query_limit.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        let params = json!({ "requestId": 1, "reason": "enough" });
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        send(&mut input, &cancel).await;
        while query_limit.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
        drop(input);
    };
    let (passed, ()) = tokio::join!(run(&server_args, BufReader::new(theirs), output), client);
    passed.unwrap();
    let mut lines = BufReader::new(answers).lines();
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn the_token_is_sent_and_a_rejection_is_returned_as_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut mcp_args = args(&format!("http://{}", listener.local_addr().unwrap()));
    mcp_args.compat = true;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            stream.read_buf(&mut request).await.unwrap();
        }
        let body = r#"{"error":{"code":"unauthenticated","message":"missing token"}}"#;
        let length = body.len();
        let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    };
    let line = json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" }).to_string();
    let mut output = Vec::new();
    let (passed, request) = tokio::join!(run(&mcp_args, line.as_bytes(), &mut output), serving);
    passed.unwrap();
    assert!(
        request.starts_with("POST /mcp/compat HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("authorization: Bearer secret\r\n"),
        "{request}"
    );
    let answer: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(answer["id"], "a");
    assert_eq!(answer["error"]["message"], "missing token");
}
