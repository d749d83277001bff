//! Allowed functions.
//!
//! All other functions are refused. Excluded are functions that read files, settings or the
//! catalog, that run text as SQL, that wait or write, and that only make long values (`repeat`, `lpad`). A later version of the engine may add to
//! all of these, so a test compares its list of functions with the reviewed one.

/// Row functions. The parser represents `list(x ORDER BY x)` as `list_sort(list(x))`.
const ROW_FUNCTIONS: &str = "\
    abs acos acosh asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees even exp \
    floor gcd greatest_common_divisor isfinite isinf isnan lcm ln log log10 log2 mod pi pow power \
    radians random round sign signbit sin sinh sqrt tan tanh trunc xor + - * / // % ^ ** & | << >> ~ @ \
    add subtract multiply divide age century date_diff date_part date_sub date_trunc datediff datepart \
    datesub datetrunc day dayname dayofmonth dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us \
    get_current_timestamp hour isodow isoyear last_day make_date make_time make_timestamp \
    make_timestamp_ms make_timestamp_ns microsecond millisecond minute month monthname nanosecond now \
    quarter second strptime time_bucket to_centuries to_days to_decades to_hours to_microseconds \
    to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years \
    try_strptime week weekday weekofyear year yearweek ascii bit_length char_length character_length chr \
    hash len length list_contains list_has array_contains array_has list_position array_position \
    array_length md5 octet_length ord strlen typeof unicode lcase lower ltrim reverse right rtrim trim \
    ucase upper array_extract list_extract list_element struct_extract unnest list_sort left substr \
    substring string_split split_part greatest least nullif date_add fdiv round_even || concat \
    list_value row struct_pack concat_ws replace translate strftime contains ends_with instr position \
    prefix starts_with strpos suffix ^@ ~~ !~~ ~~* !~~* ~~~ like_escape ilike_escape not_like_escape \
    not_ilike_escape regexp_full_match regexp_matches regexp_extract regexp_replace ->> \
    json_array_length json_exists json_extract json_extract_path json_extract_path_text \
    json_extract_string json_type json_valid json_value json_keys";

/// Aggregate functions.
const AGGREGATES: &str = "\
    approx_count_distinct approx_quantile avg bit_and bit_or bit_xor bool_and bool_or corr count \
    count_if count_star countif covar_pop covar_samp entropy favg fsum kahan_sum kurtosis kurtosis_pop \
    mad mean product quantile_cont regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope \
    regr_sxx regr_sxy regr_syy sem skewness stddev stddev_pop stddev_samp sum sumkahan var_pop var_samp \
    variance any_value arbitrary first last max median min mode arg_max arg_max_null arg_min \
    arg_min_null argmax argmin max_by min_by quantile quantile_disc array_agg group_concat list listagg \
    string_agg";

/// Window functions.
const WINDOW_FUNCTIONS: &str = "\
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank rank_dense \
    row_number";

/// Names without brackets that the engine resolves to functions about the session.
const SESSION_FUNCTIONS: &str =
    "current_catalog current_database current_role current_schema current_user session_user user";

/// Names of all allowed functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    let lists = [ROW_FUNCTIONS, AGGREGATES, WINDOW_FUNCTIONS];
    lists.into_iter().flat_map(str::split_whitespace)
}

/// Returns whether a function may be called.
pub fn is_allowed(name: &str) -> bool {
    names().any(|known| known.eq_ignore_ascii_case(name))
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
        | "list_apply" | "list_distinct" | "array_transform" | "array_filter" => {
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
