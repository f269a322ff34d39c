"""The functions that SeaTunnel and Spark mean differently, as rows of the page about them.

Each row has an example over the one row of `TABLE`, and what comes out of it. The page and the
tests are both made of these rows, so neither can say what the other does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The row that examples read: names, and expressions of Spark's SQL.
TABLE = {
    "name": "'Joy Ding'",
    "nothing": "cast(null as string)",
    "many": "'a,b,,'",
    "i": "13",
    "l": "1687747869032L",
    "d": "-120.72124D",
    "ymd": "20230625",
    "hms": "235109",
    "at": "timestamp_ntz'2021-04-15 13:34:45.235'",
    "later": "timestamp_ntz'2022-01-23 12:34:56'",
    "day": "date'2021-04-15'",
}


class WithoutEngine(StrEnum):
    """What a query gets that says no engine, and in which nothing else tells."""

    SEATUNNEL = "SeaTunnel's"  # Spark does not know such a call
    SPARK = "Spark's"  # SeaTunnel does not know it, or it differs by a type or a rounding only
    REFUSED = "refused"
    SAME_OR_FAILS = "the same, or the row fails"


@dataclass(frozen=True, slots=True)
class DialectRow:
    example: str
    zeta: str  # SeaTunnel's meaning
    zeta_gives: str | None  # as a text; None: null
    spark: str  # Spark's meaning; "": it does not know such a call
    spark_gives: str | None
    chosen: WithoutEngine


def _only_zeta(example: str, zeta: str, gives: str | None) -> DialectRow:
    return DialectRow(example, zeta, gives, "", None, WithoutEngine.SEATUNNEL)


def _typed(example: str, zeta: str, spark: str, gives: str, spark_gives: str = "") -> DialectRow:
    return DialectRow(example, zeta, gives, spark, spark_gives or gives, WithoutEngine.SPARK)


def _refused(example: str, zeta: str, gives: str, spark: str, spark_gives: str) -> DialectRow:
    return DialectRow(example, zeta, gives, spark, spark_gives, WithoutEngine.REFUSED)


def _fails(
    example: str, zeta: str, gives: str | None, spark: str, spark_gives: str | None
) -> DialectRow:
    return DialectRow(example, zeta, gives, spark, spark_gives, WithoutEngine.SAME_OR_FAILS)


ROWS: tuple[DialectRow, ...] = (
    _fails("concat(name, nothing)", "nulls are left out", "Joy Ding", "null if one is", None),
    _refused("dateadd(at, 1)", "keeps the time", "2021-04-16 13:34:45.235", "a date", "2021-04-16"),
    DialectRow(
        "dateadd(day, 1)", "a date", "2021-04-16", "a date", "2021-04-16", WithoutEngine.SPARK
    ),
    _only_zeta("dateadd(at, 10, 'MONTH')", "unit in quotes, last", "2022-02-15 13:34:45.235"),
    _only_zeta("timestampadd(day, 2, 'HOUR')", "as DATEADD", "2021-04-15 02:00:00"),
    _refused("datediff(at, later)", "second - first", "283", "first - second", "-283"),
    _only_zeta("datediff(at, later, 'MONTH')", "unit in quotes, last", "9"),
    _only_zeta("date_trunc(at, 'HOUR')", "unit last", "2021-04-15 13:00:00"),
    DialectRow(
        "date_trunc('HOUR', at)", "", None, "unit first", "2021-04-15 13:00:00", WithoutEngine.SPARK
    ),
    _refused("dayname(at)", "the whole name", "Thursday", "three letters", "Thu"),
    _refused("monthname(at)", "the whole name", "April", "three letters", "Apr"),
    _only_zeta("day_of_month(at)", "1 to 31", "15"),
    _only_zeta("day_of_week(at)", "Monday is 1", "4"),
    _only_zeta("day_of_year(at)", "1 to 366", "105"),
    _only_zeta("week(at)", "weeks begin on Sunday, the first holds January 1", "16"),
    _refused("extract(DAYOFWEEK from at)", "Sunday is 0", "4", "Sunday is 1", "5"),
    _refused("extract(SECOND from at)", "whole seconds", "45", "with fractions", "45.235000"),
    _only_zeta("extract(MILLISECOND from at)", "of the second", "235"),
    _only_zeta("extract(ISODOW from at)", "Monday is 1", "4"),
    _only_zeta("extract(CENTURY from at)", "the century", "21"),
    _only_zeta("formatdatetime(at, 'yyyy/MM/dd')", "a text", "2021/04/15"),
    _only_zeta("parsedatetime('1-2-2021', 'd-M-yyyy')", "a date or a timestamp", "2021-02-01"),
    _refused(
        "to_date('2021-04-08 13:34', 'yyyy-MM-dd HH:mm')",
        "a timestamp when the pattern has a time",
        "2021-04-08 13:34:00",
        "a date",
        "2021-04-08",
    ),
    _only_zeta("is_date('2021-13-01', 'yyyy-MM-dd')", "whether it can be parsed", "false"),
    _only_zeta(
        "from_unixtime(1672502400, 'yyyy-MM-dd HH:mm', 'UTC+8')", "with a zone", "2023-01-01 00:00"
    ),
    _refused(
        "cast(l as timestamp)",
        "milliseconds",
        "2023-06-26 02:51:09.032",
        "seconds",
        "+55452-08-07 20:30:32",
    ),
    _refused(
        "cast(at as string)",
        "T between date and time",
        "2021-04-15T13:34:45.235",
        "a space",
        "2021-04-15 13:34:45.235",
    ),
    DialectRow(
        "cast('12.341' as decimal(10, 2))",
        "rounds up",
        "12.35",
        "to the nearest",
        "12.34",
        WithoutEngine.SPARK,
    ),
    _only_zeta("cast(ymd as date)", "yyyyMMdd", "2023-06-25"),
    _only_zeta("cast(hms as time)", "HHmmss; a time is a text", "23:51:09"),
    _only_zeta("cast(name as bytes)", "UTF-8", "Joy Ding"),
    _refused(
        "trim(name, 'J')", "the second off the first", "oy Ding", "the first off the second", ""
    ),
    DialectRow(
        "trim('*', name)", "", None, "the first off the second", "Joy Ding", WithoutEngine.SPARK
    ),
    _refused(
        "ltrim(name, name)", "first character off the first", "oy Ding", "first off second", ""
    ),
    _only_zeta("trunc(d, 2)", "digits of a number", "-120.72"),
    DialectRow("trunc(day, 'MM')", "", None, "of a date", "2021-04-01", WithoutEngine.SPARK),
    _only_zeta("truncate(d)", "as TRUNC", "-120.0"),
    _typed("length(name)", "BIGINT", "INT", "8"),
    _typed("ceil(d)", "INT", "BIGINT", "-120"),
    _typed("sign(d)", "INT", "DOUBLE", "-1", "-1.0"),
    _typed("mod(i, 5.4D)", "exact, of the divisor's type", "inexact", "2.2", "2.1999999999999993"),
    _typed("10.3", "DOUBLE", "DECIMAL", "10.3"),
    _fails("char(353)", "the character of that number", "š", "of the rest by 256", "a"),
    _fails("lpad(name, 10, '*-')", "first character only", "**Joy Ding", "all", "*-Joy Ding"),
    _fails("split(many, ',')", "no empty parts at the end", "[a, b]", "all parts", "[a, b, , ]"),
    _fails("translate(name, 'Joy', 'j')", "keeps the others", "joy Ding", "drops them", "j Ding"),
    DialectRow(
        "substring(name, 20)",
        "null when nothing is left",
        None,
        "an empty text",
        "",
        WithoutEngine.SPARK,
    ),
    _only_zeta("regexp_replace('aWWb', 'w+', '_', 'i')", "flags", "a_b"),
    DialectRow(
        "regexp_replace('ababa', 'a', '_', 2)", "", None, "position", "ab_b_", WithoutEngine.SPARK
    ),
    _only_zeta("regexp_like(name, 'DING$', 'i')", "flags", "true"),
    _only_zeta("regexp_substr('a1b2', '([a-z])([0-9])', 1, 2, null, 2)", "a group", "2"),
    _refused("'a\\tb'", "a backslash is one", "a\\tb", "an escape", "a\tb"),
    _only_zeta("hextoraw('00370041')", "four digits a character", "7A"),
    _only_zeta("rawtohex('7A')", "four digits a character", "00370041"),
    _only_zeta("insert(name, 2, 2, '**')", "replaces a part", "J** Ding"),
    _only_zeta("instr(name, 'n', 7)", "from a position", "7"),
    _only_zeta("to_char(i)", "any value as a text", "13"),
    _only_zeta("to_base64('ab')", "base 64", "YWI="),
    _only_zeta("from_base64('YWI=')", "base 64", "ab"),
    _only_zeta("trim_scale(d)", "a text without zeros at the end", "-120.72124"),
    _only_zeta("multi_if(i > 20, 'a', i > 10, 'b', 'c')", "the first that holds", "b"),
)
# What can't be written in Spark, and is refused.
NOT_BUILT = ("des_encrypt('key', name)", "des_decrypt('key', name)", "murmur64(name)")
