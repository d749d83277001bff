//! The map of a cluster page agrees with the incidents: in the time of an incident, its rank has the
//! darkest cell.

use regex::Regex;
use serde_json::Value;

use crate::testbed::Echo;

/// Adjacent cells of one shade.
struct Cells {
    rank: u64,
    shade: u8,
    /// Largest lag, milliseconds.
    lag_ms: f64,
    from: String,
    to: String,
}

/// Returns the cells on the page of a cluster.
fn cells(echo: &Echo, cluster: &str) -> Vec<Cells> {
    let path = cluster.replace('/', "%2F");
    let url = format!("http://{}/clusters/{path}?window=all&open=ranks", echo.http);
    let page = ureq::get(&url).call().unwrap();
    let page = page.into_body().read_to_string().unwrap();
    let row = Regex::new(r#"<th scope="row"><a href="[^"]*">(\d+)</a>(.*?)</tr>"#).unwrap();
    let run =
        Regex::new(r#"<rect class="s(\d)"[^>]*><title>([\d: -]+) to ([\d: -]+) UTC: (?:[^<]* to )?([\d.-]+)\x{a0}(m?s)"#).unwrap();
    let mut cells = Vec::new();
    for one in row.captures_iter(&page) {
        cells.extend(run.captures_iter(&one[2]).map(|found| Cells {
            rank: one[1].parse().unwrap(),
            shade: found[1].parse().unwrap(),
            lag_ms: found[4].parse::<f64>().unwrap() * if &found[5] == "s" { 1e3 } else { 1.0 },
            from: found[2].replace(' ', "T"),
            to: found[3].replace(' ', "T"),
        }));
    }
    cells
}

/// Returns the darkest shade of a rank during an incident, and its lag; cells above the darkest
/// shade differ by their lags only.
fn darkest(cells: &[Cells], rank: u64, (from, to): (&str, &str)) -> Option<(u8, f64)> {
    let of_rank = cells.iter().filter(|cells| cells.rank == rank);
    let during = of_rank.filter(|cells| cells.from.as_str() < to && from < cells.to.as_str());
    let shades = during.map(|cells| (cells.shade, cells.lag_ms));
    shades.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
}

/// Checks that the map names the same ranks as the incidents of an answer. Pipelines have no peers
/// on the map.
pub(super) fn assert_agrees(echo: &Echo, cluster: &str, outliers: &Value) {
    let cells = cells(echo, cluster);
    if cells.is_empty() {
        return;
    }
    let incidents = outliers["outliers"].as_array().unwrap().iter();
    let culprits = incidents
        .filter(|one| one["role"] == "culprit")
        .map(|one| (one, one["rank"].as_u64().unwrap()));
    let hangs = outliers["conditions"].as_array().unwrap().iter();
    let missing = hangs
        .filter(|one| one["kind"] == "stall" || one["kind"] == "hang")
        .flat_map(|one| {
            let ranks = one["ranks"].as_array().unwrap().iter();
            ranks.map(move |rank| (one, rank.as_u64().unwrap()))
        });
    for (incident, rank) in culprits.chain(missing) {
        let from = incident["first_seen"].as_str().unwrap();
        let to = incident["cleared_at"].as_str();
        let span = (from, to.or_else(|| incident["last_seen"].as_str()).unwrap());
        let own = darkest(&cells, rank, span);
        assert!(
            own.is_some_and(|(shade, _)| shade > 0),
            "rank {rank} has no dark cell: {incident:#}"
        );
        for other in cells.iter().filter(|cells| cells.rank != rank) {
            let others = darkest(&cells, other.rank, span);
            assert!(others < own, "rank {} is darker: {incident:#}", other.rank);
        }
    }
}
