use clap::Parser;
use serde_json::{Value, json};

use super::case::{Case, Outcome};
use super::{AssertArgs, Subject, cost, outliers};

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    assert: AssertArgs,
}

fn parsed(flags: &str) -> Result<Subject, clap::Error> {
    let words = ["assert"].into_iter().chain(flags.split_whitespace());
    Program::try_parse_from(words).map(|program| program.assert.subject)
}

/// Checks a result against the limits in `flags`.
fn case(flags: &str, answer: &Value) -> Case {
    let subject = parsed(flags).unwrap();
    let gate = subject.gate();
    let mut case = Case::new("lab", gate.allow_missing);
    case.record_quality(answer, gate.min_coverage);
    match &subject {
        Subject::Cost(args) => cost::check_limits(args, answer, &mut case),
        Subject::Outliers(args) => outliers::check_limits(&args.limits, answer, &mut case),
    }
    case
}

/// Returns a complete result of `get_cost`.
fn cost_answer() -> Value {
    json!({
        "as_of": "2026-11-01T12:00:00Z",
        "currency": "USD",
        "window_total": 10.0,
        "run_rate_per_hour": 5.0,
        "stale": false,
        "lost_gpu_hours": 4.0,
        "lost_gpu_hours_per_hour": 2.0,
        "unpriced_gpu_hours": 0.0,
        "lost_ratio": 0.03,
        "data_quality": { "coverage": 1.0, "last_event_age_s": 1.0, "quorum_met": true },
        "by_currency": [{ "currency": "USD", "window_total": 10.0 }],
        "contributors": [
            { "cluster": "lab", "node_id": null, "rank": null, "run_rate_per_hour": 4.5 },
            { "cluster": "lab", "node_id": "node-2", "rank": 2, "run_rate_per_hour": 2.0 },
            { "cluster": "lab", "node_id": "node-3", "rank": 3, "run_rate_per_hour": null },
            { "cluster": "lab", "node_id": "node-2", "rank": 2, "run_rate_per_hour": 1.5 },
        ],
        "contributors_left_out": 0,
        "truncated": false,
    })
}

/// Returns a result of `find_outlier_nodes` with a culprit.
fn outliers_answer() -> Value {
    let culprit = json!({ "rank": 2, "node_id": "node-2", "role": "culprit", "class": "host", "lag_ms": 7.5, "confidence": 0.95 });
    json!({
        "outliers": [culprit],
        "conditions": [],
        "truncated": false,
        "data_quality": { "coverage": 1.0, "last_event_age_s": 1.0, "quorum_met": true },
    })
}

/// Replaces a field of a result; `None` removes it.
fn with(mut answer: Value, pointer: &str, value: Option<Value>) -> Value {
    let (place, field) = pointer.rsplit_once('/').unwrap();
    let fields = answer.pointer_mut(place).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
    answer
}

/// Limits far above the numbers of the result.
const WIDE: &str = "cost --cluster lab --max-cost-per-hour 100 --max-window-total 100 --max-lost-ratio 50% \
    --max-unpriced-gpu-hours 1";

#[test]
fn a_number_up_to_its_limit_passes_and_one_above_it_does_not() {
    for (limits, expected) in [
        (
            WIDE.trim_start_matches("cost --cluster lab"),
            Outcome::Passed,
        ),
        ("--max-window-total 10", Outcome::Passed),
        ("--max-window-total 9.99", Outcome::Exceeded),
        ("--max-cost-per-hour 5", Outcome::Passed),
        ("--max-cost-per-hour 4.99", Outcome::Exceeded),
        ("--max-rank-cost-per-hour 3.5", Outcome::Passed),
        ("--max-rank-cost-per-hour 3.49", Outcome::Exceeded),
        ("--max-lost-ratio 3%", Outcome::Passed),
        ("--max-lost-ratio 0.03", Outcome::Passed),
        ("--max-lost-ratio 2.9%", Outcome::Exceeded),
        ("--max-unpriced-gpu-hours 0", Outcome::Passed),
        (
            "--max-window-total 9 --max-cost-per-hour 100",
            Outcome::Exceeded,
        ),
        ("--max-window-total 10 --currency USD", Outcome::Passed),
    ] {
        let case = case(&format!("cost --cluster lab {limits}"), &cost_answer());
        assert_eq!(case.outcome(), expected, "{limits}: {}", case.summary());
    }
    for (limits, expected) in [
        ("--max 1", Outcome::Passed),
        ("--max 0", Outcome::Exceeded),
        ("--max 0 --class device --class network", Outcome::Passed),
        ("--max 0 --class device,host", Outcome::Exceeded),
        ("--max 0 --min-confidence 96%", Outcome::Passed),
        ("--max 0 --min-confidence 0.95", Outcome::Exceeded),
    ] {
        let case = case(
            &format!("outliers --cluster lab {limits}"),
            &outliers_answer(),
        );
        assert_eq!(case.outcome(), expected, "{limits}: {}", case.summary());
    }
}

#[test]
fn a_condition_fails_the_check_unless_its_kind_is_accepted() {
    let hang = json!({ "kind": "hang", "ranks": [3], "effect_ratio": 0.0, "confidence": 0.99 });
    let slow =
        json!({ "kind": "uniform_slowdown", "ranks": [], "effect_ratio": 0.11, "confidence": 0.7 });
    let answer = with(outliers_answer(), "/conditions", Some(json!([hang, slow])));
    for (flags, expected, message) in [
        (
            "",
            Outcome::Exceeded,
            "conditions: 2, at most 0 (hang of rank 3, uniform_slowdown of all ranks, 11.0 % slower)",
        ),
        (
            "--allow-condition uniform_slowdown",
            Outcome::Exceeded,
            "conditions: 1, at most 0 (hang of rank 3)",
        ),
        ("--class device", Outcome::Exceeded, "conditions: 2"),
        ("--min-confidence 99%", Outcome::Exceeded, "conditions: 1"),
        (
            "--allow-condition uniform_slowdown,hang",
            Outcome::Passed,
            "conditions: 0, at most 0",
        ),
    ] {
        let case = case(&format!("outliers --cluster lab --max 1 {flags}"), &answer);
        assert_eq!(case.outcome(), expected, "{flags}: {}", case.summary());
        assert!(
            case.summary().contains(message),
            "{flags}: {}",
            case.summary()
        );
    }
    let error = parsed("outliers --cluster lab --max 1 --allow-condition slow").unwrap_err();
    assert!(error.to_string().contains("uniform_slowdown"), "{error}");
}

#[test]
fn an_unhealthy_node_fails_the_check_as_a_condition_unless_it_is_accepted() {
    let node = json!({ "rank": null, "node_id": "node-7", "role": "unhealthy_node", "class": null, "confidence": 0.5 });
    let answer = with(outliers_answer(), "/outliers", Some(json!([node])));
    for (flags, expected, message) in [
        (
            "",
            Outcome::Exceeded,
            "conditions: 1, at most 0 (unhealthy_node node-7)",
        ),
        (
            "--allow-condition unhealthy_node",
            Outcome::Passed,
            "conditions: 0, at most 0",
        ),
        ("--min-confidence 90%", Outcome::Passed, "conditions: 0"),
    ] {
        let case = case(&format!("outliers --cluster lab --max 0 {flags}"), &answer);
        let summary = case.summary();
        assert_eq!(case.outcome(), expected, "{flags}: {summary}");
        assert!(summary.contains(message), "{flags}: {summary}");
        assert!(summary.contains("outliers: 0"), "{flags}: {summary}");
    }
}

#[test]
fn unknown_numbers_never_pass() {
    let other = |pointer: &'static str, value: Value| (pointer, Some(value));
    let absent = |pointer: &'static str| [(pointer, None), (pointer, Some(Value::Null))];
    let two = json!([{ "currency": "EUR" }, { "currency": "USD" }]);
    let mut changes = vec![
        other("/data_quality/coverage", json!(0.89)),
        other("/data_quality/quorum_met", json!(false)),
        other("/unpriced_gpu_hours", json!(0.5)),
        other("/stale", json!(true)),
        other("/truncated", json!(true)),
        other("/by_currency", two),
    ];
    for field in [
        "/window_total",
        "/run_rate_per_hour",
        "/lost_ratio",
        "/unpriced_gpu_hours",
        "/stale",
        "/truncated",
        "/data_quality",
        "/data_quality/coverage",
        "/data_quality/quorum_met",
        "/data_quality/last_event_age_s",
    ] {
        changes.extend(absent(field));
    }
    for (pointer, value) in changes {
        let answer = with(cost_answer(), pointer, value.clone());
        let case = case(WIDE, &answer);
        assert_eq!(
            case.outcome(),
            Outcome::Missing,
            "{pointer} {value:?}: {}",
            case.summary()
        );
        assert!(!case.missing.is_empty(), "{pointer}");
    }
    let changes = [
        other("/truncated", json!(true)),
        other("/data_quality/coverage", json!(0.5)),
        other("/data_quality/last_event_age_s", json!(61.0)),
        ("/outliers", None),
        ("/data_quality", None),
    ];
    for (pointer, value) in changes {
        let answer = with(outliers_answer(), pointer, value);
        let case = case("outliers --cluster lab --max 5", &answer);
        assert_eq!(
            case.outcome(),
            Outcome::Missing,
            "{pointer}: {}",
            case.summary()
        );
    }
}

#[test]
fn a_limit_in_another_currency_is_not_compared() {
    let flags = format!("{WIDE} --currency EUR");
    let case = case(&flags, &cost_answer());
    assert_eq!(case.outcome(), Outcome::Missing);
    assert!(
        case.summary()
            .contains("the rates are in USD, but the limit is in EUR"),
        "{}",
        case.summary()
    );
}

#[test]
fn no_loss_costs_nothing_in_any_currency() {
    let mut answer = cost_answer();
    for (field, value) in [
        ("/currency", Value::Null),
        ("/window_total", Value::Null),
        ("/run_rate_per_hour", Value::Null),
        ("/by_currency", json!([])),
        ("/lost_gpu_hours", json!(0.0)),
        ("/lost_gpu_hours_per_hour", json!(0.0)),
    ] {
        answer = with(answer, field, Some(value));
    }
    assert_eq!(
        case(WIDE, &answer).outcome(),
        Outcome::Missing,
        "the currency of the rates is unknown"
    );
    assert_eq!(
        case(&format!("{WIDE} --currency EUR"), &answer).outcome(),
        Outcome::Passed
    );
    let unknown = with(answer, "/lost_gpu_hours_per_hour", Some(Value::Null));
    let flags = "cost --cluster lab --max-cost-per-hour 1 --currency EUR";
    assert_eq!(case(flags, &unknown).outcome(), Outcome::Missing);
}

#[test]
fn incomplete_data_above_a_limit_exceeds_it() {
    let answer = with(cost_answer(), "/data_quality/coverage", Some(json!(0.5)));
    let answer = with(answer, "/unpriced_gpu_hours", Some(json!(2.0)));
    let limits = "cost --cluster lab --max-window-total 5 --max-lost-ratio 50%";
    let exceeded = case(limits, &answer);
    assert_eq!(exceeded.outcome(), Outcome::Exceeded);
    insta::assert_snapshot!(exceeded.summary(), @"lost 10 USD in the window, at most 5 USD; share of GPU time lost 3 %, at most 50 %; 50 % of the expected ranks report, below the minimum of 90 %; 2 lost GPU-hours have no price: run `fleet-echo rates check`");
    let stale = with(cost_answer(), "/stale", Some(json!(true)));
    let limits = "cost --cluster lab --max-cost-per-hour 1";
    let case = case(limits, &stale);
    assert_eq!(
        case.outcome(),
        Outcome::Missing,
        "an old run rate is unknown"
    );
    insta::assert_snapshot!(case.summary(), @"the last event at 2026-11-01T12:00:00Z is too long before the end of the window: set --to to the end of the job, or use --window all; lost unknown per hour, at most 1 USD");
}

#[test]
fn missing_data_can_be_allowed_and_exceeded_limits_cannot() {
    let answer = with(cost_answer(), "/data_quality/coverage", Some(json!(0.5)));
    let flags = format!("{WIDE} --allow-missing");
    assert_eq!(case(&flags, &answer).outcome(), Outcome::Skipped);
    let flags = "cost --cluster lab --max-window-total 5 --allow-missing";
    assert_eq!(case(flags, &answer).outcome(), Outcome::Exceeded);
}

#[test]
fn flags_without_a_valid_limit_are_rejected() {
    for flags in [
        "cost --cluster lab",
        "cost --cluster lab --currency USD",
        "cost --max-window-total 1",
        "cost --cluster lab --max-window-total -1",
        "cost --cluster lab --max-window-total NaN",
        "cost --cluster lab --max-window-total inf",
        "cost --cluster lab --max-lost-ratio 101%",
        "cost --cluster lab --max-lost-ratio 2",
        "cost --cluster lab --max-window-total 1 --min-coverage 2",
        "cost --cluster lab --max-window-total 1 --window soon",
        "cost --cluster lab --max-window-total 1 --window 1h --from now-2h",
        "cost --cluster lab --max-window-total 1 --currency dollars",
        "outliers --cluster lab",
        "outliers --cluster lab --max 1.5",
        "outliers --cluster lab --max 0 --class gpu",
        "",
    ] {
        assert!(parsed(flags).is_err(), "{flags}");
    }
}

#[test]
fn the_most_severe_outcome_is_the_overall_outcome() {
    use Outcome::{Exceeded, Failed, InvalidRequest, Missing, Passed, Skipped};
    let mut all = [Passed, Missing, Failed, Skipped, Exceeded, InvalidRequest];
    all.sort();
    let codes = all.map(Outcome::exit_code);
    assert_eq!(codes, [1, 2, 3, 4, 0, 0]);
}
