"""What Spark, a database or a file system says when it fails, as one line that a person can read;
and whether the same would happen again.

An error comes as a chain of Java exceptions. Those of Spark and of databases carry an SQLSTATE, and
its class decides: a misspelled name, a wrong password and a value that does not fit stay what they
are, a connection or a disk may come back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model.text import shortened

LINE_CHARACTERS_MAX = 500
# Feature not supported, cardinality, data, constraint, authorization, name of a catalog or schema,
# syntax or access, check option, raised on purpose: the same rows and settings give the same again.
PERMANENT_CLASSES = ("0A", "21", "22", "23", "28", "3D", "3F", "42", "44", "P0")
_READ_FAILED = "FAILED_READ_FILE"
_RAISED = "USER_RAISED_EXCEPTION"
# Without an SQLSTATE, and permanent all the same: rights, and files that are not what they should.
_PERMANENT_CAUSES = frozenset(
    {
        "java.nio.file.AccessDeniedException",
        "java.nio.file.NotDirectoryException",
        "java.nio.file.ReadOnlyFileSystemException",
        "org.apache.hadoop.fs.ParentNotDirectoryException",
        "org.apache.hadoop.security.AccessControlException",
        "org.apache.orc.FileFormatException",
        "org.apache.parquet.io.ParquetDecodingException",
    }
)
_PLAIN = "java.lang.RuntimeException"  # below _READ_FAILED: Parquet says so of what is no Parquet
_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*")
_PLACE = re.compile(r"\s*;?\s*line (?P<line>\d+),? pos (?P<column>\d+)")
_ENDS = ("\n==", "\n'", "\n+-", "JVM stacktrace", "\n\tat ", "\nDriver stacktrace", "\nParse Mode:")
# As Java names it in a trace. Spark tells of a task that failed in words only.
_OUT_OF_MEMORY = re.compile(r"(?<![\w.])java\.lang\.OutOfMemoryError(?![\w.])")
CAUSES_MAX = 20  # of one error, looked at


def words_of(error: BaseException) -> str:
    """What an error says. py4j asks the JVM for the words of a Java error, and it may be gone."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  whatever asking a dead JVM raises
        return f"{type(error).__name__}, and the JVM is gone that could say more"


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether a Java process of Spark had no memory left, whatever became of that on the way."""
    link: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if link is None:
            return False
        if _OUT_OF_MEMORY.search(words_of(link)):
            return True
        link = link.__cause__ or link.__context__
    return False


def one_line(error: Exception) -> str:
    """Spark's message up to its plan, excerpt or Java trace, with the place in the query."""
    text = str(error)
    place = _PLACE.search(text)
    text = _PLACE.sub("", _without_excerpt(text)).rstrip(" ;.")
    where = f" (line {place['line']}, column {int(place['column']) + 1})" if place else ""
    return shortened(text, LINE_CHARACTERS_MAX) + where


def _without_excerpt(text: str) -> str:
    for end in _ENDS:
        text = text.partition(end)[0]
    return " ".join(_SQLSTATE.sub(" ", text).split())


def is_permanent(state: str | None) -> bool:
    """Whether what has this SQLSTATE would only happen again. None: nobody said one."""
    return state is not None and state.startswith(PERMANENT_CLASSES)


@dataclass(frozen=True, slots=True)
class Cause:
    """One exception of a chain."""

    kind: str  # the name of its class
    message: str
    state: str | None = None  # SQLSTATE
    condition: str = ""  # Spark's name for it
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    fragment: str = ""  # of the query that it happened in

    @property
    def words(self) -> str:
        text = _CONDITION.sub("", _without_excerpt(self.message)).rstrip(" ;.")
        return text or self.kind.rpartition(".")[2]


def is_permanent_chain(chain: Sequence[Cause]) -> bool:
    """Whether the same would happen again."""
    if any(is_permanent(cause.state) or cause.kind in _PERMANENT_CAUSES for cause in chain):
        return True
    return any(c.condition.startswith(_READ_FAILED) for c in chain) and chain[-1].kind == _PLAIN


def chain_words(chain: Sequence[Cause]) -> str:
    """What happened and where: the innermost cause, and the file that was read or written."""
    last = chain[-1]
    read = next((c for c in chain if c.condition.startswith(_READ_FAILED)), None)
    raised = next((c for c in chain if c.condition == _RAISED), None)
    if raised is not None:
        return raised.parameters.get("errorMessage") or raised.words
    text = _about_record(chain) or last.words
    if read is not None:
        return f"{read.parameters.get('path', '')}: {text}"
    if last.fragment:
        return f"{text}, in the query at {' '.join(last.fragment.split())!r}"
    outer = next((c for c in chain[:-1] if c.condition), None)
    return f"{text} ({outer.words})" if outer is not None else text


def _about_record(chain: Sequence[Cause]) -> str | None:
    """Column and value of a record that can't be read, as far as Spark tells them."""
    last = chain[-1]
    told = last.parameters
    match last.condition:
        case "CANNOT_PARSE_JSON_FIELD":
            name, value = told.get("fieldName", "").strip("'"), told.get("fieldValue")
            kind = told.get("dataType", "").strip('"').lower()
            return f"column {name!r}: {value!r} is no {kind}"
        case "MALFORMED_CSV_RECORD":
            return f"a record has not the columns of 'schema': {told.get('badRecord')!r}"
        case _ if any(c.condition.startswith("MALFORMED_RECORD") for c in chain):
            return f"a record can't be read: {last.words}"
        case _:
            return None
