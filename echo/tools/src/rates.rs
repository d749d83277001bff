//! What a GPU-hour costs: the operator's table.
//!
//! A rate names the GPUs that it is for by node, cluster and model, of which it has one at least, and may narrow that to a
//! provider and a region of it. The most specific rate in force decides: one that names the node before one that names the
//! cluster, that before one that names the model, and of those alike in this one with provider and region before one with the
//! provider before one without. A GPU that no rate matches has no price; nothing here ever takes it for free.
//!
//! Events do not carry provider and region: the table says itself where clusters and nodes stand ([`Location`]). Class and
//! source describe a rate and do not select it.

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

/// Decimal places of money that is shown: a millionth of the currency's unit.
pub const MONEY_PLACES: u32 = 6;

/// Decimal places of money that is added up. A month of a thousand nodes is a million amounts, which may all be rounded to
/// the same side.
pub const EXACT_PLACES: u32 = 12;

/// The operator's price table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    rates: Vec<Rate>,
    /// Where in the file each of them stands.
    key_paths: Vec<String>,
    as_of: Option<String>,
    aliases: BTreeMap<ModelName, ModelName>,
    locations: Vec<Location>,
}

/// Where clusters and nodes stand. The first that is for a node decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Clusters that it is for; all when absent.
    pub cluster: Option<Pattern>,
    /// Nodes that it is for; all when absent.
    pub node: Option<Pattern>,
    /// Who sells the GPUs there.
    pub provider: String,
    /// Region of the provider, when that matters.
    pub region: Option<String>,
}

/// The price of one GPU for one hour, and the GPUs that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Node that it is for; all when absent.
    pub node: Option<NodeId>,
    /// Cluster that it is for; all when absent.
    pub cluster: Option<ClusterId>,
    /// Model that it is for; all when absent.
    pub gpu_model: Option<ModelName>,
    /// How the GPUs are paid for.
    pub class: RateClass,
    /// Price of one GPU for one hour, in `currency`.
    pub per_gpu_hour: Decimal,
    /// Currency of the price.
    pub currency: Currency,
    /// First instant in force.
    pub from: Nanos,
    /// First instant no longer in force, if there is one.
    pub to: Option<Nanos>,
    /// Provider that it is for; all when absent. Case does not matter.
    pub provider: Option<String>,
    /// Region of the provider that it is for; all when absent. Case does not matter.
    pub region: Option<String>,
    /// Where the price was found, for people.
    pub source: Option<String>,
}

/// A GPU model in the one spelling that is compared: lower case, words of letters and digits with single spaces, without
/// the maker, and the same for all names of one product.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName(String);

/// How GPUs are paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RateClass {
    /// By the hour, at list price.
    OnDemand,
    /// Committed for a term.
    Reserved,
    /// By the hour, can be taken away.
    Spot,
    /// Bought; the rate is what depreciation and operation come to.
    Owned,
    /// A price that departments charge each other.
    Internal,
}

/// A currency of ISO 4217, as it writes it: three capital letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

/// The GPU that a price is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterId,
    /// Its node.
    pub node: &'a NodeId,
    /// Its model as the sender wrote it, when known.
    pub model: Option<&'a str>,
}

/// Everything that is wrong with a rates file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rates file has mistakes: {}", self.mistakes.join("; "))]
pub struct RatesError {
    /// One sentence per mistake, each with its place.
    pub mistakes: Vec<String>,
}

impl Coded for RatesError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}

impl Rates {
    /// Reads a table in YAML, and reports all mistakes in it together.
    pub fn parse(text: &str) -> Result<Self, RatesError> {
        file::parse(text)
    }

    /// The whole table, as it was given.
    pub fn all(&self) -> &[Rate] {
        &self.rates
    }

    /// The day that the operator says the prices are of, such as `2026-01-31`.
    pub fn as_of(&self) -> Option<&str> {
        self.as_of.as_deref()
    }

    /// The rate in force for a GPU at an instant; nothing when the GPU has no price.
    pub fn rate(&self, gpu: &Gpu<'_>, at: Nanos) -> Option<&Rate> {
        let model = gpu.model.map(|model| self.canonical(model));
        let location = self.location(gpu.cluster, gpu.node);
        self.rates
            .iter()
            .filter(|rate| rate.is_for(gpu, model.as_ref(), location) && rate.is_in_force(at))
            .max_by_key(|rate| rate.specificity())
    }

    /// Where a node stands; nothing when the table does not say.
    pub fn location(&self, cluster: &ClusterId, node: &NodeId) -> Option<&Location> {
        self.locations
            .iter()
            .find(|location| location.contains(cluster, node))
    }

    /// All places, in the order in which they are tried.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// The rates in the order in which they decide, each with where it stands in the file.
    pub fn by_precedence(&self) -> Vec<(&str, &Rate)> {
        let key_paths = self.key_paths.iter().map(String::as_str);
        let mut rates: Vec<(&str, &Rate)> = key_paths.zip(&self.rates).collect();
        rates.sort_by_key(|(_, rate)| Reverse(rate.specificity()));
        rates
    }

    /// Where in the file a rate of this table stands.
    pub fn key_path(&self, rate: &Rate) -> Option<&str> {
        let at = self.rates.iter().position(|one| one == rate)?;
        self.key_paths.get(at).map(String::as_str)
    }

    /// What is allowed and probably not meant, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        notes::notes(self)
    }

    /// How many rates hold at an instant.
    pub fn n_in_force(&self, at: Nanos) -> usize {
        let in_force = self.rates.iter().filter(|rate| rate.is_in_force(at));
        in_force.count()
    }

    /// Instants inside the window at which a rate begins or ends, in order. Between two of them prices stand still. All are
    /// midnights, so a whole hour has one price.
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

    /// The currency of the table, when all rates have the same.
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
    /// Price of an amount of GPU time, to [`EXACT_PLACES`]: sums of many stay right to the last place that is shown.
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

    /// Whether it is for GPUs that stand there.
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

    /// Whether it is in force at an instant.
    pub fn is_in_force(&self, at: Nanos) -> bool {
        self.from <= at && self.to.is_none_or(|to| at < to)
    }

    /// What it names, the most telling first: of two rates for a GPU the larger decides.
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
    /// Brings a model's name into the spelling that is compared.
    pub fn new(name: &str) -> Self {
        Self(models::compared(name))
    }

    /// The products that share this name, as senders report them, when it is the name of several.
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

    /// The name that files and answers carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on_demand",
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::Owned => "owned",
            Self::Internal => "internal",
        }
    }

    /// The `PricingCategory` of FOCUS.
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
            format!("{text:?} is none of {names}")
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
            .ok_or_else(|| format!("{text:?} is no currency of ISO 4217 such as USD or EUR"))
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
