"""Names that people give, and that stand in paths of folders, pods and pages."""

from __future__ import annotations

import re

from headrace.errors import BadSetting

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadSetting(
            f"{what} {name!r} can't be used; take up to 100 letters, digits, '.', '_' or '-', "
            "beginning with a letter or a digit"
        )
