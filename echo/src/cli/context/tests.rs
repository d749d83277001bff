use std::fs;

use clap::{Args, Command, FromArgMatches};

use serde_json::json;

use super::{as_json, with_defaults};
use crate::cli::clusters::ClustersArgs;
use crate::config::contexts::ContextFile;

#[test]
fn values_of_a_context_are_the_defaults_of_the_connection_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let text = "[contexts.prod]\nserver = \"https://echo-{shard}.example:8081\"\ntoken_file = \"secrets/token\"\nshards = 3\n";
    fs::write(&path, text).unwrap();
    let values = ContextFile::load(path).unwrap().values("prod").unwrap();
    let connection = |line: &[&str]| {
        let command = ClustersArgs::augment_args(Command::new("clusters"));
        let line = ["clusters"].iter().chain(line);
        let matches = with_defaults(command, &values)
            .try_get_matches_from(line)
            .unwrap();
        ClustersArgs::from_arg_matches(&matches)
            .unwrap()
            .client
            .connection
    };
    let prod = connection(&[]);
    assert_eq!(prod.server, "https://echo-{shard}.example:8081");
    assert_eq!(prod.shards, Some(3));
    let token = folder.path().join("secrets/token");
    assert_eq!(
        prod.token_file.as_deref(),
        Some(token.as_path()),
        "files are beside the configuration"
    );
    let given = connection(&["--token", "echo_x", "--shards", "4"]);
    assert_eq!(
        (given.token.as_deref(), given.shards),
        (Some("echo_x"), Some(4)),
        "flags are stronger"
    );
}

#[test]
fn contexts_are_listed_as_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let text = "current = \"lab\"\n[contexts.lab]\nserver = \"http://127.0.0.1:8081\"\n[contexts.prod]\ncluster = \"gpu\"\n";
    fs::write(&path, text).unwrap();
    let listed = as_json(&ContextFile::load(path).unwrap()).unwrap();
    let lab = json!({"name": "lab", "current": true, "server": "http://127.0.0.1:8081"});
    let prod = json!({"name": "prod", "current": false, "cluster": "gpu"});
    assert_eq!(listed, json!([lab, prod]));
}
