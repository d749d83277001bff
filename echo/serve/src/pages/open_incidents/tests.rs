use echo_core::ids::RankInJob;
use echo_core::model::event::Origin;
use echo_tools::fixture;

use super::named;

fn origin(rank: u32, node: &str) -> Origin {
    Origin {
        node: node.parse().unwrap(),
        rank: Some(RankInJob::new(i64::from(rank), Some(64)).unwrap()),
        ..(*fixture::origin(0)).clone()
    }
}

#[test]
fn missing_ranks_are_named_with_their_node() {
    let (one, two) = (origin(3, "node-0"), origin(7, "node-1"));
    assert_eq!(named(&[3], 1, &[&one]), "Rank 3 on node-0");
    assert_eq!(named(&[3], 1, &[]), "Rank 3");
    assert_eq!(named(&[3, 7], 2, &[&one, &two]), "Ranks 3, 7 on 2 nodes");
    assert_eq!(
        named(&[1, 2, 3, 4, 5], 70, &[]),
        "Ranks 1, 2, 3 and 67 more"
    );
    assert_eq!(named(&[], 0, &[]), "");
}
