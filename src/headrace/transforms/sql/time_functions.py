"""SeaTunnel's functions of dates and times, and its casts: a rule for each that Spark lacks or
means otherwise. Where SeaTunnel's documentation and its own job files disagree, the job files count
(WEEK, EXTRACT of MILLISECOND)."""

from __future__ import annotations

from collections.abc import Callable

from headrace.transforms.sql.meanings import (
    CallView,
    Meaning,
    NotExpressible,
    clash,
    fails,
    only_spark,
    only_zeta,
    same,
)

TIME_SAME = frozenset(
    {"current_date", "current_time", "current_timestamp", "now", "hour", "minute", "second"}
    | {"month", "quarter", "year"}
)
_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_DATE_UNITS = ("YEAR", "MONTH", "DAY")  # of which a difference is that of the dates alone
_ISO = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS"
# Java leaves zeros at the end out: seconds with their fraction, or three digits of it.
_ZEROS = "'(:00)?[.]000000$|(?<=[.][0-9]{3})000$'"
_TIME_LETTERS, _DATE_LETTERS = frozenset("HhKkmsSaAnN"), frozenset("yuMLdDQqwWEe")


def _unit(view: CallView, at: int, *more: str) -> str:
    unit = view.literal(at, "the unit").upper() if len(view.args) > at else "DAY"
    if unit not in (*_UNITS, *more):
        raise NotExpressible(
            f"{view.name}: there is no unit {unit!r}; there are {', '.join(_UNITS)}"
        )
    return unit


def _ends_with_unit(view: CallView) -> bool:
    """Whether the last argument is a unit in quotes; Spark's stands in front, without quotes."""
    return (view.literals[-1] or "").upper() in (*_UNITS, "DAYTIME")


def _dateadd(view: CallView) -> Meaning:
    if len(view.args) == 3:
        return only_zeta(lambda: _added(view)) if _ends_with_unit(view) else only_spark()
    if len(view.args) != 2 or not view.is_time(0):
        return only_spark()
    if view.kind(0) == "date":
        return same(lambda: _added(view))
    return clash(lambda: _added(view), "SeaTunnel keeps the time of day, and Spark gives a date")


def _added(view: CallView) -> str:
    value, count, unit = view.args[0], view.args[1], _unit(view, 2)
    if view.kind(0) != "date":
        return f"timestampadd({unit}, {count}, {value})"
    match unit:
        case "DAY":
            return f"date_add({value}, {count})"
        case "WEEK":
            return f"date_add({value}, ({count}) * 7)"
        case "MONTH":
            return f"add_months({value}, {count})"
        case "YEAR":
            return f"add_months({value}, ({count}) * 12)"
        case _:
            return f"timestampadd({unit}, {count}, cast({value} as timestamp_ntz))"


def _datediff(view: CallView) -> Meaning:
    if len(view.args) == 3:
        return only_zeta(lambda: _between(view)) if _ends_with_unit(view) else only_spark()
    if len(view.args) != 2 or not (view.is_time(0) and view.is_time(1)):
        return only_spark()
    return clash(lambda: _between(view), "SeaTunnel gives second - first, Spark first - second")


def _between(view: CallView) -> str:
    first, second, unit = view.args[0], view.args[1], _unit(view, 2, "DAYTIME")
    if unit in _DATE_UNITS:
        return f"timestampdiff({unit}, cast({first} as date), cast({second} as date))"
    return f"timestampdiff({'DAY' if unit == 'DAYTIME' else unit}, {first}, {second})"


def _date_trunc(view: CallView) -> Meaning:
    if len(view.args) == 2 and (view.literals[0] is not None or not view.is_time(0)):
        return only_spark()

    def zeta() -> str:
        kind = "timestamp" if view.kind(0) == "timestamp" else "timestamp_ntz"
        return f"cast(date_trunc('{_unit(view, 1)}', {view.args[0]}) as {kind})"

    return only_zeta(zeta)


def _named(pattern: str) -> Callable[[CallView], Meaning]:
    return lambda view: clash(
        lambda: f"date_format({view.args[0]}, '{pattern}')",
        "SeaTunnel gives the whole name, and Spark its first three letters",
    )


def _zeta_of_one(template: str) -> Callable[[CallView], Meaning]:
    """A function that Spark has not, of one argument."""
    return lambda view: only_zeta(lambda: template.format(*view.args))


def _from_unixtime(view: CallView) -> Meaning:
    if len(view.args) < 3:
        return same(whole=view.whole)
    seconds, pattern, zone = view.args
    instant = f"from_utc_timestamp(timestamp_seconds(cast({seconds} as bigint)), {zone})"
    return only_zeta(lambda: f"date_format({instant}, {pattern})")


def _parsed(view: CallView) -> Meaning:
    """PARSEDATETIME, whose type follows from the pattern."""
    return only_zeta(lambda: _read(view))


def _read(view: CallView) -> str:
    text, pattern = view.args
    letters = _letters(view.literal(1, "the pattern"))
    if not letters & _TIME_LETTERS:
        return f"to_date({text}, {pattern})"
    if letters & _DATE_LETTERS:
        return f"to_timestamp_ntz({text}, {pattern})"
    return f"date_format(to_timestamp_ntz({text}, {pattern}), 'HH:mm:ss')"


def _letters(pattern: str) -> frozenset[str]:
    """The letters of a pattern that stand for something: those outside of quotes."""
    return frozenset(letter for part in pattern.split("'")[::2] for letter in part)


def _to_date(view: CallView) -> Meaning:
    if len(view.args) != 2 or view.literals[1] is None:
        return only_spark()
    if not _letters(view.literals[1]) & _TIME_LETTERS:
        return same(lambda: _read(view))
    return clash(
        lambda: _read(view), "with a time in its pattern SeaTunnel keeps it, and Spark gives a date"
    )


def _is_date(view: CallView) -> Meaning:
    text, pattern = view.args
    return only_zeta(lambda: f"(try_to_timestamp({text}, {pattern}) is not null)")


_SECONDS = "cast(extract(SECOND from {0}) * 1000000 as bigint)"
_EXTRACTED: dict[str, str] = {  # that Spark has not
    "MILLISECOND": f"cast({_SECONDS} div 1000 % 1000 as int)",
    "MILLISECONDS": f"cast({_SECONDS} div 1000 as int)",
    "MICROSECONDS": f"cast({_SECONDS} as int)",
    "DAYOFYEAR": "dayofyear({0})",
    "ISODOW": "(weekday({0}) + 1)",
    "ISOYEAR": "extract(YEAROFWEEK from {0})",
    "CENTURY": "cast((year({0}) - 1) div 100 + 1 as int)",
    "DECADE": "cast(year({0}) div 10 as int)",
    "MILLENNIUM": "cast((year({0}) - 1) div 1000 + 1 as int)",
    "EPOCH": "unix_seconds(cast({0} as timestamp))",
}


def extracted(field: str, value: str, whole: str) -> Meaning:
    """EXTRACT(field FROM value)."""
    field = field.upper()
    if field in _EXTRACTED:
        return only_zeta(lambda: _EXTRACTED[field].format(value))
    if field in {"DOW", "DAYOFWEEK"}:
        return clash(
            lambda: f"(dayofweek({value}) - 1)", "Sunday is 0 in SeaTunnel, and 1 in Spark"
        )
    if field == "SECOND":
        return clash(lambda: f"second({value})", "SeaTunnel gives whole seconds, Spark fractions")
    return same(whole=whole)


def cast_as(view: CallView, kind: str, *, trying: bool) -> Meaning:
    """CAST(value AS kind); `view` has the value as its only argument."""
    name = kind.strip().upper()
    rule = _CASTS.get(name.partition("(")[0].strip())
    if rule is None:
        return same(whole=view.whole)
    meaning = rule(view, name)
    if trying and meaning.in_spark:  # what differs is the same as for CAST, and rarely meant
        return same(whole=view.whole)
    return meaning


def _to_bytes(view: CallView, _: str) -> Meaning:
    return only_zeta(lambda: f"encode(cast({view.args[0]} as string), 'UTF-8')")


def _to_text(view: CallView, name: str) -> Meaning:
    (value,) = view.args
    if name.startswith("VARCHAR("):
        return only_spark()
    if view.kind(0) in {"timestamp", "timestamp_ntz"}:
        made = f"regexp_replace(date_format({value}, '{_ISO}'), {_ZEROS}, '')"
        differs = "SeaTunnel writes a T between date and time, and Spark a space"
        return clash(lambda: made, differs)
    if name == "VARCHAR":
        return only_zeta(lambda: f"cast({value} as string)")
    return same(whole=view.whole)


def _to_timestamp(view: CallView, name: str) -> Meaning:
    (value,) = view.args
    if view.kind(0) == "bigint":
        made = f"cast(timestamp_millis({value}) as timestamp_ntz)"
        if name == "DATETIME":
            return only_zeta(lambda: made)
        return clash(lambda: made, "SeaTunnel counts milliseconds, and Spark seconds")
    if name == "DATETIME" or view.kind(0) == "timestamp_ntz":
        made = f"cast({value} as timestamp_ntz)"
        return only_zeta(lambda: made) if name == "DATETIME" else same(lambda: made)
    return same(whole=view.whole)


def _to_day(view: CallView, _: str) -> Meaning:
    (value,) = view.args
    if view.kind(0) != "int":
        return same(whole=view.whole)
    parts = f"({value}) div 10000, ({value}) div 100 % 100, ({value}) % 100"
    return only_zeta(lambda: f"make_date({parts})")


def _to_time(view: CallView, _: str) -> Meaning:
    """A time of day, which is a text here: Spark has no type for it that sinks take."""
    (value,) = view.args
    if view.kind(0) == "int":
        parts = f"({value}) div 10000, ({value}) div 100 % 100, ({value}) % 100"
        return only_zeta(lambda: f"format_string('%02d:%02d:%02d', {parts})")
    if view.is_time(0):
        return only_zeta(lambda: f"date_format({value}, 'HH:mm:ss')")
    return only_zeta(lambda: f"cast({value} as string)")


def _to_decimal(view: CallView, name: str) -> Meaning:
    (value,) = view.args
    if view.kind(0) not in {"string", "float", "double"} and not view.kind(0).startswith("decimal"):
        return same(whole=view.whole)
    scale = int(name.rstrip(") ").rpartition(",")[2]) if "," in name else 0
    exact = f"cast({value} as string) as decimal(38, {min(scale + 12, 38)})"
    differs = "SeaTunnel rounds up, and Spark to the nearest"

    def agreed() -> str:
        # A number too large to have its digits compared has none behind the point that count.
        up = f"try_cast(ceil(try_cast({exact}), {scale}) as {name})"
        fails_ = fails(view.name, differs)
        return f"if(coalesce(({up}) = ({view.whole}), true), {view.whole}, {fails_})"

    return clash(lambda: f"cast(ceil(cast({exact}), {scale}) as {name})", differs, agreed=agreed)


_CASTS: dict[str, Callable[[CallView, str], Meaning]] = {
    "BYTES": _to_bytes,
    "STRING": _to_text,
    "VARCHAR": _to_text,
    "TIMESTAMP": _to_timestamp,
    "DATETIME": _to_timestamp,
    "DATE": _to_day,
    "TIME": _to_time,
    "DECIMAL": _to_decimal,
}
_WEEK = "cast((dayofyear({0}) + dayofweek(trunc({0}, 'YEAR')) - 2) div 7 + 1 as int)"

TIME_RULES: dict[str, Callable[[CallView], Meaning]] = {
    "dateadd": _dateadd,
    "timestampadd": _dateadd,
    "datediff": _datediff,
    "date_trunc": _date_trunc,
    "dayname": _named("EEEE"),
    "monthname": _named("MMMM"),
    "day_of_month": _zeta_of_one("dayofmonth({0})"),
    "day_of_week": _zeta_of_one("(weekday({0}) + 1)"),
    "day_of_year": _zeta_of_one("dayofyear({0})"),
    "week": _zeta_of_one(_WEEK),
    "formatdatetime": _zeta_of_one("date_format({0}, {1})"),
    "parsedatetime": _parsed,
    "to_date": _to_date,
    "is_date": _is_date,
    "from_unixtime": _from_unixtime,
}
