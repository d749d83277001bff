//! Other names of models.

use std::collections::BTreeMap;

use serde_norway::Value;

use crate::rates::file::NAMELESS;
use crate::rates::{ModelName, Rate};

/// Reads the aliases. What only says again that two names are one product is no alias.
pub(super) fn read(
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
            mistakes.push(format!("aliases.{alias}: the same name is there twice"));
        }
    }
    refuse_chains(&aliases, mistakes);
    aliases
}

/// A name is looked up once, so the GPUs of an alias of an alias would have no price.
fn refuse_chains(aliases: &BTreeMap<ModelName, ModelName>, mistakes: &mut Vec<String>) {
    for (alias, model) in aliases {
        if let Some(further) = aliases.get(model) {
            mistakes.push(format!(
                "aliases.{alias}: stands for {model}, which is an alias itself; write what that stands for, {further}"
            ));
        }
    }
}

/// The rate with its model by the one name that is looked up.
pub(super) fn resolved(mut rate: Rate, aliases: &BTreeMap<ModelName, ModelName>) -> Rate {
    if let Some(target) = rate.gpu_model.as_ref().and_then(|model| aliases.get(model)) {
        rate.gpu_model = Some(target.clone());
    }
    rate
}
