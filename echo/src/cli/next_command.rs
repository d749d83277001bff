//! Commands that are printed to be run next, with the flags that they need, quoted for a shell.

use std::borrow::Cow;
use std::path::Path;

use crate::cli::connection::{ConnectionArgs, DEFAULT_SERVER};
use crate::cli::scope::ScopeArgs;

/// Returns a command with these flags, the window of `scope` and the server of `connection`. A flag
/// without a value is left out.
pub(super) fn next_command(
    command: &str,
    flags: &[(&str, Option<String>)],
    scope: &ScopeArgs,
    connection: &ConnectionArgs,
) -> String {
    let window = [
        ("--window", scope.window.clone()),
        ("--from", scope.from.clone()),
        ("--to", scope.to.clone()),
    ];
    let flags = flags.iter().cloned().chain(window);
    let flags = flags.chain(connection_flags(connection));
    let given = flags.filter_map(|(flag, value)| Some((flag, value?)));
    let mut line = format!("fleet-echo {command}");
    line.extend(given.map(|(flag, value)| format!(" {flag} {}", quoted(&value))));
    if connection.context().is_none() && connection.insecure_token {
        line.push_str(" --insecure-token");
    }
    line
}

/// Returns the flags that lead to the same server. A token is not printed.
fn connection_flags(connection: &ConnectionArgs) -> Vec<(&'static str, Option<String>)> {
    if let Some(context) = connection.context() {
        return vec![("--context", Some(context.to_owned()))];
    }
    let file = |path: &Path| path.display().to_string();
    let server = &connection.server;
    vec![
        (
            "--server",
            (server != DEFAULT_SERVER).then(|| server.clone()),
        ),
        (
            "--shards",
            connection.shards.map(|shards| shards.to_string()),
        ),
        ("--tls-ca", connection.tls_ca.as_deref().map(file)),
        ("--token-file", connection.token_file.as_deref().map(file)),
    ]
}

/// Quotes a word for a POSIX shell, if it needs quotes.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::{next_command, quoted};
    use crate::cli::scope::ScopeArgs;
    use crate::cli::tests::connection_to;

    #[test]
    fn a_command_has_the_window_and_the_server_of_the_one_that_printed_it() {
        let mut connection = connection_to("https://echo-{shard}.lab:8081");
        connection.shards = Some(2);
        connection.token_file = Some("my token".into());
        connection.token = Some("echo_secret".to_owned());
        connection.insecure_token = true;
        let scope = ScopeArgs {
            window: Some("all".to_owned()),
            ..ScopeArgs::default()
        };
        let flags = [("-c", Some("it's".to_owned())), ("--job", None)];
        let line = next_command("explain", &flags, &scope, &connection);
        let expected = r"fleet-echo explain -c 'it'\''s' --window all --server 'https://echo-{shard}.lab:8081' --shards 2 --token-file 'my token' --insecure-token";
        assert_eq!(line, expected);
        connection.context = Some("prod".to_owned());
        let line = next_command("outliers", &[], &scope, &connection);
        assert_eq!(line, "fleet-echo outliers --window all --context prod");
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_change_it() {
        for (word, expected) in [
            ("llama-70b_v2.1", "llama-70b_v2.1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(rm)", "'$(rm)'"),
            ("~", "'~'"),
            ("a'b", r"'a'\''b'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
