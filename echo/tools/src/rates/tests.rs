use std::str::FromStr;

use echo_core::ids::{ClusterId, NodeId};
use echo_core::units::{GpuTime, Hour, Nanos, Window};
use rust_decimal::Decimal;

use super::{Gpu, Rate, RateClass, Rates};

mod catalogue;
mod fuzz;
mod locations;

const DAY: i64 = 86_400_000_000_000;

fn midnight(date: &str) -> Nanos {
    let date: jiff::civil::Date = date.parse().unwrap();
    let zoned = date.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    Nanos::new(i64::try_from(zoned.timestamp().as_nanosecond()).unwrap())
}

fn look_up<'a>(rates: &'a Rates, origin: (&str, &str), model: Option<&str>) -> Option<&'a Rate> {
    let (cluster, node) = (
        ClusterId::from_str(origin.0).unwrap(),
        NodeId::from_str(origin.1).unwrap(),
    );
    let gpu = Gpu {
        cluster: &cluster,
        node: &node,
        model,
    };
    rates.rate(&gpu, midnight("2026-06-01"))
}

fn price(rates: &Rates, origin: (&str, &str), model: Option<&str>) -> Option<String> {
    look_up(rates, origin, model).map(|rate| rate.per_gpu_hour.to_string())
}

const LAYERED: &str = "
rates:
  - { gpu_model: NVIDIA H200, rate_class: on_demand, rate: 3.80, currency: USD }
  - { cluster: a, gpu_model: NVIDIA H200, rate_class: reserved, rate: 2.5, currency: USD }
  - { cluster: a, rate_class: internal, rate: 2, currency: USD }
  - { node: n7, rate_class: owned, rate: 1, currency: EUR }
aliases: { our GPU: NVIDIA H200 }
";

#[test]
fn the_most_specific_rate_wins() {
    let rates = Rates::parse(LAYERED).unwrap();
    let h200 = Some("NVIDIA H200");
    assert_eq!(price(&rates, ("b", "n1"), h200).unwrap(), "3.8");
    assert_eq!(price(&rates, ("a", "n1"), h200).unwrap(), "2.5");
    assert_eq!(price(&rates, ("a", "n1"), Some("other")).unwrap(), "2");
    assert_eq!(price(&rates, ("a", "n1"), None).unwrap(), "2");
    assert_eq!(price(&rates, ("a", "n7"), h200).unwrap(), "1");
}

#[test]
fn an_unknown_model_has_no_price() {
    let rates = Rates::parse(LAYERED).unwrap();
    assert_eq!(look_up(&rates, ("b", "n1"), Some("NVIDIA H300")), None);
    assert_eq!(look_up(&rates, ("b", "n1"), None), None);
    assert_eq!(look_up(&Rates::default(), ("b", "n1"), Some("H200")), None);
}

#[test]
fn spellings_and_aliases_are_equivalent() {
    let rates = Rates::parse(LAYERED).unwrap();
    for model in [
        "nvidia h200",
        " NVIDIA  H200 ",
        "NVIDIA-H200",
        "h200",
        "our gpu",
    ] {
        assert_eq!(
            price(&rates, ("b", "n1"), Some(model)).unwrap(),
            "3.8",
            "{model}"
        );
    }
}

#[test]
fn a_rate_is_in_force_from_its_first_day_until_before_its_end() {
    let text = "
rates:
  - { gpu_model: X, rate_class: spot, rate: 1, currency: USD, effective_from: 2026-01-01, effective_to: 2026-02-01 }
  - { gpu_model: X, rate_class: spot, rate: 2, currency: USD, effective_from: 2026-02-01 }
";
    let rates = Rates::parse(text).unwrap();
    let (cluster, node) = ("c".parse().unwrap(), "n".parse().unwrap());
    let gpu = Gpu {
        cluster: &cluster,
        node: &node,
        model: Some("x"),
    };
    let at = |instant: Nanos| {
        rates
            .rate(&gpu, instant)
            .map(|rate| rate.per_gpu_hour.to_string())
    };
    let change = midnight("2026-02-01");
    assert_eq!(at(midnight("2026-01-01").offset(-1)), None);
    assert_eq!(at(change.offset(-1)).unwrap(), "1");
    assert_eq!(at(change).unwrap(), "2");
    let window = Window::new(change.offset(-DAY), change.offset(DAY)).unwrap();
    assert_eq!(rates.change_points(window), [change]);
    assert!(Hour::begins_at(change), "no hour has two prices");
}

#[test]
fn the_date_of_the_prices_is_parsed() {
    let rates = |as_of: &str| Rates::parse(&format!("as_of: {as_of}\nrates: []\n"));
    assert_eq!(rates("2026-01-31").unwrap().as_of(), Some("2026-01-31"));
    assert!(rates("lately").is_err());
}

#[test]
fn money_is_exact_to_a_trillionth() {
    let rates = Rates::parse(LAYERED).unwrap();
    let rate = look_up(&rates, ("b", "n1"), Some("h200")).unwrap();
    assert_eq!(rate.class, RateClass::OnDemand);
    assert_eq!(
        rate.cost(GpuTime::new(GpuTime::MICROS_PER_HOUR)),
        Decimal::from_str("3.8").unwrap()
    );
    assert_eq!(rate.cost(GpuTime::new(1_000)).to_string(), "0.000001055556");
    assert!(
        rate.cost(GpuTime::new(i64::MAX)) > Decimal::ZERO,
        "no overflow"
    );
}

#[test]
fn all_mistakes_are_reported_together() {
    let text = "
rates:
  - { gpu_model: X, rate_class: on_demand, rate: 1, currency: USD }
  - { gpu_model: x, rate_class: cheap, rate: -1, currency: dollar, colour: red }
  - { rate_class: spot, rate: 0.1234567, currency: EUR, effective_from: yesterday }
  - { gpu_model: ' X', rate_class: spot, rate: 2, currency: EUR, effective_from: 2026-02-01, effective_to: 2026-01-01 }
  - 7
aliases: [ X ]
prices: {}
";
    let error = Rates::parse(text).unwrap_err();
    insta::assert_snapshot!(error.mistakes.join("\n"), @r#"
    prices: is not a known field
    rates[1].rate_class: "cheap" is not one of on_demand, reserved, spot, owned, internal
    rates[1].rate: is not a price per GPU-hour from 0 to 1000000 with at most 6 decimals
    rates[1].currency: "dollar" is not an ISO 4217 currency such as USD or EUR
    rates[1].colour: is not a known field
    rates[2].rate: is not a price per GPU-hour from 0 to 1000000 with at most 6 decimals
    rates[2].effective_from: is not a date such as 2026-01-31
    rates[2].gpu_model: is missing
    rates[3].effective_to: is not after effective_from
    rates[4]: is not a mapping of fields
    aliases: is not a mapping of model names
    rates[3]: prices the same GPUs at the same time as rates[0]
    "#);
}

#[test]
fn dates_before_2020_or_from_2100_on_are_open_ended() {
    let rate = |dates: &str| {
        let rate = "gpu_model: X, rate_class: spot, rate: 1, currency: USD";
        Rates::parse(&format!("rates:\n  - {{ {rate}, {dates} }}\n"))
    };
    let open = rate("effective_from: 2026-01-01").unwrap();
    let until_the_end = rate("effective_from: 2026-01-01, effective_to: 9999-12-31");
    assert_eq!(until_the_end.unwrap(), open);
    let always = rate("effective_from: 1999-01-01, effective_to: 2200-01-01");
    assert_eq!(always.unwrap(), rate("effective_from: 2020-01-01").unwrap());
    let mistakes = |dates| rate(dates).unwrap_err().mistakes.join("; ");
    insta::assert_snapshot!(mistakes("effective_to: 2016-01-01"), @"rates[0].effective_to: is not after 2020-01-01, the earliest supported date");
    insta::assert_snapshot!(mistakes("effective_from: 2015-01-01, effective_to: 2016-01-01"), @"rates[0].effective_to: is not after 2020-01-01, the earliest supported date");
    insta::assert_snapshot!(mistakes("effective_from: 2100-01-01"), @"rates[0].effective_from: is not before 2100-01-01");
}

#[test]
fn invalid_yaml_is_rejected_with_its_line() {
    let error = Rates::parse("rates:\n  - { a: 1\n").unwrap_err();
    assert!(error.to_string().contains("line"), "{error}");
    assert!(Rates::parse("").is_err());
}

#[test]
fn the_example_table_is_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/rates.yaml");
    let rates = Rates::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(price(&rates, ("any", "n"), Some("H200")).unwrap(), "3.8");
    assert_eq!(
        price(&rates, ("example-reserved", "n"), Some("H100")).unwrap(),
        "2.35"
    );
    assert_eq!(
        price(&rates, ("lab-north", "n"), Some("NVIDIA H100 80GB HBM3")).unwrap(),
        "2.75"
    );
    assert_eq!(rates.only_currency().unwrap().to_string(), "USD");
    assert_eq!(rates.notes(), Vec::<String>::new());
}

#[test]
fn an_ambiguous_model_prices_nothing_and_has_a_note() {
    let rate = "rates: [{ gpu_model: H100, rate_class: spot, rate: 2, currency: USD }]";
    let rates = Rates::parse(rate).unwrap();
    for model in [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
    ] {
        assert_eq!(price(&rates, ("c", "n"), Some(model)), None, "{model}");
    }
    insta::assert_snapshot!(rates.notes().join("\n"), @"rates[0]: h100 is ambiguous: GPUs report one of NVIDIA H100 80GB HBM3, NVIDIA H100 PCIe, NVIDIA H100 NVL, which have different prices; name one of them, or map those that cost the same with `aliases`");
    // Aliases resolve the ambiguity.
    let one = format!("{rate}\naliases: {{ H100: H100 PCIe }}");
    let all = format!("{rate}\naliases: {{ H100 PCIe: H100, H100 SXM: H100, H100 NVL: H100 }}");
    for (table, n_priced) in [(one, 1), (all, 3)] {
        let rates = Rates::parse(&table).unwrap();
        let models = [
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL",
        ];
        let priced = models.map(|model| price(&rates, ("c", "n"), Some(model)));
        assert_eq!(priced.iter().flatten().count(), n_priced, "{table}");
        assert_eq!(rates.notes(), Vec::<String>::new());
    }
}

#[test]
fn every_class_has_its_pricing_category() {
    let categories = RateClass::ALL.map(|class| (class.name(), class.pricing_category()));
    let expected = [
        ("on_demand", "Standard"),
        ("reserved", "Committed"),
        ("spot", "Dynamic"),
        ("owned", "Other"),
        ("internal", "Other"),
    ];
    assert_eq!(categories, expected);
}
