//! Arbitrary text as SQL: it is refused, or it changes nothing, returns in time and leaks no
//! memory.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{read_dir, read_to_string};
use std::time::{Duration, Instant};

use echo_sql_guard::functions;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::corpus::statements;
use super::{Lab, made, query};
use crate::EventStore;
use crate::sql::{SqlError, SqlQuery};

/// Deadline of statements in these tests.
const DEADLINE: Duration = Duration::from_secs(1);

/// Longest time from its deadline to the end of a statement, besides that for which one of its threads has no CPU.
pub(super) const LATEST_STOP: Duration = Duration::from_secs(1);

/// Maximum memory of this process, kB.
pub(super) const MOST_KB: u64 = 768 * 1024;

/// Statements between two checks of the stored data: a check reads everything.
const BETWEEN_LOOKS: u64 = 50;

/// Tokens that SQL and the guard are sensitive to.
const PIECES: [&str; 56] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    ";",
    "--",
    "/*",
    "*/",
    "$$",
    "\\",
    "\0",
    "::",
    "->",
    "->>",
    ":=",
    "=>",
    "..",
    "**",
    "||",
    "$1",
    "?",
    "#1",
    "*",
    "COLUMNS(*)",
    "lambda x: ",
    "SELECT ",
    " FROM ",
    " WITH x AS (",
    " WITH RECURSIVE x AS (",
    " NOT MATERIALIZED ",
    " UNION ALL ",
    " UNION ALL BY NAME ",
    " LATERAL ",
    " JOIN ",
    " ON TRUE ",
    " USING SAMPLE 9 ROWS",
    " GROUP BY CUBE (",
    " OVER (",
    " FILTER (WHERE ",
    " WITHIN GROUP (ORDER BY ",
    " ORDER BY ALL",
    " LIMIT ",
    "DELETE FROM series RETURNING *",
    "event_rows",
    "series",
    "main.",
    "9223372036854775807",
    "1e308",
    "INTERVAL '1000000 years'",
    "TIMESTAMP '290000-01-01'",
    "\u{130}",
    "\u{feff}",
];

/// Outcomes of statements.
#[derive(Debug, Default)]
struct Tally {
    statements: u64,
    answered: u64,
    refused: u64,
    wrong: u64,
    stopped: u64,
    slowest: (Duration, String),
}

impl Tally {
    /// Runs a statement and checks its outcome. Returns whether it was SQL.
    #[expect(
        clippy::disallowed_methods,
        reason = "it is promised that an answer is there a second after the deadline"
    )]
    async fn check(&mut self, lab: &Lab, text: &str) -> bool {
        let (begun, waits) = (Instant::now(), CpuWaits::now());
        let query = SqlQuery {
            deadline: DEADLINE,
            ..query(text)
        };
        let answer = lab.store.run_sql(query).await;
        let took = begun.elapsed();
        assert!(
            took < DEADLINE + LATEST_STOP + waits.longest_since(),
            "{took:?} {text:?}"
        );
        if took > self.slowest.0 {
            self.slowest = (took, text.to_owned());
        }
        self.statements += 1;
        let is_syntax =
            matches!(&answer, Err(SqlError::Wrong { message }) if message.contains("at byte"));
        match answer {
            Ok(_) => self.answered += 1,
            Err(SqlError::Refused(_)) => self.refused += 1,
            Err(SqlError::Wrong { .. }) => self.wrong += 1,
            Err(SqlError::TooMuchMemory | SqlError::Timeout { .. }) => self.stopped += 1,
            Err(other) => panic!("{other:?} {text:?}"),
        }
        !is_syntax
    }
}

/// Words of a text, with the separators between them.
fn words(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let ends = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(ends);
        words.push(word);
        rest = after;
    }
    words
}

/// Text with one mutation.
fn mutated(text: &str, corpus: &[String], rng: &mut ChaCha8Rng) -> String {
    let mut own: Vec<String> = words(text).into_iter().map(str::to_owned).collect();
    let index = rng.random_range(0..=own.len());
    let end = (index + rng.random_range(0..8)).min(own.len());
    match rng.random_range(0..7) {
        0 => drop(own.drain(index..end)),
        1 => {
            let piece = own[index..end].to_vec();
            let target = rng.random_range(0..=own.len());
            drop(own.splice(target..target, piece));
        }
        2 => {
            let piece = PIECES.choose(rng).unwrap();
            drop(own.splice(index..index, [(*piece).to_owned()]));
        }
        3 => {
            let names: Vec<&str> = functions::names().collect();
            let name = (*names.choose(rng).unwrap()).to_owned();
            drop(own.splice(index..end.min(index + 1), [name]));
        }
        4 => {
            let other = words(corpus.choose(rng).unwrap());
            let from = rng.random_range(0..other.len());
            let to = (from + rng.random_range(1..12)).min(other.len());
            let piece: Vec<String> = other[from..to]
                .iter()
                .map(|word| (*word).to_owned())
                .collect();
            drop(own.splice(index..end, piece));
        }
        5 => {
            let inner = corpus.choose(rng).unwrap();
            drop(own.splice(index..end, [format!("({inner})")]));
        }
        _ => {
            let mut chars: Vec<char> = text.chars().collect();
            if !chars.is_empty() {
                let index = rng.random_range(0..chars.len());
                chars[index] = char::from(rng.random_range(b' '..b'~'));
            }
            return chars.into_iter().collect();
        }
    }
    own.concat()
}

fn corpus() -> Vec<String> {
    let files = ["queries.sql", "attacks.sql"];
    let all = files.into_iter().flat_map(statements);
    all.map(|(_, text)| text).collect()
}

/// Runs for `FLEET_FUZZ_SECONDS` (default 10): `cargo test --lib -- --ignored fuzz_sql`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a time, not for a number of cases"
)]
async fn fuzz_sql() {
    let configured = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = configured.and_then(|text| text.parse().ok()).unwrap_or(10);
    let (corpus, mut rng) = (corpus(), ChaCha8Rng::from_os_rng());
    let lab = Lab::new().await;
    let before = lab.state().await;
    let mut tally = Tally::default();
    let start = Instant::now();
    let mut recent = Vec::new();
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut text = match rng.random_range(0..3) {
            0 => corpus.choose(&mut rng).unwrap().clone(),
            _ => made::statement(&mut rng),
        };
        for _ in 0..rng.random_range(1..8) {
            recent.push(text.clone());
            // A text that is no longer SQL is not mutated further.
            if !tally.check(&lab, &text).await {
                break;
            }
            text = mutated(&text, &corpus, &mut rng);
        }
        if recent.len() as u64 >= BETWEEN_LOOKS {
            assert_eq!(lab.state().await, before, "one of {recent:#?}");
            recent.clear();
        }
    }
    assert_eq!(lab.state().await, before, "one of {recent:#?}");
    assert!(peak_kb() < MOST_KB, "{} kB", peak_kb());
    println!("in {seconds} s {tally:?}, at most {} kB", peak_kb());
}

/// Columns, most often, and extreme values.
const EXTREMES: [&str; 24] = [
    "i",
    "i",
    "i",
    "i",
    "s",
    "s",
    "s",
    "t",
    "9223372036854775807",
    "-9223372036854775808",
    "170141183460469231731687303715884105727::HUGEINT",
    "18446744073709551615::UBIGINT",
    "0",
    "1e308",
    "'nan'::DOUBLE",
    "'-inf'::DOUBLE",
    "99999999999999999999999999999999999999::DECIMAL(38, 0)",
    "NULL",
    "''",
    "'%_\\'",
    "repeated",
    "TIMESTAMP '290000-12-31'",
    "INTERVAL '80000000 days'",
    "[1, NULL]",
];

/// Rows with a number, a text of 1 kB and one of 10 kB: expressions without columns are evaluated
/// only once.
fn rows() -> String {
    let (a, b) = ("a".repeat(100), "b".repeat(100));
    format!(
        "(SELECT i, replace('{}', 'a', 'bcdefghi') || i AS s, replace('{a}', 'a', '{b}') || i AS t FROM range(5000) t(i))",
        "a".repeat(128)
    )
}

/// Calls every allowed function with extreme values, alone and many at a time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "make nightly runs it"]
async fn no_allowed_function_takes_much_time_or_memory() {
    let lab = Lab::new().await;
    let before = lab.state().await;
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut tally = Tally::default();
    let long = format!("'{}'", "ab".repeat(1_000));
    let rows = rows();
    for name in functions::names().filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    {
        for round in 0..12 {
            let n_arguments = rng.random_range(usize::from(round > 0)..=3);
            let mut call = || {
                let argument = |_| {
                    let extreme = EXTREMES.choose(&mut rng).unwrap();
                    extreme.replace("repeated", &long)
                };
                let arguments: Vec<String> = (0..n_arguments).map(argument).collect();
                format!("{name}({})", arguments.join(", "))
            };
            let many = |calls: Vec<String>| calls.join(", ");
            let text = match round % 4 {
                0 => format!("SELECT {} FROM {rows}", call()),
                1 => format!("SELECT max({}) FROM {rows}, range(100)", call()),
                2 => format!("SELECT {} OVER (ORDER BY i) FROM {rows} LIMIT 5", call()),
                _ => {
                    let calls = many((0..20).map(|_| call()).collect());
                    format!("SELECT count(*) FROM (SELECT {calls} FROM {rows} OFFSET 10)")
                }
            };
            tally.check(&lab, &text).await;
        }
    }
    assert_eq!(lab.state().await, before);
    assert!(peak_kb() < MOST_KB, "{} kB", peak_kb());
    assert!(tally.answered > 150, "{tally:?}");
    println!("{tally:?}, at most {} kB", peak_kb());
}

/// Peak memory of this process, kB.
pub(super) fn peak_kb() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|rest| rest.split_whitespace().next());
    kb.unwrap().parse().unwrap()
}

/// Time for which each thread of this process was runnable and had no CPU.
#[derive(Debug)]
pub(super) struct CpuWaits(BTreeMap<OsString, Duration>);

impl CpuWaits {
    /// Reads the waits until now.
    pub(super) fn now() -> Self {
        let threads = read_dir("/proc/self/task").unwrap();
        let waits = threads.filter_map(|thread| {
            let thread = thread.ok()?;
            // A thread may end meanwhile.
            let times = read_to_string(thread.path().join("schedstat")).ok()?;
            let wait = times.split(' ').nth(1)?.parse().ok()?;
            Some((thread.file_name(), Duration::from_nanos(wait)))
        });
        Self(waits.collect())
    }

    /// Returns the longest wait of one thread since then: that much of a statement's time is not its own.
    pub(super) fn longest_since(&self) -> Duration {
        let since = Self::now().0.into_iter().map(|(thread, wait)| {
            let before = self.0.get(&thread).copied().unwrap_or_default();
            wait.saturating_sub(before)
        });
        since.max().unwrap_or_default()
    }
}
