"""Which files of a folder are read: by glob, name, path, extension, time and partition.

All of it is decided by what a listing says of a file: the same listing gives the same files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.connectors.files.source_options import FileFilterOptions
from headrace.spark.filesystem import FileInfo

_WILD_CARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_PIECES = re.compile(
    r"\*\*/|\*\*|\*|\?|(?P<letters>\[[!^]?[^\]/]+\])|(?P<choice>\{[^{}]*\})|(?P<plain>.)"
)
_WILD = re.compile(r"[*?]")  # what makes a path a glob; brackets and braces alone do not


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Whether a file is one of those to read."""

    options: FileFilterOptions
    glob: str | None = None  # below the root; None: everything there

    def accepts(self, info: FileInfo, root: str) -> bool:
        """`root` is the URI that the path of `info` is relative to; a file itself has no path."""
        whole = f"{root}/{info.path}" if info.path else root
        path = urlsplit(whole).path if "://" in whole else whole.removeprefix("file:")
        return (
            self._fits_glob(info.path)
            and self._fits_name(path)
            and self._fits_time(info.modified_ms)
            and self._fits_partitions(path)
        )

    def _fits_glob(self, path: str) -> bool:
        below = path
        if self.glob is not None:
            found = re.fullmatch(f"(?:{glob_pattern(self.glob)})(?P<below>/.*)?", path)
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
