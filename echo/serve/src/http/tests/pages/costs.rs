//! Pages: the cost per day.

use echo_core::model::event::BatchKey;
use echo_tools::fixture::{self, batch};

use super::incidents::text;
use super::service;

/// Returns the days of the table, latest first.
fn days(page: &str) -> Vec<&str> {
    let table = page.split("Cost per day").nth(1).unwrap();
    let table = table.split("</table>").next().unwrap();
    let days = table.split("<time datetime=\"").skip(1);
    days.filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test]
async fn the_cost_per_day_begins_with_the_day_of_the_first_event() {
    let context = fixture::context().await;
    let page = text(&service(context.clone()), "/clusters/prod").await;
    assert_eq!(days(&page), ["2026-06-01"]);
    let before = -2 * 86_400;
    let mut events = batch(0..4, before..=before + 600);
    events.key = BatchKey::Content(3_000);
    context.store.append(events).await.unwrap();
    let page = text(&service(context), "/clusters/prod").await;
    assert_eq!(days(&page), ["2026-06-01", "2026-05-31", "2026-05-30"]);
}
