//! Isolation of tenants: a caller limited to one cluster learns nothing about another, not even
//! that it exists.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{DetectorOutput, Finding};
use echo_core::model::event::BatchKey;
use echo_tools::ToolContext;
use echo_tools::fixture::{batch, culprit, detector_output, empty, lost, process_reports};
use echo_tools::rates::Rates;
use echo_tools::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{feeds, router};
use crate::auth::tests::Site;
use crate::http::metrics::Metrics;

/// Parts of every name in the other cluster, which must not be visible.
pub(super) const HIDDEN: [&str; 4] = ["hidden-", "secret-", "7.77", "deadbeef"];

// High limit, because they send a hundred requests.
pub(super) const TENANT: &str =
    "id: tenant, query: { clusters: [prod], sql: false }, rate: { per_second: 1000, burst: 1000 }";
pub(super) const OWNER: &str =
    "id: owner, query: { clusters: [\"*\"], sql: true }, rate: { per_second: 1000, burst: 1000 }";

/// Returns the usual cluster and another one with a late rank.
pub(super) async fn two_clusters() -> ToolContext {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    context
        .store
        .store_verdicts(detector_output())
        .await
        .unwrap();
    context.store.append(process_reports()).await.unwrap();
    let mut other = batch(0..4, 0..=600);
    other.key = BatchKey::Content(77);
    other.events.extend(process_reports().events);
    for event in &mut other.events {
        let mut origin = (*event.origin).clone();
        origin.cluster = "hidden-fleet".parse().unwrap();
        origin.node = "secret-node".parse().unwrap();
        origin.job = Some("secret-job".parse().unwrap());
        event.origin = Arc::new(origin);
    }
    context.store.append(other).await.unwrap();
    let mut late = culprit();
    late.id = IncidentId::new(0xdead_beef);
    late.cluster = "hidden-fleet".parse().unwrap();
    late.job = Some("secret-job".parse().unwrap());
    if let Finding::Culprit(culprit) = &mut late.finding {
        culprit.node = "secret-node".parse().unwrap();
    }
    let mut loss = lost(&late, "secret-node", Some("NVIDIA H200"), 400);
    loss.cluster = "hidden-fleet".parse().unwrap();
    let concluded = DetectorOutput {
        lost: vec![loss],
        incidents: vec![late],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(concluded).await.unwrap();
    let rates = "rates:\n\
        - { gpu_model: H200, rate_class: on_demand, rate: 3.80, currency: USD }\n\
        - { cluster: hidden-fleet, rate_class: reserved, rate: 7.77, currency: USD }\n\
        - { node: secret-node, rate_class: reserved, rate: 7.77, currency: USD }\n\
        aliases: { NVIDIA H200: H200 }";
    ToolContext {
        rates: Arc::new(Rates::parse(rates).unwrap()),
        ..context
    }
}

/// Returns a router with a token of the tenant and one of the owner.
async fn echo() -> (Router, Site) {
    let site = Site::with_tokens(&[TENANT, OWNER]);
    let (feeds, context) = (feeds(), two_clusters().await);
    let feeds = (feeds, Metrics::default());
    (
        router(Registry::standard(), context, feeds, &site.middleware),
        site,
    )
}

pub(super) async fn send(
    echo: &Router,
    token: &str,
    request: (&str, &str, Value),
) -> (u16, String) {
    let (method, path, body) = request;
    let body = if method == "GET" {
        Body::empty()
    } else {
        Body::from(body.to_string())
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:8081")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body);
    let response = echo.clone().oneshot(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let headers = format!("{:?}", response.headers());
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (
        status,
        format!("{headers}\n{}", String::from_utf8_lossy(&body)),
    )
}

pub(super) fn rpc(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// Returns every query, with inputs for no cluster, the own one, the other one, and a missing one.
fn everything() -> Vec<(&'static str, String, Value)> {
    let mut all: Vec<(&'static str, String, Value)> = Vec::new();
    for tool in Registry::standard().tools() {
        let path = format!("/api/v1/tools/{}", tool.name);
        for cluster in [None, Some("prod"), Some("hidden-fleet"), Some("nowhere")] {
            let mut input = json!({ "window": "all" });
            if let Some(cluster) = cluster {
                input["cluster"] = json!(cluster);
            }
            if tool.name.ends_with("explain_rank") {
                input["rank"] = json!(2);
            }
            if tool.needs_sql {
                input = json!({ "sql": "SELECT * FROM verdicts" });
            }
            let fields = input.as_object().unwrap().iter();
            let query: Vec<String> = fields
                .map(|(name, value)| format!("{name}={}", value.to_string().trim_matches('"')))
                .collect();
            let query = query.join("&").replace(' ', "+");
            all.push(("GET", format!("{path}?{query}"), Value::Null));
            for name in [tool.name.to_owned(), tool.alias()] {
                let params = json!({ "name": name, "arguments": input });
                all.push(("POST", "/mcp".to_owned(), rpc("tools/call", params.clone())));
                all.push(("POST", "/mcp/compat".to_owned(), rpc("tools/call", params)));
            }
            all.push(("POST", path.clone(), input));
        }
    }
    all.extend(beside_the_tools());
    all
}

/// Returns every query that is not a tool.
fn beside_the_tools() -> Vec<(&'static str, String, Value)> {
    let mut all: Vec<(&'static str, String, Value)> = Vec::new();
    for uri in [
        "echo://schema",
        "echo://host-schema",
        "echo://clusters",
        "echo://rates",
        "echo://other",
    ] {
        let params = json!({ "uri": uri });
        all.push(("POST", "/mcp".to_owned(), rpc("resources/read", params)));
    }
    for name in ["investigate_stragglers", "daily_cost_report"] {
        let params = json!({ "name": name, "arguments": { "cluster": "prod" } });
        all.push(("POST", "/mcp".to_owned(), rpc("prompts/get", params)));
    }
    for method in [
        "tools/list",
        "resources/list",
        "prompts/list",
        "server/discover",
    ] {
        all.push(("POST", "/mcp".to_owned(), rpc(method, json!({}))));
    }
    for path in [
        "/api/v1/tools/list",
        "/api/v1/openapi.json",
        "/api/v1/clusters",
        "/api/v1/sql",
        "/api/v1/health",
        "/api/v1/threshold?cluster_id=hidden-fleet",
        "/api/v1/threshold?cluster_id=prod",
        "/api/v1/cost.csv?day=2026-06-01",
        "/api/v1/cost.csv?day=2026-06-01&open=true",
        "/api/v1/cost.csv?day=2026-06-01&open=true&cluster=hidden-fleet",
        "/api/v1/cost.json?day=2026-06-01&open=true&cluster=prod",
        "/api/v1/cost.json?day=2026-06-01&open=true&cluster=hidden-fleet",
        "/api/v1/trace.json?cluster=prod&rank=2",
        "/api/v1/trace.json?cluster=hidden-fleet&rank=2",
        "/api/v1/incident.tar.gz?cluster=hidden-fleet&incident=0000000000000001",
        "/api/versions",
        "/metrics",
        "/healthz",
        "/readyz",
        "/nowhere",
        "/",
        "/login",
        "/clusters/prod",
        "/clusters/prod?window=all",
        "/?q=llama&sort=cost&open=search",
        "/clusters/prod/incidents/0000000000000017",
        "/clusters/hidden-fleet/incidents/0000000000000001",
        "/clusters/hidden-fleet",
        "/clusters/nowhere",
    ] {
        all.push(("GET", path.to_owned(), Value::Null));
    }
    let sql = json!({ "sql": "FROM verdicts" });
    all.push(("POST", "/api/v1/sql".to_owned(), sql));
    all
}

#[tokio::test]
async fn no_query_reveals_another_tenants_cluster() {
    let (echo, site) = echo().await;
    let mut n_visible = 0;
    for (method, path, body) in everything() {
        let names_hidden_cluster = path.contains("hidden") || body.to_string().contains("hidden");
        let (status, answer) = send(&echo, &site.tokens[0], (method, &path, body.clone())).await;
        assert_ne!(
            status, 429,
            "a rejected query does not test what answers reveal"
        );
        // The response may repeat the caller's input; the rest must match the response for a
        // missing cluster.
        let answer = if names_hidden_cluster {
            answer.replace("hidden-fleet", "")
        } else {
            answer
        };
        for part in HIDDEN {
            assert!(
                !answer.contains(part),
                "{method} {path} {body}: {status} {answer}"
            );
        }
        let (_, answer) = send(&echo, &site.tokens[1], (method, &path, body)).await;
        n_visible += u32::from(HIDDEN.iter().any(|part| answer.contains(part)));
    }
    assert!(n_visible > 10, "visible to the owner: {n_visible}");
}

#[tokio::test]
async fn a_forbidden_cluster_is_treated_as_missing() {
    let (echo, site) = echo().await;
    for tool in Registry::standard()
        .tools()
        .iter()
        .filter(|tool| !tool.needs_sql)
    {
        let path = format!("/api/v1/tools/{}", tool.name);
        let mut answers = Vec::new();
        for cluster in ["hidden-fleet", "nowhere"] {
            let mut input = json!({ "cluster": cluster });
            if tool.name.ends_with("explain_rank") {
                input["rank"] = json!(2);
            }
            let (status, answer) = send(&echo, &site.tokens[0], ("POST", &path, input)).await;
            let body = answer.lines().last().unwrap().replace(cluster, "CLUSTER");
            let mut body: Value = serde_json::from_str(&body).unwrap();
            body["error"]["request_id"] = Value::Null;
            answers.push((status, body));
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0].0, 404);
    }
}

#[tokio::test]
async fn the_default_cluster_of_a_token_for_one_cluster_is_that_one() {
    let (echo, site) = echo().await;
    let path = "/api/v1/tools/fleet.cluster.get_cost";
    let of = async |token: &str, input: Value| {
        let (status, answer) = send(&echo, token, ("POST", path, input)).await;
        let body: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
        assert_eq!(status, 200, "{body}");
        body
    };
    let all = json!({ "window": "10m" });
    let named = json!({ "window": "10m", "cluster": "prod" });
    assert_eq!(
        of(&site.tokens[0], all.clone()).await,
        of(&site.tokens[1], named).await
    );
    assert_ne!(
        of(&site.tokens[0], all.clone()).await,
        of(&site.tokens[1], all).await
    );
}

#[tokio::test]
async fn a_token_for_several_clusters_must_name_one() {
    let site = Site::with_tokens(&["id: tenant, query: { clusters: [prod, \"hidden-*\"] }"]);
    let feeds = (feeds(), Metrics::default());
    let echo = router(
        Registry::standard(),
        two_clusters().await,
        feeds,
        &site.middleware,
    );
    let path = "/api/v1/tools/fleet.cluster.get_cost";
    let (status, answer) = send(&echo, &site.tokens[0], ("POST", path, json!({}))).await;
    assert_eq!(status, 400);
    assert!(answer.contains("one of hidden-fleet, prod"), "{answer}");
    let input = json!({ "cluster": "hidden-fleet" });
    assert_eq!(
        send(&echo, &site.tokens[0], ("POST", path, input)).await.0,
        200
    );
}

#[tokio::test]
async fn every_token_that_may_query_lists_its_clusters() {
    let costs = "id: costs, query: { clusters: [\"hidden-*\"], tools: [\"fleet.cluster.get_*\"] }";
    let site = Site::with_tokens(&[TENANT, OWNER, costs]);
    let feeds = (feeds(), Metrics::default());
    let context = two_clusters().await;
    let echo = router(Registry::standard(), context, feeds, &site.middleware);
    let of = async |token: &str| {
        let request = ("GET", "/api/v1/clusters", Value::Null);
        let (status, answer) = send(&echo, token, request).await;
        assert_eq!(status, 200, "{answer}");
        let body: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
        body["clusters"].as_array().unwrap().clone()
    };
    let names = |rows: &[Value]| -> Value {
        let names = rows.iter().map(|row| row["cluster"].clone());
        names.collect()
    };
    let (tenant, costs) = (of(&site.tokens[0]).await, of(&site.tokens[2]).await);
    assert_eq!(names(&tenant), json!(["prod"]));
    let counts = ["n_nodes", "n_jobs", "n_gpus", "n_open"].map(|name| tenant[0][name].clone());
    assert_eq!(json!(counts), json!([2, 1, 4, 1]), "{tenant:?}");
    assert_eq!(tenant[0]["open_since"], "2026-06-01T00:04:50.000Z");
    assert_eq!(
        names(&of(&site.tokens[1]).await),
        json!(["hidden-fleet", "prod"])
    );
    // Incidents are of a tool that this token may not use.
    assert_eq!(names(&costs), json!(["hidden-fleet"]));
    assert_eq!(
        (&costs[0]["n_open"], &costs[0]["n_gpus"]),
        (&Value::Null, &json!(4))
    );
}

#[tokio::test]
async fn the_cluster_of_an_incident_is_found_among_those_of_the_token() {
    let (echo, site) = echo().await;
    for (incident, of_tenant, of_owner) in [
        ("0000000000000017", 200, 200),
        ("00000000deadbeef", 404, 200),
        ("00000000000000ff", 404, 404),
    ] {
        let path = format!("/api/v1/incident.tar.gz?incident={incident}");
        for (token, expected) in site.tokens.iter().zip([of_tenant, of_owner]) {
            let (status, answer) = send(&echo, token, ("GET", &path, Value::Null)).await;
            assert_eq!(status, expected, "{incident}: {answer}");
        }
    }
}

#[tokio::test]
async fn forbidden_tools_are_treated_as_missing() {
    let entry = "id: cost, query: { clusters: [\"*\"], tools: [\"fleet.cluster.get_*\"] }";
    let site = Site::with_tokens(&[entry]);
    let feeds = (feeds(), Metrics::default());
    let echo = router(
        Registry::standard(),
        two_clusters().await,
        feeds,
        &site.middleware,
    );
    let token = &site.tokens[0];
    let (_, listed) = send(&echo, token, ("GET", "/api/v1/tools/list", Value::Null)).await;
    let (_, document) = send(&echo, token, ("GET", "/api/v1/openapi.json", Value::Null)).await;
    let listing = rpc("tools/list", json!({}));
    let (_, model) = send(&echo, token, ("POST", "/mcp", listing)).await;
    for text in [&listed, &document, &model] {
        assert!(text.contains("fleet.cluster.get_cost"), "{text}");
        for other in ["find_outlier_nodes", "run_analysis"] {
            assert!(
                !text.contains(&format!("\"fleet.cluster.{other}\"")),
                "{text}"
            );
        }
    }
    let path = "/api/v1/tools/fleet.cluster.find_outlier_nodes";
    assert_eq!(send(&echo, token, ("POST", path, json!({}))).await.0, 404);
}
