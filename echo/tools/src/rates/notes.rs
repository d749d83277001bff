//! Warnings about a valid table: rates that can price nothing.

use std::collections::BTreeSet;

use crate::rates::{ModelName, Rate, Rates};

/// Returns the warnings, a sentence each.
pub(super) fn notes(rates: &Rates) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(provider) = provider_without_locations(rates) {
        notes.push(format!(
            "rates of providers are not used, because no location of GPUs is defined: add locations, such as \
             `locations: [{{ cluster: \"*\", provider: {provider} }}]`"
        ));
    }
    let rows = || rates.key_paths.iter().zip(&rates.rates);
    if !rates.locations.is_empty() {
        for (at, rate) in rows() {
            notes.extend(no_location(rates, rate).map(|what| format!("{at}: {what}")));
        }
    }
    let mut seen = BTreeSet::new();
    for (at, rate) in rows() {
        let shared = rate.gpu_model.as_ref().filter(|model| seen.insert(*model));
        notes.extend(shared.and_then(|model| ambiguous_model(rates, at, model)));
    }
    notes
}

/// First provider named by a rate, when the table has no locations.
fn provider_without_locations(rates: &Rates) -> Option<&str> {
    let mut providers = rates
        .rates
        .iter()
        .filter_map(|rate| rate.provider.as_deref());
    providers.next().filter(|_| rates.locations.is_empty())
}

/// Warning about a rate that matches no location.
fn no_location(rates: &Rates, rate: &Rate) -> Option<String> {
    let provider = rate.provider.as_deref()?;
    if rates
        .locations
        .iter()
        .any(|location| rate.is_at(Some(location)))
    {
        return None;
    }
    Some(match &rate.region {
        Some(region) => format!("no entry of locations has region {region} of provider {provider}"),
        None => format!("no entry of locations has provider {provider}"),
    })
}

/// Warning about a model name that several products share, which report other names.
fn ambiguous_model(rates: &Rates, at: &str, model: &ModelName) -> Option<String> {
    let is_meant = rates.aliases.values().any(|target| target == model);
    let products = model.products().filter(|_| !is_meant)?;
    Some(format!(
        "{at}: {model} is ambiguous: GPUs report one of {}, which have different prices; name one of them, or map those \
         that cost the same with `aliases`",
        products.join(", ")
    ))
}
