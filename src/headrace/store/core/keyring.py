"""The keys that secrets in a store are encrypted under, and where a program finds them.

A key is 32 random bytes, written as base64. Its id is derived from it, so the id that the store
names also proves that a program holds the right key; it reveals nothing about the key. Several keys
may be given: a store that changes its key is read under both while it does.

    <store>.key       beside a SQLite store, made with it, readable by its owner only
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
KEYS_MAX = 10  # in one file or variable: one is in use, one or two are being replaced
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
        """Read a key from base64. ValueError says what is wrong with it, and never repeats it."""
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
        """The derived key that values are encrypted with."""
        return _derived(self.raw, b"headrace secrets at rest", KEY_BYTES)


def _derived(raw: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(raw)


def read_keys(text: str) -> Sequence[SecretKey]:
    """Read keys that commas, spaces or line ends separate. ValueError never repeats one."""
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError(f"it holds no key; {MAKE_ONE}")
    if len(words) > KEYS_MAX:
        raise ValueError(f"it holds {len(words)} keys, and at most {KEYS_MAX} are read")
    return [SecretKey.read(word) for word in words]


class KeySource(Protocol):
    """Where keys come from: a file, or a variable that was read once."""

    @property
    def name(self) -> str:
        """Where the keys come from, for people."""
        ...

    def read(self) -> Sequence[SecretKey]:
        """The keys as they are now. The first of them is the one to encrypt under."""
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
    """A file that holds keys. It is read again when a store names a key that is not known yet."""

    path: Path
    barred: int = OTHERS  # permission bits that its mode must not have
    piped: Sequence[SecretKey] | None = field(default=None, repr=False)  # from a pipe

    @property
    def name(self) -> str:
        return str(self.path)

    @classmethod
    def checked(cls, path: Path) -> KeyFile:
        """A key file that was read once, so that a problem with it is reported now.

        A pipe can't be read again, so its keys are kept: `--secret-key-file <(pass show headrace)`.
        """
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
        """Replace the file atomically; it is durable on return, and readable by its owner only.

        The caller holds the write lock of the store that the file stands beside.
        """
        folder = self.path.parent
        temporary = folder / f".{self.path.name}.{secrets.token_hex(8)}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_FILE_MODE)
            with os.fdopen(descriptor, "w") as file:
                file.write("".join(f"{key.text}\n" for key in keys))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.path)
            _sync_folder(folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise BadSetting(
                f"secret key file {self.path} can not be written: {error.strerror or error}"
            ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def own_file(store: Path) -> KeyFile:
    """The key file beside a SQLite store."""
    return KeyFile(store.with_name(f"{store.name}.key"), OTHERS_AND_GROUP)


class Keyring:
    """All keys that this program has for one store. Safe for use by several threads.

    `own` is the file beside a SQLite store, which has the store's key; what was `given` is only
    read.
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
    def is_key_missing(self) -> bool:
        """Whether the store's key has to be given to this program, and was not."""
        return self.own is None and self.given is None

    def find(self, key_id: str) -> SecretKey | None:
        """The key of this id. Files are read again for an unknown one: it may have been added
        since."""
        with self._lock:
            if key_id not in self._known:
                self._known |= {key.id: key for source in self.sources for key in source.read()}
            found = self._known.get(key_id)
        return found if found is not None and compare_digest(found.id, key_id) else None

    def make(self) -> SecretKey:
        """The key for a store that has none: the first that was given, or one in a new file
        beside the store, whose write lock the caller holds."""
        if self.own is None:
            assert self.given is not None, "a store without a file of its own is given its key"
            return self.given.read()[0]
        if self.own.exists():
            return self.own.read()[0]
        made = SecretKey.new()
        self.own.write([made])
        return made

    def next(self, current: str) -> SecretKey:
        """The key that is to replace the key `current`: the first that was given.

        For a file beside the store a new key is made, and written before the old one. When the
        first key there is not `current`, an earlier change was broken off, and that key is used.
        """
        key = self.make()
        if self.own is None or key.id != current:
            return key
        made = SecretKey.new()
        self.own.write([made, key])
        return made

    def names(self) -> str:
        """Where its keys come from, for people."""
        return " and ".join(source.name for source in self.sources)


def how_to_give() -> str:
    return (
        "secrets in a PostgreSQL store are encrypted, and all its coordinators need the same key: "
        f"give --secret-key-file FILE, or set {VARIABLE}; {MAKE_ONE}"
    )
