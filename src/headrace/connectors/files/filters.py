"""Which files of a folder are read: by glob, name, path, extension, time and partition.

All of it is decided by what a listing says of a file: the same listing gives the same files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.connectors.files.source_options import FileFilterOptions
from headrace.spark.filesystem import FileInfo

_WILD_CARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_PIECES = re.compile(
    r"\*\*/|\*\*|\*|\?|(?P<letters>\[[!^]?[^\]/]+\])|(?P<choice>\{[^{}]*\})|(?P<plain>.)",
    re.DOTALL,  # a name may hold a line end
)
_WILD = re.compile(r"[*?]")  # what makes a path a glob; brackets and braces alone do not


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Whether a file is one of those to read."""

    options: FileFilterOptions
    glob: str | None = None  # below the root; None: everything there

    def accepts(self, info: FileInfo, root: str) -> bool:
        """`root` is the URI that the path of `info` is relative to; a file itself has no path."""
        path = _path_of(joined(root, info.path))
        return (
            self._fits_glob(info.path)
            and self._fits_name(path)
            and self._fits_time(info.modified_ms)
            and self._fits_partitions(path)
        )

    def may_hold(self, name: str) -> bool:
        """Whether a file or folder directly below the root may be, or hold, one to read."""
        first = (self.glob or "**").partition("/")[0]
        if "**" in first or "{" in first:  # may stand for several folders
            return True
        return re.fullmatch(glob_pattern(first), name, re.DOTALL) is not None

    def _fits_glob(self, path: str) -> bool:
        below = path
        if self.glob is not None:
            pattern = f"(?:{glob_pattern(self.glob)})(?P<below>/.*)?"
            found = re.fullmatch(pattern, path, re.DOTALL)
            if found is None:
                return False
            below = (found["below"] or "").removeprefix("/")
        return self.options.recursive or "/" not in below

    def _fits_name(self, path: str) -> bool:
        name, extension = path.rpartition("/")[2], self.options.extension
        if extension and not name.endswith("." + extension.lstrip(".")):
            return False
        pattern = self.options.name_pattern
        if pattern is None:
            return True
        return re.fullmatch(pattern, path if pattern.startswith("/") else name) is not None

    def _fits_time(self, modified_ms: int) -> bool:
        first, end = self.options.modified_from_ms, self.options.modified_until_ms
        return (first is None or modified_ms >= first) and (end is None or modified_ms < end)

    def _fits_partitions(self, path: str) -> bool:
        wanted = self.options.partitions
        folder = path.rpartition("/")[0] + "/"
        return not wanted or any(f"/{one.strip('/')}/" in folder for one in wanted)


def joined(root: str, path: str) -> str:
    """The URI of a path below a root, which may be the root of the file system itself."""
    return f"{root.rstrip('/')}/{path}" if path else root


def _path_of(uri: str) -> str:
    """Without scheme and host. `#` and `?` are parts of a name: a URI here is not encoded."""
    _, has_host, rest = uri.partition("://")
    return "/" + rest.partition("/")[2] if has_host else uri.removeprefix("file:")


def glob_flaw(glob: str) -> str | None:
    """Why a glob means nothing, or None."""
    try:
        re.compile(glob_pattern(glob))
    except re.error as error:
        return f"'path' is no glob: {error} in {glob!r}; mend it"
    return None


def split_glob(path: str) -> tuple[str, str | None]:
    """The folder above the first name that is a pattern, and the rest; no rest without one."""
    parts = path.rstrip("/").split("/")
    first = next((number for number, part in enumerate(parts) if _WILD.search(part)), None)
    if first is None:
        return path, None
    return "/".join(parts[:first]) or "/", "/".join(parts[first:])


def glob_pattern(glob: str) -> str:
    """The regular expression of a glob: as in a shell, and `**` also stands for folders."""
    return "".join(_translated(found) for found in _PIECES.finditer(glob))


def _translated(piece: re.Match[str]) -> str:
    text = piece[0]
    if text in _WILD_CARDS:
        return _WILD_CARDS[text]
    match piece.lastgroup:
        case "letters":
            inside = text[1:-1].replace("\\", r"\\")
            return f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
        case "choice":
            return f"(?:{'|'.join(glob_pattern(one) for one in text[1:-1].split(','))})"
        case _:
            return re.escape(text)
