"""Every error that Headrace raises on purpose. The branch of the tree says what to do about it.

HeadraceError
├── Refused                 the request is wrong, repeating it will not help     422, exit 2
│   ├── BadJob                  a job that can't be accepted, with all that is wrong with it
│   │   └── BadJobFile              a job file that can't be understood, with the places in it
│   ├── JobFileUnreadable       a job file that can't be opened
│   ├── BadSetting              an option of a command or a setting of the environment
│   ├── NotFound                404
│   │   └── LogsGone                the log lines of a job have expired
│   ├── IllegalTransition
│   ├── StoreRefused            a store this program may not open
│   │   ├── ProgramTooOld           newer programs have changed it so that this one may not
│   │   └── KeyRefused              its secrets are encrypted under a key that is not held here
│   ├── LaunchOver              a worker whose launch was replaced or released     exit 72
│   │   └── LaunchTaken             another worker is registered for the same launch
│   ├── ProtocolRefused         coordinator and worker speak different versions of the protocol
│   ├── StoreOlderThanTarget    a target holds epochs that the store does not know
│   │   └── StoreOlderThanTargets   the same for a pipeline with several sinks
│   ├── UnknownTaskKind         a task of a kind that this program does not know
│   ├── ExtraMissing            a part of headrace that was not installed: Spark, psycopg, …
│   ├── JavaMissing             no Java, or one that Spark does not run on
│   ├── PortInUse
│   ├── Unauthorized            401
│   └── JobFailed               a job reached FAILED; its reason is the message     exit 1
├── Fenced                  this process no longer owns what it tried to write   409, never retried
│   ├── LeaderFenced            another coordinator leads
│   ├── ClaimLost               the execution is another worker's by now
│   ├── SyncOvertaken           a later sync of the same worker arrived before this one
│   └── TokenSpent              the target already holds this commit
└── Unavailable             the outside world is down, repeating it may help     503, exit 75
    ├── StoreUnavailable
    │   └── StoreBusy               SQLite: another process holds the lock
    ├── CoordinatorUnavailable
    ├── NotLeader               421, with the leader's address
    ├── JarsUnavailable
    └── SparkDied               a worker's JVM has gone; the worker may be started again   exit 71

Between processes an error travels as the name of its class and its message. The receiver decides
by the class, never by the message: messages are for people, and may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

ID_PREFIX_MIN = 4  # characters; commands accept a prefix of an id that is at least this long
# Kinds of things, as errors call them, whose id may be typed as a prefix.
TYPED_BY_PREFIX = frozenset({"job", "worker", "resource or worker"})


class HeadraceError(Exception):
    """Base of every error raised by headrace."""


class Refused(HeadraceError):
    """The request can not be granted; repeating it unchanged will not help."""


class FileProblem(NamedTuple):
    """A mistake in a file, and its place."""

    line: int
    column: int
    text: str


class BadJob(Refused):
    """A job that can't be accepted, for one reason or several; its message has a line for each."""

    def __init__(self, problems: Sequence[str], *, more: int = 0) -> None:
        self.problems = tuple(" ".join(each.split()) for each in problems)
        lines = [*self.problems, *([f"and {more} more"] if more else ())]
        super().__init__("\n".join(lines))


class BadJobFile(BadJob):
    """A job file is malformed, or asks for something that does not exist.

    `line`, `column` and `problem` are of the first mistake, `others` are the rest. Of very many
    only some are listed, and `more` counts those that are not.
    """

    def __init__(
        self,
        path: str,
        line: int,
        column: int,
        problem: str,
        *,
        others: Sequence[FileProblem] = (),
        more: int = 0,
    ) -> None:
        self.path, self.line, self.column, self.problem = path, line, column, problem
        self.others, self.more = tuple(others), more
        found = (FileProblem(line, column, problem), *others)
        super().__init__(
            [f"{path}:{each.line}:{each.column}: {each.text}" for each in found], more=more
        )


class JobFileUnreadable(Refused):
    """A job file can't be opened, or is of a form that is not supported."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class BadSetting(Refused):
    """A setting has a value that can not be used."""


class NotFound(Refused):
    """There is no such thing; `way_out` says how to find the right one."""

    def __init__(self, kind: str, key: str, *, way_out: str | None = None) -> None:
        self.kind, self.key = kind, key
        if way_out is None and kind == "job":
            way_out = "`headrace job list` shows what runs, `headrace job history` what has ended"
        parts = [f"there is no {kind} {key!r}", *([way_out] if way_out else ())]
        if kind in TYPED_BY_PREFIX and len(key) < ID_PREFIX_MIN:
            parts.append(
                f"commands take the beginning of an id, at least {ID_PREFIX_MIN} characters of it"
            )
        super().__init__("; ".join(parts))


class LogsGone(NotFound):
    """A job is only left in the history: its log lines have expired."""

    def __init__(self, job_id: str, status: str, ended: str, *, failed: bool) -> None:
        self.kind, self.key = "job", job_id
        Refused.__init__(
            self,
            f"job {job_id!r} ended {status} at {ended}, and its log lines have expired; "
            f"`headrace job show {job_id}` has {'its error' if failed else 'what is left of it'}",
        )


class IllegalTransition(Refused):
    """A transition that the state machine does not allow."""

    def __init__(self, kind: str, key: str, current: str, target: str) -> None:
        self.kind, self.key, self.current, self.target = kind, key, current, target
        super().__init__(f"{kind} {key!r} is {current} and can not become {target}")


class StoreRefused(Refused):
    """The store exists, and this program must not write to it."""


class ProgramTooOld(StoreRefused):
    """The store was upgraded, and this program may neither lead nor write there (L4)."""


class KeyRefused(StoreRefused):
    """The secrets in the store are encrypted under a key that this program does not hold."""

    def __init__(self, message: str, *, key_id: str | None = None) -> None:
        self.key_id = key_id  # which key is missing
        super().__init__(message)


class LaunchOver(Refused):
    """A worker belongs to a launch that is no longer wanted. It has to end itself."""


class LaunchTaken(LaunchOver):
    """Another worker is registered for the same launch.

    It may be the one that this one replaces, dead so recently that the coordinator does not know
    yet. So trying again for a while is worth it.
    """


class ProtocolRefused(Refused):
    """A coordinator does not speak the version of the protocol that a worker speaks.

    `oldest` to `newest` are those that it speaks; the worker may know one of them.
    """

    def __init__(self, message: str, *, oldest: int, newest: int) -> None:
        self.oldest, self.newest = oldest, newest
        super().__init__(message)

    @classmethod
    def of(cls, worker: int, *, oldest: int, newest: int) -> Self:
        """What a coordinator that speaks these says to a worker of another version."""
        way_out = "upgrade the worker"
        if worker > newest:
            way_out = "upgrade the coordinators first, then the workers"
        spoken = f"{oldest} and {newest}" if oldest < newest else str(newest)
        return cls(
            f"this coordinator speaks protocol {spoken}, and the worker {worker}; {way_out}",
            oldest=oldest,
            newest=newest,
        )


class StoreOlderThanTarget(Refused):
    """A target holds an epoch that this store does not know.

    The store was restored from a backup, or another store runs the same job. An execution that
    went on would take its own next epochs for committed, and skip their rows (E7).
    """

    def __init__(self, target: str, held: str, known: str) -> None:
        super().__init__(
            f"{target} {held}, and {known}: the store is older than its targets. It was restored "
            "from a backup, or a copy of it runs the same job; to go on would skip rows. There are "
            "two ways out: restore a newer copy of the store, one that knows that epoch; or submit "
            "the job file as a new job, which reads its sources from the beginning: empty the "
            "target before, or set data_save_mode = DROP_DATA, or rows come twice"
        )


class StoreOlderThanTargets(StoreOlderThanTarget):
    """The same for a pipeline with several sinks; `message` joins those of all that failed."""

    def __init__(self, message: str) -> None:
        Refused.__init__(self, message)


class UnknownTaskKind(Refused):
    """A task of a kind that this program does not know, and so does nothing about."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"a task of kind {kind} is unknown here: a newer program planned it; upgrade this one"
        )


class ExtraMissing(Refused):
    """Something is needed that `pip install headrace` leaves out, so that it stays small."""

    def __init__(self, extra: str, needed_for: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_for}, which is not installed here; type: pip install 'headrace[{extra}]'"
        )


class JavaMissing(Refused):
    """Spark needs Java 17 or 21, and none was found."""


class PortInUse(Refused):
    """Another program listens at this address."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"address {host}:{port} is already in use; stop the program that holds it, or choose "
            "another port: --port of `headrace up`, --bind HOST:PORT of `headrace coordinator` "
            "(port 0 takes a free one)"
        )


class Unauthorized(Refused):
    """No token was sent, or not the one that the coordinator was started with."""

    def __init__(self, coordinator: str = "this coordinator", *, shown: bool = False) -> None:
        problem = "was started with another token" if shown else "needs a token"
        super().__init__(
            f"{coordinator} {problem}; set HEADRACE_TOKEN to the one it was started with"
        )


class JobFailed(Refused):
    """A job ended in another status than the command that waited for it needs."""


class Fenced(HeadraceError):
    """This process no longer owns what it tried to write. Stop, do not retry."""


class LeaderFenced(Fenced):
    """Another coordinator leads."""

    def __init__(self, held: int, current: int | None) -> None:
        self.held, self.current = held, current
        super().__init__(f"leader term {held} ended; the store is at term {current}")


class ClaimLost(Fenced):
    """The task was given to another execution, or has ended."""

    def __init__(self, task: str, attempt: int) -> None:
        self.task, self.attempt = task, attempt
        super().__init__(f"attempt {attempt} of task {task!r} is no longer the current one")


class SyncOvertaken(Fenced):
    """A sync arrived late. Its worker has sent a newer one, which repeats everything."""

    def __init__(self, worker: str, sync: int) -> None:
        self.worker, self.sync = worker, sync
        super().__init__(f"sync {sync} of worker {worker} was overtaken by a later one")


class TokenSpent(Fenced):
    """The target already holds a commit or an abort under this token (E1)."""

    def __init__(self, token: str, target: str) -> None:
        self.token, self.target = token, target
        super().__init__(f"{target} already holds the commit token {token!r}")


class Unavailable(HeadraceError):
    """Something outside is down; repeating the request later may help."""


class StoreUnavailable(Unavailable):
    """The store can not be reached."""


class StoreBusy(StoreUnavailable):
    """Another process holds the lock of a SQLite store."""


class CoordinatorUnavailable(Unavailable):
    """No coordinator answered."""


class NotLeader(Unavailable):
    """This coordinator does not lead; the message names the leader, where it is known."""

    def __init__(self, leader: str | None) -> None:
        self.leader = leader
        where = f"; {leader} does" if leader else ", and no leader is known yet"
        super().__init__(f"this coordinator does not lead{where}")


class JarsUnavailable(Unavailable):
    """A jar that Spark needs could not be fetched."""


class SparkDied(Unavailable):
    """The JVM of a worker, or its Spark application, has ended. The worker can't go on."""

    def __init__(self) -> None:
        super().__init__(
            "Spark's JVM has died; its log says why, or that of the cluster that ended its "
            "application. Start the worker again"
        )


_KINDS: Mapping[str, type[HeadraceError]] = {
    name: kind
    for name, kind in list(vars().items())
    if isinstance(kind, type) and issubclass(kind, HeadraceError)
}


def kinds() -> Mapping[str, type[HeadraceError]]:
    """Every class of the tree, by its name."""
    return _KINDS


def error_of_kind(kind: str, message: str) -> HeadraceError | None:
    """Rebuild an error from the name of its class and its message; None: no class of ours.

    Only the message travels between processes, not the fields. So the error is made without
    calling its constructor, and has none of the fields.
    """
    error_class = _KINDS.get(kind)
    return error_class.__new__(error_class, message) if error_class else None
