"""Another key for a store: all of it is encrypted anew, or forgotten, in one transaction."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select, update

from headrace.coordinator.leadership.leader import LeaderCandidate
from headrace.errors import KeyRefused, LeaderFenced, Refused, StoreUnavailable
from headrace.seams import arm, disarm_all
from headrace.store.core import leases
from headrace.store.core.encryption import current_key_id
from headrace.store.core.engine import (
    is_sqlite,
    open_store,
    reading,
    with_keyring,
    write_failed_s_ago,
    writing,
)
from headrace.store.core.keyring import GivenKeys, KeyFile, Keyring, SecretKey, own_file
from headrace.store.core.leases import open_takeover_lock
from headrace.store.core.transactions import Term, fenced
from headrace.store.jobs import cleanups, jobs
from headrace.store.jobs.schema import cleanups as cleanup_rows
from headrace.store.jobs.schema import job_secrets
from headrace.store.key_change import change_key, forget_secrets, owners_of_secrets
from headrace.store.migrate import prepare_store
from headrace.store.tables.catalogs import NewCatalog, add, secrets_of
from headrace.store.tables.schema import catalog_secrets
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.specs import SECRET
from tests.fakes import FakeClock
from tests.stores import KEY

NEWER = SecretKey.new()
BOTH = GivenKeys([NEWER, KEY])
BOUND_S = 120.0  # for a state to come, also on a busy machine


@pytest.fixture
def full(store: Engine) -> Engine:
    """A store with a secret in each of its places, whose next key is given, or is made."""
    with writing(store) as conn:
        assert jobs.insert_job(
            conn,
            with_secret(),
            job_id="j1",
            incarnation="i1",
            submission_key="k1",
            group="default",
            now_ms=1,
        )
        job = jobs.get(conn, "j1")
        assert job is not None
        cleanups.add_targets(
            conn,
            job,
            key="i0#1",
            spec={},
            secrets={"Jdbc-1.password": SECRET},
            up_to=1,
            due_at_ms=1,
            now_ms=1,
        )
        made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
        assert add(conn, made, now_ms=1)
    if not is_sqlite(store):
        with_keyring(store, Keyring(GivenKeys([NEWER, KEY])))
    return store


def stored_keys(store: Engine) -> set[str]:
    columns = (job_secrets.c.sealed, cleanup_rows.c.sealed, catalog_secrets.c.sealed)
    with reading(store) as conn:
        values = [value for c in columns for value in conn.execute(select(c)).scalars()]
    assert len(values) == len(columns)
    return {value["key"] for value in values}


def key_id(store: Engine) -> str | None:
    with reading(store) as conn:
        return current_key_id(conn)


def check_readable(store: Engine) -> None:
    with reading(store) as conn:
        assert jobs.spec_and_secrets_of(conn, "j1")[1] == with_secret().secrets
        assert cleanups.spec_and_secrets_of(conn, "i0#1")[1] == {"Jdbc-1.password": SECRET}
        assert secrets_of(conn, "lake") == {"lake.token": SECRET}


def beside(store: Engine) -> Path:
    return Path(f"{store.url.database}.key")


def test_every_secret_is_encrypted_anew_and_the_leader_steps_down(full: Engine, term: Term) -> None:
    new_id, count = change_key(full)

    assert (count, stored_keys(full), key_id(full)) == (3, {new_id}, new_id)
    assert new_id != KEY.id
    check_readable(full)
    with pytest.raises(LeaderFenced), fenced(full, term):
        pass
    if is_sqlite(full):
        assert [key.id for key in own_file(Path(str(full.url.database))).read()] == [new_id]
    prepare_store(full)


def test_a_leader_that_encrypts_is_waited_for_and_waits_for_nobody(
    postgresql_url: str,
) -> None:
    """It has locked the lease by then, and locks the name of the key afterwards."""
    store = open_store(postgresql_url, keys=BOTH, ttl_s=BOUND_S)
    with writing(store) as conn:
        term = leases.take(conn, leases.read(conn), holder="h", address="http://h:1")
    assert term is not None
    with ThreadPoolExecutor(1) as pool:
        with fenced(store, term) as conn:
            # If they waited for each other, this one would be told so, and not the other.
            conn.exec_driver_sql("SET LOCAL deadlock_timeout = '1ms'")
            changed = pool.submit(change_key, store)
            while not changed.done() and not waits_for_a_lock(store):
                pass
            made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
            assert add(conn, made, now_ms=1)
        assert changed.result(BOUND_S) == (NEWER.id, 1)
    store.dispose()


def waits_for_a_lock(store: Engine) -> bool:
    """Asked outside of a transaction, in which the answer would never change."""
    question = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with reading(store) as conn:
        return bool(conn.exec_driver_sql(question).scalar())


def test_the_key_that_a_store_is_under_is_not_its_next(postgresql_url: str) -> None:
    store = open_store(postgresql_url, keys=GivenKeys([KEY, NEWER]))
    with pytest.raises(Refused, match=f"under key {KEY.id} already.*put the new key before it"):
        change_key(store)
    store.dispose()
    without = open_store(postgresql_url, keys=GivenKeys([NEWER]))
    with pytest.raises(KeyRefused, match=f"under key {KEY.id}, and HEADRACE_SECRET_KEY does not"):
        change_key(without)
    assert key_id(without) == KEY.id
    without.dispose()


@pytest.mark.parametrize(
    "point",
    [
        "next key in its file, before commit",
        "transaction committed",
        "key changed, before its file",
    ],
)
def test_a_change_that_dies_leaves_a_store_that_opens_and_can_be_changed(
    full: Engine, point: str
) -> None:
    class Dies(BaseException):
        pass

    def die() -> None:
        raise Dies

    arm(point, die)
    with pytest.raises(Dies):
        change_key(full)
    disarm_all()

    prepare_store(full)
    check_readable(full)
    if is_sqlite(full):
        fresh = open_store(f"sqlite:///{full.url.database}")
        prepare_store(fresh)
        assert change_key(fresh)[1] == 3
        check_readable(fresh)
        assert len(own_file(Path(str(full.url.database))).read()) == 1
        fresh.dispose()


def keys_beside(store: Engine) -> set[str]:
    return {key.id for key in own_file(Path(str(store.url.database))).read()}


@pytest.mark.parametrize("point", ["transaction committed", "key changed, before its file"])
def test_of_two_changes_at_once_neither_takes_the_key_of_the_other_out_of_the_file(
    sqlite_url: str, point: str
) -> None:
    first, second = open_store(sqlite_url), open_store(sqlite_url)
    changed: list[str] = []

    def overtake() -> None:
        disarm_all()
        changed.append(change_key(second)[0])

    arm(point, overtake)
    old_id, _ = change_key(first)

    assert [key_id(first)] == changed != [old_id]
    assert keys_beside(first) == {*changed}
    fresh = open_store(sqlite_url)
    prepare_store(fresh)
    for store in (first, second, fresh):
        store.dispose()


def test_a_change_that_another_one_overtakes_and_dies_leaves_the_key_of_the_store(
    sqlite_url: str,
) -> None:
    """The other has its next key in the file by then, and nothing is under it."""
    first, second = open_store(sqlite_url), open_store(sqlite_url)

    class Dies(BaseException):
        pass

    def die() -> None:
        raise Dies

    def overtake() -> None:
        disarm_all()
        arm("next key in its file, before commit", die)
        with pytest.raises(Dies):
            change_key(second)
        assert key_id(first) in keys_beside(first)

    arm("key changed, before its file", overtake)
    new_id, _ = change_key(first)

    assert key_id(first) == new_id
    assert keys_beside(first) == {new_id}
    first.dispose()
    second.dispose()


def test_a_change_whose_answer_was_lost_finds_itself(full: Engine, term: Term) -> None:
    answers = iter([StoreUnavailable("the answer was lost")])

    def lose() -> None:
        if lost := next(answers, None):
            raise lost

    arm("transaction committed", lose)
    new_id, count = change_key(full)

    assert (count, stored_keys(full), key_id(full)) == (3, {new_id}, new_id)
    assert new_id == NEWER.id or is_sqlite(full)
    assert not is_sqlite(full) or keys_beside(full) == {new_id}
    check_readable(full)
    with reading(full) as conn:
        lease = leases.read(conn)
    assert lease is not None
    assert lease.epoch == term.epoch + 1, "the next leader's term goes on"


def test_the_key_that_another_change_put_in_between_is_needed_too(postgresql_url: str) -> None:
    """Also when nothing is encrypted under it."""
    between = SecretKey.new()
    quick = open_store(postgresql_url, keys=GivenKeys([between, KEY]))
    slow = open_store(postgresql_url, keys=BOTH)

    def overtake() -> None:
        disarm_all()
        change_key(quick)

    arm("before transaction", overtake)
    with pytest.raises(KeyRefused, match=f"under key {between.id}"):
        change_key(slow)

    assert key_id(quick) == between.id
    quick.dispose()
    slow.dispose()


def test_a_change_that_dies_before_it_is_committed_goes_on_with_the_same_key(
    sqlite_url: str,
) -> None:
    file = own_file(Path(sqlite_url.removeprefix("sqlite:///")))
    file.write([NEWER, KEY])
    store = open_store(sqlite_url)
    assert change_key(store) == (NEWER.id, 0)
    assert file.read() == [NEWER]
    store.dispose()


def test_a_secret_that_can_not_be_decrypted_stops_the_change(full: Engine) -> None:
    with writing(full) as conn:
        stored = conn.execute(select(job_secrets.c.sealed)).scalar_one()
        conn.execute(update(catalog_secrets).values(sealed=stored))
    with pytest.raises(Refused, match="the secrets of catalog 'lake' can't be decrypted"):
        change_key(full)
    assert key_id(full) == KEY.id


def test_a_coordinator_that_was_not_given_the_new_key_may_not_lead(
    postgresql_url: str, clock: FakeClock
) -> None:
    both = open_store(postgresql_url, keys=GivenKeys([NEWER, KEY]))
    old = open_store(postgresql_url, keys=GivenKeys([KEY]))
    change_key(both)
    both.dispose()
    hint = open_takeover_lock(old)
    candidate = LeaderCandidate(old, hint, clock, holder="h", address="http://h:1", ttl_s=3.0)
    with pytest.raises(KeyRefused, match="does not hold it"):
        candidate.step()
    hint.release()
    old.dispose()


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_key_file_that_can_not_be_used_any_more_is_a_key_that_is_missing(
    sqlite_url: str, tmp_path: Path, clock: FakeClock, mode: int | None
) -> None:
    file = KeyFile(tmp_path / "given.key")
    file.write([KEY])
    old, both = open_store(sqlite_url, keys=file), open_store(sqlite_url, keys=BOTH)
    with_keyring(both, Keyring(BOTH))
    change_key(both)
    both.dispose()
    if mode is None:
        file.path.unlink()
    else:
        file.path.chmod(mode)
    hint = open_takeover_lock(old)
    candidate = LeaderCandidate(old, hint, clock, holder="h", address="http://h:1", ttl_s=3.0)

    with pytest.raises(KeyRefused, match=rf"under key {NEWER.id}, and secret key file") as refused:
        candidate.step()

    assert refused.value.key_id == NEWER.id
    assert write_failed_s_ago(old) is None, "it could be written, by others"
    hint.release()
    old.dispose()


def test_nobody_takes_the_lead_while_the_file_with_the_new_key_is_out_of_reach(
    sqlite_url: str, clock: FakeClock
) -> None:
    old, changing = open_store(sqlite_url), open_store(sqlite_url)
    prepare_store(old)
    new_id, _ = change_key(changing)
    changing.dispose()
    beside(old).rename(away := beside(old).with_name("away"))
    hint = open_takeover_lock(old)
    candidate = LeaderCandidate(old, hint, clock, holder="h", address="http://h:1", ttl_s=3.0)

    with pytest.raises(KeyRefused, match=f"under key {new_id}"):
        candidate.step()
    away.rename(beside(old))

    assert candidate.step() is not None
    hint.release()
    old.dispose()


def test_a_backup_from_before_the_change_opens_with_the_old_key_behind_the_new_one(
    sqlite_url: str,
) -> None:
    """As the page on backups says it."""
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(backup)) as copy:
        store.backup(copy)
    changed = open_store(sqlite_url)
    new_id, _ = change_key(changed)
    changed.dispose()
    own_file(backup).write([*own_file(path).read(), KEY])

    restored = open_store(f"sqlite:///{backup}")
    prepare_store(restored)

    assert key_id(restored) == KEY.id
    assert change_key(restored) == (new_id, 0)
    restored.dispose()


def test_a_program_that_runs_finds_the_new_key_in_the_file(sqlite_url: str) -> None:
    running, changing = open_store(sqlite_url), open_store(sqlite_url)
    with writing(running) as conn:
        made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
        assert add(conn, made, now_ms=1)
    change_key(changing)
    with writing(running) as conn:
        assert secrets_of(conn, "lake") == {"lake.token": SECRET}
        other = NewCatalog("other", "rest", {}, "default", secrets={"other.token": SECRET})
        assert add(conn, other, now_ms=1)
    running.dispose()
    changing.dispose()


def test_of_a_lost_key_it_is_told_whose_secrets_are_lost_before_they_are_deleted(
    full: Engine,
) -> None:
    if is_sqlite(full):
        beside(full).unlink()
        with_keyring(full, Keyring(own=own_file(Path(str(full.url.database)))))
    else:
        with_keyring(full, Keyring(GivenKeys([NEWER])))
    listed = [(each.kind, each.name, list(each.secrets)) for each in owners_of_secrets(full)]

    assert listed == [
        ("job", "j1", ["Iceberg-1.iceberg.catalog.config.s3.secret"]),
        ("cleanup", "j1 (i0)", ["Jdbc-1.password"]),
        ("catalog", "lake", ["lake.token"]),
    ]
    assert key_id(full) == KEY.id
    done = forget_secrets(full)
    assert [(each.kind, each.name, list(each.secrets)) for each in done.owners] == listed
    assert (done.key_id, done.is_new) == (key_id(full), True)
    assert not forget_secrets(full).is_new, "it stays under the key that is held"
    assert owners_of_secrets(full) == []
    prepare_store(full)
    with writing(full) as conn:
        assert jobs.spec_and_secrets_of(conn, "j1")[1] == {}
        conn.execute(insert(catalog_secrets).values(catalog="headrace", sealed={}))
