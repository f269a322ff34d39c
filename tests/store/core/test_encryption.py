"""Secrets at rest: encrypted, bound to their row, under the key that the store names."""

from __future__ import annotations

import json
import logging

import pytest
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from headrace.errors import KeyRefused, Refused
from headrace.store.core import encryption
from headrace.store.core.encryption import SecretOwner, of_catalog, of_job, seal, seal_under, unseal
from headrace.store.core.encryption import unseal_under as unsealed
from headrace.store.core.engine import keyring_of, open_store, reading, with_keyring, writing
from headrace.store.core.keyring import GivenKeys, Keyring, SecretKey
from headrace.store.core.schema import facts
from headrace.store.jobs import cleanups, jobs
from headrace.store.jobs.schema import job_secrets
from headrace.store.tables.catalogs import NewCatalog, add, change_secrets, secrets_of
from headrace.store.tables.schema import catalog_secrets
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.specs import SECRET
from tests.stores import KEY, KEYS

NAMES = {"Jdbc-1.password": SECRET}


def submitted(store: Engine, name: str) -> None:
    with writing(store) as conn:
        assert jobs.insert_job(
            conn,
            with_secret(),
            job_id=name,
            incarnation=f"of-{name}",
            submission_key=f"key-{name}",
            group="default",
            now_ms=1,
        )


def test_what_is_sealed_is_read_again_and_nothing_of_it_is_shown() -> None:
    place = of_job("i1")
    stored = seal_under(KEY, place, {**NAMES, "Jdbc-1.list": ["a", 1, None]})

    assert unsealed(KEY, place, stored) == {**NAMES, "Jdbc-1.list": ["a", 1, None]}
    assert stored["key"] == KEY.id
    assert list(stored["names"]) == ["Jdbc-1.list", "Jdbc-1.password"]
    assert SECRET not in json.dumps(dict(stored))
    assert seal_under(KEY, place, NAMES)["sealed"] != seal_under(KEY, place, NAMES)["sealed"]


@pytest.mark.req("C2")
@pytest.mark.parametrize(
    "elsewhere",
    [
        SecretOwner("job_secrets", "i2"),
        SecretOwner("cleanups", "i1"),
        SecretOwner("catalog_secrets", "i1"),
    ],
)
def test_a_value_that_is_put_into_another_row_can_not_be_decrypted(elsewhere: SecretOwner) -> None:
    stored = seal_under(KEY, of_job("i1"), NAMES)
    with pytest.raises(Refused, match="belong to another row") as refused:
        unsealed(KEY, elsewhere, stored)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"names": ["Jdbc-2.password"]},
        {"sealed": "AAAA"},
        {"sealed": "no base64!"},
        {"sealed": 7},
        {"sealed": ""},
    ],
)
def test_a_value_that_was_changed_is_refused(changed: dict[str, object]) -> None:
    stored = {**seal_under(KEY, of_job("i1"), NAMES), **changed}
    with pytest.raises(Refused, match="they were changed"):
        unsealed(KEY, of_job("i1"), stored)


def test_a_value_in_clear_is_told_to_be_an_older_programs(store: Engine) -> None:
    """And not to be under a key that is lost: nobody should forget all secrets for it."""
    with reading(store) as conn, pytest.raises(Refused, match="by an older program") as refused:
        unseal(conn, of_catalog("lake"), {"lake.token": SECRET})
    assert not isinstance(refused.value, KeyRefused)
    assert SECRET not in str(refused.value)
    assert "forget-secrets" not in str(refused.value)


def test_a_value_under_a_key_that_is_not_the_stores_is_refused_for_good(store: Engine) -> None:
    """Else its task would be put off for ever, and the job could not even be cancelled."""
    stored = {**seal_under(KEY, of_job("i1"), NAMES), "key": "nobodys"}
    with reading(store) as conn, pytest.raises(Refused, match="not the store's") as refused:
        unseal(conn, of_job("i1"), stored)
    assert not isinstance(refused.value, KeyRefused)


def test_the_secrets_of_one_job_can_not_be_given_to_another(store: Engine) -> None:
    submitted(store, "a")
    submitted(store, "b")
    with writing(store) as conn:
        of_a = conn.execute(
            select(job_secrets.c.sealed).where(job_secrets.c.job_id == "a")
        ).scalar_one()
        conn.execute(update(job_secrets).where(job_secrets.c.job_id == "b").values(sealed=of_a))

    with reading(store) as conn:
        assert jobs.spec_and_secrets_of(conn, "a")[1] == with_secret().secrets
        with pytest.raises(Refused, match="the secrets of job 'of-b' can't be decrypted"):
            jobs.spec_and_secrets_of(conn, "b")


def test_the_secrets_of_a_catalog_are_kept_changed_and_dropped(store: Engine) -> None:
    made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
    with writing(store) as conn:
        assert add(conn, made, now_ms=1)
        change_secrets(conn, "lake", {"lake.password": "other"})
        assert secrets_of(conn, "lake") == {"lake.token": SECRET, "lake.password": "other"}
        assert SECRET not in str(conn.execute(select(catalog_secrets)).all())
        change_secrets(conn, "lake", {}, dropped=["lake.token", "lake.password"])
        assert secrets_of(conn, "lake") == {}
        assert conn.execute(select(catalog_secrets)).all() == []


def test_no_secrets_are_no_value(store: Engine) -> None:
    with writing(store) as conn:
        assert seal(conn, of_catalog("lake"), {}) is None
        assert unseal(conn, of_catalog("lake"), None) == {}
        assert cleanups.secret_names(conn, "nobody") == []


def test_a_program_with_another_key_can_neither_read_nor_write(store: Engine) -> None:
    submitted(store, "a")
    other = SecretKey.new()
    with_keyring(store, Keyring(GivenKeys([other])))

    with writing(store) as conn:
        with pytest.raises(KeyRefused, match=f"under key {KEY.id}, and HEADRACE_SECRET_KEY"):
            jobs.spec_and_secrets_of(conn, "a")
        with pytest.raises(KeyRefused, match="forget-secrets"):
            seal(conn, of_catalog("lake"), NAMES)


def test_a_value_is_read_under_its_own_key_and_written_under_the_stores(store: Engine) -> None:
    submitted(store, "a")
    newer = SecretKey.new()
    with_keyring(store, Keyring(GivenKeys([newer, KEY])))
    with writing(store) as conn:
        conn.execute(update(facts).where(facts.c.name == "secret_key").values(value=newer.id))
    submitted(store, "b")

    with reading(store) as conn:
        rows = dict(conn.execute(select(job_secrets.c.job_id, job_secrets.c.sealed)).all())
        assert [rows[name]["key"] for name in ("a", "b")] == [KEY.id, newer.id]
        for name in ("a", "b"):
            assert jobs.spec_and_secrets_of(conn, name)[1] == with_secret().secrets


def test_neither_keys_nor_secrets_show_in_a_repr_or_an_error(
    store: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [repr(KEY), repr(KEYS), repr(keyring_of(store)), repr(with_secret().secrets.keys())]
    stored = dict(seal_under(KEY, of_job("i1"), NAMES))
    with pytest.raises(IntegrityError) as failed, writing(store) as conn:
        conn.execute(insert(job_secrets).values(job_id="no such job", sealed=stored))
    for text in (*shown, str(failed.value), caplog.text):
        assert KEY.text not in text
        assert KEY.raw.hex() not in text
        assert SECRET not in text


def test_a_change_of_the_key_waits_for_whoever_encrypts(postgresql_url: str) -> None:
    """He holds the row that names the key: nothing is left under the old one."""
    first, second = (open_store(postgresql_url, keys=KEYS) for _ in range(2))
    with writing(first) as conn:
        seal(conn, of_catalog("lake"), NAMES)
        row = select(facts.c.value).where(facts.c.name == "secret_key")
        with pytest.raises(Exception, match="lock timeout"), writing(second) as other:
            other.execute(row.with_for_update())
    first.dispose()
    second.dispose()


def test_each_value_has_a_nonce_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def drawn(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr(encryption.os, "urandom", drawn)
    seal_under(KEY, of_job("i1"), NAMES)
    seal_under(KEY, of_job("i1"), NAMES)
    assert asked == [12, 12]
