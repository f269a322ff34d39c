"""SeaTunnel's functions of texts, numbers and choices: a rule for each that Spark lacks or means
otherwise. `SAME` lists those that need no rule. Times are in time_functions.py."""

from __future__ import annotations

from collections.abc import Callable

from headrace.transforms.sql.meanings import (
    CallView,
    Meaning,
    NotExpressible,
    clash,
    compared,
    fails,
    only_spark,
    only_zeta,
    quoted,
    same,
)
from headrace.transforms.sql.time_functions import TIME_RULES, TIME_SAME

# Functions of SeaTunnel that Spark has, too, with the same meaning.
_SAME = """
concat_ws lower lcase upper ucase left right repeat replace soundex space abs acos asin atan atan2
cos cosh cot sin sinh tan tanh exp ln log10 radians sqrt pi power round rand random coalesce ifnull
nullif uuid array map array_max array_min get_json_object md5 explode
"""
SAME = frozenset(_SAME.split()) | TIME_SAME
_FLAGS = {"i": "i", "n": "s", "m": "m"}  # Java's letters of SeaTunnel's flags; c turns i off


def _concat(view: CallView) -> Meaning:
    if any(view.kind(at) == "binary" or _is_nested(view.kind(at)) for at in range(len(view.args))):
        return only_spark()
    differs = "SeaTunnel leaves nulls out, and in Spark one null makes the result null"

    def agreed() -> str:
        guarded = (f"coalesce({arg}, {fails('CONCAT', differs)})" for arg in view.args)
        return f"concat({', '.join(guarded)})"

    return clash(lambda: f"concat_ws('', {', '.join(view.args)})", differs, agreed=agreed)


def _is_nested(kind: str) -> bool:
    return kind.startswith(("array", "map", "struct"))


def _as(kind: str) -> Callable[[CallView], Meaning]:
    """The same number, of another type."""
    return lambda view: same(lambda: f"cast({view.whole} as {kind})")


def _ascii(view: CallView) -> Meaning:
    return same(lambda: f"nullif({view.whole}, 0)")


def _char(view: CallView) -> Meaning:
    hexed = f"lpad(hex(cast({view.args[0]} as int)), 4, '0')"
    return compared(
        view,
        lambda: f"decode(unhex({hexed}), 'UTF-16BE')",
        "from 256 on, SeaTunnel gives the character of that number and Spark that of the rest",
    )


def _rawtohex(view: CallView) -> Meaning:
    (text,) = view.args
    if view.kind(0) == "binary":
        return only_zeta(lambda: f"lower(hex({text}))")
    return only_zeta(lambda: f"lower(hex(encode(cast({text} as string), 'UTF-16BE')))")


def _insert(view: CallView) -> Meaning:
    if len(view.args) != 4:
        return only_spark()
    text, start, length, added = view.args
    unchanged = (
        f"{added} is null or {added} = '' or {start} < 1 or {length} <= 0 "
        f"or {start} > length({text}) + 1"
    )
    made = f"concat(left({text}, {start} - 1), {added}, substring({text}, {start} + {length}))"
    return only_zeta(
        lambda: (
            f"case when {text} is null then {added} when {unchanged} then {text} else {made} end"
        )
    )


def _located(view: CallView) -> Meaning:
    if "in" in view.words:
        return only_spark()
    if view.name == "INSTR" and len(view.args) == 3:
        text, search, start = view.args
        return only_zeta(lambda: f"coalesce(locate({search}, {text}, {start}), 0)")
    return same(lambda: f"coalesce({view.whole}, 0)")


def _padded(view: CallView) -> Meaning:
    if len(view.args) < 3 or len(view.literals[2] or "") == 1:
        return same(whole=view.whole)
    text, length, padding = view.args
    first = f"coalesce(nullif(substring({padding}, 1, 1), ''), ' ')"
    return compared(
        view,
        lambda: f"{view.name.lower()}({text}, {length}, {first})",
        "SeaTunnel pads with the first character, and Spark with the whole text",
    )


def _trimmed(side: str) -> Callable[[CallView], Meaning]:
    def rule(view: CallView) -> Meaning:
        if "from" in view.words:
            return only_spark()
        if len(view.args) != 2:
            return same(whole=view.whole)
        (text, characters), (first, second) = view.args, view.literals
        if second is not None:
            character = quoted(second[:1] or " ")
        else:
            character = f"coalesce(nullif(substring({characters}, 1, 1), ''), ' ')"

        def zeta() -> str:
            return f"trim({side} {character} from {text})"

        if first is not None and second is None:  # what is in quotes is what is taken off
            return only_spark()
        return clash(zeta, "SeaTunnel takes the second text off the first, Spark the first")

    return rule


def _regexp_replace(view: CallView) -> Meaning:
    if len(view.args) < 4:
        return same(whole=view.whole)
    if view.literals[3] is None and view.args[3].lower() != "null" and view.kind(3) != "string":
        return only_spark()  # a position
    text, pattern, by = view.args[:3]
    return only_zeta(lambda: f"regexp_replace({text}, {_flagged(view, pattern, 3)}, {by})")


def _regexp_like(view: CallView) -> Meaning:
    if len(view.args) < 3:
        return same(whole=view.whole)
    return only_zeta(lambda: f"regexp_like({view.args[0]}, {_flagged(view, view.args[1], 2)})")


def _regexp_substr(view: CallView) -> Meaning:
    if len(view.args) < 6:
        return same(whole=view.whole)
    text, pattern, position, occurrence, _, group = view.args
    start, which, of = (
        default if given.lower() == "null" else given
        for given, default in ((position, "1"), (occurrence, "1"), (group, "0"))
    )

    def zeta() -> str:
        matches = f"regexp_extract_all(substring({text}, {start}), {_flagged(view, pattern, 4)}"
        return f"try_element_at({matches}, {of}), {which})"

    return only_zeta(zeta)


def _flagged(view: CallView, pattern: str, at: int) -> str:
    """The expression with SeaTunnel's flags as Java writes them within it."""
    if view.args[at].lower() == "null":
        return pattern
    letters = ""
    for flag in view.literal(at, "its flags"):
        if flag == "c":
            letters = letters.replace("i", "")
        elif flag in _FLAGS:
            letters += _FLAGS[flag]
        else:
            raise NotExpressible(f"{view.name}: flag {flag!r} is none of i, c, n, m")
    return f"concat('(?{letters}u)', {pattern})" if letters else pattern


def _split(view: CallView) -> Meaning:
    if len(view.args) != 2:
        return only_spark()
    text, separator = view.args
    parts = f"split(nullif({text}, ''), {separator})"
    later = "exists(slice(parts, at + 1, size(parts)), one -> one <> '')"
    differs = "SeaTunnel leaves empty parts at the end out, and Spark keeps them"

    def zeta() -> str:
        return f"transform(array({parts}), parts -> filter(parts, (part, at) -> {later}))[0]"

    def agreed() -> str:
        is_same = f"{text} = '' or ({zeta()}) <=> ({view.whole})"
        return f"if({is_same}, {view.whole}, {fails(view.name, differs)})"

    return clash(zeta, differs, agreed=agreed)


def _substring(view: CallView) -> Meaning:
    if "from" in view.words:
        return only_spark()
    return same(lambda: f"nullif({view.whole}, '')")


def _to_char(view: CallView) -> Meaning:
    if len(view.args) == 1:
        return only_zeta(lambda: f"cast({view.args[0]} as string)")
    if view.is_time(0):
        return same(lambda: f"date_format({', '.join(view.args)})")
    return clash(
        lambda: f"cast({view.args[0]} as string)",
        "SeaTunnel ignores the format of a number, and Spark goes by it",
    )


def _translate(view: CallView) -> Meaning:
    text, found, by = view.args
    old, new = view.literals[1:]
    if old is not None and new is not None:
        if len(new) >= len(old):
            return same(whole=view.whole)
        full = quoted(new + old[len(new) :])
    else:
        full = f"concat({by}, substring({found}, length({by}) + 1))"
    return compared(
        view,
        lambda: f"translate({text}, {found}, {full})",
        "SeaTunnel keeps a character that has no counterpart, and Spark takes it out",
    )


def _mod(view: CallView) -> Meaning:
    def zeta() -> str:
        exact = [
            f"cast(cast({arg} as string) as decimal(38, 15))"
            if view.kind(at) in {"float", "double"}
            else arg
            for at, arg in enumerate(view.args)
        ]
        return f"cast(mod({', '.join(exact)}) as {view.kind(1)})"

    return same(zeta)


def _rounded_to_int(view: CallView) -> Meaning:
    if len(view.args) != 1:
        return same(whole=view.whole)
    return same(lambda: f"cast({view.whole} as int)")


def _log(view: CallView) -> Meaning:
    return same(whole=view.whole) if len(view.args) == 2 else only_spark()


def _truncated(view: CallView) -> Meaning:
    if len(view.args) == 2 and (view.literals[1] is not None or not view.is_number(0)):
        return only_spark()  # of a date, with the part to keep

    def zeta() -> str:
        value, kind = view.args[0], view.kind(0)
        digits = view.whole_number(1, "the number of digits") if len(view.args) == 2 else 0
        exact = value
        if kind in {"float", "double"}:
            exact = f"cast(cast({value} as string) as decimal(38, 18))"
        elif not kind.startswith("decimal"):
            exact = f"cast({value} as decimal(38, 0))"
        cut = f"if({value} < 0, ceil({exact}, {digits}), floor({exact}, {digits}))"
        return f"cast({cut} as {kind})"

    return only_zeta(zeta)


def _trim_scale(view: CallView) -> Meaning:
    (value,) = view.args
    exact = value
    if view.kind(0) in {"float", "double"}:
        exact = f"cast(cast({value} as string) as decimal(38, 18))"
    short = f"regexp_replace(cast({exact} as string), '([.][0-9]*?)0+$', '$1')"
    return only_zeta(lambda: f"regexp_replace({short}, '[.]$', '')")


def _multi_if(view: CallView) -> Meaning:
    *pairs, last = view.args
    if len(pairs) % 2 or not pairs:
        raise NotExpressible("MULTI_IF: pairs of a condition and a value, and one more value")
    whens = (f"when {when} then {then}" for when, then in zip(pairs[::2], pairs[1::2], strict=True))
    return only_zeta(lambda: f"case {' '.join(whens)} else {last} end")


def _aes(view: CallView) -> Meaning:
    mode = (view.literals[2] or "").upper() if len(view.args) > 2 else ""
    if view.name == "AES_ENCRYPT" and len(view.args) < 5 and mode != "ECB":
        raise NotExpressible(
            "AES_ENCRYPT begins with random bytes here, so that rows which are computed again "
            "would be others; name the mode 'ECB', or bytes to begin with as the fifth argument"
        )
    if len(view.args) > 2:
        return only_spark()

    def zeta() -> str:
        raise NotExpressible(f"{view.name} of SeaTunnel is not built; set engine = SPARK")

    return clash(zeta, "the engines encrypt in different modes")


def _refused(why: str) -> Callable[[CallView], Meaning]:
    def rule(view: CallView) -> Meaning:
        def zeta() -> str:
            raise NotExpressible(f"{view.name} {why}")

        return only_zeta(zeta)

    return rule


_DES = "is not built: Spark has no DES, which is broken anyway; use a transform of your own"

RULES: dict[str, Callable[[CallView], Meaning]] = {
    "ascii": _ascii,
    "bit_length": _as("bigint"),
    "char_length": _as("bigint"),
    "length": _as("bigint"),
    "octet_length": _as("bigint"),
    "char": _char,
    "chr": _char,
    "concat": _concat,
    "hextoraw": lambda view: only_zeta(lambda: f"decode(unhex({view.args[0]}), 'UTF-16BE')"),
    "rawtohex": _rawtohex,
    "insert": _insert,
    "locate": _located,
    "instr": _located,
    "position": _located,
    "lpad": _padded,
    "rpad": _padded,
    "ltrim": _trimmed("leading"),
    "rtrim": _trimmed("trailing"),
    "trim": _trimmed("both"),
    "regexp_replace": _regexp_replace,
    "regexp_like": _regexp_like,
    "regexp_substr": _regexp_substr,
    "split": _split,
    "substring": _substring,
    "substr": _substring,
    "to_char": _to_char,
    "translate": _translate,
    "to_base64": lambda view: only_zeta(lambda: f"base64({view.args[0]})"),
    "from_base64": lambda view: only_zeta(lambda: f"decode(unbase64({view.args[0]}), 'UTF-8')"),
    "mod": _mod,
    "ceil": _rounded_to_int,
    "ceiling": _rounded_to_int,
    "floor": _rounded_to_int,
    "log": _log,
    "sign": _as("int"),
    "trunc": _truncated,
    "truncate": _truncated,
    "trim_scale": _trim_scale,
    "multi_if": _multi_if,
    "murmur64": _refused("is not built: Spark has no such hash; use XXHASH64 or MD5"),
    "aes_encrypt": _aes,
    "aes_decrypt": _aes,
    "des_encrypt": _refused(_DES),
    "des_decrypt": _refused(_DES),
    **TIME_RULES,
}

# How many arguments a call has at least and at most, where a rule depends on it. Any other number
# is left to Spark, which says what is wrong.
_COUNTS = {
    "concat": (1, 255),
    "formatdatetime": (2, 2),
    "hextoraw": (1, 1),
    "insert": (4, 4),
    "is_date": (2, 2),
    "lpad": (2, 3),
    "mod": (2, 2),
    "parsedatetime": (2, 2),
    "rawtohex": (1, 1),
    "regexp_like": (2, 3),
    "regexp_replace": (3, 4),
    "regexp_substr": (2, 6),
    "rpad": (2, 3),
    "split": (2, 3),
    "translate": (3, 3),
    "trim_scale": (1, 1),
    "trunc": (1, 2),
    "truncate": (1, 2),
}


def has_fitting_count(name: str, count: int) -> bool:
    least, most = _COUNTS.get(name, (1, 255))
    return least <= count <= most
