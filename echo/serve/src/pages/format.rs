//! Numbers and times with their units. Unknown values are a dash.

use echo_tools::get_cost::answer::Cost;
use maud::{Markup, html};

/// Placeholder for unknown values.
pub(super) const UNKNOWN: &str = "\u{2013}";

/// Formats milliseconds: `5.2 ms`.
pub(super) fn millis(ms: f64) -> String {
    // A value rounded to zero has no sign.
    let ms = if ms.abs() < 0.005 { 0.0 } else { ms };
    let digits = if ms.abs() < 10.0 { 2 } else { 1 };
    format!("{ms:.digits$}\u{a0}ms")
}

/// Formats milliseconds, or a dash.
pub(super) fn maybe_millis(ms: Option<f64>) -> String {
    ms.map_or_else(|| UNKNOWN.to_owned(), millis)
}

/// Formats a share: `95\u{a0}%`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 10.0 && percent.fract() != 0.0);
    format!("{percent:.digits$}\u{a0}%")
}

/// Formats money: `12.34\u{a0}USD`.
pub(super) fn money(amount: f64, currency: &str) -> String {
    let digits = if amount != 0.0 && amount.abs() < 1.0 {
        4
    } else {
        2
    };
    format!("{amount:.digits$}\u{a0}{currency}")
}

/// Formats GPU-hours: `0.81\u{a0}GPU-h`.
pub(super) fn gpu_hours(hours: f64) -> String {
    let digits = if hours != 0.0 && hours.abs() < 1.0 {
        4
    } else {
        2
    };
    format!("{hours:.digits$}\u{a0}GPU-h")
}

/// Formats a duration in its largest unit: `12\u{a0}s`, `5\u{a0}min`, `3\u{a0}h`, `2\u{a0}days`.
pub(super) fn length(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    format!("{number:.0}\u{a0}{unit}")
}

/// Replaces underscores by spaces.
pub(super) fn plain(name: &str) -> String {
    name.replace('_', " ")
}

/// Renders an instant: RFC 3339 as attribute, a shorter form as text.
pub(super) fn instant(rfc3339: &str) -> Markup {
    let (day, time) = rfc3339.split_once('T').unwrap_or((rfc3339, ""));
    let time = time.split(['.', 'Z']).next().unwrap_or_default();
    html! { time datetime=(rfc3339) { (day) " " (time) "\u{a0}UTC" } }
}

/// Renders the time of day of an instant.
pub(super) fn clock_time(rfc3339: &str) -> Markup {
    let (_, time) = rfc3339.split_once('T').unwrap_or(("", rfc3339));
    let time = time.split(['.', 'Z']).next().unwrap_or_default();
    html! { time datetime=(rfc3339) { (time) } }
}

/// Formats the cost of a window in every currency, and the GPU-hours without a price.
pub(super) fn total(cost: &Cost) -> String {
    let priced = cost.by_currency.iter();
    let sums: Vec<String> = priced
        .map(|sum| money(sum.window_total, &sum.currency))
        .collect();
    let unpriced =
        (cost.unpriced_gpu_hours > 0.0).then(|| unpriced(&gpu_hours(cost.unpriced_gpu_hours)));
    match (sums.is_empty(), &cost.currency, cost.window_total, unpriced) {
        (true, _, _, Some(unpriced)) => unpriced,
        (true, Some(currency), Some(sum), None) => money(sum, currency),
        (true, _, _, None) if cost.as_of.is_none() => UNKNOWN.to_owned(),
        (true, _, _, None) => gpu_hours(cost.lost_gpu_hours),
        (false, _, _, None) => sums.join(", "),
        (false, _, _, Some(unpriced)) => format!("{}, {unpriced}", sums.join(", ")),
    }
}

/// Formats the cost per hour by the same rules.
pub(super) fn run_rate(cost: &Cost) -> String {
    let per_hour = |(amount, currency): (f64, &str)| format!("{}/h", money(amount, currency));
    let several = cost.by_currency.iter();
    let several: Vec<String> = several
        .filter_map(|sum| Some(per_hour((sum.run_rate_per_hour?, &sum.currency))))
        .collect();
    let only = cost.run_rate_per_hour.zip(cost.currency.as_deref());
    match (only, several.is_empty(), cost.lost_gpu_hours_per_hour) {
        (Some(only), ..) => per_hour(only),
        (None, false, _) => several.join(", "),
        (None, true, Some(hours)) if hours > 0.0 => unpriced(&format!("{}/h", gpu_hours(hours))),
        (None, true, Some(hours)) => format!("{}/h", gpu_hours(hours)),
        (None, true, None) => UNKNOWN.to_owned(),
    }
}

fn unpriced(hours: &str) -> String {
    format!("{hours} without a price")
}

#[cfg(test)]
mod tests {
    use super::{gpu_hours, instant, length, millis, money, percent};

    #[test]
    fn numbers_have_units_and_significant_digits() {
        for (text, expected) in [
            (millis(5.234), "5.23 ms"),
            (millis(52.34), "52.3 ms"),
            (millis(-0.004), "0.00 ms"),
            (percent(0.1), "10 %"),
            (percent(0.045), "4.5 %"),
            (percent(1.0), "100 %"),
            (money(12.345, "USD"), "12.35 USD"),
            (money(0.0123, "USD"), "0.0123 USD"),
            (money(0.0, "USD"), "0.00 USD"),
            (gpu_hours(0.5), "0.5000 GPU-h"),
            (length(59.4), "59 s"),
            (length(300.0), "5 min"),
            (length(7_200.0), "2 h"),
            (length(864_000.0), "10 days"),
        ] {
            assert_eq!(text.replace('\u{a0}', " "), expected);
        }
    }

    #[test]
    fn a_time_has_a_machine_readable_and_a_short_form() {
        assert_eq!(
            instant("2026-06-01T00:04:50.000Z").into_string(),
            "<time datetime=\"2026-06-01T00:04:50.000Z\">2026-06-01 00:04:50\u{a0}UTC</time>"
        );
    }
}
