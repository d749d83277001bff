//! The rates file: YAML with `rates`, a list, `places`, a list, and `aliases`, a mapping of model names. In place of
//! `rates` there may be what a published catalogue has.

use std::collections::BTreeMap;

use catalogue::Head;
use echo_core::fields::Fields;
use echo_core::units::Nanos;
use jiff::civil::Date;
use rust_decimal::Decimal;
use serde_norway::Value;

use crate::rates::{MONEY_PLACES, ModelName, Rate, Rates, RatesError};

mod aliases;
mod catalogue;
mod regions;

/// Highest price of a GPU-hour, in any currency; above it a mistake is more likely, and sums could overflow.
const MAX_PER_GPU_HOUR: u32 = 1_000_000;

/// What is wrong with a model's name of which nothing is left in the spelling that is compared.
const NAMELESS: &str = "is a name without a letter or a digit";

/// What is wrong with a text that should be a date.
const NO_DATE: &str = "is not a date such as 2026-01-31";

/// Reads the file.
pub(super) fn parse(text: &str) -> Result<Rates, RatesError> {
    // The parser's own message names line and column.
    let document: Value = serde_norway::from_str(text).map_err(|error| RatesError {
        mistakes: vec![error.to_string()],
    })?;
    let mut mistakes = Vec::new();
    let Some(mut top) = Fields::from_value("", document, &mut mistakes) else {
        return Err(RatesError { mistakes });
    };
    let listed = top.take("rates");
    let providers = top.take("providers");
    let catalogue = providers.map(|providers| Head::take(&mut top, providers));
    let aliases = top.take("aliases");
    let places = top.take("places");
    let as_of = top.text("as_of");
    if as_of
        .as_deref()
        .is_some_and(|day| day.parse::<Date>().is_err())
    {
        top.mistake("as_of", NO_DATE);
    }
    top.report_unknown_fields();
    let is_catalogue = catalogue.is_some();
    let rates = match catalogue {
        Some(_) if listed.is_some() => {
            mistakes
                .push("providers: cannot stand beside rates: write one or the other".to_owned());
            Vec::new()
        }
        Some(head) => head.rates(&mut mistakes),
        None => read_rates(listed, &mut mistakes),
    };
    let aliases = aliases::read(aliases, &mut mistakes);
    let places = regions::read(places, &mut mistakes);
    refuse_ambiguous(&rates, &aliases, &mut mistakes);
    if places.is_empty() && !is_catalogue && mistakes.is_empty() {
        refuse_unplaced(&rates, &mut mistakes);
    }
    if !mistakes.is_empty() {
        return Err(RatesError { mistakes });
    }
    let (written_at, rates): (_, Vec<Rate>) = rates.into_iter().unzip();
    let rates = rates.into_iter();
    Ok(Rates {
        rates: rates
            .map(|rate| aliases::resolved(rate, &aliases))
            .collect(),
        written_at,
        as_of,
        aliases,
        places,
    })
}

/// The rates that can be read, each with its place in the list.
fn read_rates(listed: Option<Value>, mistakes: &mut Vec<String>) -> Vec<(String, Rate)> {
    let entries = match listed {
        Some(Value::Sequence(entries)) => entries,
        None => {
            mistakes.push("rates: is missing".to_owned());
            return Vec::new();
        }
        Some(_) => {
            mistakes.push("rates: is not a list".to_owned());
            return Vec::new();
        }
    };
    let numbered = entries.into_iter().enumerate();
    numbered
        .map(|(index, entry)| (format!("rates[{index}]"), entry))
        .filter_map(|(at, entry)| {
            let rate = read_rate(&at, entry, mistakes)?;
            Some((at, rate))
        })
        .collect()
}

fn read_rate(at: &str, entry: Value, mistakes: &mut Vec<String>) -> Option<Rate> {
    let mut fields = Fields::from_value(at, entry, mistakes)?;
    let node = fields.parsed("node");
    let cluster = fields.parsed("cluster");
    let gpu_model = model(&mut fields, "gpu_model");
    let class = fields.parsed("rate_class");
    let per_gpu_hour = price(&mut fields, "rate");
    let currency = fields.parsed("currency");
    let from = midnight(&mut fields, "effective_from");
    // An end that no event can reach is none: 9999-12-31 says the same.
    let to = midnight(&mut fields, "effective_to").filter(|to| *to < Nanos::LATEST);
    let provider = fields.text("provider");
    let region = fields.text("region");
    let source = fields.text("source");
    for (name, is_missing) in [
        ("rate_class", class.is_none()),
        ("rate", per_gpu_hour.is_none()),
        ("currency", currency.is_none()),
    ] {
        fields.require(name, is_missing);
    }
    fields.require(
        "gpu_model",
        node.is_none() && cluster.is_none() && gpu_model.is_none(),
    );
    fields.require("provider", region.is_some() && provider.is_none());
    let begin = from.map_or(Nanos::EARLIEST, |from| from.max(Nanos::EARLIEST));
    if begin >= Nanos::LATEST {
        fields.mistake("effective_from", "is not before 2100-01-01");
    } else if to.is_some_and(|to| to <= begin) {
        let after = if from == Some(begin) {
            "effective_from"
        } else {
            "2020-01-01, when time begins here"
        };
        fields.mistake("effective_to", &format!("is not after {after}"));
    }
    fields.report_unknown_fields();
    Some(Rate {
        node,
        cluster,
        gpu_model,
        class: class?,
        per_gpu_hour: per_gpu_hour?,
        currency: currency?,
        from: begin,
        to,
        provider,
        region,
        source,
    })
}

/// Two rates for the same GPUs at the same time: nobody could say which one decides.
fn refuse_ambiguous(
    rates: &[(String, Rate)],
    aliases: &BTreeMap<ModelName, ModelName>,
    mistakes: &mut Vec<String>,
) {
    let model = |rate: &Rate| {
        let name = rate.gpu_model.clone()?;
        Some(aliases.get(&name).cloned().unwrap_or(name))
    };
    let overlaps =
        |a: &Rate, b: &Rate| a.to.is_none_or(|to| b.from < to) && b.to.is_none_or(|to| a.from < to);
    let is_one = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        (a, b) => a == b,
    };
    for (position, (at, rate)) in rates.iter().enumerate() {
        let clash = rates.iter().take(position).find(|(_, earlier)| {
            earlier.node == rate.node
                && earlier.cluster == rate.cluster
                && model(earlier) == model(rate)
                && is_one(&earlier.provider, &rate.provider)
                && is_one(&earlier.region, &rate.region)
                && overlaps(earlier, rate)
        });
        if let Some((earlier, _)) = clash {
            mistakes.push(format!(
                "{at}: prices the same GPUs at the same time as {earlier}"
            ));
        }
    }
}

/// A rate of a provider where nothing stands at any: it would price nothing without a word.
fn refuse_unplaced(rates: &[(String, Rate)], mistakes: &mut Vec<String>) {
    let of_provider = |(at, rate): &(String, Rate)| Some((at.clone(), rate.provider.clone()?));
    if let Some((at, provider)) = rates.iter().find_map(of_provider) {
        mistakes.push(format!(
            "places: is missing, and {at} is only for GPUs of {provider}: say what stands there, such as \
             `places: [{{ cluster: \"*\", provider: {provider} }}]`"
        ));
    }
}

fn model(fields: &mut Fields<'_>, field: &str) -> Option<ModelName> {
    let model = ModelName::new(&fields.text(field)?);
    if model.is_empty() {
        fields.mistake(field, NAMELESS);
        return None;
    }
    Some(model)
}

fn price(fields: &mut Fields<'_>, field: &str) -> Option<Decimal> {
    let written = match fields.take(field)? {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text,
        _ => String::new(),
    };
    let price = written.parse::<Decimal>().ok().filter(|price| {
        *price >= Decimal::ZERO
            && *price <= Decimal::from(MAX_PER_GPU_HOUR)
            && price.normalize().scale() <= MONEY_PLACES
    });
    if price.is_none() {
        fields.mistake(
            field,
            "is not a price per GPU-hour from 0 to 1000000 with at most 6 decimals",
        );
    }
    price
}

fn midnight(fields: &mut Fields<'_>, field: &str) -> Option<Nanos> {
    let text = fields.text(field)?;
    let midnight = text.parse::<Date>();
    if midnight.is_err() {
        fields.mistake(field, NO_DATE);
    }
    let since_1970 = midnight.ok()?.duration_since(Date::constant(1970, 1, 1));
    let nanos = since_1970.as_secs().saturating_mul(1_000_000_000);
    Some(Nanos::new(nanos))
}
