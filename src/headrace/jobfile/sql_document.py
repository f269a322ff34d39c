"""The reader of job files in SQL, as SeaTunnel has them, to the same document as HOCON gives.

    /* config
    env { job.mode = BATCH }
    */
    CREATE TABLE orders WITH ('connector' = 'Jdbc', 'type' = 'source', …);
    CREATE TABLE large WITH ('connector' = 'Iceberg', 'type' = 'sink', …);
    INSERT INTO large SELECT id, amount FROM orders WHERE amount > 100;

A table of type source or sink is a plugin, and its name is the table that a source makes. A value
in braces or brackets is HOCON. `INSERT INTO sink SELECT … FROM table` is a Sql transform and the
sink behind it, `INSERT INTO sink SELECT table` the sink alone, and `CREATE TABLE name AS SELECT …`
a Sql transform. A sink that two statements insert into is two sinks, and one that none inserts into
is left out. `--` begins a comment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.jobfile.hocon import Document, read_document, read_value
from headrace.model.text import hint, storing_flaw
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import (
    Array,
    FilePlace,
    Node,
    Object,
    PluginBlock,
    Problem,
    Role,
    Scalar,
    scalar,
)

OWN_OPTIONS = frozenset({"connector", "type"})  # of a table, and no options of its plugin
_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<name>"(?:[^"]|"")*"|`[^`]*`)'
    r"|(?P<word>[\w$.:-]+|\$\{[^}\n]*\})"
    r"|(?P<open>/\*|['\"`])"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_CONFIG = re.compile(r"/\*\s*config\b", re.IGNORECASE)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "/": "/", '"': '"'}
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|([ntrbf\\/"]))')
_ENDS = {"/*": "*/"}
_STATEMENTS = "CREATE TABLE … WITH (…), CREATE TABLE … AS SELECT … and INSERT INTO … SELECT …"


class TextPlaces:
    """Finds the line and column of an offset, without counting from the beginning each time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> FilePlace:
        line = bisect_right(self._starts, offset)
        return FilePlace(line, offset - self._starts[line - 1] + 1)


class StatementToken(NamedTuple):
    kind: str  # "text", "name", "word" or "sign"
    text: str  # without its quotes
    start: int
    end: int

    def says(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign

    @property
    def is_name(self) -> bool:
        return self.kind in {"word", "name"}


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table that a statement declares."""

    name: str
    place: FilePlace
    plugin: PluginBlock | None = None  # None: it is made by a query, or broken
    broken: bool = False  # what is wrong with it was told

    @property
    def is_sink(self) -> bool:
        return self.plugin is not None and self.plugin.role == "sink"


def read_sql(text: str, problems: Problems) -> Document:
    """The document that a text describes. What is wrong with it is added to `problems`, and the
    document is not to be used if anything is."""
    before = problems.count
    document = read_document(_only_config(text), problems=problems)
    document.root.place = FilePlace(1, 1)
    for plugin in document.plugins:
        said = f"{plugin.role} {plugin.name} can't stand in `/* config */` of a job in SQL"
        problems.add(Problem(plugin.place, f"{said}; declare it by CREATE TABLE … WITH (…)"))
    places = TextPlaces(text)
    try:
        statements = list(_statements(places))
    except Problem as problem:
        problems.add(problem)
        return document
    reader = _SqlReader(places, problems)
    for statement in statements:
        with problems.collect():
            reader.declare(statement)
    for statement in statements:
        with problems.collect():
            reader.connect(statement)
    if problems.count == before:
        document.plugins = reader.plugins()
    return document


def _only_config(text: str) -> str:
    """The HOCON in `/* config … */`, with all else blanked, so that places stay true."""
    kept: list[str] = []
    done = 0
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "open":
            break  # the reader of statements tells of it
        if match["space"] and (begin := _CONFIG.match(match[0])):
            first, last = match.start() + begin.end(), match.end() - len("*/")
            kept += [_blank(text[done:first]), text[first:last]]
            done = last
    return "".join((*kept, _blank(text[done:])))


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _tokens(places: TextPlaces) -> Iterator[StatementToken]:
    for match in _TOKEN.finditer(places.text):
        kind, found = str(match.lastgroup), match[0]
        match kind:
            case "space":
                continue
            case "open":
                end = _ENDS.get(found, found)
                what = "comment" if found == "/*" else "text"
                raise Problem(
                    places.at(match.start()), f"this {what} has no end: {end!r} is missing"
                )
            case "text":
                found = found[1:-1].replace("''", "'")
            case "name":
                found = found[1:-1].replace('""', '"')
            case _:
                pass
        yield StatementToken(kind, found, *match.span())


def _statements(places: TextPlaces) -> Iterator[list[StatementToken]]:
    statement: list[StatementToken] = []
    for token in _tokens(places):
        if token.is_sign(";"):
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


class _SqlReader:
    """Reads the statements of one text: first what they declare, then how it is connected."""

    def __init__(self, places: TextPlaces, problems: Problems) -> None:
        self._places, self._problems = places, problems
        self._tables: dict[str, SqlTable] = {}
        self._queries: list[PluginBlock] = []
        self._inserted: dict[str, list[tuple[str, FilePlace]]] = {}  # by sink: what it reads

    def declare(self, statement: Sequence[StatementToken]) -> None:
        """Note the table of a CREATE TABLE. Raises `Problem`."""
        words = StatementCursor(statement, self._places)
        if not words.take("CREATE", "TABLE"):
            return
        words.take("IF", "NOT", "EXISTS")
        name = words.name("the name of the table")
        place = self._places.at(name.start)
        if (other := self._tables.get(name.text)) is not None:
            text = f"table {name.text!r} is declared in line {other.place.line} already"
            raise Problem(place, f"{text}; give it another name")
        self._tables[name.text] = SqlTable(name.text, place)
        if words.at_sign("("):
            self._problems.note(
                self._places.at(words.skip_brackets().start),
                f"the columns of table {name.text!r} have no effect; a 'schema' among its options "
                "has one",
            )
        if words.take("WITH"):
            self._tables[name.text] = SqlTable(name.text, place, broken=True)
            plugin = self._plugin(name, words)
            words.end()
            self._tables[name.text] = SqlTable(name.text, place, plugin)
        elif not words.take("AS"):
            raise words.problem("WITH ( or AS SELECT comes after the name of a table")

    def _plugin(self, name: StatementToken, words: StatementCursor) -> PluginBlock:
        place = self._places.at(name.start)
        options = Object(place)
        own: dict[str, tuple[str, FilePlace]] = {}
        for key, value in words.options():
            where = self._places.at(key.start)
            if key.text.lower() in OWN_OPTIONS:
                own[key.text.lower()] = value.text.strip(), self._places.at(value.start)
            elif key.text in options.members:
                line = options.keys[key.text].line
                raise Problem(where, f"option {key.text!r} stands in line {line} already")
            else:
                options.put(key.text, where, self._value(value))
        role = _role(own, name.text, place)
        if "connector" not in own or not own["connector"][0]:
            raise Problem(place, f"table {name.text!r} needs the option 'connector': which plugin")
        connector, at = own["connector"]
        wiring = ("plugin_output", "result_table_name", "plugin_input", "source_table_name")
        for key in wiring[:2] if role == "source" else wiring[2:]:
            options.members.pop(key, None)  # the statements say it
        if role == "source":
            options.put("plugin_output", place, Scalar(place, name.text, name.text))
        return PluginBlock(role, connector, at, options)

    def _value(self, token: StatementToken) -> Node:
        place = self._places.at(token.start)
        stripped = token.text.strip()
        if stripped[:1] + stripped[-1:] in {"{}", "[]"} and len(stripped) > 1:
            begin = token.start + 1 + token.text.index(stripped[0])
            return read_value(stripped, self._places.at(begin))
        text = _ESCAPE.sub(_unescaped, token.text)
        if (flaw := storing_flaw(text)) is not None:
            raise Problem(place, f"this text has {flaw}")
        return scalar(place, text)

    def connect(self, statement: Sequence[StatementToken]) -> None:
        """Note what an INSERT INTO, or a CREATE TABLE … AS, reads and writes. Raises `Problem`."""
        words = StatementCursor(statement, self._places)
        if words.take("INSERT", "INTO"):
            self._insert(words)
        elif words.take("CREATE", "TABLE"):
            words.take("IF", "NOT", "EXISTS")
            name = words.name("the name of the table")
            if words.at_sign("("):
                words.skip_brackets()
            if words.take("AS"):
                self._query(words, output=name.text)
        else:
            raise words.problem(f"a job in SQL has the statements {_STATEMENTS}")

    def _insert(self, words: StatementCursor) -> None:
        words.take("TABLE")
        target = words.name("the name of a sink")
        place = self._places.at(target.start)
        table = self._tables.get(target.text)
        if table is not None and table.broken:
            return
        if table is None or not table.is_sink:
            sinks = [each.name for each in self._tables.values() if each.is_sink]
            known = hint(target.text, sinks, noun="sinks")
            raise Problem(place, f"there is no table {target.text!r} of type sink; {known}")
        if words.at_sign("("):
            raise words.problem("no columns are listed here; name them in the SELECT, by AS")
        source = self._plain_table(words)
        if source is None:
            number = sum(map(len, self._inserted.values())) + 1
            source = f"{target.text}__{number}"
            self._query(words, output=source)
        self._inserted.setdefault(target.text, []).append((source, place))

    def _plain_table(self, words: StatementCursor) -> str | None:
        """The table of `SELECT table`, which is read as it is."""
        rest = words.rest
        if len(rest) == 2 and rest[0].says("SELECT") and rest[1].is_name:
            self._check_readable(rest[1])
            return rest[1].text
        return None

    def _query(self, words: StatementCursor, *, output: str) -> None:
        rest = words.rest
        if not rest or not rest[0].says("SELECT"):
            raise words.problem("SELECT comes here")
        source = _from_table(rest, words)
        self._check_readable(source)
        place = self._places.at(rest[0].start)
        query = _without_comments(self._places.text[rest[0].start : rest[-1].end])
        options = Object(place)
        at = self._places.at(source.start)
        options.put("query", place, Scalar(place, query, query))
        options.put("plugin_input", at, Array(at, (Scalar(at, source.text, source.text),)))
        options.put("plugin_output", place, Scalar(place, output, output))
        self._queries.append(PluginBlock("transform", "Sql", place, options))

    def _check_readable(self, token: StatementToken) -> None:
        table = self._tables.get(token.text)
        if table is None or table.is_sink:
            # One that is broken may be a source.
            readable = [each.name for each in self._tables.values() if not each.is_sink]
            place = self._places.at(token.start)
            known = hint(token.text, readable, noun="tables")
            kind = "of type source" if table is None else "to read; it is a sink"
            raise Problem(place, f"there is no table {token.text!r} {kind}; {known}")

    def plugins(self) -> list[PluginBlock]:
        """The plugins of the job, once all statements were read."""
        sinks: list[PluginBlock] = []
        for table in self._tables.values():
            if table.plugin is None or not table.is_sink:
                continue
            if table.name not in self._inserted:
                text = f"nothing is inserted into table {table.name!r}, which is left out"
                self._problems.note(table.place, text)
            for source, place in self._inserted.get(table.name, ()):
                options = table.plugin.options
                copy = Object(options.place, dict(options.members), dict(options.keys))
                copy.put("plugin_input", place, Array(place, (Scalar(place, source, source),)))
                sinks.append(PluginBlock("sink", table.plugin.name, table.plugin.place, copy))
        sources = [t.plugin for t in self._tables.values() if t.plugin and not t.is_sink]
        return [*sources, *self._queries, *sinks]


class StatementCursor:
    """Walks through the tokens of one statement."""

    def __init__(self, tokens: Sequence[StatementToken], places: TextPlaces) -> None:
        self._tokens, self._places, self._at = tokens, places, 0

    @property
    def rest(self) -> Sequence[StatementToken]:
        return self._tokens[self._at :]

    @property
    def upcoming(self) -> StatementToken | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def take(self, *words: str) -> bool:
        """Go behind these words, if all of them come next."""
        found = self._tokens[self._at : self._at + len(words)]
        if len(found) == len(words) and all(
            token.says(word) for token, word in zip(found, words, strict=True)
        ):
            self._at += len(words)
            return True
        return False

    def name(self, what: str) -> StatementToken:
        if (token := self.upcoming) is None or not token.is_name:
            raise self.problem(f"{what} comes here")
        self._at += 1
        return token

    def at_sign(self, sign: str) -> bool:
        return (token := self.upcoming) is not None and token.is_sign(sign)

    def skip_brackets(self) -> StatementToken:
        """Go behind the bracket that ends what begins here; returns the one that began it."""
        opening, depth = self._tokens[self._at], 0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            depth += token.is_sign("(") - token.is_sign(")")
            self._at += 1
            if depth == 0:
                return opening
        raise Problem(self._places.at(opening.start), "this '(' is never closed; add ')'")

    def options(self) -> Iterator[tuple[StatementToken, StatementToken]]:
        """The pairs of `(key = value, …)`, each a text or a word."""
        if not self.at_sign("("):
            raise self.problem("'(' comes here")
        opening = self._tokens[self._at]
        self._at += 1
        while not self.at_sign(")"):
            key = self._word(opening, "an option, as 'name' = 'value',")
            if not self.at_sign("="):
                raise self.problem(f"'=' and a value come after {key.text!r}")
            self._at += 1
            yield key, self._word(opening, "a value")
            if self.at_sign(","):
                self._at += 1
            elif not self.at_sign(")"):
                self._check_open(opening)
                raise self.problem("',' and another option come here, or ')'")
        self._at += 1

    def _word(self, opening: StatementToken, what: str) -> StatementToken:
        self._check_open(opening)
        if (token := self.upcoming) is None or token.kind == "sign":
            raise self.problem(f"{what} comes here")
        self._at += 1
        return token

    def _check_open(self, opening: StatementToken) -> None:
        if self.upcoming is None:
            text = "this '(' is never closed; add ')' before the ';'"
            raise Problem(self._places.at(opening.start), text)

    def end(self) -> None:
        if self.upcoming is not None:
            raise self.problem("';' comes here, at the end of the statement")

    def problem(self, advice: str) -> Problem:
        """What is said of the next token, which does not fit."""
        if (token := self.upcoming) is None:
            end = self._places.at(self._tokens[-1].end)
            return Problem(end, f"the statement ends early; {advice}")
        # A text may be a secret.
        met = self._places.text[token.start : token.end]
        shown = "this text" if token.kind == "text" else repr(met)
        return Problem(self._places.at(token.start), f"{shown} was not expected here; {advice}")


def _role(own: dict[str, tuple[str, FilePlace]], table: str, place: FilePlace) -> Role:
    role, at = own.get("type", ("", place))
    match role.lower():
        case "source":
            return "source"
        case "sink":
            return "sink"
        case "":
            raise Problem(at, f"table {table!r} needs the option 'type': 'source' or 'sink'")
        case _:
            known = hint(role, ("source", "sink"), noun="types")
            raise Problem(at, f"option 'type' of table {table!r} can't be {role!r}; {known}")


def _from_table(tokens: Sequence[StatementToken], words: StatementCursor) -> StatementToken:
    """The table behind the FROM that belongs to the outermost SELECT."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.is_sign("(") - token.is_sign(")")
        if depth == 0 and token.says("FROM"):
            after = tokens[at + 1] if at + 1 < len(tokens) else None
            if after is not None and after.is_name:
                return after
            break
    raise words.problem("a SELECT reads one table of this file: SELECT … FROM table")


def _without_comments(query: str) -> str:
    return "".join(
        " " if match["space"] and not match[0].isspace() else match[0]
        for match in _TOKEN.finditer(query)
    )


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPES[match[2]]
