"""Which names sound secret, and the secrets that stand inside a text: in lines that others wrote,
in URIs and connection strings.

A name that is harmless says nothing of what stands behind it: `INFO SparkContext: password=x`. So
only names are looked for, and a value is passed over as a whole only when it is a secret. Patterns
give nothing back that they took (`*+`), and begin where a word does: a line costs its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from string import digits

from headrace.logs import REDACTED, is_secret
from headrace.model.text import without_nul

# my-key, storageKey, KEY_2; not a key's id or its file, nor one that names columns or is public.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_WORD = re.compile(r"[^a-z0-9]+")
_PLAIN_KEYS = frozenset(
    {"primary", "foreign", "unique", "partition", "sort", "order", "group", "join", "row", "public"}
    | {"bucket", "cache", "idempotency", "lookup", "object", "record", "routing"}
)
# In a text a key is a secret behind one of these, or as a setting (`x.key`).
_TELLING = frozenset(
    {"access", "account", "api", "app", "auth", "encryption", "master", "private", "secret"}
    | {"shared", "signing", "sse", "ssh", "storage"}
)
_NAME = r"(?<![\w.-])(?P<name>(?:[\w.]|-(?!>))++)"
# name=, name: , "name": , \"name\": , name -> , x['name'] =
_NAMED = re.compile(_NAME + r"\\*+[\"'\]]*+\s*+(?:->|[=:]++>?+)\s*+")
# Between quotes or brackets, or up to a space; a line may have been cut before it ends.
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
# `password=y` behind ? & ; or in brackets, and `{y;z}` as SQL Server takes it.
_PARAMETER = re.compile(_NAME + r"\s*+=\s*+")
_PARAMETER_VALUE = re.compile(r"\{[^}]*+\}?+|[^&;,)\s]++")
# Taken to its end also without an @, so that what is inside is not begun with once more.
_ORACLE = re.compile(
    r"jdbc:oracle:\w++:[^/@\s]*+(?:/(?P<told>[^@\s]++)(?P<at>@)?+)?+", re.IGNORECASE
)
_WHOLE_URI = re.compile(r"[A-Za-z][^/\s=]*+//[^/?#:]*+:(?P<told>[^/?#]+)@")
# What a parameter says without being a secret, though its name has a word of one.
_PLAIN_VALUES = frozenset({"true", "false"})
# The name of a file, or of a way: `-Djavax.net.ssl.trustStorePasswordFile=/etc/x`.
_PLAIN_PARAMETERS = ("file", "path", "dir", "auth.login.config", "authentication", "preference")

Span = tuple[int, int]  # from, to


def sounds_secret(name: str) -> bool:
    """Whether a property, a setting of Spark or a variable sounds secret, so that its value stands
    where only its owner reads: we redact it, as Spark would, or it is a key."""
    return _has_word_of_secret(name) or _is_key(_words(name))


def holds_secret(name: str, value: str) -> bool:
    """Whether it sounds secret, or has a secret inside of its value, such as a URI."""
    return sounds_secret(name) or bool(secret_places(value))


def _is_told_of(name: str) -> bool:
    """As `sounds_secret`, for a text: there `date_key=5` is no more than a column."""
    words = _words(name)
    known = name.lower().endswith(".key") or not _TELLING.isdisjoint(words)
    return _has_word_of_secret(name) or (known and len(words) > 1 and _is_key(words))


def _has_word_of_secret(name: str) -> bool:
    parted = _HUMP.sub("_", name)  # dbPwd
    return is_secret(name) or (parted != name and is_secret(parted))


def _words(name: str) -> list[str]:
    words = [word for word in _NO_WORD.split(_HUMP.sub("_", name).lower()) if word]
    while len(words) > 1 and words[-1].isdecimal():  # the second of two
        words.pop()
    return words


def _is_key(words: list[str]) -> bool:
    whose = words[-2] if len(words) > 1 else ""
    return bool(words) and words[-1].rstrip(digits) == "key" and whose not in _PLAIN_KEYS


def redacted_to(most: int, text: str) -> str:
    """Its beginning, as long as people are shown: redacting takes no longer than for that."""
    return redacted(text[: most * 4])[:most]


def redacted(line: str) -> str:
    line = without_nul(line)
    line = _without(line, [found.span("told") for found in _USERINFO.finditer(line)])
    line = _BEARER.sub(rf"\1{REDACTED}", line)
    return _without(line, _values(line, _NAMED, _value_in_line))


def _values(
    text: str, named: re.Pattern[str], value_of: Callable[[re.Match[str]], Span | None]
) -> Iterator[Span]:
    """Where values of secrets stand. What any other name has is looked into."""
    done = 0
    for found in named.finditer(text):
        # A value may be the name of the next one: `TokenManager: password: x`.
        if found.end() < done or not _is_told_of(found["name"]):
            continue
        value = value_of(found)
        if value is not None:
            done = value[1]
            yield value


def _value_in_line(named: re.Match[str]) -> Span | None:
    start = named.end()
    found = _VALUE.match(named.string, start)
    if found is None:
        return None
    plain = found["plain"]
    # The brackets around it: `options={password=x}`.
    kept = len(plain.rstrip(")]}")) if plain else 0
    return (start, start + kept) if kept else found.span()


def _value_of_parameter(named: re.Match[str]) -> Span | None:
    found = _PARAMETER_VALUE.match(named.string, named.end())
    if found is None or found[0].lower() in _PLAIN_VALUES:
        return None
    return None if named["name"].lower().endswith(_PLAIN_PARAMETERS) else found.span()


def secret_places(value: str) -> set[Span]:
    """Where in a URI, a connection string or the options of a JVM secrets stand. None lies in
    another."""
    found = list(_values(value, _PARAMETER, _value_of_parameter))
    found += [each.span("told") for each in _USERINFO.finditer(value)]
    found += [each.span("told") for each in _ORACLE.finditer(value) if each["at"]]
    if whole := _WHOLE_URI.match(value):
        found.append(whole.span("told"))
    return set(_apart(found))


def blanked(value: str) -> str:
    """Without the secrets inside of it, however short they are."""
    return _without(value, sorted(secret_places(value)))


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Of two that overlap the first, and the longer: `//u:password=x@h` ends before its host."""
    made: list[Span] = []
    for first, last in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not made or first >= made[-1][1]:
            made.append((first, last))
    return made


def _without(text: str, spans: Iterable[Span]) -> str:
    """`spans`: in their order, none of them in another."""
    pieces: list[str] = []
    done = 0
    for first, last in spans:
        pieces += text[done:first], REDACTED
        done = last
    return "".join((*pieces, text[done:]))
