//! Names with control characters, stored by older versions, are escaped on the terminal.

use std::sync::Arc;

use echo_core::model::detector_output::{DetectorOutput, Finding};
use echo_core::text::is_hidden;
use echo_tools::fixture;

use super::{ContextFuture, Server};

/// Displayed as `prod-1-edon` on a terminal.
const EVIL: &str = "prod\u{202e}node-1";
const SHOWN: &str = "prod\\u{202e}node-1";

fn turned_around() -> ContextFuture {
    Box::pin(async {
        let context = fixture::empty();
        let mut events = fixture::batch(0..4, 0..=600);
        for event in &mut events.events {
            let mut origin = (*event.origin).clone();
            origin.cluster = EVIL.parse().unwrap();
            origin.node = EVIL.parse().unwrap();
            event.origin = Arc::new(origin);
        }
        context.store.append(events).await.unwrap();
        let mut late = fixture::culprit();
        late.cluster = EVIL.parse().unwrap();
        late.reason = format!("{EVIL}\u{1b}[2J");
        if let Finding::Culprit(culprit) = &mut late.finding {
            culprit.node = EVIL.parse().unwrap();
        }
        let concluded = DetectorOutput {
            incidents: vec![late],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(concluded).await.unwrap();
        context
    })
}

#[test]
fn invisible_characters_in_names_are_escaped() {
    let server = Server::with_context(turned_around);
    for line in [
        "outliers --from now-10m",
        "outliers --cluster prod\u{202e}node-1 --from now-10m",
        "cost --cluster prod\u{202e}node-1 --from now-10m",
        "history --limit 2 --from now-10m",
        "sql SELECT/**/cluster_id/**/FROM/**/events/**/LIMIT/**/1",
    ] {
        let printed = server.output(line).unwrap();
        let hidden = printed.find(|c| c != '\n' && is_hidden(c));
        assert_eq!(hidden, None, "{line}: {printed:?}");
        assert!(printed.contains(SHOWN), "{line}: {printed}");
    }
    let refused = server.output("cost --cluster other").unwrap_err();
    assert!(refused.to_string().contains(SHOWN), "{refused}");
    assert!(!refused.to_string().contains('\u{202e}'), "{refused}");
}
