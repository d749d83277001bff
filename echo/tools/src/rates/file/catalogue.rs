//! The form of `gpu_rates.yaml` that Ingero publishes: one currency, list prices by provider and by the model's name as the
//! driver reports it, and a price for what is not listed.
//!
//! That price is mostly 0, which says there that the price is not known; here it leaves such GPUs without a price.

use echo_core::fields::Fields;
use echo_core::units::Nanos;
use rust_decimal::Decimal;
use serde_norway::{Mapping, Value};

use super::{NAMELESS, price};
use crate::rates::{Currency, ModelName, Rate, RateClass};

/// What rates are said to come from.
const SOURCE: &str = "gpu_rates.yaml";

/// What is said once for all rates.
pub(super) struct Head {
    providers: Value,
    currency: Option<Currency>,
    class: Option<RateClass>,
    fallback: Option<Decimal>,
}

impl Head {
    /// Takes it from the top of the file.
    pub(super) fn take(top: &mut Fields<'_>, providers: Value) -> Self {
        let currency = top.parsed("currency_name");
        top.require("currency_name", currency.is_none());
        // For dashboards of others.
        let _symbol = top.text("currency_symbol");
        Self {
            providers,
            currency,
            class: top.parsed("rate_class"),
            fallback: price(top, "fallback_rate"),
        }
    }

    /// The rates, each with its place in the file.
    pub(super) fn rates(self, mistakes: &mut Vec<String>) -> Vec<(String, Rate)> {
        let list_price = Rate {
            node: None,
            cluster: None,
            gpu_model: None,
            class: self.class.unwrap_or(RateClass::OnDemand),
            per_gpu_hour: Decimal::ZERO,
            // Without one the file is refused, but not before all that is wrong with it is known.
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
                mistakes.push("providers: a name of a provider is no text".to_owned());
                continue;
            };
            let of_provider = Rate {
                provider: Some(provider.to_owned()),
                ..list_price.clone()
            };
            rates.extend(of(&of_provider, (provider, models), mistakes));
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

/// The rates of one provider. A price that is there twice under two names of a model is one.
fn of(
    rate: &Rate,
    (provider, models): (&str, Value),
    mistakes: &mut Vec<String>,
) -> Vec<(String, Rate)> {
    let place = format!("providers.{provider}");
    let keys = models.as_mapping().into_iter().flat_map(Mapping::keys);
    let names: Vec<String> = keys.filter_map(Value::as_str).map(str::to_owned).collect();
    let Some(mut fields) = Fields::from_value(&place, models, mistakes) else {
        return Vec::new();
    };
    let mut rates: Vec<(String, Rate)> = Vec::new();
    for name in names {
        let model = ModelName::new(&name);
        if model.is_empty() {
            fields.mistake(&name, NAMELESS);
        }
        let Some(per_gpu_hour) = price(&mut fields, &name) else {
            continue;
        };
        let rate = Rate {
            gpu_model: Some(model),
            per_gpu_hour,
            ..rate.clone()
        };
        if !rates.iter().any(|(_, known)| *known == rate) {
            rates.push((fields.place(&name), rate));
        }
    }
    fields.report_unknown_fields();
    rates
}
