"""The functions that a statement may call. All others are refused, whatever they are: nothing in here reads files, the
network, settings or the environment, or shows what else runs."""

from __future__ import annotations

from typing import Final

SCALAR: Final = frozenset(
    """
    abs acos acosh asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees even exp factorial floor
    fdiv fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma ln
    log log10 log2 mod nextafter pi pow power radians random round round_even sign signbit sin sinh sqrt tan tanh trunc
    xor setseed

    ascii bar base64 bin bit_length char_length character_length chr concat concat_ws contains damerau_levenshtein
    editdist3 ends_with format formatreadabledecimalsize from_base64 from_binary from_hex greatest hamming hash hex
    ilike_escape initcap instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length
    length_grapheme levenshtein like_escape lower lpad ltrim md5 mismatches nfc_normalize not_ilike_escape
    not_like_escape ord octet_length encode decode position prefix printf regexp_escape regexp_extract
    regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array repeat replace reverse
    right right_grapheme rpad rtrim sha1 sha256 split split_part starts_with str_split str_split_regex string_split
    string_split_regex string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix to_base
    to_base64 to_binary to_hex translate trim ucase unbin unhex unicode upper url_decode url_encode

    age century current_date current_time current_timestamp date date_add date_diff date_part date_sub date_trunc
    datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear decade epoch epoch_ms epoch_ns
    epoch_us era extract from_unixtime get_current_time get_current_timestamp hour isodow isoyear last_day
    localtime localtimestamp make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz
    microsecond millennium millisecond minute month monthname nanosecond now quarter second strftime strptime
    time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds
    to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today
    transaction_timestamp try_strptime week weekday weekofyear year yearweek date_from_parts timestamp to_date

    coalesce if ifnull iif nullif nvl try error typeof constant_or_null

    json json_array json_array_length json_contains json_exists json_extract json_extract_path json_extract_path_text
    json_extract_string json_keys json_merge_patch json_object json_pretty json_quote json_structure json_transform
    json_transform_strict json_type json_valid json_value from_json from_json_strict to_json array_to_json row_to_json

    aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
    array_inner_product array_intersect array_length array_pop_back array_pop_front array_position array_prepend
    array_push_back array_push_front array_reduce array_resize array_reverse array_reverse_sort array_select array_slice
    array_sort array_to_string array_transform array_unique array_value array_where array_zip cardinality element_at
    filter flatten generate_subscripts grade_up list_aggr list_aggregate list_any_value list_append list_apply list_avg
    list_cat list_concat list_contains list_count list_distinct list_element list_extract list_filter list_first
    list_grade_up list_has list_has_all list_has_any list_indexof list_intersect list_last list_max list_min
    list_pack list_position list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort
    list_select list_slice list_sort list_string_agg list_sum list_transform list_unique list_value list_where list_zip
    map map_concat map_contains map_entries map_extract map_from_entries map_keys map_values reduce row struct_concat
    struct_extract struct_insert struct_keys struct_pack unnest unpivot_list range generate_series

    uuid gen_random_uuid uuidv4 uuidv7 bitstring get_bit set_bit bit_position enum_code
    """.split()
)
"""That give a value for a row."""

AGGREGATE: Final = frozenset(
    """
    any_value approx_count_distinct approx_quantile arg_max arg_max_null arg_min arg_min_null argmax argmin array_agg
    avg bit_and bit_or bit_xor bitstring_agg bool_and bool_or corr count count_if count_star countif covar_pop
    covar_samp entropy every favg first fsum geomean geometric_mean group_concat grouping grouping_id histogram
    json_group_array json_group_object json_group_structure kahan_sum kurtosis kurtosis_pop last list listagg mad max
    max_by mean median min min_by mode product quantile quantile_cont quantile_disc percentile_cont percentile_disc
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem skewness some stddev
    stddev_pop stddev_samp string_agg sum sumkahan sum_no_overflow var_pop var_samp variance

    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number
    """.split()
)
"""That give a value for a group, or for a window."""

TABLE: Final = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"})
"""That stand in a FROM."""
