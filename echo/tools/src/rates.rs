//! Price table of GPU-hours, maintained by the operator.
//!
//! A rate names the GPUs it applies to by node, cluster or model, at least one of them, and may be
//! restricted to a provider and a region of it. The most specific rate in force wins: node before
//! cluster before model; among rates alike in this, provider and region before provider before
//! neither. A GPU without a matching rate has no price; it is never treated as free.
//!
//! Events do not carry provider and region: the table itself assigns them to clusters and nodes
//! ([`Location`]). Class and source describe a rate and do not select it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use echo_core::error::{Code, Coded};
use echo_core::ids::{ClusterId, NodeId};
use echo_core::pattern::Pattern;
use echo_core::units::{GpuTime, Nanos, Window};
use rust_decimal::Decimal;

mod file;
mod iso_4217;
mod models;
mod notes;

/// Decimal places of displayed money: a millionth of the currency unit.
pub const MONEY_PLACES: u32 = 6;

/// Decimal places of money in sums. A month of a thousand nodes is a million amounts, which may all
/// be rounded in the same direction.
pub const EXACT_PLACES: u32 = 12;

/// Price table of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    rates: Vec<Rate>,
    /// Key path of each rate in the file, such as `rates[3]`.
    key_paths: Vec<String>,
    as_of: Option<String>,
    aliases: BTreeMap<ModelName, ModelName>,
    locations: Vec<Location>,
}

/// Provider and region of clusters and nodes. The first matching location wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Matching clusters; all when absent.
    pub cluster: Option<Pattern>,
    /// Matching nodes; all when absent.
    pub node: Option<Pattern>,
    /// Provider of the GPUs.
    pub provider: String,
    /// Region of the provider, when relevant.
    pub region: Option<String>,
}

/// Price of one GPU for one hour, and the GPUs it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Node it applies to; all when absent.
    pub node: Option<NodeId>,
    /// Cluster it applies to; all when absent.
    pub cluster: Option<ClusterId>,
    /// GPU model it applies to; all when absent.
    pub gpu_model: Option<ModelName>,
    /// Rate class.
    pub class: RateClass,
    /// Price of one GPU for one hour, in `currency`.
    pub per_gpu_hour: Decimal,
    /// Currency of the price.
    pub currency: Currency,
    /// First instant in force.
    pub from: Nanos,
    /// First instant no longer in force, if any.
    pub to: Option<Nanos>,
    /// Provider it applies to; all when absent. Case-insensitive.
    pub provider: Option<String>,
    /// Region of the provider it applies to; all when absent. Case-insensitive.
    pub region: Option<String>,
    /// Source of the price, for people.
    pub source: Option<String>,
}

/// Normalized name of a GPU model: lower case, words of letters and digits with single spaces,
/// without the manufacturer, and one spelling for all names of a product.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName(String);

/// Rate class: the way in which GPUs are paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RateClass {
    /// Hourly, at list price.
    OnDemand,
    /// Committed for a term.
    Reserved,
    /// Hourly, preemptible.
    Spot,
    /// Purchased; the rate covers depreciation and operation.
    Owned,
    /// Internal price between departments.
    Internal,
}

/// ISO 4217 currency code: three capital letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

/// GPU whose price is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterId,
    /// Its node.
    pub node: &'a NodeId,
    /// Model as reported by the sender, when known.
    pub model: Option<&'a str>,
}

/// All mistakes in a rates file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid rates file: {}", self.mistakes.join("; "))]
pub struct RatesError {
    /// One message per mistake, with its key path.
    pub mistakes: Vec<String>,
}

impl Coded for RatesError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}

impl Rates {
    /// Parses a table in YAML, and reports all mistakes together.
    pub fn parse(text: &str) -> Result<Self, RatesError> {
        file::parse(text)
    }

    /// All rates, in file order.
    pub fn all(&self) -> &[Rate] {
        &self.rates
    }

    /// Date of the prices as stated by the operator, such as `2026-01-31`.
    pub fn as_of(&self) -> Option<&str> {
        self.as_of.as_deref()
    }

    /// Finds the rate in force for a GPU at an instant; `None` when the GPU has no price.
    pub fn rate(&self, gpu: &Gpu<'_>, at: Nanos) -> Option<&Rate> {
        let model = gpu.model.map(|model| self.canonical(model));
        let location = self.location(gpu.cluster, gpu.node);
        self.rates
            .iter()
            .filter(|rate| rate.is_for(gpu, model.as_ref(), location) && rate.is_in_force(at))
            .max_by_key(|rate| rate.specificity())
    }

    /// Finds the location of a node; `None` when the table has none.
    pub fn location(&self, cluster: &ClusterId, node: &NodeId) -> Option<&Location> {
        self.locations
            .iter()
            .find(|location| location.contains(cluster, node))
    }

    /// All locations, in matching order.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// Rates in order of precedence, each with its key path in the file.
    pub fn by_precedence(&self) -> Vec<(&str, &Rate)> {
        let key_paths = self.key_paths.iter().map(String::as_str);
        let mut rates: Vec<(&str, &Rate)> = key_paths.zip(&self.rates).collect();
        rates.sort_by_key(|(_, rate)| Reverse(rate.specificity()));
        rates
    }

    /// Key path of a rate of this table in the file.
    pub fn key_path(&self, rate: &Rate) -> Option<&str> {
        let at = self.rates.iter().position(|one| one == rate)?;
        self.key_paths.get(at).map(String::as_str)
    }

    /// Warnings about entries that are valid but probably unintended.
    pub fn notes(&self) -> Vec<String> {
        notes::notes(self)
    }

    /// Number of rates in force at an instant.
    pub fn n_in_force(&self, at: Nanos) -> usize {
        let in_force = self.rates.iter().filter(|rate| rate.is_in_force(at));
        in_force.count()
    }

    /// Instants inside the window at which a rate begins or ends, in order. Prices are constant
    /// between two of them. All are midnights UTC, so a whole hour has one price.
    pub fn change_points(&self, window: Window) -> Vec<Nanos> {
        let borders = self
            .rates
            .iter()
            .flat_map(|rate| [Some(rate.from), rate.to]);
        let inside: BTreeSet<Nanos> = borders
            .flatten()
            .filter(|border| window.contains(*border))
            .collect();
        inside.into_iter().collect()
    }

    /// Currency of the table, when all rates share one.
    pub fn only_currency(&self) -> Option<Currency> {
        let first = self.rates.first()?.currency;
        self.rates
            .iter()
            .all(|rate| rate.currency == first)
            .then_some(first)
    }

    fn canonical(&self, model: &str) -> ModelName {
        let name = ModelName::new(model);
        self.aliases.get(&name).cloned().unwrap_or(name)
    }
}

impl Rate {
    /// Cost of an amount of GPU time, to [`EXACT_PLACES`], so that sums of many amounts are exact
    /// to the displayed digits.
    pub fn cost(&self, time: GpuTime) -> Decimal {
        let hours_times_rate = self.per_gpu_hour * Decimal::from(time.micros());
        (hours_times_rate / Decimal::from(GpuTime::MICROS_PER_HOUR)).round_dp(EXACT_PLACES)
    }

    fn is_for(
        &self,
        gpu: &Gpu<'_>,
        model: Option<&ModelName>,
        location: Option<&Location>,
    ) -> bool {
        self.is_at(location)
            && self.node.as_ref().is_none_or(|node| node == gpu.node)
            && self
                .cluster
                .as_ref()
                .is_none_or(|cluster| cluster == gpu.cluster)
            && (self.gpu_model.is_none() || self.gpu_model.as_ref() == model)
    }

    /// True when the rate applies to GPUs at the location.
    fn is_at(&self, location: Option<&Location>) -> bool {
        let Some(provider) = &self.provider else {
            return true;
        };
        location.is_some_and(|location| {
            let is_region = |region: &String| {
                let actual = location.region.as_ref();
                actual.is_some_and(|actual| actual.eq_ignore_ascii_case(region))
            };
            location.provider.eq_ignore_ascii_case(provider)
                && self.region.as_ref().is_none_or(is_region)
        })
    }

    /// True when the rate is in force at an instant.
    pub fn is_in_force(&self, at: Nanos) -> bool {
        self.from <= at && self.to.is_none_or(|to| at < to)
    }

    /// Selectors that the rate has, most specific first; of two rates for a GPU the larger value
    /// wins.
    const fn specificity(&self) -> [bool; 5] {
        [
            self.node.is_some(),
            self.cluster.is_some(),
            self.gpu_model.is_some(),
            self.region.is_some(),
            self.provider.is_some(),
        ]
    }
}

impl Location {
    fn contains(&self, cluster: &ClusterId, node: &NodeId) -> bool {
        let is = |pattern: &Option<Pattern>, name: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
        };
        is(&self.cluster, cluster.as_str()) && is(&self.node, node.as_str())
    }
}

impl ModelName {
    /// Normalizes the name of a model.
    pub fn new(name: &str) -> Self {
        Self(models::normalize(name))
    }

    /// Products that share this name, as reported by senders; `None` when it names a single
    /// product.
    pub fn products(&self) -> Option<&'static [&'static str]> {
        models::products(&self.0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RateClass {
    /// All classes.
    pub const ALL: [Self; 5] = [
        Self::OnDemand,
        Self::Reserved,
        Self::Spot,
        Self::Owned,
        Self::Internal,
    ];

    /// Name in files and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on_demand",
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::Owned => "owned",
            Self::Internal => "internal",
        }
    }

    /// `PricingCategory` of FOCUS.
    pub const fn pricing_category(self) -> &'static str {
        match self {
            Self::OnDemand => "Standard",
            Self::Reserved => "Committed",
            Self::Spot => "Dynamic",
            Self::Owned | Self::Internal => "Other",
        }
    }
}

impl FromStr for RateClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is not one of {names}")
        })
    }
}

impl FromStr for Currency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let letters = <[u8; 3]>::try_from(text.as_bytes()).ok();
        letters
            .filter(|_| iso_4217::is_currency(text))
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not an ISO 4217 currency such as USD or EUR"))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

#[cfg(test)]
mod tests;
