//! `fleet-echo token`: creation of access tokens.

use std::io::Write;

use clap::{Args, Subcommand};
use echo_access::Access;
use echo_access::mint::new_token;
use serde::Serialize;
use serde_json::json;

use crate::cli::CliError;

/// Token commands.
#[derive(Debug, Clone, Args)]
pub struct TokenArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// Subcommands of `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Create a token and its entry for the access file
    New(NewTokenArgs),
}

/// Name, permissions and expiry of a token.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct NewTokenArgs {
    /// Name of the caller in logs; two tokens may share a name during rotation
    #[arg(long)]
    pub id: String,
    /// Permissions.
    #[command(flatten)]
    pub permissions: PermissionArgs,
    /// Expiry: the last valid day (UTC) or an RFC 3339 time
    #[arg(long, value_name = "DATE")]
    pub not_after: Option<String>,
    /// Print JSON
    #[arg(long, env = "FLEET_ECHO_JSON")]
    pub json: bool,
}

/// Permissions of a token.
#[derive(Debug, Clone, Args)]
pub struct PermissionArgs {
    /// Cluster name or pattern with `*`. Can be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub cluster: Vec<String>,
    /// Tool name or pattern with `*`. Can be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub tool: Vec<String>,
    /// Allow SQL queries, which read the rows of all clusters
    #[arg(long, conflicts_with = "cluster")]
    pub sql: bool,
    /// Token for an agent: allow sending measurements, and nothing else
    #[arg(long, conflicts_with_all = ["tool", "sql"])]
    pub write: bool,
}

const HELP: &str = "\
The first line on standard output is the token. The server stores only its hash, so the token \
cannot be shown again. The lines below are its entry for `tokens:` in the access file.

  fleet-echo token new --id grafana --sql
  fleet-echo token new --id team-a --cluster 'team-a-*' --not-after 2027-01-31
  fleet-echo token new --id agents-prod --write --cluster prod";

/// Entry of the access file.
#[derive(Serialize)]
struct Entry<'a> {
    id: &'a str,
    sha256: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<QueryEntry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<WriteEntry<'a>>,
}

#[derive(Serialize)]
struct QueryEntry<'a> {
    clusters: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    tools: Vec<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    sql: bool,
}

#[derive(Serialize)]
struct WriteEntry<'a> {
    clusters: Vec<&'a str>,
}

/// Runs the command. Usage hints go to `hints`, which programs do not read.
pub fn run(args: &TokenArgs, out: &mut dyn Write, hints: &mut dyn Write) -> Result<(), CliError> {
    let TokenCommand::New(args) = &args.command;
    let (token, sha256) = new_token().map_err(CliError::Token)?;
    let entry = Entry::new(args, &sha256);
    let yaml = indented(&serde_norway::to_string(&[&entry]).map_err(yaml_error)?);
    check(&yaml)?;
    if args.json {
        writeln!(out, "{}", json!({ "token": token, "entry": entry }))?;
        return Ok(());
    }
    write!(out, "{token}\n{yaml}")?;
    out.flush()?;
    writeln!(
        hints,
        "The first line is the token; it is shown only once. Add the other lines under `tokens:` in the access file."
    )?;
    Ok(())
}

impl<'a> Entry<'a> {
    fn new(args: &'a NewTokenArgs, sha256: &'a str) -> Self {
        let clusters: Vec<&str> = match args.permissions.cluster.as_slice() {
            [] => vec!["*"],
            named => named.iter().map(String::as_str).collect(),
        };
        let (query, write) = if args.permissions.write {
            (None, Some(WriteEntry { clusters }))
        } else {
            let tools = args.permissions.tool.iter().map(String::as_str).collect();
            let sql = args.permissions.sql;
            let query = QueryEntry {
                clusters,
                tools,
                sql,
            };
            (Some(query), None)
        };
        Self {
            id: &args.id,
            sha256,
            not_after: args.not_after.as_deref(),
            query,
            write,
        }
    }
}

/// Checks that the server accepts the entry; problems are reported as problems of the flags.
fn check(entry: &str) -> Result<(), CliError> {
    let no_files = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let parsed = Access::parse(&format!("tokens:\n{entry}"), &no_files);
    parsed.map(|_| ()).map_err(|error| {
        let mistakes = error.mistakes.iter();
        let flags: Vec<&str> = mistakes
            .map(|mistake| mistake.trim_start_matches("tokens[0]."))
            .collect();
        CliError::Usage(flags.join("; "))
    })
}

fn indented(yaml: &str) -> String {
    yaml.lines().flat_map(|line| ["  ", line, "\n"]).collect()
}

fn yaml_error(error: serde_norway::Error) -> CliError {
    CliError::Usage(format!("cannot write the entry as YAML: {error}"))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that the serialiser calls"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use std::io;

    use clap::Parser;
    use echo_access::{Access, Rejected};
    use echo_core::units::Nanos;

    use super::{TokenArgs, run};
    use crate::cli::CliError;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        token: TokenArgs,
    }

    fn printed(line: &str) -> Result<String, String> {
        let words = ["token", "new"].into_iter().chain(line.split_whitespace());
        let program = Program::try_parse_from(words).map_err(|error| error.kind().to_string())?;
        let mut out = Vec::new();
        run(&program.token, &mut out, &mut io::sink())
            .map_err(|error: CliError| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn access(entries: &str) -> Access {
        let no_files = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
        Access::parse(&format!("tokens:\n{entries}"), &no_files).unwrap()
    }

    /// 2026-06-01.
    const NOW: Nanos = Nanos::new(1_780_272_000_000_000_000);

    #[test]
    fn the_printed_entry_accepts_the_token() {
        for (name, line) in [
            ("dashboard", "--id grafana --sql --not-after 2027-01-31"),
            (
                "team",
                "--id 7 --cluster prod --cluster lab-* --tool fleet.cluster.get_*",
            ),
            ("agents", "--id agents: --write --cluster prod"),
        ] {
            let printed = printed(line).unwrap();
            let (token, entry) = printed.split_once('\n').unwrap();
            let principal = access(entry).identify(token, NOW).unwrap();
            assert_eq!(Some(&*principal.id), line.split(' ').nth(1));
            let shown = entry.lines().filter(|line| !line.contains("sha256"));
            let shown = shown.collect::<Vec<&str>>().join("\n");
            insta::assert_snapshot!(name, shown, line);
            assert!(!entry.contains(token));
        }
    }

    #[test]
    fn a_token_expires_after_its_last_day() {
        let printed = printed("--id a --not-after 2026-05-31").unwrap();
        let (token, entry) = printed.split_once('\n').unwrap();
        let access = access(entry);
        assert_eq!(access.identify(token, NOW), Err(Rejected::Expired));
        assert!(access.identify(token, NOW.offset(-1)).is_ok());
    }

    #[test]
    fn json_output_has_the_token_and_its_entry() {
        let printed = printed("--id grafana --cluster prod --json").unwrap();
        let output: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let entries = serde_json::json!([output["entry"]]).to_string();
        let principal =
            access(&format!("  {entries}")).identify(output["token"].as_str().unwrap(), NOW);
        assert_eq!(&*principal.unwrap().id, "grafana");
    }

    #[test]
    fn flags_that_make_an_invalid_entry_are_rejected() {
        for (line, expected) in [
            (
                "--id a --not-after soon",
                "not_after: is neither a date such as 2027-01-31 nor a time such as 2027-01-31T12:00:00Z",
            ),
            (
                "--id a --cluster=",
                "query.clusters[0]: is no name of 1 to 256 bytes without control characters",
            ),
            ("--id=", "id: is not a text"),
            (
                "--id a --sql --cluster prod",
                "an argument cannot be used with one or more of the other specified arguments",
            ),
            (
                "--id a --sql --write",
                "an argument cannot be used with one or more of the other specified arguments",
            ),
            ("", "one or more required arguments were not provided"),
        ] {
            assert_eq!(printed(line), Err(expected.to_owned()), "{line}");
        }
    }
}
