//! Tests of the guard alone, on arbitrary trees. The store tests the guard with the engine's
//! parser.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{check, syntax_error};

/// Tree of a statement with one column of a table, as the parser builds it.
fn select(table: &str) -> Value {
    json!({ "error": false, "statements": [{ "named_param_map": [], "node": {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": { "map": [] },
        "select_list": [{ "class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": ["rank"] }],
        "from_table": { "type": "BASE_TABLE", "alias": "", "sample": null, "schema_name": "", "table_name": table,
            "column_name_alias": [], "catalog_name": "", "at_clause": null },
        "where_clause": null, "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING",
        "having": null, "sample": null, "qualify": null,
    } }] })
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "SELECT_NODE",
        "BASE_TABLE",
        "FUNCTION",
        "COLUMN_REF",
        "sum",
        "verdicts",
        "JOIN",
        "",
        "STAR",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "type",
        "class",
        "node",
        "statements",
        "error",
        "select_list",
        "from_table",
        "alias",
        "cte_map",
        "map",
        "children",
        "left",
        "right",
        "function_name",
        "cast_type",
        "value",
        "modifiers",
        "subquery",
    ]);
    leaf.prop_recursive(6, 60, 6, move |inner| {
        let field = (names.clone().prop_map(str::to_owned), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            prop::collection::vec(field, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[test]
fn published_views_are_accepted_in_any_case_and_other_tables_are_refused() {
    for table in ["verdicts", "Events", "RANKS"] {
        assert!(check("", &select(table)).is_err(), "there is no text");
        assert!(check("SELECT", &select(table)).is_ok(), "{table}");
    }
    let refusal = check("SELECT", &select("event_rows")).unwrap_err();
    assert_eq!(refusal.to_string(), "event_rows is not a published view");
    assert!(
        refusal.hint.starts_with("the views are verdicts, "),
        "{}",
        refusal.hint
    );
    let published = check("SELECT", &select("NCCL_events")).unwrap_err();
    assert!(published.hint.contains("op_waits"), "{}", published.hint);
}

#[test]
fn syntax_errors_are_distinguished_from_refused_statements() {
    let wrong = json!({ "error": true, "error_type": "parser", "error_message": "syntax error", "position": "7" });
    assert_eq!(
        syntax_error(&wrong),
        Some(("syntax error".to_owned(), Some(7)))
    );
    let writes =
        json!({ "error": true, "error_type": "not implemented", "error_message": "Only SELECT" });
    assert_eq!(syntax_error(&writes), None);
    assert!(check("DELETE", &writes).is_err());
    assert_eq!(syntax_error(&select("ranks")), None);
}

#[test]
fn only_a_statement_that_sorts_all_rows_gets_a_limit() {
    let plain = check("FROM ranks", &select("ranks")).unwrap();
    assert_eq!(plain.shortened(3), None);
    let mut tree = select("ranks");
    let order = json!({ "type": "ORDER_DEFAULT", "null_order": "ORDER_DEFAULT",
        "expression": { "class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": ["rank"] } });
    tree["statements"][0]["node"]["modifiers"] =
        json!([{ "type": "ORDER_MODIFIER", "orders": [order] }]);
    let sorted = check("FROM ranks ORDER BY rank; ", &tree).unwrap();
    let shortened = sorted.shortened(3).unwrap();
    assert_eq!(shortened, "FROM ranks ORDER BY rank\nLIMIT 3");
}

proptest! {
    #[test]
    fn no_tree_makes_the_guard_panic(tree in any_json()) {
        let _refused = check("SELECT 1", &tree);
    }

    #[test]
    fn unknown_nodes_in_a_statement_are_refused(tree in any_json(), place in 0_usize..6) {
        let node = "/statements/0/node";
        let places = ["", "/select_list/0", "/from_table", "/where_clause", "/modifiers", "/cte_map"];
        let mut statement = select("ranks");
        let known = [json!(null), json!([]), json!({}), json!({ "map": [] })];
        *statement.pointer_mut(&format!("{node}{}", places[place])).unwrap() = tree.clone();
        let is_accepted = check("SELECT 1", &statement).is_ok();
        prop_assert!(!is_accepted || known.contains(&tree), "{tree}");
    }
}
