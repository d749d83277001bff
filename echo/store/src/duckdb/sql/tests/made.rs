//! Statements generated from a grammar, so that most of them reach the engine.

use echo_sql_guard::functions;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Expressions without parts, most of them numbers.
const LEAVES: [&str; 22] = [
    "rank",
    "rank",
    "rank",
    "node_id",
    "node_id",
    "cluster_id",
    "1",
    "0.5",
    "-7",
    "2",
    "100",
    "'x'",
    "NULL",
    "'5'",
    "9223372036854775807",
    "1e308",
    "TIMESTAMP '2026-11-01'",
    "INTERVAL 1 HOUR",
    "[1, 2]",
    "{'a': 1}",
    "'{\"a\": [1]}'",
    "'nan'::DOUBLE",
];

/// Forms of expressions, with a letter for each part.
const FORMS: [&str; 44] = [
    "regexp_matches(E::VARCHAR, '[0-7]..................z')",
    "(node_id ~ '(n|o|d)*[a-e]?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?z')",
    "(E::VARCHAR LIKE '%_e_%_-%__________________%')",
    "replace(E::VARCHAR, 'n', 'nnnnnnnnnnnnnnnn')",
    "concat(E, E, E)",
    "ifnull(E, E)",
    "(E + E)",
    "(E - E)",
    "(E * E)",
    "(E || E)",
    "(E ^ E)",
    "(E % E)",
    "(E = E)",
    "(E < E)",
    "(E AND E)",
    "(NOT E)",
    "(E IS NULL)",
    "(E IN (E, E))",
    "(E BETWEEN E AND E)",
    "(E LIKE 'n%_e')",
    "CASE WHEN E THEN E ELSE E END",
    "coalesce(E, E)",
    "E::VARCHAR",
    "E::DOUBLE",
    "try_cast(E AS BIGINT)",
    "(E)[1]",
    "(Q)",
    "EXISTS (Q)",
    "E IN (Q)",
    "CAST(E AS DECIMAL(38, 4))",
    "list(E)",
    "list(E ORDER BY E)",
    "string_agg(E::VARCHAR, ',')",
    "length(list(E))",
    "list(E)[1]",
    "list_contains(E, E)",
    "substr(E::VARCHAR, rank, 100000000)",
    "left(E::VARCHAR, 100000000)",
    "(E)[1:100000]",
    "[E, E]",
    "{'a': E, 'b': E}",
    "row(E, E)",
    "E::VARCHAR[]",
    "unnest(E)",
];

/// FROM clauses.
const TABLES: [&str; 18] = [
    "(SELECT E AS rank, node_id, cluster_id FROM (SELECT coalesce(rank, E) AS rank, node_id, cluster_id FROM ranks WHERE E) WHERE E)",
    "(SELECT ifnull(rank, rank) AS rank, node_id || node_id AS node_id, cluster_id FROM (SELECT nullif(rank, E) AS rank, node_id, cluster_id \
     FROM (SELECT rank + rank AS rank, node_id, cluster_id FROM ranks) WHERE rank > 3) WHERE rank < 9)",
    "ranks",
    "verdicts",
    "events",
    "collectives",
    "operation_classes",
    "tcp_retransmits",
    "op_waits",
    "verdict_history",
    "ranks USING SAMPLE 5 ROWS",
    "(SELECT i AS rank, 'x' AS node_id, 'y' AS cluster_id FROM range(3000) AS r(i))",
    "(VALUES (1, 'x', 'y'), (2, 'z', NULL)) AS v(rank, node_id, cluster_id)",
    "(SELECT *, (Q) AS inner_one FROM ranks)",
    "(SELECT list(i) AS rank, string_agg(i, ',') AS node_id, 'x' AS cluster_id FROM range(1000000) t(i))",
    "(SELECT i // 1000 AS rank, list(i) AS node_id, string_agg(i, ',') AS cluster_id FROM range(1000000) t(i) GROUP BY ALL)",
    "(SELECT [rank, E] AS rank, {'a': node_id} AS node_id, cluster_id FROM ranks)",
    "(SELECT unnest(string_split(E::VARCHAR, 'n')) AS rank, node_id, cluster_id FROM ranks)",
];

/// OVER clauses.
const WINDOWS: [&str; 7] = [
    " OVER ()",
    " OVER (PARTITION BY cluster_id)",
    " OVER (ORDER BY rank)",
    " OVER (PARTITION BY rank ORDER BY node_id ROWS 3 PRECEDING)",
    " OVER (ORDER BY rank ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES)",
    " OVER (ORDER BY node_id ROWS BETWEEN rank PRECEDING AND rank FOLLOWING)",
    " OVER (ORDER BY rank RANGE BETWEEN 1000 PRECEDING AND 1000 FOLLOWING)",
];

/// Join operators.
const JOINS: [&str; 8] = [
    ", ",
    " CROSS JOIN ",
    " NATURAL JOIN ",
    " POSITIONAL JOIN ",
    " LEFT JOIN LATERAL ",
    " JOIN ",
    " SEMI JOIN ",
    " FULL JOIN ",
];

/// Generates a statement.
pub(super) fn statement(rng: &mut ChaCha8Rng) -> String {
    let body = query(rng, 3);
    match rng.random_range(0..5) {
        0 => format!("WITH w AS ({}) {body}", query(rng, 1)),
        1 => format!("{body} UNION ALL {}", query(rng, 1)),
        _ => body,
    }
}

fn query(rng: &mut ChaCha8Rng, depth: u32) -> String {
    let n_items = rng.random_range(1..4);
    let items: Vec<String> = (0..n_items)
        .map(|index| format!("{} AS c{index}", call(rng, depth)))
        .collect();
    let mut text = format!("SELECT {} FROM {}", items.join(", "), from(rng, depth));
    let mut may = |clause: &str, rng: &mut ChaCha8Rng| {
        if rng.random_range(0..4) == 0 {
            text.push_str(clause);
            text.push_str(&expression(rng, depth));
        }
    };
    may(" WHERE ", rng);
    may(" GROUP BY ALL HAVING ", rng);
    may(" QUALIFY row_number() OVER () < ", rng);
    may(" ORDER BY ", rng);
    if rng.random() {
        text.push_str(" LIMIT 5");
    }
    text
}

fn from(rng: &mut ChaCha8Rng, depth: u32) -> String {
    let one = |rng: &mut ChaCha8Rng| filled(TABLES.choose(rng).unwrap(), rng, depth);
    let first = one(rng);
    if rng.random_range(0..3) > 0 {
        return first;
    }
    let join = JOINS.choose(rng).unwrap();
    let second = one(rng);
    let on = match *join {
        " JOIN " | " SEMI JOIN " | " FULL JOIN " => " USING (rank)",
        " LEFT JOIN LATERAL " => " ON TRUE",
        _ => "",
    };
    format!("{first}{join}{second}{on}")
}

/// Call of an allowed function, or another expression.
fn call(rng: &mut ChaCha8Rng, depth: u32) -> String {
    if depth == 0 || rng.random_range(0..4) == 0 {
        return expression(rng, depth);
    }
    let names: Vec<&str> = functions::names()
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    let name = names.choose(rng).unwrap();
    let n_arguments = rng.random_range(0..4);
    let arguments: Vec<String> = (0..n_arguments)
        .map(|_| expression(rng, depth - 1))
        .collect();
    let window = if rng.random_range(0..6) == 0 {
        WINDOWS.choose(rng).unwrap()
    } else {
        ""
    };
    format!("{name}({}){window}", arguments.join(", "))
}

fn expression(rng: &mut ChaCha8Rng, depth: u32) -> String {
    if depth == 0 || rng.random_range(0..3) == 0 {
        return (*LEAVES.choose(rng).unwrap()).to_owned();
    }
    if rng.random() {
        return call(rng, depth - 1);
    }
    filled(FORMS.choose(rng).unwrap(), rng, depth - 1)
}

/// Form with its letters replaced.
fn filled(form: &str, rng: &mut ChaCha8Rng, depth: u32) -> String {
    let letters: Vec<char> = form.chars().collect();
    let mut text = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let beside = |index: Option<usize>| index.and_then(|index| letters.get(index));
        let is_word = |letter: Option<&char>| letter.is_some_and(|c| c.is_alphanumeric());
        let is_alone = !is_word(beside(index.checked_sub(1))) && !is_word(beside(Some(index + 1)));
        match letter {
            'E' if is_alone => text.push_str(&expression(rng, depth)),
            'Q' if is_alone && depth > 0 => text.push_str(&query(rng, depth - 1)),
            'Q' if is_alone => text.push_str("SELECT 1 AS rank"),
            other => text.push(*other),
        }
    }
    text
}
