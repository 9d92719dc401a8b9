"""
What a tenant's SQL may name on PostgreSQL: functions, types and views of the server's own. Kept by hand.

Everything that is not here is refused. A function belongs here if it reads its arguments and nothing else: no settings,
no catalogs, no files, no other sessions, no text that it runs as SQL, and nothing that the next user of a session would
find. A test compares the list with the functions of each version of PostgreSQL.
"""

from __future__ import annotations

from typing import Final

_NUMBERS = """
abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh bit_count cbrt ceil ceiling cos cosd cosh cot cotd
degrees div erf erfc exp factorial floor gamma gcd lcm lgamma ln log log10 min_scale mod numeric_inc pi pow power
radians round scale sign sin sind sinh sqrt tan tand tanh trim_scale trunc width_bucket
"""
_TEXTS = """
ascii bit_length btrim casefold char_length character_length chr concat concat_ws convert convert_from convert_to crc32
crc32c decode encode format get_bit get_byte initcap is_normalized left length like like_escape lower lpad ltrim md5
normalize notlike octet_length overlay parse_ident position quote_ident quote_literal quote_nullable regexp_count
regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
regexp_substr repeat replace reverse right rpad rtrim set_bit set_byte sha224 sha256 sha384 sha512 similar_escape
similar_to_escape split_part string_to_array string_to_table strpos substr substring textlen to_ascii to_bin to_hex
to_oct translate unistr upper
"""
_TIMES = """
age clock_timestamp date_add date_bin date_part date_subtract date_trunc extract isfinite justify_days justify_hours
justify_interval make_date make_interval make_time make_timestamp make_timestamptz now overlaps statement_timestamp
timeofday timezone to_char to_date to_number to_timestamp transaction_timestamp
"""
_JSON = """
array_to_json json_array_elements json_array_elements_text json_array_length json_build_array json_build_object
json_each json_each_text json_extract_path json_extract_path_text json_object json_object_keys json_populate_record
json_populate_recordset json_strip_nulls json_to_record json_to_recordset json_typeof jsonb_array_elements
jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_keys jsonb_path_exists
jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array
jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record
jsonb_populate_record_valid jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls
jsonb_to_record jsonb_to_recordset jsonb_typeof row_to_json to_json to_jsonb
"""
_SETS_AND_ARRAYS = """
array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position array_positions
array_prepend array_remove array_replace array_reverse array_sample array_shuffle array_sort array_to_string array_upper
cardinality enum_first enum_last enum_range generate_series generate_subscripts num_nonnulls num_nulls trim_array unnest
isempty lower_inc lower_inf multirange range_merge upper_inc upper_inf
daterange int4range int8range numrange tsrange tstzrange
datemultirange int4multirange int8multirange nummultirange tsmultirange tstzmultirange
"""
_AGGREGATES = """
any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp every json_agg
json_agg_strict json_object_agg json_object_agg_strict json_object_agg_unique json_object_agg_unique_strict jsonb_agg
jsonb_agg_strict jsonb_object_agg jsonb_object_agg_strict jsonb_object_agg_unique jsonb_object_agg_unique_strict max min
mode percentile_cont percentile_disc range_agg range_intersect_agg regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy stddev stddev_pop stddev_samp string_agg sum var_pop var_samp variance
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
"""
_SEARCH = """
array_to_tsvector json_to_tsvector jsonb_to_tsvector numnode phraseto_tsquery plainto_tsquery querytree setweight strip
to_tsquery to_tsvector ts_delete ts_filter ts_headline ts_rank ts_rank_cd tsquery_phrase tsvector_to_array
websearch_to_tsquery
"""
_PLACES = """
abbrev area box broadcast center circle diagonal diameter family height host hostmask inet_merge inet_same_family
isclosed ishorizontal isopen isparallel isperp isvertical line lseg macaddr8_set7bit masklen netmask network npoints
path pclose point polygon popen radius set_masklen slope width
"""
_CASTS = """
bit bool bpchar bytea char cidr date float4 float8 int2 int4 int8 interval macaddr macaddr8 money name numeric text time
timestamp timestamptz timetz varbit varchar
"""
_OTHERS = """
gen_random_uuid nextval pg_typeof random random_normal setval uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
"""

FUNCTIONS: Final = frozenset(
    " ".join(
        (_NUMBERS, _TEXTS, _TIMES, _JSON, _SETS_AND_ARRAYS, _AGGREGATES, _SEARCH, _PLACES, _CASTS, _OTHERS)
    ).split()
)
"""Functions of `pg_catalog`, by name: all forms of each."""

VOLATILE: Final = frozenset(
    (
        *("array_sample", "array_shuffle", "clock_timestamp", "gen_random_uuid", "nextval", "random", "random_normal"),
        *("setval", "timeofday", "uuidv4", "uuidv7"),
    )
)
"""Those of them that give another result each time, and do nothing else that a tenant could not do by a statement."""

_TYPES = """
bit bool boolean box bpchar bytea char character cidr circle date decimal float float4 float8 inet int int2 int4 int8
integer bigint smallint real interval json jsonb jsonpath line lseg macaddr macaddr8 money name numeric path point
polygon text time timestamp timestamptz timetz tsquery tsvector unknown uuid varbit varchar
daterange int4range int8range numrange tsrange tstzrange
datemultirange int4multirange int8multirange nummultirange tsmultirange tstzmultirange
serial serial2 serial4 serial8 bigserial smallserial record oid regconfig void
"""
TYPES: Final = frozenset(_TYPES.split())
"""Types of `pg_catalog`. A name that is no type of the server's is one of the tenant's own."""

INFORMATION_SCHEMA: Final = "information_schema"
_VIEWS = """
check_constraints columns constraint_column_usage constraint_table_usage domains key_column_usage
referential_constraints sequences table_constraints tables views
"""
VIEWS: Final = frozenset(_VIEWS.split())
"""Views of the information schema: each shows what its reader has rights on, and nothing else."""
