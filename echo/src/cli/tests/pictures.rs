//! Plots over the real transports, and as files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use echo_core::error::Code;
use serde_json::{Map, Value, json};

use super::Server;
use super::parity::{assert_same, send};

const EXPLAIN: &str = "fleet.cluster.explain_rank";

fn input(plot: &str) -> Map<String, Value> {
    let input = json!({ "cluster": "prod", "rank": 2, "plot": plot });
    input.as_object().unwrap().clone()
}

impl Server {
    /// Returns the result of a tool call over MCP.
    fn result(&self, path: &str, tool: &str, plot: &str) -> Value {
        let params = json!({ "name": tool, "arguments": input(plot) });
        let message =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = self
            .request("POST", path)
            .header("mcp-protocol-version", "2025-11-25");
        let (status, answer) = send(request.body(message.to_string()).unwrap());
        assert_eq!(status, 200, "{answer}");
        answer["result"].clone()
    }
}

#[test]
fn mcp_returns_the_plot_as_image_content_next_to_the_result() {
    let server = Server::start();
    for (path, tool) in [
        ("/mcp", EXPLAIN.to_owned()),
        ("/mcp/compat", EXPLAIN.replace('.', "_")),
    ] {
        for (format, kind, beginning) in [
            ("png", "image/png", b"\x89PNG\r\n\x1a\n".as_slice()),
            ("svg", "image/svg+xml", b"<svg role=\"img\" "),
        ] {
            let result = server.result(path, &tool, format);
            assert_eq!(result["isError"], false, "{result}");
            let content = result["content"].as_array().unwrap();
            assert_eq!(content.len(), 3);
            assert_eq!(content[0]["type"], "text");
            assert_eq!(content[2]["type"], "image");
            assert_eq!(content[2]["mimeType"], kind);
            let picture = STANDARD
                .decode(content[2]["data"].as_str().unwrap())
                .unwrap();
            assert!(picture.starts_with(beginning), "{format}");
            let text: Value = serde_json::from_str(content[1]["text"].as_str().unwrap()).unwrap();
            assert_eq!(result["structuredContent"], text);
            assert!(
                text.get("plot").is_none(),
                "the text does not contain the image"
            );
        }
    }
}

#[test]
fn an_unknown_format_is_the_same_error_over_all_transports() {
    let server = Server::start();
    let answers = server.over_all_transports(EXPLAIN, &input("gif"));
    let (_, (_, body)) = &answers[0];
    assert_eq!(body["error"]["details"][0]["pointer"], "/plot", "{body}");
    assert_same(answers, Some(Code::Invalid));
}

#[test]
fn the_shell_writes_the_plot_to_a_file() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let explain = "explain --cluster prod --rank 2 --from now-10m";
    let without = server.output(explain).unwrap();
    for (name, beginning) in [
        ("lag.svg", b"<svg role=\"img\" ".as_slice()),
        ("lag.PNG", b"\x89PNG\r\n\x1a\n"),
    ] {
        let file = folder.path().join(name);
        let line = format!("{explain} --plot {}", file.display());
        assert_eq!(server.output(&line).unwrap(), without);
        assert!(std::fs::read(&file).unwrap().starts_with(beginning));
    }
}

#[test]
fn the_shell_writes_the_trace_that_the_page_links() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank2.json");
    let line = format!(
        "explain --cluster prod --rank 2 --from now-10m --trace {}",
        file.display()
    );
    server.output(&line).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let path = "/api/v1/trace.json?cluster=prod&rank=2&from=now-10m";
    let request = server.request("GET", path).body(String::new()).unwrap();
    let (status, served) = send(request);
    assert_eq!((status, &served), (200, &written));
    let events = written["traceEvents"].as_array().unwrap();
    let is_culprit = |event: &Value| event["pid"] == 3 && event["name"] == "culprit";
    assert!(events.iter().any(is_culprit), "{written}");
    let unwritable = line.replace("rank2.json", "nowhere/rank2.json");
    assert_eq!(server.output(&unwritable).unwrap_err().exit_code(), 74);
}

#[test]
fn an_unknown_extension_or_unwritable_file_is_rejected() {
    let server = Server::start();
    let explain = "explain --cluster prod --rank 2 --plot";
    for (file, exit_code) in [("lag.pdf", 64), ("lag", 64), ("/nowhere/lag.svg", 74)] {
        let error = server.output(&format!("{explain} {file}")).unwrap_err();
        assert_eq!(error.exit_code(), exit_code, "{file}");
    }
}
