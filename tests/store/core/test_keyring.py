"""Keys and the files that hold them: made once, for their owner only, and read again if needed."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import BadSetting, KeyRefused
from headrace.store.core import engine
from headrace.store.core.encryption import current_key_id
from headrace.store.core.engine import keyring_of, reading
from headrace.store.core.keyring import (
    KEYS_MAX,
    GivenKeys,
    KeyFile,
    Keyring,
    SecretKey,
    own_file,
    read_keys,
)
from headrace.store.migrate import prepare_store
from tests.postgresql import PostgreSQL
from tests.stores import KEY

STARTS = 4


def test_a_key_is_read_as_it_is_written_in_either_alphabet() -> None:
    key = SecretKey(b"\xfb\xff" * 16)
    assert SecretKey.read(f" {key.text}\n") == key
    assert SecretKey.read(key.text.replace("+", "-").replace("/", "_")) == key
    assert len({SecretKey.new().id for _ in range(9)}) == 9
    assert len(key.id) == 16


@pytest.mark.parametrize("text", ["", "   ", "geheim", "Z2VoZWlt", "ä" * 44, "A" * 44 + "=="])
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="openssl rand -base64 32") as refused:
        read_keys(text)
    assert not text.strip() or text not in str(refused.value)


def test_several_keys_are_parted_by_commas_or_lines_and_are_not_endless() -> None:
    keys = [SecretKey.new() for _ in range(3)]
    assert read_keys(f"{keys[0].text},{keys[1].text}\n{keys[2].text}\n") == keys
    with pytest.raises(ValueError, match="at most 10"):
        read_keys("\n".join([KEY.text] * (KEYS_MAX + 1)))


def test_a_key_file_is_made_whole_for_its_owner_only(tmp_path: Path) -> None:
    file = own_file(tmp_path / "store.db")
    os.umask(umask := os.umask(0))
    assert umask != 0o177, "the mode below is not the umask's doing"
    file.write([KEY, SecretKey.new()])

    assert file.path == tmp_path / "store.db.key"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.read()[0] == KEY
    assert [path.name for path in tmp_path.iterdir()] == ["store.db.key"]


@pytest.mark.parametrize(("mode", "own", "given"), [(0o640, False, True), (0o604, False, False)])
def test_a_key_file_that_others_may_read_is_refused(
    tmp_path: Path, *, mode: int, own: bool, given: bool
) -> None:
    beside = own_file(tmp_path / "store.db")
    beside.write([KEY])
    beside.path.chmod(mode)
    for file, allowed in ((beside, own), (KeyFile(beside.path), given)):
        if allowed:
            assert file.read() == [KEY]
        else:
            with pytest.raises(BadSetting, match=f"{mode:04o}.*chmod 600"):
                file.read()


@pytest.mark.parametrize("content", [b"", b"geheim\n", b"\xff\xfe", b"A" * 5000])
def test_a_key_file_that_can_not_be_used_is_refused_and_not_repeated(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(BadSetting, match=r"secret key file .*/key can not be used") as refused:
        KeyFile(path).read()
    assert "geheim" not in str(refused.value)
    with pytest.raises(BadSetting, match="No such file"):
        KeyFile(tmp_path / "none").read()


def test_a_sqlite_store_makes_its_key_and_starts_at_once_agree_on_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"

    def start(_: int) -> str | None:
        store = engine.open_store(url)
        prepare_store(store)
        with reading(store) as conn:
            key_id = current_key_id(conn)
        store.dispose()
        return key_id

    with ThreadPoolExecutor(STARTS) as pool:
        ids = set(pool.map(start, range(STARTS)))

    [key] = own_file(tmp_path / "store.db").read()
    assert ids == {key.id}


def test_a_sqlite_store_without_its_key_file_is_refused_and_gets_no_new_one(
    sqlite_url: str,
) -> None:
    file = own_file(Path(sqlite_url.removeprefix("sqlite:///")))
    file.path.unlink()
    store = engine.open_store(sqlite_url)
    with pytest.raises(KeyRefused, match=rf"under key {KEY.id}, and its key file .* is gone") as no:
        prepare_store(store)
    store.dispose()
    assert "`headrace store forget-secrets` lists whose they are" in str(no.value)
    assert not file.exists()


def test_a_sqlite_store_with_the_key_of_another_is_refused(sqlite_url: str) -> None:
    own_file(Path(sqlite_url.removeprefix("sqlite:///"))).write([SecretKey.new()])
    store = engine.open_store(sqlite_url)
    with pytest.raises(KeyRefused, match=rf"{KEY.id}, and .*store.db.key does not hold it"):
        prepare_store(store)
    store.dispose()


def test_the_key_of_a_sqlite_store_may_be_kept_elsewhere(tmp_path: Path) -> None:
    elsewhere = KeyFile(tmp_path / "elsewhere")
    elsewhere.write([KEY])
    store = engine.open_store(f"sqlite:///{tmp_path}/store.db", keys=elsewhere)
    prepare_store(store)
    with reading(store) as conn:
        assert current_key_id(conn) == KEY.id
    store.dispose()
    assert not (tmp_path / "store.db.key").exists()


def test_a_postgresql_store_needs_a_key_also_when_it_holds_no_secret(
    postgresql: PostgreSQL, postgresql_url: str
) -> None:
    name = postgresql.create_database(template="template1")
    for url in (postgresql_url, postgresql.url(name)):
        store = engine.open_store(url)
        with pytest.raises(KeyRefused, match="--secret-key-file FILE, or set HEADRACE_SECRET_KEY"):
            prepare_store(store)
        store.dispose()
    postgresql.drop_database(name)


def test_a_postgresql_store_under_another_key_is_refused(postgresql_url: str) -> None:
    store = engine.open_store(postgresql_url, keys=GivenKeys([SecretKey.new()]))
    with pytest.raises(KeyRefused, match=f"{KEY.id}, and HEADRACE_SECRET_KEY does not hold it"):
        prepare_store(store)
    store.dispose()


def test_a_key_that_is_not_known_is_looked_for_in_its_file_again(tmp_path: Path) -> None:
    file, newer = KeyFile(tmp_path / "keys"), SecretKey.new()
    file.write([KEY])
    keyring = Keyring(file)
    assert keyring.find(KEY.id) == KEY
    assert keyring.find(newer.id) is None
    file.write([newer])
    assert keyring.find(newer.id) == newer
    assert keyring.find(KEY.id) == KEY, "values under it may still be there"


def test_an_engine_carries_its_keys(sqlite_url: str) -> None:
    store = engine.open_store(sqlite_url)
    with reading(store) as conn:
        assert keyring_of(conn) is keyring_of(store)
    store.dispose()


def test_a_pipe_is_read_once_and_a_file_again(tmp_path: Path) -> None:
    key, other = SecretKey.new(), SecretKey.new()
    end, begin = os.pipe()
    os.write(begin, key.text.encode())
    os.close(begin)
    piped = KeyFile.checked(Path(f"/dev/fd/{end}"))
    os.close(end)
    assert Keyring(piped).find(key.id) == key
    assert key.text not in repr(piped)

    KeyFile(tmp_path / "key").write([key])
    file = KeyFile.checked(tmp_path / "key")
    file.write([other])
    assert Keyring(file).find(other.id) == other
