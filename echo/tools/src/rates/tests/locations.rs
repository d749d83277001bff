//! Prices by provider and region.

use super::{look_up, price};
use crate::rates::Rates;

const LAYERED: &str = "
rates:
  - { gpu_model: H200, rate_class: on_demand, rate: 1, currency: USD }
  - { provider: aws, gpu_model: H200, rate_class: on_demand, rate: 2, currency: USD }
  - { provider: AWS, region: eu-west-1, gpu_model: H200, rate_class: on_demand, rate: 3, currency: USD }
  - { cluster: contract-eu, rate_class: reserved, rate: 4, currency: USD }
  - { cluster: contract-eu, gpu_model: H200, rate_class: reserved, rate: 5, currency: USD }
  - { node: owned-1, rate_class: owned, rate: 6, currency: USD }
locations:
  - { node: 'owned-*', provider: ourselves }
  - { cluster: '*-eu', provider: Aws, region: EU-WEST-1 }
  - { cluster: 'a*', provider: aws }
";

#[test]
fn precedence_is_node_cluster_model_region_provider() {
    let rates = Rates::parse(LAYERED).unwrap();
    let h200 = Some("NVIDIA H200");
    for (place, expected) in [
        (("b", "n"), "1"),
        (("a", "n"), "2"),
        (("b-eu", "n"), "3"),
        (("contract-eu", "n"), "5"),
        (("contract-eu", "owned-1"), "6"),
        // Its provider differs from that of its cluster.
        (("b-eu", "owned-2"), "1"),
    ] {
        let found = price(&rates, place, h200);
        assert_eq!(found.as_deref(), Some(expected), "{place:?}");
    }
    assert_eq!(price(&rates, ("contract-eu", "n"), None).unwrap(), "4");
    let order: Vec<String> = rates
        .by_precedence()
        .into_iter()
        .map(|(at, rate)| format!("{at} {}", rate.per_gpu_hour))
        .collect();
    assert_eq!(
        order,
        [
            "rates[5] 6",
            "rates[4] 5",
            "rates[3] 4",
            "rates[2] 3",
            "rates[1] 2",
            "rates[0] 1"
        ]
    );
}

#[test]
fn the_first_matching_location_wins() {
    let rates = Rates::parse(LAYERED).unwrap();
    let place = |cluster: &str, node: &str| {
        let place = rates.location(&cluster.parse().unwrap(), &node.parse().unwrap())?;
        Some((place.provider.as_str(), place.region.as_deref()))
    };
    assert_eq!(place("a-eu", "owned-9"), Some(("ourselves", None)));
    assert_eq!(place("a-eu", "n"), Some(("Aws", Some("EU-WEST-1"))));
    assert_eq!(place("a", "n"), Some(("aws", None)));
    assert_eq!(place("b", "n"), None);
}

#[test]
fn a_rate_of_a_provider_does_not_price_gpus_of_other_or_unknown_providers() {
    let text = "
rates: [{ provider: aws, gpu_model: H200, rate_class: on_demand, rate: 2, currency: USD }]
locations: [{ cluster: a, provider: aws }, { cluster: g, provider: gcp }]
";
    let rates = Rates::parse(text).unwrap();
    assert!(look_up(&rates, ("a", "n"), Some("H200")).is_some());
    for cluster in ["g", "nowhere"] {
        assert_eq!(look_up(&rates, (cluster, "n"), Some("H200")), None);
    }
}

#[test]
fn a_provider_without_locations_is_rejected_and_an_unmatched_one_has_a_note() {
    let rate = "provider: aws, gpu_model: H200, rate_class: spot, rate: 2, currency: USD";
    let refused = Rates::parse(&format!("rates: [{{ {rate} }}]")).unwrap_err();
    insta::assert_snapshot!(refused.mistakes.join("\n"), @r#"locations: is missing, but rates[0] applies only to GPUs of aws: assign clusters or nodes to it, such as `locations: [{ cluster: "*", provider: aws }]`"#);
    let region = format!("region: eu-1, {rate}");
    let rates = format!(
        "rates: [{{ {rate} }}, {{ {region} }}]\nlocations: [{{ cluster: '*', provider: gcp }}]"
    );
    insta::assert_snapshot!(Rates::parse(&rates).unwrap().notes().join("\n"), @r"
    rates[0]: no entry of locations has provider aws
    rates[1]: no entry of locations has region eu-1 of provider aws
    ");
}

#[test]
fn mistakes_in_locations_are_reported() {
    let text = "
rates:
  - { region: eu-1, gpu_model: H200, rate_class: spot, rate: 2, currency: USD }
  - { provider: aws, rate_class: spot, rate: 2, currency: USD }
  - { provider: aws, gpu_model: A10, rate_class: spot, rate: 2, currency: USD }
  - { provider: AWS, gpu_model: NVIDIA A10, rate_class: spot, rate: 3, currency: USD }
locations:
  - { provider: aws }
  - { cluster: '', node: n, provider: aws, zone: a }
  - { cluster: a }
";
    let error = Rates::parse(text).unwrap_err();
    insta::assert_snapshot!(error.mistakes.join("\n"), @r"
    rates[0].provider: is missing
    rates[1].gpu_model: is missing
    locations[0].cluster: is missing
    locations[1].cluster: is not a text
    locations[1].zone: is not a known field
    locations[2].provider: is missing
    rates[3]: prices the same GPUs at the same time as rates[2]
    ");
}
