//! Format of the `gpu_rates.yaml` that Ingero publishes.

use super::{look_up, price};
use crate::rates::{RateClass, Rates};

const PUBLISHED: &str = "
currency_name: EUR
currency_symbol: \"€\"

providers:
  ec2:
    \"NVIDIA H100 80GB HBM3\":     9.50
    \"NVIDIA L4 24GB\":            0.75
    \"NVIDIA L4\":                 0.75
  lambda:
    \"NVIDIA H100 80GB HBM3\":     2.25

fallback_rate: 0.0
";

#[test]
fn list_prices_apply_where_the_provider_is_known() {
    let placed = format!(
        "{PUBLISHED}\nlocations: [{{ cluster: a, provider: ec2 }}, {{ cluster: b, provider: lambda }}]"
    );
    let rates = Rates::parse(&placed).unwrap();
    for (cluster, model, expected) in [
        ("a", "NVIDIA H100 80GB HBM3", Some("9.5")),
        ("b", "NVIDIA H100 80GB HBM3", Some("2.25")),
        ("a", "NVIDIA L4", Some("0.75")),
        ("b", "NVIDIA L4", None),
        ("c", "NVIDIA H100 80GB HBM3", None),
        ("a", "NVIDIA H100 PCIe", None),
    ] {
        let found = price(&rates, (cluster, "n"), Some(model));
        assert_eq!(found.as_deref(), expected, "{model} in {cluster}");
    }
    let rate = look_up(&rates, ("a", "n"), Some("h100 sxm")).unwrap();
    assert_eq!(rate.class, RateClass::OnDemand);
    assert_eq!(rate.currency.to_string(), "EUR");
    assert_eq!(rate.source.as_deref(), Some("gpu_rates.yaml"));
    assert_eq!(
        rates.key_path(rate),
        Some("providers.ec2.NVIDIA H100 80GB HBM3")
    );
}

#[test]
fn the_published_file_is_valid_and_has_a_note_about_missing_locations() {
    let rates = Rates::parse(PUBLISHED).unwrap();
    assert_eq!(rates.all().len(), 3);
    assert_eq!(look_up(&rates, ("a", "n"), Some("NVIDIA L4")), None);
    insta::assert_snapshot!(rates.notes().join("\n"), @r#"rates of providers are not used, because no location of GPUs is defined: add locations, such as `locations: [{ cluster: "*", provider: ec2 }]`"#);
}

#[test]
fn a_fallback_of_zero_leaves_gpus_without_a_price_and_any_other_prices_them() {
    let text = PUBLISHED.replace("fallback_rate: 0.0", "fallback_rate: 1.5");
    let placed =
        format!("{text}\nlocations: [{{ cluster: a, provider: ec2 }}]\nrate_class: internal");
    let rates = Rates::parse(&placed).unwrap();
    assert_eq!(
        price(&rates, ("a", "n"), Some("NVIDIA L4")).unwrap(),
        "0.75"
    );
    assert_eq!(price(&rates, ("b", "n"), Some("other")).unwrap(), "1.5");
    let rate = look_up(&rates, ("b", "n"), None).unwrap();
    assert_eq!(rate.class, RateClass::Internal);
    assert_eq!(rates.key_path(rate), Some("fallback_rate"));
}

#[test]
fn mistakes_in_a_catalogue_are_reported_with_their_key_paths() {
    let text = "
currency_name: dollars
providers:
  ec2: { NVIDIA L4: cheap, \"--\": 1, NVIDIA A10: 1, A10 24GB: 2 }
  gcp: [ 1 ]
fallback_rate: -1
per: hour
";
    let mistakes = |text: &str| Rates::parse(text).unwrap_err().mistakes.join("\n");
    insta::assert_snapshot!(mistakes(text), @r#"
    currency_name: "dollars" is not an ISO 4217 currency such as USD or EUR
    fallback_rate: is not a price per GPU-hour from 0 to 1000000 with at most 6 decimals
    per: is not a known field
    providers.ec2.NVIDIA L4: is not a price per GPU-hour from 0 to 1000000 with at most 6 decimals
    providers.ec2.--: has neither a letter nor a digit
    providers.gcp: is not a mapping of fields
    providers.ec2.A10 24GB: prices the same GPUs at the same time as providers.ec2.NVIDIA A10
    "#);
    insta::assert_snapshot!(mistakes("providers: 7\ncurrency_name: USD\nrates: []"), @"providers: cannot be combined with rates; use one or the other");
}
