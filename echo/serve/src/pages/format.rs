//! Numbers and times with their units. Unknown values are a dash.

use std::collections::BTreeMap;

use echo_core::units::Nanos;
use echo_tools::get_cost::answer::Cost;
use maud::{Markup, html};

/// Age, in seconds, after which events do not describe the current state.
pub(super) const STALE_AFTER_S: f64 = 60.0;

/// Placeholder for unknown values.
pub(super) const UNKNOWN: &str = "\u{2013}";

/// Formats milliseconds: `5.2 ms`; seconds from ten seconds on.
pub(super) fn millis(ms: f64) -> String {
    if ms.abs() >= 10_000.0 {
        return format!("{:.0}\u{a0}s", ms / 1e3);
    }
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

/// Returns the text as one word of a POSIX shell, quoted if it needs to be.
pub(super) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+,@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the text with a capital first letter.
pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns the number with its noun in singular or plural: `1 rank`, `3 ranks`.
pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number}\u{a0}{noun}{plural}")
}

/// Parses an instant of an answer; `None` if it is not RFC 3339.
pub(super) fn parse_instant(rfc3339: &str) -> Option<Nanos> {
    let instant: jiff::Timestamp = rfc3339.parse().ok()?;
    i64::try_from(instant.as_nanosecond()).ok().map(Nanos::new)
}

/// Renders an instant: RFC 3339 as attribute, a shorter form as text.
pub(super) fn instant(rfc3339: &str) -> Markup {
    let (day, time) = rfc3339.split_once('T').unwrap_or((rfc3339, ""));
    let time = time.split(['.', 'Z']).next().unwrap_or_default();
    html! { time datetime=(rfc3339) { (day) " " (time) "\u{a0}UTC" } }
}

/// Amounts of lost GPU time: money per currency, and GPU-hours without a price.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Amounts {
    money: BTreeMap<String, f64>,
    unpriced_gpu_hours: f64,
    /// Whether more was lost: a part of it is only what peers waited.
    is_lower_bound: bool,
}

impl Amounts {
    /// Returns the cost of the window; `None` without events.
    pub(super) fn of_window(cost: &Cost) -> Option<Self> {
        cost.as_of.as_ref()?;
        let mut sum = Self::default();
        for part in &cost.by_currency {
            sum.add(Some(&part.currency), part.window_total);
        }
        sum.add(None, cost.unpriced_gpu_hours);
        sum.add_bound(cost.lower_bound);
        Some(sum.or_zero(cost))
    }

    /// Returns the current loss per hour; `None` when unknown, or when there are no recent events.
    pub(super) fn per_hour(cost: &Cost, now: Nanos) -> Option<Self> {
        let as_of = parse_instant(cost.as_of.as_deref()?)?;
        let gpu_hours = cost.lost_gpu_hours_per_hour?;
        if cost.stale || now.millis_since(as_of) > STALE_AFTER_S * 1e3 {
            return None;
        }
        let mut sum = Self::default();
        for part in &cost.by_currency {
            if let Some(per_hour) = part.run_rate_per_hour {
                sum.add(Some(&part.currency), per_hour);
            }
        }
        if sum.money.is_empty() {
            sum.add(None, gpu_hours);
        }
        sum.add_bound(cost.lower_bound);
        Some(sum.or_zero(cost))
    }

    /// Adds money in a currency, or GPU-hours without a price.
    pub(super) fn add(&mut self, currency: Option<&str>, amount: f64) {
        match currency {
            Some(currency) => *self.money.entry(currency.to_owned()).or_default() += amount,
            None => self.unpriced_gpu_hours += amount,
        }
    }

    /// Adds that more was lost than the amounts, if so.
    pub(super) const fn add_bound(&mut self, is_lower_bound: bool) {
        self.is_lower_bound |= is_lower_bound;
    }

    /// Adds the amounts of another.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (currency, amount) in &other.money {
            self.add(Some(currency), *amount);
        }
        self.unpriced_gpu_hours += other.unpriced_gpu_hours;
        self.add_bound(other.is_lower_bound);
    }

    /// Returns a number to sort by: money of all currencies, which are compared one to one.
    pub(super) fn weight(&self) -> f64 {
        self.money.values().sum::<f64>() + self.unpriced_gpu_hours
    }

    /// Nothing lost is zero in the only currency.
    fn or_zero(mut self, cost: &Cost) -> Self {
        if let Some(currency) = cost.currency.as_deref().filter(|_| self.money.is_empty())
            && self.unpriced_gpu_hours == 0.0
        {
            self.add(Some(currency), 0.0);
        }
        self
    }

    /// Formats the amounts, each followed by `unit`: empty or `/h`.
    pub(super) fn text(&self, unit: &str) -> String {
        let priced = self.money.iter();
        let mut parts: Vec<String> = priced
            .map(|(currency, amount)| format!("{}{unit}", money(*amount, currency)))
            .collect();
        if self.unpriced_gpu_hours > 0.0 {
            let hours = gpu_hours(self.unpriced_gpu_hours);
            parts.push(format!("{hours}{unit} without a price"));
        } else if parts.is_empty() {
            parts.push(format!("{}{unit}", gpu_hours(0.0)));
        }
        let at_least = if self.is_lower_bound { "at least " } else { "" };
        format!("{at_least}{}", parts.join(", "))
    }
}

/// Formats the cost of a window, or a dash.
pub(super) fn total(cost: &Cost) -> String {
    Amounts::of_window(cost).map_or_else(|| UNKNOWN.to_owned(), |sum| sum.text(""))
}

#[cfg(test)]
mod tests {
    use super::{gpu_hours, instant, length, millis, money, percent, shell_word};

    #[test]
    fn numbers_have_units_and_significant_digits() {
        for (text, expected) in [
            (millis(5.234), "5.23 ms"),
            (millis(52.34), "52.3 ms"),
            (millis(-0.004), "0.00 ms"),
            (millis(20_400.0), "20 s"),
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
    fn words_of_commands_are_quoted_where_a_shell_would_split_or_expand_them() {
        for (text, expected) in [
            ("llama/7b_v1.2:3", "llama/7b_v1.2:3"),
            ("two words", "'two words'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), expected);
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
