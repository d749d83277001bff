//! Format of the `gpu_rates.yaml` that Ingero publishes: one currency, list prices by provider and
//! by model name as the driver reports it, and a fallback price for unlisted models.
//!
//! The fallback is usually 0, which means there that the price is unknown; here it leaves such GPUs
//! without a price.

use echo_core::fields::Fields;
use echo_core::units::Nanos;
use rust_decimal::Decimal;
use serde_norway::{Mapping, Value};

use super::{NAMELESS, parse_price};
use crate::rates::{Currency, ModelName, Rate, RateClass};

/// Source of the rates.
const SOURCE: &str = "gpu_rates.yaml";

/// Settings that apply to all rates of the catalogue.
pub(super) struct CatalogueHeader {
    providers: Value,
    currency: Option<Currency>,
    class: Option<RateClass>,
    fallback: Option<Decimal>,
}

impl CatalogueHeader {
    /// Parses the settings from the top level of the file.
    pub(super) fn parse(top: &mut Fields<'_>, providers: Value) -> Self {
        let currency = top.parsed("currency_name");
        top.require("currency_name", currency.is_none());
        // Used by dashboards of other tools only.
        let _symbol = top.text("currency_symbol");
        Self {
            providers,
            currency,
            class: top.parsed("rate_class"),
            fallback: parse_price(top, "fallback_rate"),
        }
    }

    /// Converts the catalogue to rates, each with its key path.
    pub(super) fn rates(self, mistakes: &mut Vec<String>) -> Vec<(String, Rate)> {
        let list_price = Rate {
            node: None,
            cluster: None,
            gpu_model: None,
            class: self.class.unwrap_or(RateClass::OnDemand),
            per_gpu_hour: Decimal::ZERO,
            // Without a currency the file is rejected, but only after all mistakes are collected.
            currency: self.currency.unwrap_or(Currency(*b"XXX")),
            from: Nanos::EARLIEST,
            to: None,
            provider: None,
            region: None,
            source: Some(SOURCE.to_owned()),
        };
        let Value::Mapping(providers) = self.providers else {
            mistakes.push("providers: is not a mapping of providers".to_owned());
            return Vec::new();
        };
        let mut rates = Vec::new();
        for (provider, models) in providers {
            let Some(provider) = provider.as_str().filter(|name| !name.trim().is_empty()) else {
                mistakes.push("providers: the name of a provider is not a text".to_owned());
                continue;
            };
            let of_provider = Rate {
                provider: Some(provider.to_owned()),
                ..list_price.clone()
            };
            rates.extend(provider_rates(&of_provider, provider, models, mistakes));
        }
        if let Some(per_gpu_hour) = self.fallback.filter(|price| !price.is_zero()) {
            let rate = Rate {
                per_gpu_hour,
                ..list_price
            };
            rates.push(("fallback_rate".to_owned(), rate));
        }
        rates
    }
}

/// Parses the rates of one provider. A price listed twice under two names of a model counts once.
fn provider_rates(
    rate: &Rate,
    provider: &str,
    models: Value,
    mistakes: &mut Vec<String>,
) -> Vec<(String, Rate)> {
    let key_path = format!("providers.{provider}");
    let keys = models.as_mapping().into_iter().flat_map(Mapping::keys);
    let names: Vec<String> = keys.filter_map(Value::as_str).map(str::to_owned).collect();
    let Some(mut fields) = Fields::from_value(&key_path, models, mistakes) else {
        return Vec::new();
    };
    let mut rates: Vec<(String, Rate)> = Vec::new();
    for name in names {
        let model = ModelName::new(&name);
        if model.is_empty() {
            fields.mistake(&name, NAMELESS);
        }
        let Some(per_gpu_hour) = parse_price(&mut fields, &name) else {
            continue;
        };
        let rate = Rate {
            gpu_model: Some(model),
            per_gpu_hour,
            ..rate.clone()
        };
        if !rates.iter().any(|(_, known)| *known == rate) {
            rates.push((fields.path(&name), rate));
        }
    }
    fields.report_unknown_fields();
    rates
}
