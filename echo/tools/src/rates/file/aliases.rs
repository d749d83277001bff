//! Aliases of model names.

use std::collections::BTreeMap;

use serde_norway::Value;

use crate::rates::file::NAMELESS;
use crate::rates::{ModelName, Rate};

/// Parses the aliases. An alias equal to its target once normalized is dropped.
pub(super) fn parse(
    value: Option<Value>,
    mistakes: &mut Vec<String>,
) -> BTreeMap<ModelName, ModelName> {
    let mapping = match value {
        None => return BTreeMap::new(),
        Some(Value::Mapping(mapping)) => mapping,
        Some(_) => {
            mistakes.push("aliases: is not a mapping of model names".to_owned());
            return BTreeMap::new();
        }
    };
    let mut aliases = BTreeMap::new();
    for (alias, model) in &mapping {
        let (Some(alias), Some(model)) = (alias.as_str(), model.as_str()) else {
            mistakes.push("aliases: both sides must be names".to_owned());
            continue;
        };
        let (name, model) = (ModelName::new(alias), ModelName::new(model));
        if name.is_empty() || model.is_empty() {
            mistakes.push(format!("aliases.{alias}: {NAMELESS}"));
        } else if name != model
            && aliases
                .insert(name, model.clone())
                .is_some_and(|before| before != model)
        {
            mistakes.push(format!("aliases.{alias}: is defined twice"));
        }
    }
    refuse_chains(&aliases, mistakes);
    aliases
}

/// Rejects aliases of aliases: a name is resolved once, so such GPUs would have no price.
fn refuse_chains(aliases: &BTreeMap<ModelName, ModelName>, mistakes: &mut Vec<String>) {
    for (alias, model) in aliases {
        if let Some(further) = aliases.get(model) {
            mistakes.push(format!(
                "aliases.{alias}: refers to {model}, which is an alias itself; use its target {further}"
            ));
        }
    }
}

/// Replaces an alias in the model of a rate by its target.
pub(super) fn resolve(mut rate: Rate, aliases: &BTreeMap<ModelName, ModelName>) -> Rate {
    if let Some(target) = rate.gpu_model.as_ref().and_then(|model| aliases.get(model)) {
        rate.gpu_model = Some(target.clone());
    }
    rate
}
