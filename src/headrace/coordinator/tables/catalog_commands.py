"""What a person may ask about catalogs: add, change, remove. The leader looks into them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables import checks
from headrace.errors import BadSetting, NotFound, Refused
from headrace.jobfile.secrets import take_secrets
from headrace.jobfile.suggest import hint
from headrace.model.jobspec import REDACTED
from headrace.model.names import check_name
from headrace.store import catalogs, lake_lists, leases, wake
from headrace.store.catalogs import EMBEDDED_TYPE, Catalog, NewCatalog
from headrace.store.engine import reading
from headrace.store.tx import in_tx

# A value of None takes the property away.
Changed = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be other than it was; the rest stays."""

    properties: Changed = field(default_factory=dict[str, str | None], repr=False)
    defaults: Changed = field(default_factory=dict[str, str | None])
    table_filter: str | None = None  # "" takes it away
    group: str | None = None


class CatalogCommands:
    def __init__(self, engine: Engine, clock: Clock, *, stopping: threading.Event) -> None:
        self._engine, self._clock, self._stopping = engine, clock, stopping

    def listed(self) -> Sequence[Catalog]:
        with reading(self._engine) as conn:
            return catalogs.all_of_them(conn)

    def get(self, name: str) -> Catalog:
        with reading(self._engine) as conn:
            return known_catalog(conn, name)

    def add(self, new: NewCatalog) -> Catalog:
        """Add a catalog; its tables are found at once. The same said twice is said once."""
        checks.check_type(new.name, new.type)
        _check(new.name, new.type, new.properties, new.defaults, new.table_filter, new.group)
        kept, secrets = _apart(new.name, new.properties)
        made = NewCatalog(
            new.name, new.type, kept, new.group, new.defaults, new.table_filter or None, secrets
        )

        def work(conn: Connection) -> Catalog:
            at_once_ms, now_ms = self._at_once_ms(conn), self._clock.wall_ms()
            if not catalogs.add(conn, made, now_ms=now_ms, due_at_ms=at_once_ms):
                _check_same(conn, made)
            wake.notify(conn)
            return known_catalog(conn, new.name)

        return in_tx(self._engine, work, stop=self._stopping)

    def change(self, name: str, change: Change) -> Catalog:
        """Change it; what depends on that is looked at again at once."""

        def work(conn: Connection) -> Catalog:
            catalog = catalogs.lock(conn, name)
            if catalog is None:
                raise _no_such(conn, name)
            if catalog.wanted_removed:
                raise _being_removed(name)
            self._write(conn, catalog, change)
            wake.notify(conn)
            return known_catalog(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)

    def _write(self, conn: Connection, catalog: Catalog, change: Change) -> None:
        name, at_once_ms = catalog.name, self._at_once_ms(conn)
        if change.properties and catalog.type == EMBEDDED_TYPE:
            raise Refused(
                f"catalog {name!r} is the embedded one: its properties follow from the --warehouse "
                "of each worker; change that, or add the place as a catalog of its own with "
                "`headrace catalog add`"
            )
        given = {key: value for key, value in change.properties.items() if value is not None}
        # As `show` gives it back, a secret is redacted: then it stays what it was.
        given = {key: value for key, value in given.items() if value != REDACTED}
        gone = {key for key, value in change.properties.items() if value is None}
        kept, secrets = _apart(name, given)
        properties = {k: v for k, v in {**catalog.properties, **kept}.items() if k not in gone}
        defaults = merged(catalog.defaults, change.defaults)
        table_filter = catalog.table_filter if change.table_filter is None else change.table_filter
        group = change.group or catalog.group
        _check(name, catalog.type, {**properties, **given}, defaults, table_filter, group)
        if secrets or gone:
            dropped = {f"{name}.{key}" for key in gone}
            catalogs.change_secrets(conn, name, secrets, dropped=dropped)
        catalogs.change(
            conn,
            name,
            properties=properties,
            defaults=defaults,
            table_filter=table_filter or None,
            group_name=group,
            due_at_ms=at_once_ms,
        )
        if defaults != catalog.defaults:
            lake_lists.evaluate_again(conn, catalog=name, now_ms=at_once_ms)

    def _at_once_ms(self, conn: Connection) -> int:
        return leases.at_once_ms(conn, now_ms=self._clock.wall_ms())

    def refresh(self, name: str) -> tuple[Catalog, bool]:
        """Have it looked into now. False: a look is under way or due already."""

        def work(conn: Connection) -> tuple[Catalog, bool]:
            catalog, at_once_ms = catalogs.lock(conn, name), self._at_once_ms(conn)
            if catalog is None:
                raise _no_such(conn, name)
            if catalog.wanted_removed:
                raise _being_removed(name)
            if catalog.task_id is not None or catalog.due_at_ms <= at_once_ms:
                return catalog, False
            catalogs.change(conn, name, due_at_ms=at_once_ms)
            wake.notify(conn)
            return known_catalog(conn, name), True

        return in_tx(self._engine, work, stop=self._stopping)

    def remove(self, name: str) -> Catalog:
        """Have Headrace forget a catalog. Nothing in it is deleted. Said twice is said once."""

        def work(conn: Connection) -> Catalog:
            catalog = known_catalog(conn, name)
            if catalog.type == EMBEDDED_TYPE:
                raise Refused(
                    f"catalog {name!r} is the embedded one, and can't be removed; to have its "
                    f"tables left alone, say `headrace catalog set {name} --default "
                    "self-optimizing.enabled=false`"
                )
            catalogs.change(conn, name, wanted_removed=1, due_at_ms=self._at_once_ms(conn))
            wake.notify(conn)
            return known_catalog(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)


def known_catalog(conn: Connection, name: str) -> Catalog:
    found = catalogs.get(conn, name)
    if found is None:
        raise _no_such(conn, name)
    return found


def merged(before: Mapping[str, str], changed: Changed) -> Mapping[str, str]:
    after = {**before, **changed}
    return {key: value for key, value in after.items() if value is not None}


def _no_such(conn: Connection, name: str) -> NotFound:
    names = [catalog.name for catalog in catalogs.all_of_them(conn)]
    return NotFound("catalog", name, way_out=hint(name, names, noun="catalogs"))


def _being_removed(name: str) -> Refused:
    return Refused(
        f"catalog {name!r} is being removed; when `headrace catalog list` no longer shows it, "
        f"`headrace catalog add {name}` adds it anew"
    )


def _check(
    name: str,
    kind: str,
    properties: Mapping[str, str],
    defaults: Mapping[str, str],
    table_filter: str | None,
    group: str,
) -> None:
    if kind != EMBEDDED_TYPE:
        checks.check_catalog_name(name)
        checks.check_properties(name, properties)
        checks.check_reach(name, kind, properties)
    check_name("group", group)
    checks.check_defaults(f"catalog {name!r}", defaults)
    if table_filter:
        checks.check_filter(name, table_filter)


def _apart(name: str, properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The properties with their secrets redacted, and the secrets."""
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
    """That a catalog of this name is the one that was asked for: somebody repeats himself."""
    there = known_catalog(conn, new.name)
    if there.wanted_removed:
        raise _being_removed(new.name)
    told = (there.type, there.properties, there.defaults, there.table_filter, there.group)
    asked = (new.type, new.properties, new.defaults, new.table_filter, new.group)
    if told != asked or not _are_same(catalogs.secrets_of(conn, new.name), new.secrets):
        raise Refused(
            f"there is a catalog {new.name!r} already, of type {there.type}, and it is another "
            f"than this; change it with `headrace catalog set {new.name}`, or take another name"
        )


def _are_same(secrets: Mapping[str, object], others: Mapping[str, object]) -> bool:
    """In a time that tells nothing about where they differ."""
    ours, theirs = (json.dumps(dict(each), sort_keys=True).encode() for each in (secrets, others))
    return compare_digest(ours, theirs)
