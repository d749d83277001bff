use std::fs;
use std::path::Path;

use super::{ContextError, ContextFile};

const TWO: &str = "\
# Written by hand.
current = \"lab\"

[contexts.lab]
server = \"http://127.0.0.1:9000\" # a tunnel

[contexts.prod]
server = \"https://echo-{shard}.example:8081\"
token_file = \"secrets/token\"
shards = 3
";

fn file(folder: &Path, text: &str) -> ContextFile {
    let path = folder.join("config.toml");
    fs::write(&path, text).unwrap();
    ContextFile::load(path).unwrap()
}

#[test]
fn changes_keep_the_rest_of_the_file_with_its_comments() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(folder.path(), TWO);
    let server = "http://127.0.0.1:9001".to_owned();
    let values = vec![("server", server), ("cluster", "a".to_owned())];
    file.set("lab", values).unwrap();
    file.make_current(Some("prod")).unwrap();
    file.save().unwrap();
    let expected = TWO.replace("# a tunnel\n", "# a tunnel\ncluster = \"a\"\n");
    let expected = expected
        .replace(":9000", ":9001")
        .replace("= \"lab\"", "= \"prod\"");
    assert_eq!(fs::read_to_string(&file.path).unwrap(), expected);
}

#[test]
fn a_new_context_needs_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = ContextFile::load(folder.path().join("new/config.toml")).unwrap();
    let refused = file.set("prod", vec![("shards", "3".to_owned())]);
    assert!(matches!(refused, Err(ContextError::NoServer(_))));
    let values = vec![
        ("server", "http://127.0.0.1:1".to_owned()),
        ("shards", "3".to_owned()),
    ];
    file.set("prod", values.clone()).unwrap();
    file.make_current(Some("prod")).unwrap();
    file.save().unwrap();
    let file = ContextFile::load(file.path).unwrap();
    assert_eq!(file.current(), Some("prod"));
    assert_eq!(file.values("prod").unwrap(), values);
}

#[test]
fn a_context_that_is_removed_is_not_the_current_one_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(folder.path(), TWO);
    file.remove("lab").unwrap();
    assert_eq!((file.current(), file.names()), (None, vec!["prod"]));
}

#[test]
fn an_unknown_context_or_a_damaged_file_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(folder.path(), TWO);
    let unknown = file.make_current(Some("dev")).unwrap_err().to_string();
    assert!(unknown.contains("the contexts are: lab, prod"), "{unknown}");
    fs::write(&file.path, "current = ").unwrap();
    let damaged = ContextFile::load(file.path.clone())
        .unwrap_err()
        .to_string();
    assert!(damaged.contains(file.path.to_str().unwrap()), "{damaged}");
    fs::write(&file.path, "contexts = 3").unwrap();
    let mut other = ContextFile::load(file.path.clone()).unwrap();
    let refused = other.set("a", vec![("server", "http://a".to_owned())]);
    assert!(matches!(refused, Err(ContextError::Invalid { .. })));
}
