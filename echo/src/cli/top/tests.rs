use serde_json::{Value, json};

use super::{Order, draw};
use crate::cli::screen::Screen;
use crate::cli::status::OpenIncidents;

fn hang(ranks: &[u32], rank_count: usize) -> Value {
    json!({
        "cluster": "lab", "kind": "hang", "state": "open", "effect_ratio": null,
        "ranks": ranks, "rank_count": rank_count, "for": "20s", "job": "llama",
        "missing": "rank 3 on node-1 did not enter a collective",
        "reason": "rank 3 on node-1 did not enter a collective: 3 of 4 ranks entered operation 7",
    })
}

fn drawn(incidents: Vec<Value>, order: Order) -> String {
    let found = OpenIncidents {
        outliers: json!({}),
        cost: json!({}),
        incidents,
    };
    let mut page = Vec::new();
    draw(&found, order, 9, &mut Screen::plain(&mut page)).unwrap();
    String::from_utf8(page).unwrap()
}

#[test]
fn a_hang_has_no_slowdown_and_names_the_ranks_that_did_not_join() {
    let culprit = json!({
        "cluster": "lab", "kind": "culprit", "state": "open", "effect_ratio": 0.5, "rank": 9,
        "for": "1m00s", "node_id": "node-2", "reason": "an iteration takes long",
    });
    let printed = drawn(vec![culprit, hang(&[3], 1)], Order::Slowdown);
    let rows: Vec<&str> = printed.lines().skip(4).collect();
    let [hung, late] = rows.as_slice() else {
        panic!("{printed}")
    };
    let words: Vec<&str> = hung.split_whitespace().take(9).collect();
    let expected = ["-", "-", "-", "-", "20s", "lab", "-", "3", "hang"];
    assert_eq!(
        words, expected,
        "the most severe slowdown is first: {printed}"
    );
    assert!(
        hung.ends_with("did not enter a collective: 3 of 4 ranks entered operation 7"),
        "{printed}"
    );
    assert!(
        late.contains("50.0 %") && !late.contains("takes long"),
        "{printed}"
    );
}

#[test]
fn many_missing_ranks_are_counted() {
    let printed = drawn(vec![hang(&[1, 2, 3, 4, 5], 12)], Order::Cost);
    assert!(printed.contains(" 1,2,3,4 +8 "), "{printed}");
}
