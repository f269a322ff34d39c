"""Commands about catalogs (add, change, refresh, remove) and the validation of what they write.

A command writes what is *wanted*, on any node; the leader then has a worker discover the catalog's
tables. Everything that can be checked is checked before anything is written: otherwise a mistake
would show only minutes later, when a worker lists the catalog, as an error in a list.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.errors import BadSetting, NotFound, Refused
from headrace.logs import is_secret
from headrace.model.ids import check_name
from headrace.model.jobs.spec import REDACTED
from headrace.model.tables.settings import PROPERTIES, OptimizingSettings
from headrace.model.text import hint, secret_places
from headrace.plugins.secrets import take_secrets
from headrace.store.core import leases, notifications
from headrace.store.core.engine import reading
from headrace.store.core.transactions import in_tx
from headrace.store.tables import catalogs, table_changes
from headrace.store.tables.catalogs import EMBEDDED_TYPE, Catalog, NewCatalog

# By type: the properties without which such a catalog can't be reached.
TYPES: Mapping[str, tuple[str, ...]] = {
    "jdbc": ("uri", "warehouse"),
    "rest": ("uri",),
    "hive": (),  # hive-site.xml may have its address
    "glue": (),
    "hadoop": ("warehouse",),
}
PROPERTIES_MAX = 100  # of one catalog
VALUE_MAX = 4000  # characters
FILTER_MAX = 500  # characters

# A value of None removes the property.
Changed = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What is to change; whatever is not given stays as it is."""

    properties: Changed = field(default_factory=dict[str, str | None], repr=False)
    defaults: Changed = field(default_factory=dict[str, str | None])
    table_filter: str | None = None  # "" removes it
    group: str | None = None


class CatalogCommands:
    """Commands that any node may run: they write what is wanted, and the leader acts on it."""

    def __init__(self, engine: Engine, clock: Clock, *, stopping: threading.Event) -> None:
        self._engine, self._clock, self._stopping = engine, clock, stopping

    def listed(self) -> Sequence[Catalog]:
        with reading(self._engine) as conn:
            return catalogs.all_of_them(conn)

    def get(self, name: str) -> Catalog:
        with reading(self._engine) as conn:
            return known_catalog(conn, name)

    def add(self, new: NewCatalog) -> Catalog:
        """Add a catalog; its tables are discovered at once. Idempotent: the same catalog may be
        added again."""
        check_type(new.name, new.type)
        _check(new.name, new.type, new.properties, new.defaults, new.table_filter, new.group)
        kept, secrets = _split_secrets(new.name, new.properties)
        made = NewCatalog(
            new.name, new.type, kept, new.group, new.defaults, new.table_filter or None, secrets
        )

        def work(conn: Connection) -> Catalog:
            at_once_ms, now_ms = self._at_once_ms(conn), self._clock.wall_ms()
            if not catalogs.add(conn, made, now_ms=now_ms, due_at_ms=at_once_ms):
                _check_same(conn, made)
            notifications.notify(conn)
            return known_catalog(conn, new.name)

        return in_tx(self._engine, work, stop=self._stopping)

    def change(self, name: str, change: CatalogChange) -> Catalog:
        """Change a catalog. It is discovered again at once, and if its defaults changed, its tables
        are evaluated again."""

        def work(conn: Connection) -> Catalog:
            catalog = catalogs.lock(conn, name)
            if catalog is None:
                raise _unknown_catalog(conn, name)
            if catalog.wanted_removed:
                raise _being_removed(name)
            self._write(conn, catalog, change)
            notifications.notify(conn)
            return known_catalog(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)

    def _write(self, conn: Connection, catalog: Catalog, change: CatalogChange) -> None:
        name, at_once_ms = catalog.name, self._at_once_ms(conn)
        if change.properties and catalog.type == EMBEDDED_TYPE:
            raise Refused(
                f"catalog {name!r} is the embedded one: its properties follow from the --warehouse "
                "of each worker; change that, or add the place as a catalog of its own with "
                "`headrace catalog add`"
            )
        set_values = {key: value for key, value in change.properties.items() if value is not None}
        # `show` returns secrets redacted; a value sent back like that leaves the secret unchanged.
        set_values = {key: value for key, value in set_values.items() if value != REDACTED}
        gone = {key for key, value in change.properties.items() if value is None}
        kept, secrets = _split_secrets(name, set_values)
        properties = {k: v for k, v in {**catalog.properties, **kept}.items() if k not in gone}
        defaults = merged(catalog.defaults, change.defaults)
        table_filter = catalog.table_filter if change.table_filter is None else change.table_filter
        group = change.group or catalog.group
        _check(name, catalog.type, {**properties, **set_values}, defaults, table_filter, group)
        if secrets or gone:
            dropped = {f"{name}.{key}" for key in gone}
            catalogs.change_secrets(conn, name, secrets, dropped=dropped)
        catalogs.configure(
            conn,
            name,
            properties=properties,
            defaults=defaults,
            table_filter=table_filter or None,
            group=group,
            due_at_ms=at_once_ms,
        )
        if defaults != catalog.defaults:
            table_changes.evaluate_again(conn, catalog=name, now_ms=at_once_ms)

    def _at_once_ms(self, conn: Connection) -> int:
        return leases.at_once_ms(conn, now_ms=self._clock.wall_ms())

    def refresh(self, name: str) -> tuple[Catalog, bool]:
        """Have the catalog discovered now. False: a discovery is under way or due already."""

        def work(conn: Connection) -> tuple[Catalog, bool]:
            catalog, at_once_ms = catalogs.lock(conn, name), self._at_once_ms(conn)
            if catalog is None:
                raise _unknown_catalog(conn, name)
            if catalog.wanted_removed:
                raise _being_removed(name)
            if catalog.task_id is not None or catalog.due_at_ms <= at_once_ms:
                return catalog, False
            catalogs.schedule_discovery(conn, name, due_at_ms=at_once_ms)
            notifications.notify(conn)
            return known_catalog(conn, name), True

        return in_tx(self._engine, work, stop=self._stopping)

    def remove(self, name: str) -> Catalog:
        """Have Headrace forget a catalog; nothing in the catalog itself is deleted. Idempotent."""

        def work(conn: Connection) -> Catalog:
            catalog = known_catalog(conn, name)
            if catalog.type == EMBEDDED_TYPE:
                raise Refused(
                    f"catalog {name!r} is the embedded one, and can't be removed; to have its "
                    f"tables left alone, say `headrace catalog set {name} --default "
                    "self-optimizing.enabled=false`"
                )
            catalogs.want_removed(conn, name, due_at_ms=self._at_once_ms(conn))
            notifications.notify(conn)
            return known_catalog(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)


def known_catalog(conn: Connection, name: str) -> Catalog:
    catalog = catalogs.get(conn, name)
    if catalog is None:
        raise _unknown_catalog(conn, name)
    return catalog


def merged(before: Mapping[str, str], changed: Changed) -> Mapping[str, str]:
    after = {**before, **changed}
    return {key: value for key, value in after.items() if value is not None}


def _check(
    name: str,
    kind: str,
    properties: Mapping[str, str],
    defaults: Mapping[str, str],
    table_filter: str | None,
    group: str,
) -> None:
    if kind != EMBEDDED_TYPE:
        check_catalog_name(name)
        check_properties(name, properties)
        check_reach(name, kind, properties)
    check_name("group", group)
    check_defaults(f"catalog {name!r}", defaults)
    if table_filter:
        check_filter(name, table_filter)


def check_catalog_name(name: str) -> None:
    """The name is the first part of a table identifier, so it must not contain a point."""
    check_name("catalog name", name)
    if "." in name:
        raise BadSetting(
            f"catalog name {name!r} can't be used: the point stands between the parts of a "
            "table's name; take '_' or '-' instead"
        )


def check_type(name: str, kind: str) -> None:
    if kind not in TYPES:
        raise BadSetting(
            f"catalog {name!r} can't be of type {kind!r}; {hint(kind, TYPES, noun='types')}"
        )


def check_reach(name: str, kind: str, properties: Mapping[str, str]) -> None:
    """Check that all properties are set without which a catalog of this type can't be reached."""
    missing = [needed for needed in TYPES[kind] if not properties.get(needed)]
    if missing:
        raise BadSetting(
            f"a {kind} catalog needs {' and '.join(missing)}, and {name!r} has none; add "
            + " ".join(f"--property {needed}=…" for needed in missing)
        )


def check_properties(name: str, properties: Mapping[str, str]) -> None:
    _check_texts(f"catalog {name!r}", properties)
    if "type" in properties:
        raise BadSetting(f"catalog {name!r} has its type already; leave property 'type' out")
    for key, value in properties.items():
        if not is_secret(key) and secret_places(value):
            raise BadSetting(
                f"property {key!r} of catalog {name!r} has a password in its URI, where everybody "
                "who looks at the catalog would read it; take it out and give it as a property of "
                "its own, e.g. --property jdbc.password=…"
            )


def check_defaults(of: str, defaults: Mapping[str, str]) -> None:
    """Refuse a default that can't be read here, rather than show it as a flaw of each table."""
    _check_texts(of, defaults)
    known = {prop.name for prop in PROPERTIES}
    for key in defaults:
        if key not in known:
            raise BadSetting(
                f"default {key!r} of {of} would change nothing: Headrace knows no such "
                f"table property; {hint(key, sorted(known), noun='table properties')}"
            )
    _, flaws = OptimizingSettings.read({}, defaults)
    if flaws:
        flaw = flaws[0]
        raise BadSetting(
            f"default {flaw.name} of {of} is {flaw.value!r}, expected {flaw.expected}; "
            f"give such a value, or leave it out: then {flaw.used} holds"
        )


def check_filter(name: str, table_filter: str) -> None:
    if len(table_filter) > FILTER_MAX:
        raise BadSetting(
            f"the filter of catalog {name!r} has {len(table_filter)} characters, and "
            f"{FILTER_MAX} is the most; name namespaces instead of tables, e.g. 'sales\\..*'"
        )
    try:
        re.compile(table_filter)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadSetting(
            f"the filter of catalog {name!r} is not a regular expression: {error}; write one that "
            "matches namespace.table, e.g. 'sales\\..*'"
        ) from error


def _check_texts(what: str, properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise BadSetting(
            f"{what} has {len(properties)} properties, and {PROPERTIES_MAX} is the most"
        )
    for key, value in properties.items():
        if not key or "\0" in key + value or max(len(key), len(value)) > VALUE_MAX:
            raise BadSetting(
                f"property {key[:100]!r} of {what} can't be used; a name and a value have up to "
                f"{VALUE_MAX} characters, and none of them is NUL"
            )


def _split_secrets(
    name: str, properties: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Split properties into those to show, with secrets redacted, and the secrets themselves."""
    kept, taken = take_secrets(name, None, dict(properties))
    for path, value in taken.items():
        if value == REDACTED:
            key = path.removeprefix(f"{name}.")
            raise BadSetting(
                f"property {key!r} of catalog {name!r} is redacted; give its value, which is "
                "never shown again"
            )
    return _texts(kept), _texts(taken)


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}


def _check_same(conn: Connection, new: NewCatalog) -> None:
    """Check that the existing catalog of this name is the one requested: the command was
    repeated."""
    existing = known_catalog(conn, new.name)
    if existing.wanted_removed:
        raise _being_removed(new.name)
    known_values = (
        existing.type,
        existing.properties,
        existing.defaults,
        existing.table_filter,
        existing.group,
    )
    new_values = (new.type, new.properties, new.defaults, new.table_filter, new.group)
    if known_values != new_values or not _are_same(
        catalogs.secrets_of(conn, new.name), new.secrets
    ):
        raise Refused(
            f"there is a catalog {new.name!r} already, of type {existing.type}, and it is another "
            f"than this; change it with `headrace catalog set {new.name}`, or take another name"
        )


def _are_same(secrets: Mapping[str, object], others: Mapping[str, object]) -> bool:
    """Compare in constant time, so that the duration does not tell where the secrets differ."""
    ours, theirs = (json.dumps(dict(each), sort_keys=True).encode() for each in (secrets, others))
    return compare_digest(ours, theirs)


def _unknown_catalog(conn: Connection, name: str) -> NotFound:
    names = [catalog.name for catalog in catalogs.all_of_them(conn)]
    return NotFound("catalog", name, way_out=hint(name, names, noun="catalogs"))


def _being_removed(name: str) -> Refused:
    return Refused(
        f"catalog {name!r} is being removed; when `headrace catalog list` no longer shows it, "
        f"`headrace catalog add {name}` adds it anew"
    )
