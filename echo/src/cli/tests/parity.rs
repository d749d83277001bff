//! Parity of transports: a tool call returns the same result or error over HTTP (GET and POST),
//! over both eras of the Model Context Protocol and from the shell.

use std::sync::Arc;
use std::time::Duration;

use echo_core::error::Code;
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use echo_tools::registry::{RegisteredTool, Registry};
use serde_json::{Map, Value, json};

use super::Server;

/// Returns the command of a tool. A newly registered tool fails this test until its command is
/// added here.
fn command(tool: &RegisteredTool) -> &'static str {
    match tool.name {
        "fleet.cluster.find_outlier_nodes" => "outliers",
        "fleet.cluster.explain_rank" => "explain",
        "fleet.cluster.get_cost" => "cost",
        "fleet.cluster.event_history" => "history",
        "fleet.cluster.run_analysis" => "sql",
        "fleet.host.get_causal_chains" => "host chains",
        "fleet.host.get_trace_stats" => "host calls",
        "fleet.host.get_stacks" => "host stacks",
        "fleet.host.graph_lifecycle" => "host graphs",
        "fleet.host.check" => "host check",
        name => panic!("no command calls {name}"),
    }
}

/// Returns the required input of a tool plus `extra`.
fn input(tool: &RegisteredTool, extra: Value) -> Map<String, Value> {
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required = |name: &&str| required.is_some_and(|names| names.contains(&json!(name)));
    // The SQL has no blanks, which the shell would split, and is refused: a result would contain
    // its duration.
    let all = [
        ("cluster", json!("prod")),
        ("rank", json!(2)),
        ("sql", json!("CHECKPOINT")),
    ];
    let needed = all.into_iter().filter(|(name, _)| is_required(name));
    let mut input: Map<String, Value> = needed
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let Value::Object(extra) = extra else {
        panic!("not an object")
    };
    input.extend(extra);
    input
}

/// Error code, if any, and body of a response.
pub(super) type Answer = (Option<Code>, Value);

pub(super) fn send(request: ureq::http::Request<String>) -> (u16, Value) {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build();
    let agent = ureq::Agent::new_with_config(config);
    let mut response = agent.run(request).unwrap();
    let status = response.status().as_u16();
    (status, response.body_mut().read_json().unwrap())
}

impl Server {
    pub(super) fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("x-request-id", "parity")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    fn over_post(&self, tool: &str, input: &Map<String, Value>) -> Answer {
        let body = Value::Object(input.clone());
        let request = self.request("POST", &format!("/api/v1/tools/{tool}"));
        parse_http(send(request.body(body.to_string()).unwrap()))
    }

    fn over_get(&self, tool: &str, input: &Map<String, Value>) -> Answer {
        let pairs = input.iter().map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={text}")
        });
        let query = pairs.collect::<Vec<_>>().join("&");
        let request = self.request("GET", &format!("/api/v1/tools/{tool}?{query}"));
        parse_http(send(request.body(String::new()).unwrap()))
    }

    fn over_mcp(&self, version: &str, tool: &str, input: &Map<String, Value>) -> Answer {
        let is_newer = version >= "2026";
        let mut params = json!({ "name": tool, "arguments": input });
        if is_newer {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message =
            json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let mut request = self
            .request("POST", "/mcp")
            .header("mcp-protocol-version", version);
        if is_newer {
            request = request
                .header("mcp-method", "tools/call")
                .header("mcp-name", tool);
            if let Some(cluster) = input.get("cluster").and_then(Value::as_str) {
                request = request.header("mcp-param-cluster", cluster);
            }
        }
        let (_, answer) = send(request.body(message.to_string()).unwrap());
        assert_eq!(answer["id"], 7, "{answer}");
        parse_mcp(&answer)
    }

    /// Calls a tool over every network transport, by name.
    pub(super) fn over_all_transports(
        &self,
        tool: &str,
        input: &Map<String, Value>,
    ) -> Vec<(&'static str, Answer)> {
        vec![
            ("POST", self.over_post(tool, input)),
            ("GET", self.over_get(tool, input)),
            ("MCP 2026-07-28", self.over_mcp("2026-07-28", tool, input)),
            ("MCP 2025-11-25", self.over_mcp("2025-11-25", tool, input)),
        ]
    }

    fn over_shell(&self, command: &str, input: &Map<String, Value>) -> Answer {
        let flags = input.iter().map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            match name.as_str() {
                "sql" => text,
                name => format!("--{} {text}", name.replace('_', "-")),
            }
        });
        let flags = flags.collect::<Vec<_>>().join(" ");
        let (printed, outcome) = self.run(&format!("{command} --json {flags}"));
        let mut body: Value = serde_json::from_str(&printed).unwrap();
        if let Some(id) = body.pointer_mut("/error/request_id") {
            // The shell does not set the request ID.
            *id = json!("parity");
        }
        assert_eq!(outcome.is_err(), body.get("error").is_some());
        (kind(&body), body)
    }
}

fn kind(body: &Value) -> Option<Code> {
    let name = body.pointer("/error/code")?.as_str()?;
    Code::ALL.into_iter().find(|code| code.name() == name)
}

fn parse_http((status, body): (u16, Value)) -> Answer {
    let kind = kind(&body);
    assert_eq!(status, kind.map_or(200, Code::http), "{body}");
    (kind, body)
}

/// Parses a response message and checks its form against the table of errors.
fn parse_mcp(message: &Value) -> Answer {
    if let Some(error) = message.get("error") {
        let body = error["data"].clone();
        let kind = kind(&body).unwrap();
        let number = match kind {
            Code::NotFound => -32_602,
            kind => kind.json_rpc().unwrap(),
        };
        assert_eq!(error["code"], number, "{message}");
        assert_eq!(error["message"], body["error"]["message"]);
        return (Some(kind), body);
    }
    let result = &message["result"];
    // The JSON follows one line that sums it up.
    let text = result["content"].as_array().unwrap().last().unwrap();
    let text = text["text"].as_str().unwrap();
    let body: Value = serde_json::from_str(text).unwrap();
    let kind = kind(&body);
    assert_eq!(result["isError"], json!(kind.is_some()), "{message}");
    assert!(kind.is_none_or(|kind| kind.json_rpc().is_none()));
    if kind.is_none() {
        assert_eq!(result["structuredContent"], body);
    }
    (kind, body)
}

#[track_caller]
pub(super) fn assert_same(answers: Vec<(&'static str, Answer)>, expected: Option<Code>) {
    let (_, first) = answers[0].clone();
    assert_eq!(first.0, expected, "{}", first.1);
    for (transport, answer) in answers {
        assert_eq!(answer, first, "{transport}");
    }
}

#[test]
fn every_tool_returns_the_same_result_over_all_transports() {
    let server = Server::start();
    for tool in Registry::standard().tools() {
        let (extra, expected) = if takes_sql(tool) {
            let extra = vec![json!({}), json!({ "max_rows": 5 })];
            (extra, Some(Code::Refused))
        } else {
            let window = json!({ "cluster": "prod", "window": "all" });
            (vec![json!({}), window, json!({ "from": "now-3m" })], None)
        };
        for extra in extra {
            let input = input(tool, extra);
            for name in [tool.name.to_owned(), tool.alias()] {
                let mut answers = server.over_all_transports(&name, &input);
                answers.push(("shell", server.over_shell(command(tool), &input)));
                assert_same(answers, expected);
            }
        }
    }
}

fn takes_sql(tool: &RegisteredTool) -> bool {
    tool.input_schema.pointer("/properties/sql").is_some()
}

#[test]
fn every_invalid_request_returns_the_same_error_over_all_transports() {
    let server = Server::start();
    for tool in Registry::standard().tools() {
        let sql_mistakes = [
            (json!({ "max_rows": 0 }), Code::Invalid),
            (json!({ "max_bytes": 1 }), Code::Invalid),
        ];
        let other_mistakes = [
            (json!({ "cluster": "pord" }), Code::NotFound),
            (json!({ "from": "yesterday" }), Code::Invalid),
            (json!({ "from": "now", "to": "now-1h" }), Code::Invalid),
            (json!({ "window": "all", "to": "now" }), Code::Invalid),
        ];
        let mistakes = if takes_sql(tool) {
            &sql_mistakes[..]
        } else {
            &other_mistakes
        };
        for (extra, expected) in mistakes.iter().cloned() {
            let input = input(tool, extra);
            let mut answers = server.over_all_transports(tool.name, &input);
            answers.push(("shell", server.over_shell(command(tool), &input)));
            assert_same(answers, Some(expected));
        }
        let input = input(tool, json!({ "clustre": "prod", "limits": true }));
        assert_same(
            server.over_all_transports(tool.name, &input),
            Some(Code::Invalid),
        );
    }
    let nothing = Map::new();
    assert_same(
        server.over_all_transports("fleet.cluster.reboot", &nothing),
        Some(Code::NotFound),
    );
}

#[test]
fn every_server_failure_returns_the_same_error_over_all_transports() {
    for (store, deadline, is_crowded, expected) in [
        (Broken::Defect, 10, false, Code::Internal),
        (Broken::Closed, 10, false, Code::Busy),
        (Broken::Silent, 0, false, Code::Timeout),
        (Broken::Silent, 10, true, Code::Busy),
    ] {
        let server = Server::with_context(move || {
            Box::pin(async move {
                let mut context = fixture::context_over(Arc::new(store));
                context.limits.deadline = Duration::from_secs(deadline);
                if is_crowded {
                    context.query_limit = fixture::exhausted_query_limit().await;
                }
                context
            })
        });
        let registry = Registry::standard();
        // SQL queries have a separate limit.
        let may_be_crowded = |tool: &&RegisteredTool| !(is_crowded && tool.needs_sql);
        for tool in registry.tools().iter().filter(may_be_crowded) {
            let input = input(tool, json!({}));
            let mut answers = server.over_all_transports(tool.name, &input);
            answers.push(("shell", server.over_shell(command(tool), &input)));
            assert_same(answers, Some(expected));
        }
    }
}

#[test]
fn default_results_fit_into_the_context_of_a_model() {
    const TOKENS: usize = 25_000;
    let server = Server::start();
    for tool in Registry::standard().tools() {
        let (_, answer) = server.over_post(tool.name, &input(tool, json!({})));
        // Four bytes of JSON are about a token.
        assert!(answer.to_string().len() / 4 < TOKENS, "{}", tool.name);
    }
}
