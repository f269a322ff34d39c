"""What a group may be told, and what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.coordinator.tables.checks import check_defaults
from headrace.errors import BadSetting
from headrace.jobfile.suggest import hint
from headrace.model.groups.capacity import THREADS_MAX
from headrace.model.redaction import secret_places, sounds_secret
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.settings import property_of
from headrace.store.groups import EXTERNAL

PARALLELISM_MAX = 100_000  # threads of a group
MEMORY_MB_MAX = 16_000_000
PROPERTIES_MAX = 100  # of one group
VALUE_MAX = 4000  # characters


def check_container(group: str, container: str, known: Collection[str]) -> None:
    """Told at once: a mistyped one would show only when workers do not come."""
    names = sorted({*known, EXTERNAL})
    if container not in names:
        raise BadSetting(
            f"container {container!r} of group {group!r} is not configured at this coordinator; "
            f"{hint(container, names, noun='containers')}. The file that --containers names has "
            "them"
        )


def check_numbers(group: str, *, min_parallelism: int, memory_mb: int) -> None:
    _check_range(f"min-parallelism of group {group!r}", min_parallelism, 0, PARALLELISM_MAX)
    _check_range(f"memory of group {group!r}, in MB,", memory_mb, 0, MEMORY_MB_MAX)


def check_threads(group: str, threads: int) -> None:
    _check_range(f"a resource of group {group!r}, in threads,", threads, 1, THREADS_MAX)


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadSetting(f"{what} can be {least} to {most}, and not {value}")


def check_properties(group: str, properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise BadSetting(
            f"group {group!r} has {len(properties)} properties, and {PROPERTIES_MAX} is the most"
        )
    for name, value in properties.items():
        if not name or "\0" in name + value or max(len(name), len(value)) > VALUE_MAX:
            raise BadSetting(
                f"property {name[:100]!r} of group {group!r} can't be used; a name and a value "
                f"have up to {VALUE_MAX} characters, and none of them is NUL"
            )
        _check_no_secret(group, name, value)


def _check_no_secret(group: str, name: str, value: str) -> None:
    if sounds_secret(name):
        problem = "sounds secret"
    elif secret_places(value):
        problem = "has a secret inside of its value, such as the password of a URI"
    else:
        return
    raise BadSetting(
        f"property {name!r} of group {group!r} {problem}, and a group's properties are shown to "
        "everybody; set it for the container, in the file that --containers names"
    )


def check_table_defaults(group: str, defaults: Mapping[str, str]) -> None:
    named = property_of("group")
    if named in defaults:
        raise BadSetting(
            f"property {named!r} can't be a default of group {group!r}: which group a table is in "
            f"is said by the table, or by its catalog, `headrace catalog set … --default {named}="
            f"{group}`"
        )
    check_defaults(f"group {group!r}", defaults)


def policy_of(group: str, text: str) -> SchedulingPolicy:
    names = [policy.value for policy in SchedulingPolicy]
    if text.lower() not in names:
        raise BadSetting(
            f"scheduling policy {text!r} of group {group!r} does not exist; "
            f"{hint(text, names, noun='policies')}"
        )
    return SchedulingPolicy(text.lower())
