//! What a table allows and its author probably did not mean: rates that can price nothing.

use std::collections::BTreeSet;

use crate::rates::{ModelName, Rate, Rates};

/// The notes, a sentence each.
pub(super) fn notes(rates: &Rates) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(provider) = provider_without_locations(rates) {
        notes.push(format!(
            "nothing says where GPUs stand, so no rate of a provider is used: add places, such as \
             `places: [{{ cluster: \"*\", provider: {provider} }}]`"
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

/// A provider that a rate names, where no place names any.
fn provider_without_locations(rates: &Rates) -> Option<&str> {
    let mut providers = rates
        .rates
        .iter()
        .filter_map(|rate| rate.provider.as_deref());
    providers.next().filter(|_| rates.locations.is_empty())
}

/// That nothing stands where a rate is for.
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
        Some(region) => format!("no place is region {region} of provider {provider}"),
        None => format!("no place names the provider {provider}"),
    })
}

/// That a model's name is that of several products, which report themselves by other names.
fn ambiguous_model(rates: &Rates, at: &str, model: &ModelName) -> Option<String> {
    let is_meant = rates.aliases.values().any(|target| target == model);
    let products = model.products().filter(|_| !is_meant)?;
    Some(format!(
        "{at}: {model} is sold as {}, at different prices, and GPUs report one of these: write which one is meant, or list \
         those that cost the same under `aliases`",
        products.join(", ")
    ))
}
