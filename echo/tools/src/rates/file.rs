//! Rates file: YAML with a list `rates`, a list `locations` and a mapping `aliases` of model names. A
//! published catalogue may take the place of `rates`.

use std::collections::BTreeMap;

use catalogue::CatalogueHeader;
use echo_core::fields::Fields;
use echo_core::units::Nanos;
use jiff::civil::Date;
use rust_decimal::Decimal;
use serde_norway::Value;

use crate::rates::{MONEY_PLACES, ModelName, Rate, Rates, RatesError};

mod aliases;
mod catalogue;
mod regions;

/// Maximum price of a GPU-hour, in any currency; a higher one is more likely a mistake, and sums
/// could overflow.
const MAX_PER_GPU_HOUR: u32 = 1_000_000;

/// Mistake: a model name that is empty once normalized.
const NAMELESS: &str = "has neither a letter nor a digit";

/// Mistake: a text that is not a date.
const NO_DATE: &str = "is not a date such as 2026-01-31";

/// Parses the file.
pub(super) fn parse(text: &str) -> Result<Rates, RatesError> {
    // The message of the parser includes line and column.
    let document: Value = serde_norway::from_str(text).map_err(|error| RatesError {
        mistakes: vec![error.to_string()],
    })?;
    let mut mistakes = Vec::new();
    let Some(mut top) = Fields::from_value("", document, &mut mistakes) else {
        return Err(RatesError { mistakes });
    };
    let listed = top.take("rates");
    let providers = top.take("providers");
    let catalogue = providers.map(|providers| CatalogueHeader::parse(&mut top, providers));
    let aliases = top.take("aliases");
    let locations = top.take("locations");
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
                .push("providers: cannot be combined with rates; use one or the other".to_owned());
            Vec::new()
        }
        Some(head) => head.rates(&mut mistakes),
        None => parse_rates(listed, &mut mistakes),
    };
    let aliases = aliases::parse(aliases, &mut mistakes);
    let locations = regions::parse(locations, &mut mistakes);
    refuse_ambiguous(&rates, &aliases, &mut mistakes);
    if locations.is_empty() && !is_catalogue && mistakes.is_empty() {
        refuse_without_locations(&rates, &mut mistakes);
    }
    if !mistakes.is_empty() {
        return Err(RatesError { mistakes });
    }
    let (key_paths, rates): (_, Vec<Rate>) = rates.into_iter().unzip();
    let rates = rates.into_iter();
    Ok(Rates {
        rates: rates.map(|rate| aliases::resolve(rate, &aliases)).collect(),
        key_paths,
        as_of,
        aliases,
        locations,
    })
}

/// Parses the list of rates; returns the valid ones, each with its key path.
fn parse_rates(listed: Option<Value>, mistakes: &mut Vec<String>) -> Vec<(String, Rate)> {
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
            let rate = parse_rate(&at, entry, mistakes)?;
            Some((at, rate))
        })
        .collect()
}

fn parse_rate(at: &str, entry: Value, mistakes: &mut Vec<String>) -> Option<Rate> {
    let mut fields = Fields::from_value(at, entry, mistakes)?;
    let node = fields.parsed("node");
    let cluster = fields.parsed("cluster");
    let gpu_model = parse_model(&mut fields, "gpu_model");
    let class = fields.parsed("rate_class");
    let per_gpu_hour = parse_price(&mut fields, "rate");
    let currency = fields.parsed("currency");
    let from = parse_midnight(&mut fields, "effective_from");
    // An end after the last representable instant is no end: 9999-12-31 means the same.
    let to = parse_midnight(&mut fields, "effective_to").filter(|to| *to < Nanos::LATEST);
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
            "2020-01-01, the earliest supported date"
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

/// Rejects two rates for the same GPUs at the same time: neither takes precedence.
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
    let is_same = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        (a, b) => a == b,
    };
    for (position, (at, rate)) in rates.iter().enumerate() {
        let clash = rates.iter().take(position).find(|(_, earlier)| {
            earlier.node == rate.node
                && earlier.cluster == rate.cluster
                && model(earlier) == model(rate)
                && is_same(&earlier.provider, &rate.provider)
                && is_same(&earlier.region, &rate.region)
                && overlaps(earlier, rate)
        });
        if let Some((earlier, _)) = clash {
            mistakes.push(format!(
                "{at}: prices the same GPUs at the same time as {earlier}"
            ));
        }
    }
}

/// Rejects rates of a provider in a table without locations, because they would silently price
/// nothing.
fn refuse_without_locations(rates: &[(String, Rate)], mistakes: &mut Vec<String>) {
    let of_provider = |(at, rate): &(String, Rate)| Some((at.clone(), rate.provider.clone()?));
    if let Some((at, provider)) = rates.iter().find_map(of_provider) {
        mistakes.push(format!(
            "locations: is missing, but {at} applies only to GPUs of {provider}: assign clusters or nodes to it, such as \
             `locations: [{{ cluster: \"*\", provider: {provider} }}]`"
        ));
    }
}

fn parse_model(fields: &mut Fields<'_>, field: &str) -> Option<ModelName> {
    let model = ModelName::new(&fields.text(field)?);
    if model.is_empty() {
        fields.mistake(field, NAMELESS);
        return None;
    }
    Some(model)
}

fn parse_price(fields: &mut Fields<'_>, field: &str) -> Option<Decimal> {
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

fn parse_midnight(fields: &mut Fields<'_>, field: &str) -> Option<Nanos> {
    let text = fields.text(field)?;
    let midnight = text.parse::<Date>();
    if midnight.is_err() {
        fields.mistake(field, NO_DATE);
    }
    let since_1970 = midnight.ok()?.duration_since(Date::constant(1970, 1, 1));
    let nanos = since_1970.as_secs().saturating_mul(1_000_000_000);
    Some(Nanos::new(nanos))
}
