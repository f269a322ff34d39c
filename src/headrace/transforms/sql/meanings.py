"""What a call means in SeaTunnel and in Spark, and how SeaTunnel's meaning is written for Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class TypesNeeded(Exception):
    """A rule asks for the types of a call's arguments, which are not known yet."""


class NotExpressible(Exception):
    """SeaTunnel's meaning can't be written in Spark; the text says why, and the way out."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One call. Exactly one of both engines may know it; else both do."""

    zeta: Callable[[], str] | None = None  # SeaTunnel's meaning in Spark's SQL; None: it has none
    in_spark: bool = True  # whether Spark knows this form
    same: bool = False  # both give the same value, though maybe of another type
    differs: str = ""  # what the difference is, for people
    # The value where both agree, and an error where they don't; None: they never do.
    agreed: Callable[[], str] | None = None
    # Without an engine it is Spark's: SQL that everybody writes, whose two meanings differ by so
    # little that a job must not fail for it, as a decimal that SeaTunnel rounds up.
    is_sql: bool = False


@dataclass(frozen=True, slots=True)
class CallView:
    """A call as its rule sees it: arguments are SQL texts that are already Spark's."""

    name: str  # in upper case
    whole: str
    args: Sequence[str]
    literals: Sequence[str | None]  # of each argument that is a text literal: its value
    words: frozenset[str]  # words of the arguments at their top level, in lower case
    kinds: Sequence[str] | None  # Spark's types of the arguments; None: not known yet

    def kind(self, at: int) -> str:
        """The type of an argument, as Spark writes it in short."""
        if self.kinds is None:
            raise TypesNeeded
        return self.kinds[at]

    def is_time(self, at: int) -> bool:
        return self.kind(at) in {"date", "timestamp", "timestamp_ntz"}

    def is_number(self, at: int) -> bool:
        numbers = {"tinyint", "smallint", "int", "bigint", "float", "double"}
        return self.kind(at) in numbers or self.kind(at).startswith("decimal")

    def literal(self, at: int, what: str) -> str:
        """The value of a text literal. Raises `NotExpressible` for anything else."""
        value = self.literals[at] if at < len(self.literals) else None
        if value is None:
            raise NotExpressible(f"{self.name}: {what} must be a text in quotes")
        return value

    def whole_number(self, at: int, what: str) -> int:
        try:
            return int(self.args[at])
        except ValueError:
            raise NotExpressible(f"{self.name}: {what} must be a whole number") from None


def only_spark() -> Meaning:
    return Meaning()


def only_zeta(zeta: Callable[[], str]) -> Meaning:
    return Meaning(zeta=zeta, in_spark=False)


def same(zeta: Callable[[], str] | None = None, *, whole: str = "") -> Meaning:
    return Meaning(zeta=zeta or (lambda: whole), same=True)


def clash(
    zeta: Callable[[], str], differs: str, *, agreed: Callable[[], str] | None = None
) -> Meaning:
    return Meaning(zeta=zeta, differs=differs, agreed=agreed)


def compared(view: CallView, zeta: Callable[[], str], differs: str) -> Meaning:
    """A clash in which both meanings are computed, and a row fails where they differ."""

    def agreed() -> str:
        spark = view.whole
        return f"if(({zeta()}) <=> ({spark}), ({spark}), {fails(view.name, differs)})"

    return clash(zeta, differs, agreed=agreed)


def fails(name: str, differs: str) -> str:
    """An expression that fails the row that it is computed for."""
    return f"raise_error({quoted(ambiguous(name, differs))})"


def ambiguous(name: str, differs: str) -> str:
    return (
        f"{name} has two meanings here: {differs}; set engine = ZETA for SeaTunnel's, or "
        "engine = SPARK for Spark's"
    )


def quoted(text: str) -> str:
    """The text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
