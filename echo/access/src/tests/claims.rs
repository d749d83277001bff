//! Permissions of issuers' tokens: from the file and from claims.

use serde_json::{Value, json};

use super::describe;
use crate::signed::{Idp, at, claims, every_form};
use crate::{Access, Kind, Rate, Rejected};

fn ed25519() -> Idp {
    every_form().swap_remove(3)
}

/// Returns the permissions of a token with these claims, and no others that grant anything.
fn allowed(access: &Access, idp: &Idp, members: &Value) -> String {
    let mut all = claims();
    all.as_object_mut().unwrap().remove("echo");
    for (name, value) in members.as_object().unwrap() {
        all[name] = value.clone();
    }
    match access.identify(&idp.token(&all), at(0)) {
        Ok(principal) => describe(&principal),
        Err(why) => why.name().to_owned(),
    }
}

#[test]
fn a_token_can_claim_permissions() {
    let idp = ed25519();
    let access = idp.access("");
    for (claim, expected) in [
        (
            json!({ "clusters": ["*"] }),
            "grafana jwt: query(prod+lab-1, 2 tools)",
        ),
        (
            json!({ "clusters": ["*"], "sql": true }),
            "grafana jwt: query(prod+lab-1, 2 tools sql)",
        ),
        (
            json!({ "clusters": ["lab-*"], "sql": true }),
            "grafana jwt: query(lab-1, 2 tools)",
        ),
        (
            json!({ "clusters": ["prod"], "tools": ["fleet_cluster_get_*"] }),
            "grafana jwt: query(prod, 1 tools)",
        ),
        (
            json!({ "clusters": ["prod"], "tools": [] }),
            "no_permission",
        ),
        (json!({ "write": ["prod"] }), "grafana jwt: write(prod)"),
        (
            json!({ "clusters": ["lab-1"], "write": ["prod"], "more": 1 }),
            "grafana jwt: query(lab-1, 2 tools) write(prod)",
        ),
        (json!({ "sql": true, "tools": ["*"] }), "no_permission"),
        (json!({ "clusters": "*" }), "no_permission"),
        (json!({ "clusters": ["prod", ""] }), "no_permission"),
        (json!({ "clusters": ["prod", 7] }), "no_permission"),
        (
            json!({ "clusters": ["prod"], "write": [""] }),
            "no_permission",
        ),
        (json!(["prod"]), "no_permission"),
        (json!("prod"), "no_permission"),
    ] {
        let permissions = allowed(&access, &idp, &json!({ "echo": claim }));
        assert_eq!(permissions, expected, "{claim}");
    }
}

#[test]
fn oauth_scopes_grant_permissions_with_one_list_of_clusters() {
    let idp = ed25519();
    let access = idp.access("");
    for (scope, expected) in [
        (
            "fleet:read cluster:prod",
            "grafana jwt: query(prod, 2 tools)",
        ),
        (
            "openid fleet:read cluster:*",
            "grafana jwt: query(prod+lab-1, 2 tools)",
        ),
        (
            "fleet:read fleet:sql cluster:*",
            "grafana jwt: query(prod+lab-1, 2 tools sql)",
        ),
        (
            "fleet:read fleet:sql cluster:prod",
            "grafana jwt: query(prod, 2 tools)",
        ),
        (
            "fleet:write cluster:prod cluster:lab-1",
            "grafana jwt: write(prod+lab-1)",
        ),
        ("fleet:read", "no_permission"),
        ("fleet:write", "no_permission"),
        ("cluster:prod", "no_permission"),
        ("fleet:sql cluster:*", "no_permission"),
        ("fleet:reader cluster:*", "no_permission"),
        ("fleet:read cluster:", "no_permission"),
        ("", "no_permission"),
    ] {
        let permissions = allowed(&access, &idp, &json!({ "scope": scope }));
        assert_eq!(permissions, expected, "{scope}");
    }
    let list = json!({ "scope": ["fleet:read", "cluster:*"] });
    assert_eq!(allowed(&access, &idp, &list), "no_permission");
    // The more specific claim applies.
    let both = json!({ "scope": "fleet:read cluster:*", "echo": { "clusters": ["prod"] } });
    assert_eq!(
        allowed(&access, &idp, &both),
        "grafana jwt: query(prod, 2 tools)"
    );
}

const SUBJECTS: &str = "    subjects:
      'g*': { write: { clusters: [prod] } }
      'gr*': { query: { clusters: ['lab-*'] } }
      grafana: { query: { clusters: [prod] }, rate: { per_second: 3 } }
";

#[test]
fn permissions_of_a_subject_in_the_file_override_claims() {
    let idp = ed25519();
    let access = idp.access(SUBJECTS);
    let everything = json!({ "clusters": ["*"], "write": ["*"], "sql": true });
    for (subject, expected) in [
        ("grafana", "grafana jwt: query(prod, 2 tools)"),
        ("grafana2", "grafana2 jwt: query(lab-1, 2 tools)"),
        ("gabi", "gabi jwt: write(prod)"),
        (
            "someone-else",
            "someone-else jwt: query(prod+lab-1, 2 tools sql) write(prod+lab-1)",
        ),
    ] {
        let permissions = allowed(
            &access,
            &idp,
            &json!({ "sub": subject, "echo": everything }),
        );
        assert_eq!(permissions, expected);
    }
    assert_eq!(
        allowed(&access, &idp, &json!({ "sub": "someone-else" })),
        "no_permission"
    );
    let grafana = access.identify(&idp.token(&claims()), at(0)).unwrap();
    assert_eq!(
        (grafana.rate.per_second.get(), grafana.rate.burst.get()),
        (3, 20)
    );
}

#[test]
fn tokens_of_an_issuer_have_the_rate_limit_of_its_entry() {
    let idp = ed25519();
    let access = idp.access(
        "    rate: { per_second: 50, burst: 200 }
    subjects:
      listed: { query: { clusters: [prod] } }
      slow: { query: { clusters: [prod] }, rate: { per_second: 1 } }
",
    );
    for (subject, expected) in [
        ("grafana", (50, 200)),
        ("listed", (50, 200)),
        ("slow", (1, 200)),
    ] {
        let mut all = claims();
        all["sub"] = json!(subject);
        let rate = access.identify(&idp.token(&all), at(0)).unwrap().rate;
        assert_eq!(
            (rate.per_second.get(), rate.burst.get()),
            expected,
            "{subject}"
        );
    }
}

const SERVICE_ACCOUNTS: &str = "    kind: service_account
    subjects:
      'system:serviceaccount:monitoring:grafana': { query: { clusters: ['*'] } }
      'system:serviceaccount:fleet-*:agent': { write: { clusters: [prod] } }
";

#[test]
fn a_service_account_has_the_permissions_in_the_file_and_writes_only_for_its_node() {
    let idp = ed25519();
    let access = idp.access(SERVICE_ACCOUNTS);
    let grafana = "system:serviceaccount:monitoring:grafana";
    let agent = "system:serviceaccount:fleet-eu:agent";
    let node = json!({ "namespace": "fleet-eu", "node": { "name": "gpu-7", "uid": "u" } });
    for (subject, kubernetes, expected) in [
        (
            grafana,
            &node,
            format!("{grafana} service_account: query(prod+lab-1, 2 tools)"),
        ),
        (
            agent,
            &node,
            format!("{agent} service_account: write(prod of gpu-7)"),
        ),
        (
            agent,
            &json!({}),
            format!("{agent} service_account: write(prod)"),
        ),
        (
            agent,
            &json!({ "node": { "name": "" } }),
            "malformed".to_owned(),
        ),
        (
            agent,
            &json!({ "node": { "name": 7 } }),
            "malformed".to_owned(),
        ),
        (
            "system:serviceaccount:fleet-eu:agent2",
            &node,
            "no_permission".to_owned(),
        ),
        (
            "system:serviceaccount:default:grafana",
            &node,
            "no_permission".to_owned(),
        ),
    ] {
        let permissions = allowed(
            &access,
            &idp,
            &json!({ "sub": subject, "kubernetes.io": kubernetes, "echo": { "clusters": ["*"] } }),
        );
        assert_eq!(permissions, expected, "{subject}");
    }
}

#[test]
fn tokens_of_other_issuers_are_not_restricted_to_a_node() {
    let idp = ed25519();
    let access = idp.access("");
    let node = json!({ "node": { "name": "gpu-7" } });
    let permissions = allowed(
        &access,
        &idp,
        &json!({ "kubernetes.io": node, "echo": { "write": ["prod"] } }),
    );
    assert_eq!(permissions, "grafana jwt: write(prod)");
    let principal = access.identify(&idp.token(&claims()), at(0)).unwrap();
    assert_eq!((principal.kind, principal.rate), (Kind::Jwt, Rate::DEFAULT));
}

#[test]
fn rejection_reasons_have_distinct_names() {
    use std::collections::BTreeSet;
    let all = [
        Rejected::Unknown,
        Rejected::Malformed,
        Rejected::TooLong,
        Rejected::Expired,
        Rejected::NotYetValid,
        Rejected::LivesTooLong,
        Rejected::WrongIssuer,
        Rejected::WrongAudience,
        Rejected::WrongKey,
        Rejected::WrongAlgorithm,
        Rejected::UnknownKey,
        Rejected::NoPermission,
    ];
    let names: BTreeSet<&str> = all.into_iter().map(Rejected::name).collect();
    assert_eq!(names.len(), all.len());
}
