//! Collected values: a list or string of a whole group is as long as the group.

use super::Lab;

/// A list of a million numbers, and a string of 6.9 MB.
const LONG: &str =
    "(SELECT list(i) AS l, string_agg(i, ',') AS s FROM range(1000000) t(i)) AS long";

/// Expressions that process or compare a collected value in each row.
const PER_ROW: [&str; 34] = [
    "substr(s, 2, 100000000)",
    "left(s, 100000000)",
    "left(s, 10)",
    "right(s, 100000000)",
    "s || 'x'",
    "concat(s, s)",
    "concat_ws(',', s, s)",
    "upper(s)",
    "reverse(s)",
    "trim(s)",
    "replace(s, '1', '2')",
    "md5(s)",
    "hash(l)",
    "string_split(s, ',')",
    "split_part(s, ',', 2)",
    "s LIKE '%1%'",
    "contains(s, '1')",
    "regexp_matches(s, '1')",
    "regexp_extract(s, '1')",
    "s = 'x'",
    "l < [1]",
    "s IN ('x')",
    "s BETWEEN 'a' AND 'b'",
    "coalesce(s, 'x')",
    "CASE WHEN TRUE THEN s END",
    "l[1:100]",
    "list_contains(l, 5)",
    "list_position(l, 5)",
    "[l]",
    "{'l': l}",
    "l::VARCHAR",
    "s::JSON",
    "s::INTEGER[]",
    "greatest(s, s)",
];

/// Statements whose form copies or compares collected values.
const FORMS: [&str; 37] = [
    "SELECT max(length(substr(s, j, 100000000))) FROM LONG, range(2048) r(j)",
    "SELECT l FROM LONG, range(2048)",
    "SELECT length(l) FROM LONG, range(2048)",
    "SELECT * FROM LONG CROSS JOIN range(2048)",
    "SELECT * FROM LONG POSITIONAL JOIN range(2048)",
    "SELECT * FROM range(2048) r(j) JOIN LONG ON j > 0",
    "SELECT * FROM range(2048) r(j), LATERAL (SELECT list(i) AS l FROM range(1000000) t(i) WHERE i > j)",
    "SELECT l FROM LONG ORDER BY l",
    "SELECT l FROM LONG ORDER BY 1",
    "SELECT l FROM LONG ORDER BY ALL",
    "SELECT DISTINCT l FROM LONG",
    "SELECT DISTINCT * FROM LONG",
    "SELECT DISTINCT ON (l) l FROM LONG",
    "SELECT l FROM LONG GROUP BY l",
    "SELECT l FROM LONG GROUP BY ALL",
    "SELECT l FROM LONG UNION SELECT l FROM LONG",
    "SELECT l FROM LONG EXCEPT SELECT l FROM LONG",
    "SELECT l FROM LONG INTERSECT SELECT l FROM LONG",
    "SELECT (SELECT l FROM LONG) FROM range(2048)",
    "SELECT (SELECT max(j) FROM range(2048) r(j) WHERE length(l) > j) FROM LONG",
    "SELECT 1 IN (SELECT s FROM LONG)",
    "SELECT max(s) FROM LONG",
    "SELECT list(l) FROM LONG",
    "SELECT any_value(l) FROM LONG",
    "SELECT arg_max(l, 1) FROM LONG",
    "SELECT lag(l) OVER () FROM LONG",
    "SELECT l, row_number() OVER () FROM LONG",
    "SELECT list(i) OVER (ORDER BY i) FROM range(100000) t(i)",
    "SELECT string_agg(i, ',') OVER () FROM range(100000) t(i)",
    "SELECT l, unnest(string_split('a,b', ',')) FROM LONG",
    "SELECT list(i), unnest([1, 2]) FROM range(1000000) t(i)",
    "SELECT list(i), string_agg(i), unnest(string_split('a,b', ',')) AS u FROM range(1000000) t(i)",
    "SELECT i % 3, list(i) FROM range(1000000) t(i) GROUP BY 1 ORDER BY 2",
    "SELECT i % 3, list(i) AS l FROM range(1000000) t(i) GROUP BY 1 ORDER BY l",
    "SELECT i % 3, list(i) FROM range(1000000) t(i) GROUP BY 1 HAVING list(i) > [1]",
    "SELECT long FROM LONG, range(2048)",
    "WITH w AS (SELECT * FROM LONG) SELECT x FROM w AS v(x, y), range(2048)",
];

fn attacks() -> impl Iterator<Item = String> {
    let rows = PER_ROW.iter().flat_map(|made| {
        [
            format!("SELECT {made} FROM LONG"),
            format!("SELECT {made} FROM (SELECT l, s FROM (SELECT * FROM LONG))"),
            format!(
                "SELECT {made} FROM (SELECT x AS l, y AS s FROM (SELECT * FROM LONG) AS w(x, y))"
            ),
            format!("SELECT count(*) FROM LONG WHERE ({made}) IS NULL"),
        ]
    });
    let forms = FORMS.map(str::to_owned);
    rows.chain(forms).map(|text| text.replace("LONG", LONG))
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_of_collected_values_are_refused() {
    let lab = Lab::new().await;
    let mut accepted = Vec::new();
    for text in attacks() {
        // These are never run: if the guard failed, they would exhaust the memory of the machine.
        let tree = lab.tree(&text).await;
        assert_eq!(tree["error"], false, "{text}");
        if echo_sql_guard::check(&text, &tree).is_ok() {
            accepted.push(text);
        }
    }
    assert!(
        accepted.is_empty(),
        "{}\n{}",
        accepted.len(),
        accepted.join("\n")
    );
}
