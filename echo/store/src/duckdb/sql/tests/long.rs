//! Long and deeply nested attacks.

/// Attacks with their topics.
pub(super) fn attacks() -> Vec<(String, String)> {
    let all = deep().into_iter().chain(wide()).chain(grown());
    let all = all.chain(copied()).chain(alive());
    all.chain(searched())
        .map(|(family, text)| (family.to_owned(), text))
        .collect()
}

type Attack = (&'static str, String);

fn nested(times: usize, before: &str, inner: &str, after: &str) -> String {
    format!("{}{inner}{}", before.repeat(times), after.repeat(times))
}

/// Deep nesting for the parser and the binder.
fn deep() -> Vec<Attack> {
    let select = |times, before, after| format!("SELECT {}", nested(times, before, "1", after));
    vec![
        ("brackets", select(8_000, "(", ")")),
        ("lists", select(300, "[", "]")),
        ("calls", select(300, "abs(", ")")),
        (
            "minus",
            format!("SELECT {}rank FROM ranks", "- ".repeat(8_000)),
        ),
        ("not", select(4_000, "NOT ", "")),
        ("case", select(600, "CASE WHEN TRUE THEN ", " END")),
        ("open brackets", select(16_000, "(", "")),
        ("plus", select(8_000, "1+", "")),
        ("casts", select(3_000, "", "::INT")),
        ("subqueries", nested(300, "SELECT (", "SELECT 1", ")")),
        (
            "operands of CASE",
            select(60, "CASE ", " WHEN 1 THEN 1 WHEN 2 THEN 2 END"),
        ),
        (
            "operands in brackets",
            select(60, "CASE (", ") WHEN 1 THEN 1 WHEN 2 THEN 2 END"),
        ),
        (
            "tables in brackets",
            format!("FROM {}", nested(7_000, "(", "ranks", ")")),
        ),
        ("name", format!("SELECT {}a", "a.".repeat(8_000))),
    ]
}

/// Long texts without nesting.
fn wide() -> Vec<Attack> {
    let many = |item: &str, times: usize| vec![item; times].join(", ");
    let windows = many("sum(rank) OVER (PARTITION BY op ORDER BY event_id)", 300);
    let conditions = " AND rank <> 7".repeat(700);
    vec![
        ("text", format!("SELECT '{}'", "x".repeat(20_000))),
        (
            "conditions",
            format!("SELECT 1 FROM ranks WHERE rank > 0{conditions}"),
        ),
        (
            "unions",
            format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(800)),
        ),
        ("columns", format!("SELECT {} FROM events", many("*", 30))),
        ("windows", format!("SELECT {windows} FROM events")),
        (
            "windows by name",
            format!(
                "SELECT {} FROM ranks WINDOW w AS (PARTITION BY hash({}))",
                many("sum(rank) OVER w", 400),
                many("rank", 1_000)
            ),
        ),
        ("nul", "SELECT 1\0; DROP TABLE series".to_owned()),
        ("nothing", "  \n ".to_owned()),
    ]
}

/// Short texts that expand.
fn grown() -> Vec<Attack> {
    let levels = |item: &str, times: usize| {
        let inner = "SELECT rank AS a FROM ranks".to_owned();
        (0..times).fold(inner, |query, _| format!("SELECT {item} FROM ({query})"))
    };
    let aliases: Vec<String> = (0..24)
        .map(|index| format!("a{index} + a{index} AS a{}", index + 1))
        .collect();
    let aliases = aliases.join(", ");
    let in_subqueries: Vec<String> = (0..24)
        .map(|index| format!("(SELECT a{index} + a{index}) AS a{}", index + 1))
        .collect();
    let in_subqueries = in_subqueries.join(", ");
    let chain = |how: &str| {
        let names = (0..20).map(|index| {
            let next = index + 1;
            format!(", c{next} AS {how} (SELECT a.x FROM c{index} a, c{index} b)")
        });
        let names: String = names.collect();
        format!("WITH c0 AS (SELECT 1 AS x){names} SELECT count(*) FROM c20")
    };
    let a = "a".repeat(1_000);
    let y = "y".repeat(5_000);
    let again = format!("replace(replace('{a}', 'a', '{a}'), 'a', '{a}')");
    vec![
        (
            "macros",
            format!(
                "SELECT {} FROM ranks",
                nested(30, "nullif(", "rank", ", 1)")
            ),
        ),
        (
            "aliases",
            format!("SELECT rank AS a0, {aliases} FROM ranks"),
        ),
        (
            "aliases in subqueries",
            format!("SELECT rank AS a0, {in_subqueries} FROM ranks"),
        ),
        (
            "subqueries as aliases",
            format!("SELECT (SELECT max(rank) FROM ranks) AS a0, {aliases}"),
        ),
        ("WITH in a chain", chain("")),
        ("WITH in copies", chain("NOT MATERIALIZED")),
        ("WITH once", chain("MATERIALIZED")),
        ("stars", levels("*, *", 20)),
        ("strings", levels("a::VARCHAR || a::VARCHAR AS a", 31)),
        ("lists of lists", levels("[a, a, a, a] AS a", 12)),
        ("replaced", format!("SELECT replace({again}, 'a', '{a}')")),
        (
            "replaced in rows",
            format!("SELECT replace(attrs, 'x', '{y}') FROM events"),
        ),
        (
            "replaced by pattern",
            format!("SELECT regexp_replace(attrs, 'x', '{y}', 'g') FROM events"),
        ),
    ]
}

/// Filters that are moved down to the computation of values, with everything that these consist of.
fn copied() -> Vec<Attack> {
    let levels = |item: &str, times: usize| {
        let inner = "SELECT rank AS a FROM ranks".to_owned();
        (0..times).fold(inner, |query, _| {
            format!("SELECT {item} AS a FROM ({query})")
        })
    };
    let twice = levels("coalesce(a, a)", 24);
    let names: Vec<String> = (0..24)
        .map(|index| {
            let next = index + 1;
            format!("c{next} AS (SELECT ifnull(a, a) AS a FROM c{index})")
        })
        .collect();
    let names = names.join(", ");
    let wheres = |item: &str, times| format!("SELECT a FROM ({}) WHERE a > 5", levels(item, times));
    let texts = [
        wheres("coalesce(a, a)", 24),
        wheres("coalesce(a, a, a, a)", 12),
        wheres("nullif(a, a)", 12),
        wheres("CASE WHEN a = a THEN a ELSE a END", 12),
        format!(
            "SELECT a FROM ({}) WHERE a",
            levels("(a IS NULL OR a = a)", 24)
        ),
        format!("WITH c0 AS (SELECT rank AS a FROM ranks), {names} SELECT a FROM c24 WHERE a > 5"),
        format!("SELECT a, count(*) FROM ({twice}) GROUP BY a HAVING a > 5"),
        format!("SELECT 1 FROM ranks r LEFT JOIN ({twice}) x ON r.rank = x.a AND x.a > 3"),
        format!(
            "SELECT 1 FROM ranks r WHERE EXISTS (SELECT 1 FROM ({twice}) x WHERE x.a = r.rank)"
        ),
        format!("SELECT a, (SELECT max(rank) FROM ranks r WHERE r.rank < x.a) FROM ({twice}) x"),
        format!("SELECT b FROM ({twice}) x, LATERAL (SELECT x.a + 1 AS b)"),
        format!("SELECT a FROM (({twice}) UNION ALL ({twice})) WHERE a > 5"),
    ];
    texts.map(|text| ("copies of a filter", text)).into()
}

/// Many long values of one row at the same time.
fn alive() -> Vec<Attack> {
    let (a, b) = ("a".repeat(200), "b".repeat(200));
    let long = format!("replace('{a}', 'a', '{b}') || i");
    let from = format!("FROM (SELECT {long} AS s FROM range(4000) t(i))");
    let many = |item: &str, between: &str| {
        let items: Vec<String> = (0..60)
            .map(|index| item.replace('#', &index.to_string()))
            .collect();
        items.join(between)
    };
    let rows = many("replace('{a}', 'a', 'bbbbbbbb') || i AS s#", ", ").replace("{a}", &a);
    let texts = [
        format!(
            "SELECT max(greatest({})) {from}",
            many("strlen(s || '#')", ", ")
        ),
        format!(
            "SELECT max({}) {from}",
            many("strlen(replace(s, 'b', '#'))", " + ")
        ),
        format!(
            "SELECT count(*) {from} WHERE {}",
            many("strlen(s) > #", " AND ")
        ),
        format!(
            "SELECT count(*) {from} WHERE {}",
            many("s || '#' < 'a'", " AND ")
        ),
        format!(
            "SELECT max({}) {from}",
            many("len(string_split(s, '#'))", " + ")
        ),
        format!(
            "SELECT {} FROM events",
            many("upper(attrs) || '#' AS c#", ", ")
        ),
        format!("SELECT {} FROM events", many("attrs->>'$.a[#]'", ", ")),
        format!("SELECT {} FROM events", many("attrs->>'$.a'", ", ")),
        format!("SELECT {} FROM events e", many("e::VARCHAR || '#'", ", ")),
        format!(
            "SELECT max({}) FROM (SELECT {rows} FROM range(4000) t(i)) e",
            many("strlen(e::VARCHAR || '#')", " + ")
        ),
        format!(
            "SELECT {} FROM events AS e(a, b, c, d, e, f, g, h, i, j, k)",
            many("upper(k) || '#'", ", ")
        ),
        format!(
            "SELECT {} FROM (SELECT attrs AS x FROM events)",
            many("upper(x) || '#'", ", ")
        ),
        format!(
            "SELECT concat_ws(repeat, {}) FROM (SELECT {long} AS repeat FROM range(4000) t(i))",
            many("#", ", ")
        ),
    ];
    texts.map(|text| ("values at a time", text)).into()
}

/// Slow searches.
fn searched() -> Vec<Attack> {
    let long = "a".repeat(8_000);
    let dots = ".".repeat(110);
    let digits = "(SELECT concat(hash(i), hash(i + 1), hash(i + 2), hash(i + 3)) AS s FROM range(4000) t(i))";
    let many: Vec<String> = (0..20)
        .map(|index| format!("regexp_matches(s, '[0-7]{}{index}')", ".".repeat(20)))
        .collect();
    vec![
        (
            "dots",
            format!("SELECT count(*) FROM {digits} WHERE regexp_matches(s, '[0-7]{dots}z')"),
        ),
        (
            "many patterns",
            format!("SELECT count(*) FROM {digits} WHERE {}", many.join(" OR ")),
        ),
        (
            "a pattern in copies",
            format!(
                "SELECT count(*) FROM (SELECT regexp_matches(s, '[0-7]{dots}z') AS m FROM {digits}) WHERE {}",
                vec!["m IS NULL"; 20].join(" OR ")
            ),
        ),
        (
            "letters of LIKE",
            format!("SELECT attrs LIKE '%{}b%' FROM events", "_".repeat(100)),
        ),
        (
            "a first letter of LIKE that occurs often",
            format!("SELECT attrs LIKE '%a{}b%' FROM events", "a_".repeat(50)),
        ),
        (
            "pattern",
            format!("SELECT attrs LIKE '{}' FROM events", "%a".repeat(4_000)),
        ),
        (
            "needle",
            format!("SELECT contains(attrs, '{long}') FROM events"),
        ),
        (
            "haystack",
            format!("SELECT '{long}' || attrs ILIKE '%a%a%a%b' FROM events"),
        ),
        (
            "alternatives",
            format!(
                "SELECT regexp_matches(attrs, '.*x{}q') FROM events",
                "(x|y)".repeat(40)
            ),
        ),
    ]
}
