//! A parsed source file: without comments, literals and tests, and with expanded imports.

use std::fs;
use std::path::Path;

/// One Rust file.
pub(super) struct Source {
    /// Path from the repository root.
    pub(super) path: String,
    /// Path of the module in its package, such as `cli::cost`. In a library it starts with the name
    /// of the library, such as `store::duckdb`, or `agent_core::pipeline` for one of the agent.
    pub(super) module: String,
    /// Library of the module, if any.
    pub(super) library: Option<String>,
    /// Number of lines of the file.
    pub(super) lines: usize,
    /// Text without comments and without the content of literals.
    pub(super) text: String,
    /// Text without test modules.
    pub(super) code: String,
    /// Expanded imports of `code`, each with whether it is public.
    pub(super) imports: Vec<(Vec<String>, bool)>,
}

impl Source {
    /// Parses the text of the file at `path`, such as `echo/src/store/duckdb.rs`.
    pub(super) fn new(path: &str, content: &str) -> Self {
        let text = without_comments_and_literals(content);
        // Tests of a module may be in a separate file.
        let code = if path.ends_with("/tests.rs") || path.contains("/tests/") {
            String::new()
        } else {
            without_test_modules(&text)
        };
        Self {
            path: path.to_owned(),
            module: module_of(path),
            library: library_of(path),
            lines: content.lines().count(),
            imports: imports_of(&code),
            text,
            code,
        }
    }

    /// Returns the segments of the module path from the root of its package; empty for the root.
    pub(super) fn segments(&self) -> Vec<&str> {
        let mut parts: Vec<&str> = self.module.split("::").collect();
        if self.library.is_some() {
            parts.remove(0);
        }
        if matches!(parts.as_slice(), ["lib" | "main"]) {
            parts.clear();
        }
        parts
    }

    /// Returns the top-level module, such as `store` for `store::duckdb`.
    pub(super) fn top(&self) -> &str {
        self.module.split("::").next().unwrap()
    }

    /// Returns whether the module is `module` or inside it.
    pub(super) fn is_in(&self, module: &str) -> bool {
        self.module
            .strip_prefix(module)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }

    /// Returns whether the code contains the word.
    pub(super) fn contains_word(&self, word: &str) -> bool {
        words(&self.code, word).next().is_some()
    }

    /// Returns whether the code refers to `path` or an item in it, in imports or in code.
    pub(super) fn names(&self, path: &str) -> bool {
        let declared = words(&self.code, "mod")
            .any(|(_, after)| words(after, path).any(|(before, _)| before.trim().is_empty()));
        let imported = self.imports.iter().any(|(leaves, _)| {
            leaves.iter().any(|leaf| {
                leaf.strip_prefix(path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            })
        });
        let in_code = words(&self.code, path)
            .any(|(before, after)| !before.ends_with("::") && after.starts_with("::"));
        !declared && (imported || in_code)
    }
}

fn module_of(path: &str) -> String {
    let (_, inner) = path.split_once("src/").unwrap_or(("", path));
    let inner = inner.trim_end_matches(".rs").replace('/', "::");
    match library_of(path) {
        Some(library) if inner == "lib" => library,
        Some(library) => format!("{library}::{inner}"),
        None => inner,
    }
}

fn library_of(path: &str) -> Option<String> {
    let (package, _) = path.split_once("/src/")?;
    let (program, library) = package.split_once('/')?;
    let library = library.replace('-', "_");
    Some(match program {
        "echo" => library,
        _ => format!("{program}_{library}"),
    })
}

/// Returns all Rust files in `folder` and its subfolders, ordered by path; empty if the folder is
/// missing.
pub(super) fn read_folder(root: &Path, folder: &str) -> Vec<Source> {
    let Ok(entries) = fs::read_dir(root.join(folder)) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut sources = Vec::new();
    for name in names {
        let path = format!("{folder}/{name}");
        if root.join(&path).is_dir() {
            sources.extend(read_folder(root, &path));
        } else if Path::new(&path)
            .extension()
            .is_some_and(|ending| ending == "rs")
        {
            let content = fs::read_to_string(root.join(&path)).unwrap();
            sources.push(Source::new(&path, &content));
        }
    }
    sources
}

/// Returns the text before and after each occurrence of `word` as a whole word.
pub(super) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(start, found)| (&text[..start], &text[start + found.len()..]))
        .filter(move |(before, after)| !before.ends_with(inside) && !after.starts_with(inside))
}

/// Returns the part of `text` before the bracket that closes the one preceding it.
pub(super) fn until_closed(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

fn without_comments_and_literals(content: &str) -> String {
    let mut kept = String::new();
    let mut rest = content;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => quoted(rest),
            'r' if !kept.ends_with(|c: char| c.is_alphanumeric() && c != 'b') => raw(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            kept.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            // Line numbers do not matter, but blank lines do.
            kept.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            if first != '/' {
                kept.push('_');
            }
            rest = &rest[skipped..];
        }
    }
    kept
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn raw(text: &str) -> usize {
    let marks = text[1..].chars().take_while(|c| *c == '#').count();
    let start = marks + 2;
    if text.as_bytes().get(start - 1) != Some(&b'"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(marks));
    text[start..]
        .find(&end)
        .map_or(text.len(), |at| start + at + end.len())
}

/// Returns the length of a character literal; zero for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    let escape = characters.next().is_some_and(|(_, c)| c == '\\');
    if escape {
        characters.next();
        characters
            .find(|(_, c)| *c == '\'')
            .map_or(0, |(at, _)| at + 1)
    } else {
        characters
            .next()
            .filter(|(_, c)| *c == '\'')
            .map_or(0, |(at, _)| at + 1)
    }
}

fn without_test_modules(text: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let Some((before, after)) = text.split_once(MARK) else {
        return text.to_owned();
    };
    let mut item = after.trim_start();
    while let Some(attribute) = item.strip_prefix("#[") {
        item = attribute
            .split_once(']')
            .map_or("", |(_, rest)| rest.trim_start());
    }
    let end = item.find(['{', ';']).unwrap_or(item.len());
    let rest = if item[..end].contains("mod ") && item[end..].starts_with('{') {
        let body = &item[end + 1..];
        &body[until_closed(body).len()..]
    } else {
        item
    };
    before.to_owned() + &without_test_modules(rest)
}

fn imports_of(code: &str) -> Vec<(Vec<String>, bool)> {
    words(code, "use")
        .filter(|(_, after)| after.starts_with(char::is_whitespace))
        .map(|(before, after)| {
            let tree: String = after.chars().take_while(|c| *c != ';').collect();
            let mut leaves = Vec::new();
            expand("", &tree, &mut leaves);
            let line = before.rsplit(['\n', ';', '}']).next().unwrap();
            (leaves, line.trim_start().starts_with("pub"))
        })
        .collect()
}

/// Expands `a::{b, c::d}` to `a::b` and `a::c::d`.
fn expand(prefix: &str, tree: &str, leaves: &mut Vec<String>) {
    let Some((head, inner)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap().trim();
        if !name.is_empty() {
            leaves.push(format!("{prefix}{name}"));
        }
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = until_closed(inner);
    let mut depth = 0;
    let parts = inner.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    for part in parts {
        expand(&prefix, part, leaves);
    }
}
