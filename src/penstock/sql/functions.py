"""The functions that a statement may call; all others are refused. None of these reads files, the network, settings or
the environment, or reveals what else is running; and none produces large output from small input, which DuckDB does not
count as memory, except those whose size is a number in the statement.
"""

from __future__ import annotations

from typing import Final

_SCALAR: Final = """
abs acos acosh age aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat
array_contains array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
array_inner_product array_intersect array_length array_pop_back array_pop_front array_position array_prepend
array_push_back array_push_front array_reduce array_reverse array_reverse_sort array_select array_slice array_sort
array_to_json array_to_string array_transform array_unique array_value array_where array_zip ascii asin asinh atan
atan2 atanh base64 bin bit_count bit_length bit_position cardinality cbrt ceil ceiling century char_length
character_length chr coalesce concat concat_ws constant_or_null contains cos cosh cot current_date current_time
current_timestamp damerau_levenshtein date date_add date_diff date_from_parts date_part date_sub date_trunc datediff
datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear decade decode degrees editdist3 element_at
encode ends_with enum_code epoch epoch_ms epoch_ns epoch_us era error even exp extract factorial fdiv filter flatten
floor fmod from_base64 from_binary from_hex from_json from_json_strict from_unixtime gamma gcd gen_random_uuid
generate_series generate_subscripts get_bit get_current_time get_current_timestamp grade_up greatest
greatest_common_divisor hamming hash hex hour if ifnull iif ilike_escape initcap instr isfinite isinf isnan isodow
isoyear jaccard jaro_similarity jaro_winkler_similarity json json_array json_array_length json_contains json_exists
json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch json_object
json_pretty json_quote json_structure json_transform json_transform_strict json_type json_valid json_value last_day
lcase lcm least least_common_multiple left left_grapheme len length length_grapheme levenshtein lgamma like_escape
list_aggr list_aggregate list_any_value list_append list_apply list_avg list_cat list_concat list_contains list_count
list_distinct list_element list_extract list_filter list_first list_grade_up list_has list_has_all list_has_any
list_indexof list_intersect list_last list_max list_min list_pack list_position list_prepend list_product list_reduce
list_reverse list_reverse_sort list_select list_slice list_sort list_string_agg list_sum list_transform list_unique
list_value list_where list_zip ln localtime localtimestamp log log10 log2 lower lpad ltrim make_date make_time
make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz map map_concat map_contains map_entries
map_extract map_from_entries map_keys map_values md5 microsecond millennium millisecond minute mismatches mod month
monthname nanosecond nextafter nfc_normalize not_ilike_escape not_like_escape now nullif nvl octet_length ord overlay
pi position pow power prefix quarter radians random range reduce regexp_escape regexp_extract regexp_extract_all
regexp_full_match regexp_matches regexp_replace regexp_split_to_array repeat replace reverse right right_grapheme
round round_even row row_to_json rpad rtrim second set_bit sha1 sha256 sign signbit sin sinh split split_part sqrt
starts_with str_split str_split_regex strftime string_split string_split_regex string_to_array strip_accents strlen
strpos strptime struct_concat struct_extract struct_insert struct_keys struct_pack substr substring substring_grapheme
suffix tan tanh time_bucket timestamp timezone timezone_hour timezone_minute to_base64 to_binary to_centuries to_date
to_days to_decades to_hex to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes to_months
to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp translate trim trunc try
try_strptime typeof ucase unbin unhex unicode unnest unpivot_list upper url_decode url_encode uuid uuidv4 uuidv7 week
weekday weekofyear xor year yearweek
"""

_AGGREGATE: Final = """
any_value approx_count_distinct approx_quantile arg_max arg_max_null arg_min arg_min_null argmax argmin array_agg avg
bit_and bit_or bit_xor bitstring_agg bool_and bool_or corr count count_if count_star countif covar_pop covar_samp
cume_dist dense_rank entropy every favg first first_value fsum geomean geometric_mean group_concat grouping
grouping_id histogram json_group_array json_group_object json_group_structure kahan_sum kurtosis kurtosis_pop lag last
last_value lead list listagg mad max max_by mean median min min_by mode nth_value ntile percent_rank percentile_cont
percentile_disc product quantile quantile_cont quantile_disc rank rank_dense regr_avgx regr_avgy regr_count
regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy row_number sem skewness some stddev stddev_pop
stddev_samp string_agg sum sum_no_overflow sumkahan var_pop var_samp variance
"""

SCALAR: Final = frozenset(_SCALAR.split())
"""Functions that return a value per row."""

AGGREGATE: Final = frozenset(_AGGREGATE.split())
"""Functions that return a value per group or window."""

TABLE: Final = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"})
"""Functions allowed in a FROM clause."""

MEASURED: Final = {"repeat": 10_000, "pad": 10_000, "generate_series": 1_000_000}
"""The largest size that these may produce from one value. The names are the parser's."""
