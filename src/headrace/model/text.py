"""Text for people and for stores: what can be stored, how values are worded, what is redacted.

Storable text: PostgreSQL refuses a NUL, and an error message may quote one. `Text` is a string that
every store can hold. `shortened` cuts a text where a sentence ends.

Wording: times, lengths of time, sizes and counts as a sentence says them, and the nearest known
name for an error message (`did you mean …?`).

Redaction: which names sound secret, and where secrets stand inside a text: in log lines that others
wrote, in URIs and connection strings. A harmless name says nothing about what follows it, as in
`INFO SparkContext: password=x`. So only names are searched for, and only the value of a secret is
skipped as a whole; any other value is searched in turn. The patterns use possessive quantifiers
(`*+`) and begin at word boundaries, so that they never backtrack: the time for a line is linear in
its length.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from string import digits
from typing import Annotated

from pydantic import BeforeValidator

from headrace.logs import REDACTED, is_secret

SHOWN_MAX = 20  # known names in a hint
NEAR_RATIO = 0.6  # of similarity, from which on a name counts as near
WORKER_CHARS = 8  # of a worker's id that people are shown

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTES_AT = 0xDC00  # where Python maps undecodable bytes to (surrogateescape)
_SENTENCE_END = re.compile(r"[.;!?](?=\s)|\n")
_SHORTENED = " …"
_PARTITION_KEY = re.compile(r"(?P<spec>\d+)/(?P<path>.*)", re.DOTALL)
_PARTITION_LABEL = re.compile(r"(?P<path>.*) \(spec (?P<spec>\d+)\)", re.DOTALL)
_SIZES = ("kB", "MB", "GB", "TB", "PB")
_STEP = 1000


def storing_flaw(text: str) -> str | None:
    """Why a text can't be stored: PostgreSQL has no NUL, and UTF-8 no lone surrogate."""
    match = _UNSTORABLE.search(text)
    if match is None:
        return None
    return "a NUL character" if match[0] == "\0" else "half of a surrogate pair"


def legible(text: str) -> str:
    """The text with lone surrogates written out.

    Bytes that are not UTF-8, in names that Python took from the system, become `\\xe9`.
    """
    return _SURROGATE.sub(lambda match: _escaped(ord(match[0])), text)


def _escaped(code: int) -> str:
    byte = code - _BYTES_AT
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else f"\\u{code:04x}"


def without_nul(text: str) -> str:
    return text.replace("\0", "")


def shortened(text: str, most: int) -> str:
    """At most `most` characters: cut at the end of a line or a sentence, or else of a word.

    A text that breaks off in the middle of a word reads as if the program had failed to say it.
    """
    text = text.strip()
    if len(text) <= most:
        return text
    kept = text[: most - len(_SHORTENED)]
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, len(kept) + 1)]
    if ends and ends[-1] >= most // 3:
        return text[: ends[-1]].rstrip(" \n;") + _SHORTENED
    words = kept if text[len(kept)].isspace() else kept.rpartition(" ")[0]
    if len(words) < most // 3:  # a single word takes most of it
        words = kept
    return words.rstrip() + _SHORTENED


def _storable(value: object) -> object:
    """Runs before validation, in which pydantic refuses a lone surrogate."""
    if not isinstance(value, str) or storing_flaw(value) is None:
        return value
    return legible(without_nul(value))


# For what a worker sends, or what is stored for people: never refused, and always storable.
Text = Annotated[str, BeforeValidator(_storable)]


def utc(at_ms: int) -> str:
    """A time in UTC, for people in any time zone: 2026-01-31T10:20:30Z."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def size(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point: 13.1 MB."""
    shown, unit = float(count), "B"
    for larger in _SIZES:
        # What would be rounded to 1000.0 of a unit is shown as 1.0 of the next.
        if abs(shown) < _STEP - 0.05:
            break
        shown, unit = shown / _STEP, larger
    return f"{count} B" if unit == "B" else f"{shown:.1f} {unit}"


def span(lasted_ms: float) -> str:
    """A length of time in its two largest units.

    Clocks differ, so it may come out negative; then it is 0 s.
    """
    seconds = int(max(lasted_ms, 0) // 1000)
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {seconds % 60} s" if seconds % 60 else f"{minutes} min"
    return f"{seconds} s"


def until(at_ms: int, now_ms: int) -> str:
    """A time to come, as `in 3 min 20 s (2026-01-31T10:20:30Z)`; `now` when it has passed."""
    return "now" if at_ms <= now_ms else f"in {span(at_ms - now_ms)} ({utc(at_ms)})"


def ago(at_ms: int, now_ms: int) -> str:
    """A time that has passed, as `3 min 20 s ago (2026-01-31T10:20:30Z)`."""
    return f"{span(now_ms - at_ms)} ago ({utc(at_ms)})"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 file`, `2 files`; `nouns` is the plural when adding an s is not enough."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def short_worker(name: str) -> str:
    """The beginning of a worker's id, enough to find it in a list."""
    return name[:WORKER_CHARS]


def partition(text: str) -> str:
    """A partition in words, from its id `spec/path` or its label `path (spec n)`.

    The first spec, 0, is not mentioned.
    """
    match = _PARTITION_KEY.fullmatch(text) or _PARTITION_LABEL.fullmatch(text)
    path, spec = (match["path"], match["spec"]) if match else (text, "0")
    whole = path in {"", "unpartitioned"}
    return ("the whole table" if whole else path) + ("" if spec == "0" else f" (spec {spec})")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, ignoring case; None when none is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=NEAR_RATIO)
    return by_lower[close[0]] if close else None


def hint(name: str, known: Iterable[str], *, noun: str) -> str:
    """`did you mean 'row.num'?`, or a list of the known names when none is near."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if not names:
        return f"there are no {noun}"
    shown = ", ".join(names[:SHOWN_MAX])
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"known {noun}: {shown}{more}"


# Redaction. A key is a secret: my-key, storageKey, KEY_2. Its id or its file is not, and neither is
# a key that names columns or is public.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
_PLAIN_KEYS = frozenset(
    {"primary", "foreign", "unique", "partition", "sort", "order", "group", "join", "row", "public"}
    | {"bucket", "cache", "idempotency", "lookup", "object", "record", "routing"}
)
# In free text a key is a secret after one of these words, or as a setting (`x.key`).
_SECRET_KEY_WORDS = frozenset(
    {"access", "account", "api", "app", "auth", "encryption", "master", "private", "secret"}
    | {"shared", "signing", "sse", "ssh", "storage"}
)
_NAME = r"(?<![\w.-])(?P<name>(?:[\w.]|-(?!>))++)"
# A name, up to its value: name=, name: , "name": , \"name\": , name -> , x['name'] =
_NAMED = re.compile(_NAME + r"\\*+[\"'\]]*+\s*+(?:->|[=:]++>?+)\s*+")
# A value: between quotes or brackets, or up to a space. A line may have been cut inside of it.
_VALUE = re.compile(
    r"""
    "(?:\\.|[^"\\])*+\\?+"?+
    | '(?:\\.|[^'\\])*+\\?+'?+
    | (?P<quote>\\{1,16}+["'])(?:(?!(?P=quote)).)*+(?P=quote)?+
    | (?:\{[^}\n]*+\}?+|\[[^]\n]*+\]?+|\([^)\n]*+\)?+)[^\s"',;)\]}]*+
    | (?P<plain>
        (?:(?:bearer|basic|digest|negotiate|ntlm|token|apikey|aws4-hmac-sha256)\s++)?+
        (?:[^\s"',;]|[,;](?![\s"']|\Z|[\w.-]*+[=:]))++
      )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_USERINFO = re.compile(r"//[^/?#\s:]*+:(?P<told>[^/?#\s\"'<>]+)@")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")
# A parameter of a URI: `password=y` after ? & ; or in brackets, and `{y;z}` as SQL Server has it.
_PARAMETER = re.compile(_NAME + r"\s*+=\s*+")
_PARAMETER_VALUE = re.compile(r"\{[^}]*+\}?+|[^&;,)\s]++")
# Matched to its end even without an @, so that the search does not start again inside of it.
_ORACLE = re.compile(
    r"jdbc:oracle:\w++:[^/@\s]*+(?:/(?P<told>[^@\s]++)(?P<at>@)?+)?+", re.IGNORECASE
)
_WHOLE_URI = re.compile(r"[A-Za-z][^/\s=]*+//[^/?#:]*+:(?P<told>[^/?#]+)@")
# Values that are no secrets, though the name of their parameter sounds like one.
_PLAIN_VALUES = frozenset({"true", "false"})
# Ends of parameters that name a file or a method: `-Djavax.net.ssl.trustStorePasswordFile=/etc/x`.
_PLAIN_PARAMETERS = ("file", "path", "dir", "auth.login.config", "authentication", "preference")

Span = tuple[int, int]  # start and end of a part of a text


def sounds_secret(name: str) -> bool:
    """Whether the name of a property, a Spark setting or a variable sounds secret.

    It does when we would redact it, as Spark does, or when it names a key. Its value then stands
    only where its owner reads.
    """
    return _has_word_of_secret(name) or _is_key(_words(name))


def holds_secret(name: str, value: str) -> bool:
    """Whether the name sounds secret, or the value has a secret inside of it, as a URI may."""
    return sounds_secret(name) or bool(secret_places(value))


def _is_secret_in_text(name: str) -> bool:
    """Like `sounds_secret`, for a name in free text, where `date_key=5` is just a column."""
    words = _words(name)
    known = name.lower().endswith(".key") or not _SECRET_KEY_WORDS.isdisjoint(words)
    return _has_word_of_secret(name) or (known and len(words) > 1 and _is_key(words))


def _has_word_of_secret(name: str) -> bool:
    parted = _HUMP.sub("_", name)  # dbPwd becomes db_Pwd
    return is_secret(name) or (parted != name and is_secret(parted))


def _words(name: str) -> list[str]:
    words = [word for word in _NOT_ALPHANUMERIC.split(_HUMP.sub("_", name).lower()) if word]
    while len(words) > 1 and words[-1].isdecimal():  # a counter, as in KEY_2
        words.pop()
    return words


def _is_key(words: list[str]) -> bool:
    whose = words[-2] if len(words) > 1 else ""
    return bool(words) and words[-1].rstrip(digits) == "key" and whose not in _PLAIN_KEYS


def redacted_to(most: int, text: str) -> str:
    """The first `most` characters, redacted; the time it takes does not depend on the rest."""
    return redacted(text[: most * 4])[:most]


def redacted(line: str) -> str:
    """A log line or an error message with every secret in it replaced."""
    line = without_nul(line)
    line = _without(line, [match.span("told") for match in _USERINFO.finditer(line)])
    line = _BEARER.sub(rf"\1{REDACTED}", line)
    return _without(line, _values(line, _NAMED, _value_in_line))


def _values(
    text: str, named: re.Pattern[str], value_of: Callable[[re.Match[str]], Span | None]
) -> Iterator[Span]:
    """Where the values of secrets stand. The value of any other name is searched in turn."""
    done = 0
    for match in named.finditer(text):
        # A value may itself be a name: `TokenManager: password: x`.
        if match.end() < done or not _is_secret_in_text(match["name"]):
            continue
        value = value_of(match)
        if value is not None:
            done = value[1]
            yield value


def _value_in_line(named: re.Match[str]) -> Span | None:
    start = named.end()
    match = _VALUE.match(named.string, start)
    if match is None:
        return None
    plain = match["plain"]
    # Without the brackets around it: `options={password=x}`.
    kept = len(plain.rstrip(")]}")) if plain else 0
    return (start, start + kept) if kept else match.span()


def _value_of_parameter(named: re.Match[str]) -> Span | None:
    match = _PARAMETER_VALUE.match(named.string, named.end())
    if match is None or match[0].lower() in _PLAIN_VALUES:
        return None
    return None if named["name"].lower().endswith(_PLAIN_PARAMETERS) else match.span()


def secret_places(value: str) -> set[Span]:
    """Where secrets stand in a URI, a connection string or the options of a JVM.

    The spans do not overlap.
    """
    spans = list(_values(value, _PARAMETER, _value_of_parameter))
    spans += [each.span("told") for each in _USERINFO.finditer(value)]
    spans += [each.span("told") for each in _ORACLE.finditer(value) if each["at"]]
    if whole := _WHOLE_URI.match(value):
        spans.append(whole.span("told"))
    return set(_without_overlaps(spans))


def blanked(value: str) -> str:
    """A URI, connection string or JVM option with its secrets replaced, however short they are."""
    return _without(value, sorted(secret_places(value)))


def _without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Of spans that overlap, the one that begins first, and of these the longest.

    So in `//u:password=x@h` the user info wins, which ends before the host.
    """
    kept: list[Span] = []
    for first, last in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or first >= kept[-1][1]:
            kept.append((first, last))
    return kept


def _without(text: str, spans: Iterable[Span]) -> str:
    """The text with these spans replaced; they come in order, and do not overlap."""
    pieces: list[str] = []
    done = 0
    for first, last in spans:
        pieces += text[done:first], REDACTED
        done = last
    return "".join((*pieces, text[done:]))
