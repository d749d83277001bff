//! Limits of the cost of stragglers.

use std::collections::BTreeMap;

use clap::Args;
use echo_tools::rates::Currency;
use serde_json::Value;

use crate::cli::assert::case::{Case, Check, percent, plain};
use crate::cli::assert::{CostArgs, parse_amount, parse_share};
use crate::cli::view::{list, number, text};

/// The limits, at least one.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = true)]
pub struct CostLimitArgs {
    /// Maximum money lost per hour now (`run_rate_per_hour`)
    #[arg(long, value_name = "AMOUNT", env = "FLEET_ECHO_MAX_COST_PER_HOUR", value_parser = parse_amount)]
    pub max_cost_per_hour: Option<f64>,
    /// Maximum money lost per hour now to one rank (largest `run_rate_per_hour` of `contributors`)
    #[arg(long, value_name = "AMOUNT", env = "FLEET_ECHO_MAX_RANK_COST_PER_HOUR", value_parser = parse_amount)]
    pub max_rank_cost_per_hour: Option<f64>,
    /// Maximum money lost in the window (`window_total`)
    #[arg(long, value_name = "AMOUNT", env = "FLEET_ECHO_MAX_WINDOW_TOTAL", value_parser = parse_amount)]
    pub max_window_total: Option<f64>,
    /// Maximum lost share of the allocated GPU time (`lost_ratio`): `0.02` or `2%`
    #[arg(long, value_name = "SHARE", env = "FLEET_ECHO_MAX_LOST_RATIO", value_parser = parse_share)]
    pub max_lost_ratio: Option<f64>,
    /// Maximum lost GPU-hours without a price (`unpriced_gpu_hours`)
    #[arg(long, value_name = "HOURS", env = "FLEET_ECHO_MAX_UNPRICED_GPU_HOURS", value_parser = parse_amount)]
    pub max_unpriced_gpu_hours: Option<f64>,
}

/// An amount of money, as far as it is known.
struct Money {
    amount: Option<f64>,
    currency: String,
    /// Reason why the amount is unknown or incomplete.
    unknown: Option<String>,
}

/// Checks a result of `get_cost` against the limits.
pub(super) fn check_limits(args: &CostArgs, answer: &Value, case: &mut Case) {
    let (limits, currency) = (&args.limits, args.currency);
    let is_stale = answer.get("stale") != Some(&Value::Bool(false));
    let has_events = number(&case.quality, "last_event_age_s").is_some();
    if is_stale && has_events {
        case.missing.push(format!(
            "the last event at {} is too long before the end of the window: set --to to the end of the job, or use --window all",
            text(answer, "as_of")
        ));
    }
    if let Some(limit) = limits.max_cost_per_hour {
        let mut money = money(currency, answer, "run_rate_per_hour");
        // The run rate at that time does not apply to now.
        money.amount = money.amount.filter(|_| !is_stale);
        check_money(case, "cost_per_hour", limit, money, " per hour");
    }
    if let Some(limit) = limits.max_rank_cost_per_hour {
        let mut money = money(currency, answer, "run_rate_per_hour");
        // Without a total, the costs of single ranks are not known either.
        money.amount = money.amount.filter(|_| !is_stale);
        money.amount = money.amount.map(|_| costliest_rank(answer));
        let n_omitted = number(answer, "contributors_left_out").filter(|omitted| *omitted > 0.0);
        money.unknown = money.unknown.or_else(|| {
            let omitted = plain(n_omitted?);
            Some(format!("{omitted} more incidents are not in the answer"))
        });
        check_money(
            case,
            "rank_cost_per_hour",
            limit,
            money,
            " per hour to one rank",
        );
    }
    if let Some(limit) = limits.max_window_total {
        let money = money(currency, answer, "window_total");
        check_money(case, "window_total", limit, money, " in the window");
    }
    if let Some(limit) = limits.max_lost_ratio {
        let check = Check::new("lost_ratio", number(answer, "lost_ratio"), limit);
        let unknown = check.value.is_none();
        let check = check.with_message("share of GPU time lost", "", percent);
        case.add_check(
            check,
            unknown.then(|| "allocated GPU time is unknown".to_owned()),
        );
    }
    if let Some(limit) = limits.max_unpriced_gpu_hours {
        let unpriced = number(answer, "unpriced_gpu_hours");
        let check = Check::new("unpriced_gpu_hours", unpriced, limit);
        let unknown = check.value.is_none();
        let check = check.with_message("lost without a price", "", |hours| {
            format!("{} GPU-hours", plain(hours))
        });
        case.add_check(
            check,
            unknown.then(|| "unpriced GPU-hours are unknown".to_owned()),
        );
    }
}

/// Returns what the costliest rank costs per hour, over all of its open incidents.
fn costliest_rank(answer: &Value) -> f64 {
    let mut ranks: BTreeMap<[String; 3], f64> = BTreeMap::new();
    for row in list(answer, "contributors") {
        let is_rank = number(row, "rank").is_some();
        if let Some(cost) = number(row, "run_rate_per_hour").filter(|_| is_rank) {
            let rank = ["cluster", "node_id", "rank"].map(|field| text(row, field));
            *ranks.entry(rank).or_default() += cost;
        }
    }
    ranks.into_values().fold(0.0, f64::max)
}

fn check_money(case: &mut Case, name: &'static str, limit: f64, money: Money, suffix: &str) {
    let currency = &money.currency;
    let check = Check::new(name, money.amount, limit);
    let mut check = check.with_message("lost", suffix, |amount| {
        format!("{} {currency}", plain(amount))
    });
    if money.unknown.is_some() {
        check = check.into_lower_bound();
    }
    case.add_check(check, money.unknown);
}

/// Returns an amount of the result, which must be in a single currency.
fn money(expected: Option<Currency>, answer: &Value, name: &str) -> Money {
    let expected = expected.map(|currency| currency.to_string());
    let found = answer.get("currency").and_then(Value::as_str);
    let several: Vec<String> = list(answer, "by_currency")
        .iter()
        .map(|row| text(row, "currency"))
        .collect();
    let currency = found
        .or(expected.as_deref())
        .unwrap_or("(no currency)")
        .to_owned();
    let unknown = |why: String| Money {
        amount: None,
        currency: currency.clone(),
        unknown: Some(why),
    };
    if several.len() > 1 {
        return unknown(format!(
            "the loss is in several currencies ({}), which are not added up",
            several.join(", ")
        ));
    }
    if let Some((expected, found)) = expected.as_deref().zip(found).filter(|(a, b)| a != b) {
        return unknown(format!(
            "the rates are in {found}, but the limit is in {expected}"
        ));
    }
    let unpriced = number(answer, "unpriced_gpu_hours").filter(|hours| *hours > 0.0);
    let is_nothing = expected.is_some() && found.is_none() && nothing_was_lost(answer, name);
    let amount = number(answer, name).or_else(|| is_nothing.then_some(0.0));
    Money {
        unknown: match (amount, unpriced) {
            (_, Some(hours)) => Some(format!(
                "{} lost GPU-hours have no price: run `fleet-echo rates check`",
                plain(hours)
            )),
            (None, None) => Some(format!(
                "{name} is unknown: too few ranks report, or the rates have no single currency (give --currency)"
            )),
            (Some(_), None) => None,
        },
        amount,
        currency,
    }
}

/// Returns whether no GPU time was lost, which costs nothing in any currency.
fn nothing_was_lost(answer: &Value, name: &str) -> bool {
    let lost = match name {
        "run_rate_per_hour" => "lost_gpu_hours_per_hour",
        _ => "lost_gpu_hours",
    };
    number(answer, lost).is_some_and(|hours| hours <= 0.0)
}
