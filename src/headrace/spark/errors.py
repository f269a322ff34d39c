"""Failures of Spark as errors of ours: one readable line, and whether a retry can help.

What Spark, a database or a file system reports comes as a chain of Java exceptions, which is read
once. Exceptions of Spark and of databases carry an SQLSTATE, and its class decides: a misspelled
name, a wrong password or a value that does not fit fails again (`Refused`), a lost connection or a
disk may come back (`Unavailable`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model.text import shortened

LINE_CHARACTERS_MAX = 500
CHAIN_MAX = 20  # exceptions of one Python chain that are looked at
# SQLSTATE classes: feature not supported, cardinality, data, constraint, authorization, name of a
# catalog or schema, syntax or access, check option, raised on purpose. The same rows and settings
# fail in the same way again.
PERMANENT_CLASSES = ("0A", "21", "22", "23", "28", "3D", "3F", "42", "44", "P0")

_READ_FAILED = "FAILED_READ_FILE"
_RAISED = "USER_RAISED_EXCEPTION"
# Permanent without an SQLSTATE: missing rights, and files in another format than expected.
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
# Below _READ_FAILED: what Parquet throws for a file that is no Parquet.
_PLAIN_RUNTIME_ERROR = "java.lang.RuntimeException"
_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*")
_PLACE = re.compile(r"\s*;?\s*line (?P<line>\d+),? pos (?P<column>\d+)")
_MESSAGE_ENDS = (
    "\n==",
    "\n'",
    "\n+-",
    "JVM stacktrace",
    "\n\tat ",
    "\nDriver stacktrace",
    "\nParse Mode:",
)
# As in a Java trace: of a task that failed Spark reports the text only, not the exception.
_OUT_OF_MEMORY = re.compile(r"(?<![\w.])java\.lang\.OutOfMemoryError(?![\w.])")


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
    def text(self) -> str:
        """The message without Spark's condition, plan and trace; else the name of the class."""
        line = _CONDITION.sub("", _without_excerpt(self.message)).rstrip(" ;.")
        return line or self.kind.rpartition(".")[2]


def chain_text(chain: Sequence[Cause]) -> str:
    """What happened and where: the innermost cause, and the file that was read or written."""
    last = chain[-1]
    read = next((c for c in chain if c.condition.startswith(_READ_FAILED)), None)
    raised = next((c for c in chain if c.condition == _RAISED), None)
    if raised is not None:
        return raised.parameters.get("errorMessage") or raised.text
    text = _bad_record_text(chain) or last.text
    if read is not None:
        return f"{read.parameters.get('path', '')}: {text}"
    if last.fragment:
        return f"{text}, in the query at {' '.join(last.fragment.split())!r}"
    outer = next((c for c in chain[:-1] if c.condition), None)
    return f"{text} ({outer.text})" if outer is not None else text


def is_permanent_chain(chain: Sequence[Cause]) -> bool:
    """Whether a retry would fail in the same way."""
    if any(is_permanent(cause.state) or cause.kind in _PERMANENT_CAUSES for cause in chain):
        return True
    return (
        any(c.condition.startswith(_READ_FAILED) for c in chain)
        and chain[-1].kind == _PLAIN_RUNTIME_ERROR
    )


def is_permanent(state: str | None) -> bool:
    """Whether this SQLSTATE means that a retry would fail again. None: no state is known."""
    return state is not None and state.startswith(PERMANENT_CLASSES)


def one_line(error: Exception) -> str:
    """Spark's message up to its plan, excerpt or Java trace, with the position in the query."""
    text = str(error)
    place = _PLACE.search(text)
    text = _PLACE.sub("", _without_excerpt(text)).rstrip(" ;.")
    where = f" (line {place['line']}, column {int(place['column']) + 1})" if place else ""
    return shortened(text, LINE_CHARACTERS_MAX) + where


def error_text(error: BaseException) -> str:
    """The message of an error. For a Java error py4j asks the JVM, which may be gone."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  whatever asking a dead JVM raises
        return f"{type(error).__name__}, and the JVM is gone that could say more"


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether a Java process of Spark ran out of memory, anywhere in the chain of Python errors."""
    link: BaseException | None = error
    for _ in range(CHAIN_MAX):
        if link is None:
            return False
        if _OUT_OF_MEMORY.search(error_text(link)):
            return True
        link = link.__cause__ or link.__context__
    return False


def _without_excerpt(text: str) -> str:
    for end in _MESSAGE_ENDS:
        text = text.partition(end)[0]
    return " ".join(_SQLSTATE.sub(" ", text).split())


def _bad_record_text(chain: Sequence[Cause]) -> str | None:
    """Column and value of a record that can't be read, as far as Spark reports them."""
    last = chain[-1]
    parameters = last.parameters
    match last.condition:
        case "CANNOT_PARSE_JSON_FIELD":
            name, value = parameters.get("fieldName", "").strip("'"), parameters.get("fieldValue")
            kind = parameters.get("dataType", "").strip('"').lower()
            return f"column {name!r}: {value!r} is no {kind}"
        case "MALFORMED_CSV_RECORD":
            return f"a record has not the columns of 'schema': {parameters.get('badRecord')!r}"
        case _ if any(c.condition.startswith("MALFORMED_RECORD") for c in chain):
            return f"a record can't be read: {last.text}"
        case _:
            return None
