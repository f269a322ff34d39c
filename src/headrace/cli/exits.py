"""How an error leaves a command: one line on standard error, and an exit code that says its kind.

0    done
1    the job failed, was canceled, or was stopped with a savepoint before it was done; or what a
     command about a table waited for failed; `inspect`: some table could not be read
2    refused: the request is wrong, repeating it will not help
70   a bug of ours; the line says where its traceback lies
71   the JVM of a worker has died; the worker may be started again
72   the launch that a worker was started for was replaced or released; nothing is to be done
75   something outside is down, repeating it later may help
130  interrupted: Ctrl-C, or SIGINT
143  ended by SIGTERM; a coordinator or worker that stopped cleanly on it exits 0
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from typing import TYPE_CHECKING, NoReturn

from headrace.errors import HeadraceError, JobFailed, LaunchOver, Refused, SparkDied, Unavailable

if TYPE_CHECKING:
    from pydantic import ValidationError

JOB_FAILED = 1
SOME_FAILED = 1  # of a command that looks at many things, and tells which
REFUSED = 2
BUG = 70
SPARK_DIED = 71
LAUNCH_OVER = 72
UNAVAILABLE = 75
INTERRUPTED = 130

PREFIX = "headrace: "  # of the line; a parent finds it in the log of a child


def exit_code(error: HeadraceError) -> int:
    match error:
        case JobFailed():
            return JOB_FAILED
        case LaunchOver():
            return LAUNCH_OVER
        case Refused():
            return REFUSED
        case SparkDied():
            return SPARK_DIED
        case Unavailable():
            return UNAVAILABLE
        case _:
            return BUG


def leave(error: Exception, *, debug: bool) -> NoReturn:
    """Say what happened in one line, and exit with what it means."""
    from pydantic import ValidationError  # slow to load, and needed by nobody who succeeds

    if isinstance(error, HeadraceError) and (code := exit_code(error)) != BUG:
        _say(str(error))
    elif isinstance(error, ValidationError) and error.title == "Settings":
        code = REFUSED
        _say(_settings_line(error))
    else:
        code = BUG
        _say(_bug_line(error))
    if debug:
        traceback.print_exception(error)
    sys.exit(code)


def _say(text: str) -> None:
    sys.stderr.write(PREFIX + " ".join(text.split()) + "\n")


def _settings_line(error: ValidationError) -> str:
    return "; ".join(
        f"environment variable HEADRACE_{'_'.join(map(str, problem['loc'])).upper()} "
        f"can not be used: {problem['msg']}"
        for problem in error.errors(include_url=False)
    )


def _bug_line(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="headrace-bug-", suffix=".log", delete=False
    ) as report:
        traceback.print_exception(error, file=report)
    summary = traceback.format_exception_only(error)[-1].strip()
    return (
        f"this is a bug in headrace: {summary}; please report it with {report.name}, "
        "or run again with --debug to see it here"
    )
