//! Runbook of the guide, with a heading for each class of a late rank and each condition.

use maud::{Markup, PreEscaped};
use pulldown_cmark::{Event, Parser, Tag, html};

/// Path of the page. What an incident is called is the fragment.
pub(super) const PATH: &str = "/runbook";

const RUNBOOK: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/guide/runbook.md"
));

/// Renders the page.
pub(super) fn page() -> Markup {
    let mut texts = Parser::new(RUNBOOK).skip(1);
    let events = Parser::new(RUNBOOK).map(|event| match (event, texts.next()) {
        // A heading is its own address, as on the pages of repositories.
        (Event::Start(Tag::Heading { level, .. }), Some(Event::Text(text))) => {
            Event::Start(Tag::Heading {
                level,
                id: Some(text),
                classes: Vec::new(),
                attrs: Vec::new(),
            })
        }
        (event, _) => event,
    });
    let mut page = String::new();
    html::push_html(&mut page, events);
    PreEscaped(page)
}
