"""Write the epoch's time into a query, in place of NOW() and its like.

Spark has no setting for what the time is, and would answer anew each time an epoch is run. So the
words that ask for it become literals, wherever they are not part of a text, a comment, a quoted
name or a longer name. Times are in UTC, as the session is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

_TOKEN = re.compile(
    r"""
      (?P<kept>
          '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`   # texts, quoted names
        | --[^\n]* | /\*.*?\*/                                           # comments
        | \.\s*[A-Za-z_]\w*                                              # the field of something
        | \bas\s+[A-Za-z_]\w*                                            # an alias
      )
    | \b(?P<word>current_timestamp|current_date|localtimestamp)\b(?P<call>\s*\(\s*\))?(?!\s*[.(])
    | \b(?P<function>now|curdate|unix_timestamp)\s*\(\s*\)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_LITERALS: dict[str, Callable[[datetime], str]] = {
    "current_timestamp": lambda now: f"TIMESTAMP '{_text(now)}Z'",
    "now": lambda now: f"TIMESTAMP '{_text(now)}Z'",
    "localtimestamp": lambda now: f"TIMESTAMP_NTZ '{_text(now)}'",
    "current_date": lambda now: f"DATE '{now.date().isoformat()}'",
    "curdate": lambda now: f"DATE '{now.date().isoformat()}'",
    "unix_timestamp": lambda now: f"{int(now.timestamp())}L",
}


def _text(now: datetime) -> str:
    return now.replace(tzinfo=None).isoformat(" ", "milliseconds")


def fix_now(query: str, *, now_ms: int) -> str:
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC)

    def literal(match: re.Match[str]) -> str:
        if match["kept"] is not None:
            return match[0]
        return f"({_LITERALS[(match['word'] or match['function']).lower()](now)})"

    return _TOKEN.sub(literal, query)
