//! Pages: what links, forms and reloads keep, and the permanent page of an incident.

use std::collections::BTreeSet;
use std::sync::Arc;

use echo_core::ids::RankInJob;
use echo_core::model::event::Origin;
use echo_tools::ToolContext;
use echo_tools::fixture::{self, at, batch, culprit, empty, iterations};

use super::incidents::{assert_order, cleared, text};
use super::{Page, get_json, service};

#[tokio::test]
async fn pages_reload_every_half_minute_unless_they_are_paused() {
    let echo = service(fixture::context().await);
    for path in ["/", "/clusters/prod", "/clusters/prod?window=15m"] {
        let Page(_, headers, page) = get_json(&echo, path).await;
        assert_eq!(headers["refresh"], "30", "{path}");
        let separator = if path.contains('?') { "&amp;" } else { "?" };
        let pause = format!("href=\"{path}{separator}refresh=off\">Pause");
        assert!(page.contains(&pause), "{pause}: {page}");
        let paused = format!("{path}{}refresh=off", separator.replace("&amp;", "&"));
        let Page(_, headers, page) = get_json(&echo, &paused).await;
        assert!(!headers.contains_key("refresh"), "{paused}");
        assert!(page.contains(">Resume</a>"), "{page}");
    }
    let past = "/clusters/prod?from=2026-05-01T00:00:00Z&to=2026-05-02T00:00:00Z";
    let Page(_, headers, _) = get_json(&echo, past).await;
    assert!(!headers.contains_key("refresh"));
}

/// Returns the targets of all links and forms that lead to pages.
fn targets(page: &str) -> BTreeSet<String> {
    let links = page.split("href=\"").skip(1);
    let links = links.filter_map(|rest| rest.split('"').next());
    let links = links.filter(|link| link.starts_with('/') || link.starts_with("http"));
    let pages = links.filter(|link| !link.starts_with("/api/") && *link != "/metrics");
    pages.map(str::to_owned).collect()
}

#[tokio::test]
async fn every_link_and_form_of_a_paused_page_keeps_the_pause() {
    let echo = service(fixture::context().await);
    let incident = format!("/clusters/prod/incidents/{}", culprit().id);
    for path in [
        "/?q=prod&open=search",
        "/clusters/prod?window=15m&open=window",
        "/clusters/prod?from=now-1h",
        "/clusters/prod/ranks/2?window=15m",
        "/runbook?",
        &format!("{incident}?"),
    ] {
        let page = text(&echo, &format!("{path}&refresh=off")).await;
        let targets = targets(&page);
        assert!(!targets.is_empty());
        for link in targets {
            let is_toggle = page.contains(&format!("href=\"{link}\">Resume"));
            assert_eq!(!link.contains("refresh=off"), is_toggle, "{path}: {link}");
        }
        let forms = page.split("<form").skip(1);
        for form in forms.filter_map(|form| form.split("</form>").next()) {
            let field = "<input type=\"hidden\" name=\"refresh\" value=\"off\">";
            assert!(form.contains(field), "{path}: {form}");
        }
    }
}

#[tokio::test]
async fn a_page_is_not_reloaded_while_a_form_is_open_on_it() {
    let echo = service(fixture::context().await);
    for (path, form) in [("/", "search"), ("/clusters/prod", "window")] {
        let closed = text(&echo, path).await;
        assert!(!closed.contains("<form"), "{closed}");
        let link = format!("href=\"{path}?open={form}#open-{form}\" aria-expanded=\"false\"");
        let link = link.replace("/clusters/prod?", "/clusters/prod?window=1h&amp;");
        assert!(closed.contains(&link), "{link}: {closed}");
        let Page(_, headers, open) = get_json(&echo, &format!("{path}?open={form}")).await;
        assert!(open.contains("<form class=\"row\""), "{open}");
        assert!(open.contains("aria-expanded=\"true\""), "{open}");
        assert!(!headers.contains_key("refresh") && !open.contains(">Pause</a>"));
    }
}

/// A rank of ten.
fn one_of_ten(rank: i64) -> Arc<Origin> {
    let mut origin = (*fixture::origin(0)).clone();
    origin.rank = Some(RankInJob::new(rank, Some(10)).unwrap());
    Arc::new(origin)
}

/// Ten ranks of which none is late.
async fn punctual() -> ToolContext {
    let context = empty();
    let mut events = batch(0..1, 600..=600);
    for second in [100, 105, 110] {
        let all = (0..10).flat_map(|rank| iterations(&one_of_ten(rank), second, 1.0));
        events.events.extend(all);
    }
    context.store.append(events).await.unwrap();
    context
}

#[tokio::test]
async fn ranks_that_a_reader_unfolds_stay_unfolded_when_the_page_is_loaded_again() {
    let echo = service(punctual().await);
    let folded = text(&echo, "/clusters/prod").await;
    let link = "href=\"/clusters/prod?window=1h&amp;open=ranks#open-ranks\" aria-expanded=\"false\">10 ranks, never";
    assert!(folded.contains(link), "{folded}");
    assert!(!folded.contains("Ranks without a notable lag"), "{folded}");
    let Page(_, headers, page) = get_json(&echo, "/clusters/prod?window=1h&open=ranks").await;
    assert_eq!(headers["refresh"], "30");
    assert_eq!(page.matches("<svg class=\"strip\"").count(), 10, "{page}");
    // Other windows show them as well.
    assert!(
        page.contains("href=\"/clusters/prod?window=24h&amp;open=ranks\""),
        "{page}"
    );
}

#[tokio::test]
async fn the_page_of_an_incident_is_at_its_own_address_while_it_is_open_and_after_it_has_cleared() {
    let context = fixture::context().await;
    let store = Arc::clone(&context.store);
    let echo = service(context);
    let page = text(&echo, "/clusters/prod").await;
    let id = culprit().id.to_string();
    let link = format!("/clusters/prod/incidents/{id}");
    assert!(page.contains(&format!("href=\"{link}\"")), "{page}");
    let Page(status, headers, open) = get_json(&echo, &link).await;
    assert_eq!(
        (status, headers["refresh"].to_str().unwrap()),
        (200, "30"),
        "{open}"
    );
    let card = format!("<article class=\"incident bad chosen\" id=\"incident-{id}\"");
    assert_eq!(open.matches(&card).count(), 1, "{open}");
    assert!(open.contains("aria-current=\"true\">1 hour"), "{open}");
    store.store_verdicts(cleared()).await.unwrap();
    let Page(status, headers, past) = get_json(&echo, &link).await;
    assert!(status == 200 && !headers.contains_key("refresh"), "{past}");
    let row = format!("<tr class=\"chosen\" id=\"incident-{id}\"");
    assert_eq!(past.matches(&row).count(), 1, "{past}");
    assert_order(
        &past,
        &["<h1>prod</h1>", &row, "<details open>", "id=\"window\""],
    );
    let from = at(290 - 300).to_string();
    assert!(past.contains(&format!("value=\"{from}\"")), "{past}");
    let Page(status, ..) = get_json(&echo, "/clusters/prod/incidents/0000000000000000").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn the_incident_of_a_page_comes_before_more_severe_ones() {
    let echo = service(fixture::context().await);
    let cleared = "0000000000000099";
    let page = text(&echo, &format!("/clusters/prod/incidents/{cleared}")).await;
    let first = page.split("id=\"incident-").nth(1).unwrap();
    assert!(first.starts_with(cleared), "{page}");
}

#[tokio::test]
async fn a_rank_page_shows_the_values_of_its_plot_where_a_reader_points() {
    let echo = service(punctual().await);
    let page = text(&echo, "/clusters/prod/ranks/2?window=15m").await;
    assert!(page.contains("<svg class=\"plot\" role=\"img\""), "{page}");
    assert!(!page.contains("<img class=\"plot\""), "{page}");
    for second in [100, 105, 110] {
        let value = format!("<title>{}: lag 0.00 ms</title>", at(second));
        assert_eq!(page.matches(&value).count(), 1, "{value}: {page}");
    }
}
