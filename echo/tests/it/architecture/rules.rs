//! The rules. Each returns its violations, with file and modules.

use super::source::{Source, until_closed, words};

const MAX_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 60;

/// Module names that are too generic.
const GENERIC_NAMES: [&str; 10] = [
    "common", "helper", "helpers", "manager", "managers", "misc", "types", "util", "utils",
    "shared",
];

/// Words that a pure module must not use.
const IMPURE_WORDS: [&str; 6] = [
    "async",
    "await",
    "Instant",
    "SystemTime",
    "eprintln",
    "println",
];

/// Paths that a pure module must not use.
const IMPURE_PATHS: [&str; 10] = [
    "axum",
    "duckdb",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "tokio",
    "tonic",
    "tracing",
];

/// The architecture of one package.
pub(super) struct Architecture {
    /// Every top-level module with its layer; empty where cargo enforces the order.
    pub(super) layers: &'static [(&'static str, u8)],
    /// Modules that only compute: no tasks, files, sockets, database, clock or logs.
    pub(super) pure: &'static [&'static str],
    /// Crates, each with the only modules that may use it.
    pub(super) restricted: &'static [(&'static str, &'static [&'static str])],
}

impl Architecture {
    const fn has_layers(&self) -> bool {
        !self.layers.is_empty()
    }

    fn layer(&self, module: &str) -> Option<u8> {
        let found = self.layers.iter().find(|(name, _)| *name == module);
        found.map(|(_, layer)| *layer)
    }
}

/// Returns all violations in the sources of one package.
pub(super) fn violations(architecture: &Architecture, sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let about = |what: String| format!("{}: {what}", source.path);
        found.extend(import_form(architecture, source).into_iter().map(about));
        found.extend(purity(architecture, source).into_iter().map(about));
        found.extend(restricted(architecture, source).into_iter().map(about));
        if source.module != "lib" && architecture.has_layers() {
            found.extend(layers(architecture, source).into_iter().map(about));
        }
    }
    found
}

/// Returns files and functions that are too long, and modules with generic names.
pub(super) fn sizes_and_names(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        if source.lines > MAX_FILE_LINES {
            found.push(format!(
                "{}: {} lines, at most {MAX_FILE_LINES}",
                source.path, source.lines
            ));
        }
        for (name, lines) in functions(&source.text) {
            if lines > MAX_FUNCTION_LINES {
                found.push(format!(
                    "{}: fn {name} has {lines} lines, at most {MAX_FUNCTION_LINES}",
                    source.path
                ));
            }
        }
        for name in source.module.split("::").chain(inline_modules(source)) {
            if GENERIC_NAMES.contains(&name) {
                found.push(format!("{}: `{name}` is too generic", source.path));
            }
        }
    }
    found
}

fn layers(architecture: &Architecture, source: &Source) -> Vec<String> {
    let own = source.top();
    let Some(layer) = architecture.layer(own) else {
        return vec![format!(
            "`{own}` has no layer, give it one in the architecture test"
        )];
    };
    let mut found = Vec::new();
    for root in ["crate::", "fleet_echo::", "fleet_agent::"] {
        for (_, after) in source
            .code
            .match_indices(root)
            .map(|(at, _)| source.code.split_at(at + root.len()))
        {
            let other: String = after
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            match architecture.layer(&other) {
                _ if other == own || other.is_empty() => {}
                Some(below) if below < layer => {}
                Some(above) => found.push(format!(
                    "`{own}` (layer {layer}) imports `{other}` (layer {above}), only lower layers are allowed"
                )),
                None => found.push(format!("`{own}` imports `{other}`, which has no layer")),
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn import_form(architecture: &Architecture, source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut parents = Vec::new();
    for (leaves, public) in &source.imports {
        if *public && source.module == "lib" {
            found.push("re-exports; name the module where it is used".to_owned());
        }
        let mut modules: Vec<_> = leaves
            .iter()
            .filter(|leaf| {
                let ours = ["crate::", "echo_", "fleet_"];
                ours.iter().any(|root| leaf.starts_with(root))
            })
            .map(|leaf| leaf.rsplit_once("::").map_or("", |(parent, _)| parent))
            .collect();
        modules.dedup();
        if modules.len() > 1 {
            found.push(format!(
                "one import for {}, write one for each",
                modules.join(" and ")
            ));
        }
        parents.extend(modules);
    }
    parents.sort_unstable();
    for pair in parents.windows(2) {
        if pair[0] == pair[1] {
            found.push(format!("imports {} twice", pair[0]));
        }
    }
    // Libraries import items of their root in this form.
    if architecture.has_layers() && source.code.contains("use crate::{") {
        found.push("`use crate::{` hides which modules are imported".to_owned());
    }
    let at_root = !source.module.contains("::") && source.code.contains("super::");
    if at_root || source.code.contains("super::super::") {
        found.push("`super::` reaches past the module's own parent".to_owned());
    }
    found
}

fn purity(architecture: &Architecture, source: &Source) -> Vec<String> {
    let Some(pure) = architecture.pure.iter().find(|module| source.is_in(module)) else {
        return Vec::new();
    };
    let words = IMPURE_WORDS
        .iter()
        .filter(|word| source.contains_word(word));
    let paths = IMPURE_PATHS.iter().filter(|path| source.names(path));
    words
        .chain(paths)
        .map(|what| format!("`{pure}` only computes, but names `{what}`"))
        .collect()
}

fn restricted(architecture: &Architecture, source: &Source) -> Vec<String> {
    let violations = architecture
        .restricted
        .iter()
        .filter(|(name, homes)| source.names(name) && !homes.iter().any(|home| source.is_in(home)));
    violations
        .map(|(name, homes)| {
            format!(
                "`{}` names `{name}`, which is allowed only in {}",
                source.module,
                homes.join(", ")
            )
        })
        .collect()
}

/// Returns each function with the number of lines of its body, without blank lines and comments.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (_, after) in words(text, "fn").filter(|(_, after)| after.starts_with(' ')) {
        let name_ends = after.find(['(', '<']).unwrap_or(after.len());
        let mut depth = 0;
        let body = after.find(|c| {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(c, '{' | ';')
        });
        let Some(body) = body.filter(|at| after[*at..].starts_with('{')) else {
            continue;
        };
        let body = until_closed(&after[body + 1..]);
        let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
        found.push((after[..name_ends].trim(), lines));
    }
    found
}

fn inline_modules(source: &Source) -> impl Iterator<Item = &str> {
    words(&source.text, "mod")
        .filter(|(_, after)| after.starts_with(' '))
        .map(|(_, after)| after.trim_start().split(['{', ';']).next().unwrap().trim())
}
