//! Consistent terms: schemas, help texts and the guide use the terms of the glossary and plain
//! technical words.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testbed::{ECHO, agent, files_below, repository};

const GLOSSARY: &str = "echo/docs/glossary.md";

/// Words that are not terms of the glossary, each with its replacement.
const PLAIN_WORDS: [(&str, &str); 3] = [
    ("question", "query"),
    ("echos", "instances"),
    ("nobody", "no client"),
];

/// A forbidden word and its replacement.
struct Synonym {
    word: String,
    term: String,
}

/// Parses the last table of the glossary, `term | ... | instead of`.
fn synonyms(glossary: &str) -> Vec<Synonym> {
    let (_, table) = glossary.split_once("| instead of |\n").unwrap();
    let rows = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let of_row = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let term = cells.first().unwrap().replace('*', "");
        let words = cells.last().unwrap().split(", ").map(str::to_owned);
        let synonym = |word| Synonym {
            word,
            term: term.clone(),
        };
        words
            .filter(|word: &String| !word.is_empty())
            .map(synonym)
            .collect::<Vec<_>>()
    };
    rows.flat_map(of_row).collect()
}

/// Returns the lines of a text that contain a synonym as whole words, in singular or plural.
fn misnamed(place: &str, text: &str, synonyms: &[Synonym]) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '-');
        let words = words.filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let words = format!(" {} ", words.join(" ").to_lowercase());
        for Synonym { word, term } in synonyms {
            if words.contains(&format!(" {word} ")) || words.contains(&format!(" {word}s ")) {
                found.push(format!(
                    "{place}: write {term:?}, not {word:?}: {}",
                    line.trim()
                ));
            }
        }
    }
    found
}

fn help(program: &Path, command: &[String]) -> String {
    let output = Command::new(program).args(command).arg("--help").output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Returns the help texts of a program and of all its commands, each with its command line.
fn helps(program: &Path) -> Vec<(String, String)> {
    let name = program.file_name().unwrap().to_str().unwrap();
    let mut helps = Vec::new();
    let mut commands = vec![Vec::<String>::new()];
    while let Some(command) = commands.pop() {
        let text = help(program, &command);
        let sections = text.split("\n\n").filter_map(|section| {
            let (heading, rest) = section.trim_start().split_once('\n')?;
            heading.ends_with("ommands:").then_some(rest)
        });
        let listed = sections.flat_map(str::lines);
        let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        for sub in names.filter(|sub| !sub.is_empty() && *sub != "help") {
            let mut deeper = command.clone();
            deeper.push(sub.to_owned());
            commands.push(deeper);
        }
        helps.push((format!("{name} {} --help", command.join(" ")), text));
    }
    helps
}

/// Returns the files of a folder and its subfolders with this extension, each with its text.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let mut paths = files_below(folder);
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.display().to_string(), text)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn schemas_help_texts_and_guide_use_the_terms_of_the_glossary() {
    let glossary = std::fs::read_to_string(repository(GLOSSARY)).unwrap();
    let mut synonyms = synonyms(&glossary);
    assert!(synonyms.len() > 20, "{}", synonyms.len());
    let plain = PLAIN_WORDS.map(|(word, term)| Synonym {
        word: word.to_owned(),
        term: term.to_owned(),
    });
    synonyms.extend(plain);
    let schemas = files("echo/tools/src/registry/snapshots", "snap");
    let mcp = files("echo/serve/src/mcp/snapshots", "snap");
    let openapi = files("echo/serve/src/http/openapi/snapshots", "snap");
    let guide = files("echo/docs/guide", "md");
    let helps = [helps(Path::new(ECHO)), helps(&agent())].concat();
    assert!(helps.len() > 28, "{}", helps.len());
    let texts = [schemas, mcp, openapi, guide, helps].concat();
    let mut found = Vec::new();
    for (place, text) in &texts {
        found.extend(misnamed(place, text, &synonyms));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_synonym_is_reported_with_its_location() {
    let glossary = "| term | instead of |\n|---|---|\n| **rank** | worker, process group |\n\nEnd";
    let synonyms = synonyms(glossary);
    assert_eq!(
        misnamed("page", "Every Worker waits", &synonyms),
        ["page: write \"rank\", not \"worker\": Every Worker waits"]
    );
    assert_eq!(misnamed("page", "of process groups.", &synonyms).len(), 1);
    assert!(misnamed("page", "networkers process a group", &synonyms).is_empty());
}
