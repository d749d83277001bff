//! Allowed functions, by their effect on the length of a value.
//!
//! All other functions are refused. Excluded are functions that read files, settings or the
//! catalog, that run text as SQL, that wait or write, and those that expand short values without a
//! limit: `repeat`, `lpad`, `format`, lists of numbers, distances between strings. A later version
//! of the engine may add to all of these, so a test compares its list of functions with the
//! reviewed one.

/// Effect of a function on its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Short value, such as a number or a timestamp.
    Short,
    /// Value as long as the longest argument.
    AsLong,
    /// The first argument, truncated to the length in the last one.
    Start,
    /// Value as long as the longest argument; the engine expands the call to several copies of its
    /// arguments.
    Macro,
    /// All arguments, concatenated.
    Joined,
    /// All arguments, concatenated with the first as separator.
    Separated,
    /// Value collected from a whole group.
    Collected,
    /// List of parts of the first argument.
    Split,
    /// One of these parts.
    SplitPart,
    /// The first argument with parts replaced by the third.
    Replaced,
    /// Timestamp in a custom format.
    Formatted,
    /// Test if the first argument contains the second.
    Found,
    /// Test if the first argument matches the pattern in the second.
    Like,
    /// The same for a regular expression.
    Regex,
    /// Part of the first argument that a regular expression matches.
    RegexPart,
    /// The first argument with matches of a regular expression replaced.
    RegexReplaced,
    /// Part of a JSON text, at the path in the second argument.
    Json,
    /// Keys of such a part.
    JsonKeys,
}

/// Allowed function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Effect.
    pub kind: Kind,
    /// Maximum number of arguments.
    pub most: usize,
    /// True if it aggregates rows.
    pub is_of_groups: bool,
}

const MANY: usize = 64;

/// Row functions, with their kind and maximum number of arguments.
const ROW_FUNCTIONS: &[(Kind, usize, &str)] = &[
    (
        Kind::Short,
        3,
        "abs acos acosh asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees even exp floor gcd \
         greatest_common_divisor isfinite isinf isnan lcm ln log log10 log2 mod pi pow power radians random round \
         sign signbit sin sinh sqrt tan tanh trunc xor + - * / // % ^ ** & | << >> ~ @ \
         add subtract multiply divide",
    ),
    (
        Kind::Short,
        7,
        "age century date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname \
         dayofmonth dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us get_current_timestamp hour isodow \
         isoyear last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns microsecond \
         millisecond minute month monthname nanosecond now quarter second strptime time_bucket to_centuries to_days \
         to_decades to_hours to_microseconds to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp \
         to_weeks to_years try_strptime week weekday weekofyear year yearweek",
    ),
    (
        Kind::Short,
        2,
        "ascii bit_length char_length character_length chr hash len length list_contains list_has array_contains \
         array_has list_position array_position array_length md5 octet_length ord strlen typeof unicode",
    ),
    (
        Kind::AsLong,
        4,
        "lcase lower ltrim reverse right rtrim trim ucase upper array_extract list_extract list_element \
         struct_extract unnest",
    ),
    // The parser represents `list(x ORDER BY x)` as `list_sort(list(x))`.
    (Kind::AsLong, 3, "list_sort"),
    (Kind::Start, 3, "left substr substring"),
    (Kind::Split, 2, "string_split"),
    (Kind::SplitPart, 3, "split_part"),
    (Kind::AsLong, MANY, "greatest least"),
    (Kind::Macro, 3, "nullif date_add fdiv round_even"),
    (Kind::Joined, MANY, "|| concat list_value row struct_pack"),
    (Kind::Separated, MANY, "concat_ws"),
    (Kind::Replaced, 3, "replace translate"),
    (Kind::Formatted, 2, "strftime"),
    (
        Kind::Found,
        2,
        "contains ends_with instr position prefix starts_with strpos suffix ^@",
    ),
    (
        Kind::Like,
        3,
        "~~ !~~ ~~* !~~* ~~~ like_escape ilike_escape not_like_escape not_ilike_escape",
    ),
    (Kind::Regex, 4, "regexp_full_match regexp_matches"),
    (Kind::RegexPart, 4, "regexp_extract"),
    (Kind::RegexReplaced, 4, "regexp_replace"),
    (
        Kind::Json,
        2,
        "->> json_array_length json_exists json_extract json_extract_path json_extract_path_text \
         json_extract_string json_type json_valid json_value",
    ),
    (Kind::JsonKeys, 2, "json_keys"),
];

/// Aggregate functions, in the same format.
const AGGREGATES: &[(Kind, usize, &str)] = &[
    (
        Kind::Short,
        2,
        "approx_count_distinct approx_quantile avg bit_and bit_or bit_xor bool_and bool_or corr count count_if \
         count_star countif covar_pop covar_samp entropy favg fsum kahan_sum kurtosis kurtosis_pop mad mean product \
         quantile_cont regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem \
         skewness stddev stddev_pop stddev_samp sum sumkahan var_pop var_samp variance",
    ),
    (
        Kind::AsLong,
        1,
        "any_value arbitrary first last max median min mode",
    ),
    (
        Kind::AsLong,
        2,
        "arg_max arg_max_null arg_min arg_min_null argmax argmin max_by min_by quantile quantile_disc",
    ),
    (
        Kind::Collected,
        2,
        "array_agg group_concat list listagg string_agg",
    ),
];

/// Window functions.
const WINDOW_FUNCTIONS: &[(Kind, usize, &str)] = &[(
    Kind::AsLong,
    3,
    "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number",
)];

/// Names without brackets that the engine resolves to functions about the session.
const SESSION_FUNCTIONS: &str =
    "current_catalog current_database current_role current_schema current_user session_user user";

fn all() -> impl Iterator<Item = &'static (Kind, usize, &'static str)> {
    ROW_FUNCTIONS
        .iter()
        .chain(AGGREGATES)
        .chain(WINDOW_FUNCTIONS)
}

/// Returns the function with this name, if it is allowed.
pub fn allowed(name: &str) -> Option<Function> {
    let name = name.to_ascii_lowercase();
    let is_named =
        |(_, _, names): &&(Kind, usize, &str)| names.split_whitespace().any(|known| known == name);
    all().find(is_named).map(|(kind, most, _)| Function {
        kind: *kind,
        most: *most,
        is_of_groups: AGGREGATES.iter().any(|group| is_named(&group)),
    })
}

/// Names of all allowed functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().flat_map(|(_, _, names)| names.split_whitespace())
}

/// Returns true if a column of this name could be a function about the session.
pub(super) fn is_session_function(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SESSION_FUNCTIONS
        .split_whitespace()
        .any(|known| known == name)
}

/// Hint at an alternative to a refused function.
pub(super) fn alternative_to(name: &str) -> &'static str {
    match name.to_ascii_lowercase().as_str() {
        "range" | "generate_series" => "as a table it is allowed: FROM range(0, 24) AS hours(hour)",
        "histogram" => "group by a bucket instead: GROUP BY floor(value / 10)",
        "json_each" | "json_tree" => "name the fields: attrs->>'$.key'",
        "list_sum" | "list_avg" | "list_aggregate" | "list_transform" | "list_filter"
        | "list_apply" | "list_sort" | "list_distinct" | "array_transform" | "array_filter" => {
            "unnest the list and aggregate its rows"
        }
        "levenshtein" | "editdist3" | "damerau_levenshtein" | "jaccard" | "jaro_similarity" => {
            "compare with LIKE or regexp_matches"
        }
        "repeat" | "lpad" | "rpad" | "format" | "printf" | "bar" => {
            "return the values and format them in the client"
        }
        _ => {
            "math, dates, strings, json_extract, regexp_matches, time_bucket, windows and aggregates up to quantile_cont, \
             mad and arg_max are allowed"
        }
    }
}
