//! Circular references between modules of one folder. A module and the folder with its children
//! count as one, and references between them are ignored.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, words};

/// References between the modules of one folder.
type Graph<'s> = BTreeMap<&'s str, BTreeSet<&'s str>>;

/// Returns one circle of each folder that has any, in the sources of one package.
pub(super) fn circles(sources: &[Source]) -> Vec<String> {
    let modules: BTreeSet<Vec<&str>> = sources.iter().map(Source::segments).collect();
    let named: Vec<(Vec<&str>, Vec<String>)> = sources
        .iter()
        .map(|source| (source.segments(), paths(source)))
        .collect();
    let mut folders: BTreeMap<Vec<&str>, Graph<'_>> = BTreeMap::new();
    for (from, paths) in &named {
        for to in paths.iter().filter_map(|path| resolved(from, path)) {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let (Some(namer), Some(other)) = (from.get(common), to.get(common)) else {
                continue;
            };
            let is_module = |module: &Vec<&str>| module.starts_with(&to[..=common]);
            if modules.iter().any(is_module) {
                let folder = folders.entry(from[..common].to_vec()).or_default();
                folder.entry(namer).or_default().insert(other);
            }
        }
    }
    let found = folders.iter().filter_map(|(folder, graph)| {
        let circle = graph.keys().find_map(|start| cycle_from(graph, start))?;
        Some(format!(
            "a circle in `{}`: {}",
            folder.join("::"),
            circle.join(" -> ")
        ))
    });
    found.collect()
}

/// Returns the paths that start at the root of the package or at the module itself, in imports and
/// in code.
fn paths(source: &Source) -> Vec<String> {
    let imported = source.imports.iter().flat_map(|(leaves, _)| leaves.clone());
    let in_code = ["crate", "super", "self"].into_iter().flat_map(|root| {
        words(&source.code, root)
            .filter(|(before, after)| {
                let is_visibility = before.ends_with("in ");
                after.starts_with("::") && !before.ends_with("::") && !is_visibility
            })
            .map(move |(_, after)| {
                let path = |c: &char| c.is_alphanumeric() || matches!(c, '_' | ':');
                root.to_owned() + &after.chars().take_while(path).collect::<String>()
            })
    });
    imported.chain(in_code).collect()
}

/// Returns the path from the root of the package; `None` for a path of another package.
fn resolved<'p>(from: &[&'p str], path: &'p str) -> Option<Vec<&'p str>> {
    let mut parts = path.split("::").peekable();
    let mut base = match parts.next()? {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => from.split_last()?.1.to_vec(),
        _ => return None,
    };
    while parts.next_if_eq(&"super").is_some() {
        base.pop();
    }
    base.extend(parts);
    Some(base)
}

/// Returns a path from `start` back to itself, if there is one.
fn cycle_from<'s>(graph: &Graph<'s>, start: &'s str) -> Option<Vec<&'s str>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in graph.get(way.last()?).into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(next);
            if *next == start {
                return Some(longer);
            }
            if seen.insert(*next) {
                ways.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::circles;
    use crate::architecture::source::Source;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, content)| Source::new(path, content))
            .collect();
        circles(&sources)
    }

    #[test]
    fn circular_references_are_found_in_imports_and_code() {
        let files = [
            ("echo/store/src/a.rs", "use crate::b::B;"),
            ("echo/store/src/b.rs", "mod inner;"),
            ("echo/store/src/b/inner.rs", "fn f() { crate::c::g() }"),
            ("echo/store/src/c.rs", "use super::a::A;"),
        ];
        assert_eq!(found(&files), ["a circle in ``: a -> b -> c -> a"]);
        assert_eq!(found(&files[..3]), [""; 0]);
    }

    #[test]
    fn a_module_and_its_children_may_reference_each_other() {
        let files = [
            ("agent/src/a.rs", "mod b; use b::B; use self::c::C;"),
            (
                "agent/src/a/b.rs",
                "use super::A; pub(in crate::d) fn f() {}",
            ),
            ("agent/src/a/c.rs", "use super::b::B;"),
            ("agent/src/d.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), [""; 0]);
        let back = [("agent/src/a/b.rs", "use crate::a::c::C;"), files[2]];
        assert_eq!(found(&back), ["a circle in `a`: b -> c -> b"]);
    }

    #[test]
    fn items_of_other_packages_are_ignored() {
        let files = [
            ("echo/src/a.rs", "use std::b::B;"),
            ("echo/src/b.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
