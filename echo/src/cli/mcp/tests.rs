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
use crate::cli::connection::EchoArgs;
use crate::cli::tests::waiting::Crowded;
use crate::cli::tests::{Making, Server, echo_at, routes, usual};
use echo_serve::http::startup::{current_router, startup_router};
use echo_serve::middleware::Middleware;

fn args(server: &str) -> McpArgs {
    McpArgs {
        stdio: true,
        echo: EchoArgs {
            token: Some("secret".to_owned()),
            ..echo_at(server)
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

/// What comes back for these lines.
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
async fn messages_of_both_eras_are_passed_on_and_answered() {
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
async fn what_is_no_message_is_answered_without_asking_and_those_after_it_are_passed_on() {
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
async fn a_missing_server_is_an_error_that_says_how_to_start_one() {
    // The port was free a moment ago, and nobody else is told of it.
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let lines = [call(1, "fleet.cluster.get_cost", false).to_string()];
    let answers = proxied(&url, &lines).await;
    let message = answers[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("fleet-echo serve"), "{message}");
}

#[tokio::test]
async fn what_takes_too_long_is_told_from_where_nobody_answers() {
    let server = spawn_blocking(Server::silent).await.unwrap();
    let crowded = Crowded::new();
    let line = call(1, "fleet.cluster.get_cost", false).to_string();
    for (address, told) in [
        (server.address, "within 500ms: raise --timeout"),
        (crowded.address, "no Echo at http://"),
    ] {
        let mut asked = args(&format!("http://{address}"));
        asked.echo.timeout = Duration::from_millis(500);
        let mut output = Vec::new();
        run(&asked, line.as_bytes(), &mut output).await.unwrap();
        let answer: Value = serde_json::from_slice(&output).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn an_address_of_another_kind_is_refused_at_once() {
    let wrong = super::Remote::new(&args("ftp://127.0.0.1:1")).unwrap_err();
    assert_eq!(wrong.exit_code(), 64);
}

async fn said(input: &mut DuplexStream, message: &Value) {
    let line = format!("{message}\n");
    input.write_all(line.as_bytes()).await.unwrap();
}

async fn heard(answers: &mut Lines<BufReader<DuplexStream>>) -> Value {
    let line = answers.next_line().await.unwrap().unwrap();
    serde_json::from_str(&line).unwrap()
}

/// The answers to two calls of which only the second finds an Echo that can answer.
async fn recovered(before: Router) -> [Value; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server_args = args(&format!("http://{}", listener.local_addr().unwrap()));
    let (current, routed) = watch::channel(before);
    let (mut input, theirs) = duplex(4_096);
    let (answers, output) = duplex(65_536);
    let asking = async {
        let mut answers = BufReader::new(answers).lines();
        said(&mut input, &call(1, "fleet.cluster.get_cost", true)).await;
        let first = heard(&mut answers).await;
        let _before = current.send_replace(routes(usual().await));
        said(&mut input, &call(2, "fleet.cluster.get_cost", true)).await;
        [first, heard(&mut answers).await]
    };
    tokio::select! {
        answers = asking => answers,
        passed = run(&server_args, BufReader::new(theirs), output) => panic!("ended: {passed:?}"),
        served = axum::serve(listener, current_router(routed)) => panic!("ended: {served:?}"),
    }
}

#[tokio::test]
async fn calls_carry_their_cluster_once_the_tools_can_be_listed() {
    const REFUSAL: &str = r#"{"error":{"code":"unauthenticated","message":"who is asking?"}}"#;
    for (before, told) in [
        (
            startup_router(&Middleware::without_auth(Arc::new(SystemClock))),
            "Echo is starting",
        ),
        (
            Router::new().fallback(async || (StatusCode::UNAUTHORIZED, REFUSAL)),
            "who is asking?",
        ),
        (Router::new().fallback(async || "{}"), "not as Echo does"),
    ] {
        let [first, second] = recovered(before).await;
        let message = first["error"]["message"].as_str().unwrap();
        assert!(message.contains(told), "{first}");
        assert_eq!(second["result"]["isError"], false, "{second}");
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_at_the_server_and_is_not_answered() {
    let (tell, places) = tokio::sync::oneshot::channel();
    let silent = move || -> Making {
        Box::pin(async move {
            let mut context = fixture::over(Arc::new(Broken::Silent));
            context.limits.deadline = Duration::from_hours(1);
            tell.send(context.places.clone()).unwrap();
            context
        })
    };
    let server = spawn_blocking(|| Server::over(silent)).await.unwrap();
    let places = places.await.unwrap();
    let (mut input, theirs) = duplex(4_096);
    let (answers, output) = duplex(4_096);
    let server_args = args(&format!("http://{}", server.address));
    let asking = async {
        said(&mut input, &call(1, "fleet.cluster.get_cost", true)).await;
        while places.taken() == 0 {
            tokio::task::yield_now().await;
        }
        let params = json!({ "requestId": 1, "reason": "enough" });
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        said(&mut input, &cancel).await;
        while places.taken() > 0 {
            tokio::task::yield_now().await;
        }
        drop(input);
    };
    let (passed, ()) = tokio::join!(run(&server_args, BufReader::new(theirs), output), asking);
    passed.unwrap();
    let mut lines = BufReader::new(answers).lines();
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn the_token_goes_along_and_a_refusal_comes_back_as_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut asked = args(&format!("http://{}", listener.local_addr().unwrap()));
    asked.compat = true;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            stream.read_buf(&mut request).await.unwrap();
        }
        let body = r#"{"error":{"code":"unauthenticated","message":"who is asking?"}}"#;
        let length = body.len();
        let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    };
    let line = json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" }).to_string();
    let mut output = Vec::new();
    let (passed, request) = tokio::join!(run(&asked, line.as_bytes(), &mut output), serving);
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
    assert_eq!(answer["error"]["message"], "who is asking?");
}
