use std::sync::Arc;

use echo_access::{Access, Principal, mint};
use echo_core::model::event::Event;
use echo_tools::fixture::{at, batch};

use super::{Forbidden, SenderAuth};
use crate::memory_account::ClientCertificate;

/// Principal with these permissions.
fn principal(permissions: &str) -> Arc<Principal> {
    let (token, sha256) = mint::new_token().unwrap();
    let yaml = format!("tokens: [{{ id: agents, sha256: {sha256}, {permissions} }}]");
    let access = Access::parse(&yaml, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    access.identify(&token, at(0)).unwrap()
}

fn sender(permissions: Option<&str>, names: Option<&[&str]>) -> SenderAuth {
    let certificate = names.map(|names| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        ClientCertificate(names.into())
    });
    SenderAuth::new(permissions.map(principal), certificate)
}

/// Events of the nodes node-0 and node-1 in cluster prod.
fn events() -> Vec<Event> {
    batch(0..4, 0..=10).events
}

#[test]
fn a_token_may_send_for_its_clusters_only() {
    let events = events();
    for clusters in ["[prod]", "[\"*\"]", "[other, \"pr*\"]"] {
        let sender = sender(Some(&format!("write: {{ clusters: {clusters} }}")), None);
        assert_eq!(sender.check(&events), Ok(()), "{clusters}");
    }
    let sender = sender(Some("write: { clusters: [production, \"test-*\"] }"), None);
    let refused = sender.check(&events).unwrap_err();
    assert_eq!(refused, Forbidden::Cluster("prod".parse().unwrap()));
}

#[test]
fn a_certificate_may_send_for_the_nodes_it_names() {
    let events = events();
    for names in [
        ["node-0", "NODE-1"].as_slice(),
        &["spiffe://fleet/node/node-0", "node-1"],
    ] {
        assert_eq!(
            sender(None, Some(names)).check(&events),
            Ok(()),
            "{names:?}"
        );
    }
    for names in [
        ["node-0"].as_slice(),
        &[],
        &["node-0", "node-1.example"],
        &["*"],
    ] {
        let refused = sender(None, Some(names)).check(&events);
        assert!(
            matches!(refused, Err(Forbidden::Certificate(_))),
            "{names:?}"
        );
    }
}

#[test]
fn one_forbidden_event_refuses_the_whole_request() {
    let mut events = events();
    let mut origin = (*events[0].origin).clone();
    origin.cluster = "other".parse().unwrap();
    events.last_mut().unwrap().origin = Arc::new(origin);
    let sender = sender(Some("write: { clusters: [prod] }"), None);
    let refused = sender.check(&events).unwrap_err();
    assert_eq!(refused, Forbidden::Cluster("other".parse().unwrap()));
}
