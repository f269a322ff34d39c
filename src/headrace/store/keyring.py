"""The keys that secrets in a store are encrypted under, and where a program finds them.

A key is 32 random bytes, written as base64. Its id is derived from it, so the id that the store
names is also the proof that a program holds the right key; it tells nothing about the key. Several
keys may be given: a store that changes its key is read under both while it does.

    <store>.key       beside a SQLite store, made with it, for its owner only
    given             `--secret-key-file`, in its place; HEADRACE_SECRET_KEY, on PostgreSQL
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hmac import compare_digest
from pathlib import Path
from threading import Lock
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headrace.errors import BadSetting

KEY_BYTES = 32
ID_BYTES = 8
KEYS_MAX = 10  # in one file or variable: one is used, one or two are on their way out
FILE_BYTES_MAX = 4096
KEY_FILE_MODE = 0o600
OTHERS = stat.S_IRWXO
OTHERS_AND_GROUP = stat.S_IRWXO | stat.S_IRWXG
MAKE_ONE = "`openssl rand -base64 32` makes one"
VARIABLE = "HEADRACE_SECRET_KEY"


@dataclass(frozen=True)
class SecretKey:
    """One key. Neither its text nor what is derived from it shows in a log or a traceback."""

    raw: bytes = field(repr=False)

    @classmethod
    def new(cls) -> SecretKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def read(cls, text: str) -> SecretKey:
        """ValueError says what is wrong with it, and never repeats it."""
        try:
            raw = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"a key is {KEY_BYTES} bytes in base64; {MAKE_ONE}") from None
        if len(raw) != KEY_BYTES:
            raise ValueError(
                f"a key is {KEY_BYTES} bytes in base64, and this is {len(raw)} bytes; {MAKE_ONE}"
            )
        return cls(raw)

    @property
    def text(self) -> str:
        return base64.b64encode(self.raw).decode()

    @cached_property
    def id(self) -> str:
        return _derived(self.raw, b"headrace key id", ID_BYTES).hex()

    @cached_property
    def sealing(self) -> bytes:
        """What values are encrypted with."""
        return _derived(self.raw, b"headrace secrets at rest", KEY_BYTES)


def _derived(raw: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(raw)


def read_keys(text: str) -> Sequence[SecretKey]:
    """Keys that are parted by commas, spaces or lines. ValueError never repeats one."""
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError(f"it holds no key; {MAKE_ONE}")
    if len(words) > KEYS_MAX:
        raise ValueError(f"it holds {len(words)} keys, and at most {KEYS_MAX} are read")
    return [SecretKey.read(word) for word in words]


class KeySource(Protocol):
    @property
    def name(self) -> str:
        """For people: where the keys come from."""
        ...

    def read(self) -> Sequence[SecretKey]:
        """The keys as they are now; of these the first is the one that is wanted."""
        ...


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """Keys that were read once and don't change."""

    keys: Sequence[SecretKey] = field(repr=False)
    name: str = VARIABLE

    def read(self) -> Sequence[SecretKey]:
        return self.keys


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file that holds keys. It is read again when a store names a key that is not known."""

    path: Path
    barred: int = OTHERS  # permissions that it must not give
    piped: Sequence[SecretKey] | None = field(default=None, repr=False)  # can't be read again

    @property
    def name(self) -> str:
        return str(self.path)

    @classmethod
    def checked(cls, path: Path) -> KeyFile:
        """One that was read, so that what is wrong with it is said now. What a pipe gave is kept:
        `--secret-key-file <(pass show headrace)`."""
        file = cls(path)
        keys = file.read()
        return file if path.is_file() else replace(file, piped=keys)

    def exists(self) -> bool:
        return self.path.exists()

    def read(self) -> Sequence[SecretKey]:
        if self.piped is not None:
            return self.piped
        try:
            with self.path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise BadSetting(
                f"secret key file {self.path} can not be read: {error.strerror or error}"
            ) from error
        if mode & self.barred:
            raise BadSetting(
                f"secret key file {self.path} has mode {mode:04o}, so that others may get at it; "
                f"`chmod 600 {self.path}`, and change the key if somebody may have read it"
            )
        try:
            if len(content) > FILE_BYTES_MAX:
                raise ValueError(f"it is longer than {FILE_BYTES_MAX} bytes")  # noqa: TRY301
            return read_keys(content.decode("ascii"))
        except UnicodeDecodeError as error:
            raise BadSetting(
                f"secret key file {self.path} can not be used: it is no text"
            ) from error
        except ValueError as error:
            raise BadSetting(f"secret key file {self.path} can not be used: {error}") from None

    def write(self, keys: Sequence[SecretKey]) -> None:
        """All of it or nothing, durable when this returns, readable by its owner only.

        Whoever writes holds the write lock of the store that the file stands beside.
        """
        folder = self.path.parent
        made = folder / f".{self.path.name}.{secrets.token_hex(8)}"
        try:
            number = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_FILE_MODE)
            with os.fdopen(number, "w") as file:
                file.write("".join(f"{key.text}\n" for key in keys))
                file.flush()
                os.fsync(file.fileno())
            made.rename(self.path)
            _sync_folder(folder)
        except OSError as error:
            made.unlink(missing_ok=True)
            raise BadSetting(
                f"secret key file {self.path} can not be written: {error.strerror or error}"
            ) from error


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def own_file(store: Path) -> KeyFile:
    """The key file beside a SQLite store."""
    return KeyFile(store.with_name(f"{store.name}.key"), OTHERS_AND_GROUP)


class Keyring:
    """All keys that this program has for one store. Safe between threads.

    `own`: the file beside a SQLite store, which has its key; what is given besides is only read.
    """

    def __init__(self, given: KeySource | None = None, own: KeyFile | None = None) -> None:
        self.given, self.own = given, own
        self._known: dict[str, SecretKey] = {}
        self._lock = Lock()

    @property
    def sources(self) -> Sequence[KeySource]:
        own = [self.own] if self.own is not None and self.own.exists() else []
        return [*own, *([self.given] if self.given is not None else [])]

    @property
    def is_needed(self) -> bool:
        """Whether the store is one that has to be given its key, and was not."""
        return self.own is None and self.given is None

    def find(self, key_id: str) -> SecretKey | None:
        """The key of this id. One that is not known yet may be in a file since it was read."""
        with self._lock:
            if key_id not in self._known:
                self._known |= {key.id: key for source in self.sources for key in source.read()}
            found = self._known.get(key_id)
        return found if found is not None and compare_digest(found.id, key_id) else None

    def make(self) -> SecretKey:
        """The key for a store that has none: the first that is given, or one in a new file beside
        the store, which the caller has locked."""
        if self.own is None:
            assert self.given is not None, "a store without a file of its own is given its key"
            return self.given.read()[0]
        if self.own.exists():
            return self.own.read()[0]
        made = SecretKey.new()
        self.own.write([made])
        return made

    def next(self, current: str) -> SecretKey:
        """The key for a store that is to have another: the first that is given. In a file beside
        the store one is made, and stands there before the old one from now on; one that is first
        there and not `current` is of a try that was broken off."""
        key = self.make()
        if self.own is None or key.id != current:
            return key
        made = SecretKey.new()
        self.own.write([made, key])
        return made

    def names(self) -> str:
        return " and ".join(source.name for source in self.sources)


def how_to_give() -> str:
    return (
        "secrets in a PostgreSQL store are encrypted, and all its coordinators need the same key: "
        f"give --secret-key-file FILE, or set {VARIABLE}; {MAKE_ONE}"
    )
