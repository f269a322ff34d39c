"""Which engine a query is written for, and the query in Spark's SQL.

SeaTunnel's functions and Spark's share many names. A call that only one of them understands, by its
name, the number of its arguments or their types, is that one's. Where both understand a call and
mean something else by it, the rest of the query may tell: one that SeaTunnel could run and Spark
could not is SeaTunnel's, and the other way round. What then still has two meanings is refused, or,
where both mostly give the same, fails at the first row for which they don't. So nothing ever means
something else than its author thought. `engine` decides at once.

The text is rewritten call by call, from the inside. Where a rule asks for types, Spark is asked:
the call is replaced by one that has any type and holds its arguments, and the analyzed query says
what they are. That takes one analysis for each level of such calls within each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.transforms.sql.descriptor import Engine
from headrace.transforms.sql.functions import RULES, SAME, has_fitting_count
from headrace.transforms.sql.meanings import (
    CallView,
    Meaning,
    NotExpressible,
    TypesNeeded,
    ambiguous,
)
from headrace.transforms.sql.time_functions import cast_as, extracted
from headrace.transforms.sql.tokens import (
    SqlCall,
    SqlPart,
    SqlToken,
    TooDeep,
    flat,
    parse,
    significant,
)

ROUNDS_MAX = 50  # analyses of one query; each settles a level of calls within each other
QUERY_CHARACTERS_MAX = 1_000_000  # of the query as it is rewritten

# Words before a parenthesis that are no functions, and those of SeaTunnel's types.
_KEYWORD_TEXT = """
in and or not when then else case from where select on as exists between like is using by values any
all some interval table end if cast try_cast extract decimal varchar char explode
"""
_KEYWORDS = frozenset(_KEYWORD_TEXT.split())
# What a query of SeaTunnel's can't hold: a word, and the one behind it, if that matters. A column
# may be called by one of the words alone.
_SPARK_WORDS = (
    ("join", ""),
    ("union", ""),
    ("intersect", ""),
    ("having", ""),
    ("group", "by"),
    ("order", "by"),
    ("select", "distinct"),
)
# Words that an expression ends with, and those before its last operand.
_LAST_WORDS = frozenset({"end", "null", "true", "false", "unknown"})
_OPERATORS = frozenset(
    {"and", "or", "not", "is", "like", "ilike", "rlike", "regexp", "between", "div", "escape"}
)
_BACKSLASH = "SeaTunnel takes a backslash in a text as it is, and Spark escapes by it"
_VOID = re.compile(r"\bvoid\b(?!:)")  # the type of a null, and no field of that name
_NULL = re.compile(r"\bnull\b", re.IGNORECASE)
_POINT = re.compile(r"\d*\.\d*(?:[eE][+-]?\d+)?")

# The types of the arguments of calls, by their numbers in a query that holds `_probe` for each.
TypesOf = Callable[[str], Mapping[int, Sequence[str]]]


class AmbiguousSql(ValueError):
    """A query that can't be translated; the text says why, and the way out."""


def translate(query: str, *, engine: Engine | None, types_of: TypesOf) -> str:
    """The query in Spark's SQL. Raises `AmbiguousSql`."""
    if engine is Engine.SPARK:
        return query
    try:
        parts = parse(query)
        if engine is Engine.ZETA:
            return _rewritten(parts, _Walk(_zeta), types_of)
        sides = _Sides(spark=_holds_spark_words(parts))
        read = _rewritten(parts, _Walk(sides.note), types_of)
        if sides.zeta and not sides.spark:
            return _rewritten(parts, _Walk(_zeta), types_of)
        if not sides.clashes:
            return read
        if sides.spark and not sides.zeta:
            return query
        return _rewritten(parts, _Walk(_agreed), types_of)
    except (NotExpressible, TooDeep) as error:
        raise AmbiguousSql(str(error)) from None


def _probe(number: int | None, args: Sequence[str]) -> str:
    """An expression of any type that holds these arguments, as fields `headrace_<number>_<n>` of a
    structure; without a number nobody asks for their types."""
    label = "none" if number is None else number
    named = (f"'headrace_{label}_{at}', {arg}" for at, arg in enumerate(args))
    return f"raise_error(typeof(named_struct({', '.join(named)})))"


Choose = Callable[[str, str, Meaning], str]  # of the name of a call, its text and its meaning


@dataclass(slots=True)
class _Sides:
    """What of a query only one of the engines understands, and what both do differently."""

    spark: bool
    zeta: bool = False
    clashes: bool = False

    def note(self, name: str, whole: str, meaning: Meaning) -> str:  # noqa: ARG002
        if meaning.zeta is None:
            self.spark = True
        elif meaning.is_sql:
            return whole
        elif not meaning.in_spark:
            self.zeta = True
            return meaning.zeta()
        elif not meaning.same:
            self.clashes = True
        return whole


def _zeta(_name: str, whole: str, meaning: Meaning) -> str:
    return whole if meaning.zeta is None else meaning.zeta()


def _agreed(name: str, whole: str, meaning: Meaning) -> str:
    """What both engines give."""
    if meaning.zeta is None or meaning.same or meaning.is_sql:
        return whole
    if not meaning.in_spark:
        return meaning.zeta()
    if meaning.agreed is None:
        raise NotExpressible(ambiguous(name, meaning.differs))
    return meaning.agreed()


@dataclass(slots=True)
class _Walk:
    """One way of rewriting a query, and what it knows of types so far."""

    choose: Choose
    known: dict[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    asked: dict[str, int] = field(default_factory=dict[str, int])  # numbers of probes, by calls
    open: bool = False  # whether the text of this round holds a probe

    def query(self, parts: Sequence[SqlPart]) -> str:
        """The whole query. A column that is rewritten and has no name keeps the text that it was
        written as for one, as both engines do."""
        made = ""
        for item, is_column in _select_items(parts):
            written, text = "".join(token.text for token in flat(item)), self.text(item)
            if is_column and text != written and _is_unnamed(item):
                name = _without_quantifier(written.strip()).replace("`", "``")
                text = f"{text.rstrip()}\nAS `{name}`{text[len(text.rstrip()) :]}"
            made += text
        return made

    def text(self, parts: Sequence[SqlPart]) -> str:
        return "".join(
            self._token(part) if isinstance(part, SqlToken) else self._call(part) for part in parts
        )

    def _token(self, token: SqlToken) -> str:
        if token.kind == "text" and "\\" in token.text:
            doubled = token.text.replace("\\", "\\\\")
            meaning = Meaning(zeta=lambda: doubled, differs=_BACKSLASH)
            return self.choose(f"the text {token.text}", token.text, meaning)
        if token.kind == "number" and _POINT.fullmatch(token.text):
            meaning = Meaning(zeta=lambda: token.text + "D", same=True)
            return self.choose(token.text, token.text, meaning)
        return token.text

    def _call(self, call: SqlCall) -> str:
        name = call.name.word
        if name in {"cast", "try_cast", "extract"}:
            return self._special(call, name)
        was_open, self.open = self.open, False
        args = [self.text(arg) for arg in call.args]
        is_final, self.open = not self.open, self.open or was_open
        whole = f"{call.name.text}{call.gap}({','.join(args)})"
        rule = RULES.get(name)
        if rule is None:
            if name not in SAME and name not in _KEYWORDS:
                self.choose(name, whole, Meaning())
            return whole
        stripped = [arg.strip() for arg in args if arg.strip()]
        if not has_fitting_count(name, len(stripped)):
            return whole
        words = frozenset(
            part.word for arg in call.args for part in arg if isinstance(part, SqlToken)
        )
        literals = [_literal(arg, text) for arg, text in zip(call.args, stripped, strict=False)]
        return self._chosen(
            lambda kinds: (
                name.upper(),
                whole,
                rule(CallView(name.upper(), whole, stripped, literals, words, kinds)),
            ),
            whole,
            stripped,
            is_final=is_final,
        )

    def _special(self, call: SqlCall, name: str) -> str:
        """CAST(value AS type), EXTRACT(field FROM value)."""
        divider = "from" if name == "extract" else "as"
        found = _divided(call.args[0], divider) if len(call.args) == 1 else None
        if found is None:
            inner = ",".join(self.text(arg) for arg in call.args)
            return f"{call.name.text}{call.gap}({inner})"
        left, middle, right = found
        was_open, self.open = self.open, False
        value = self.text(right if name == "extract" else left)
        is_final, self.open = not self.open, self.open or was_open
        other = "".join(token.text for token in flat(left if name == "extract" else right))
        both = (other, value) if name == "extract" else (value, other)
        whole = f"{call.name.text}{call.gap}({both[0]}{middle}{both[1]})"

        def read(kinds: Sequence[str] | None) -> tuple[str, str, Meaning]:
            if name == "extract":
                return "EXTRACT", whole, extracted(other.strip(), value.strip(), whole)
            view = CallView(name.upper(), whole, [value.strip()], [None], frozenset(), kinds)
            return f"CAST AS {other.strip()}", whole, cast_as(view, other, trying=name != "cast")

        return self._chosen(read, whole, [value.strip()], is_final=is_final)

    def _chosen(
        self,
        read: Callable[[Sequence[str] | None], tuple[str, str, Meaning]],
        whole: str,
        args: Sequence[str],
        *,
        is_final: bool,
    ) -> str:
        try:
            return self.choose(*read(self.known.get(whole)))
        except TypesNeeded:
            self.open = True
            # Where an argument is a probe itself, its type is not the one to go by.
            number = self.asked.setdefault(whole, len(self.asked)) if is_final else None
            return _probe(number, args)


def _rewritten(parts: Sequence[SqlPart], walk: _Walk, types_of: TypesOf) -> str:
    made = _made_names(parts)
    for _ in range(ROUNDS_MAX):
        walk.open = False
        text = walk.query(parts)
        if len(text) > QUERY_CHARACTERS_MAX:
            raise NotExpressible(f"the query grows beyond {QUERY_CHARACTERS_MAX} characters")
        if not walk.open:
            return text
        _learn(walk, types_of(text), made)
    raise NotExpressible(f"functions are nested deeper than {ROUNDS_MAX} levels")


def _learn(walk: _Walk, found: Mapping[int, Sequence[str]], made: frozenset[str]) -> None:
    """Keep the types that are sure: first those of calls that name no column which is made in the
    query. Such a column may be a probe itself, of type void, until that one is known."""
    open_ = {whole: number for whole, number in walk.asked.items() if whole not in walk.known}
    if unknown := [whole for whole, number in open_.items() if number not in found]:
        raise NotExpressible(_no_types(unknown[0]))
    sure = {
        whole: found[number]
        for whole, number in open_.items()
        if not any(map(_VOID.search, found[number]))
    }
    sure = {whole: kinds for whole, kinds in sure.items() if _words(whole).isdisjoint(made)} or sure
    if not sure:  # nothing is left to wait for but nulls as they are written
        only = len(open_) == 1
        sure = {whole: found[at] for whole, at in open_.items() if only or _NULL.search(whole)}
    if not sure:
        raise NotExpressible(_no_types(next(iter(open_), "the query's calls")))
    walk.known |= sure


def _made_names(parts: Sequence[SqlPart]) -> frozenset[str]:
    """Names that the query gives to something, in lower case, and maybe other words."""
    tokens = [token for token in flat(parts) if token.kind != "space"]
    pairs = pairwise(tokens)
    named = [two.text for one, two in pairs if one.word == "as" or one.text == ")"]
    return frozenset[str]().union(*map(_words, named))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def _no_types(whole: str) -> str:
    return f"the types of {whole} can't be found; cast its arguments, or set engine = SPARK"


def _select_items(parts: Sequence[SqlPart]) -> list[tuple[list[SqlPart], bool]]:
    """The query cut at its outermost level: the columns of SELECT one by one, and all between;
    and whether each is a column."""
    items: list[tuple[list[SqlPart], bool]] = [([], False)]
    for part in parts:
        word = part.word if isinstance(part, SqlToken) else ""
        text = part.text if isinstance(part, SqlToken) else ""
        _, is_column = items[-1]
        if word == "select" or (is_column and (word == "from" or text in {",", ";"})):
            items += [([part], False), ([], word == "select" or text == ",")]
        else:
            items[-1][0].append(part)
    return items


def _is_unnamed(item: Sequence[SqlPart]) -> bool:
    """Whether a column has no name of its own: it ends with a call, a parenthesis or an operand."""
    inner = significant(item)
    last = inner[-1]
    if isinstance(last, SqlCall) or last.text in {")", "]"} or last.kind in {"text", "number"}:
        return True
    before = inner[-2] if len(inner) > 1 else None
    if before is None or last.word in _LAST_WORDS:
        return not (isinstance(before, SqlToken) and before.word == "as")
    return isinstance(before, SqlToken) and (
        before.word in _OPERATORS or (before.kind == "symbol" and before.text not in {")", "]"})
    )


def _without_quantifier(text: str) -> str:
    return re.sub(r"^(?:distinct|all)\s+", "", text, flags=re.IGNORECASE)


def _literal(arg: Sequence[SqlPart], text: str) -> str | None:
    """The value of an argument that is nothing but a text in quotes; `text` is as it was rewritten,
    with Spark's escapes."""
    inner = significant(arg)
    if len(inner) != 1 or not isinstance(inner[0], SqlToken) or inner[0].kind != "text":
        return None
    return re.sub(r"\\(.)", r"\1", text[1:-1].replace("''", "'"), flags=re.DOTALL)


def _divided(
    parts: Sequence[SqlPart], word: str
) -> tuple[Sequence[SqlPart], str, Sequence[SqlPart]] | None:
    """What stands before and behind the last such word at this level."""
    for at in range(len(parts) - 1, -1, -1):
        part = parts[at]
        if isinstance(part, SqlToken) and part.word == word:
            return parts[:at], part.text, parts[at + 1 :]
    return None


def _holds_spark_words(parts: Sequence[SqlPart]) -> bool:
    tokens = [token for token in flat(parts) if token.kind != "space"]
    words = [token.word for token in tokens]
    pairs = [*zip(tokens, [*tokens[1:], SqlToken("space", "")], strict=True)]
    return (
        words.count("select") > 1
        or words[:1] == ["with"]
        or any(one.word == "limit" and two.kind == "number" for one, two in pairs)
        or any(
            one.word == first and (not second or two.word == second)
            for one, two in pairs
            for first, second in _SPARK_WORDS
        )
    )
