"""Reads a job file into a JobSpec: the entry point of this package.

The text is parsed, as HOCON, JSON, YAML or SQL, and its variables are replaced; then the env block
and the plugins are checked, wired into pipelines, and their secrets are taken out.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import JsonValue

from headrace.errors import BadJobFile, FileProblem, JobFileUnreadable
from headrace.jobfile.env import JOB_NAME_CHARS_MAX, read_env
from headrace.jobfile.graph import ConfiguredSink, WiredPlugin, check_roles, find_clash, wire
from headrace.jobfile.hocon import Document, read_document
from headrace.jobfile.registry import Plugin, check_mode, read_plugin
from headrace.jobfile.sql_document import read_sql
from headrace.jobfile.variables import check_variables, substitute
from headrace.model.jobs.spec import EnvSpec, JobSpec, PipelineSpec, PluginSpec
from headrace.model.text import hint, legible, nearest
from headrace.plugins.problems import JobWarning, Problems
from headrace.plugins.row_flow import find_flow_obstacle
from headrace.plugins.secrets import take_secrets
from headrace.plugins.syntax_tree import ROLES, PluginBlock, Problem, Role

JOB_FILE_BYTES_MAX = 1_000_000
# How a YAML file is recognized: by the mark of a document before everything else, or by a block
# that is opened with a colon and an indented line instead of a brace.
_BLANK = r"[^\S\n]*(?:#[^\n]*)?\n"
_KEY = r"(?:[\w.-]+|\"[^\"\n]*\"|'[^'\n]*')"
_YAML = re.compile(
    rf"\A(?:{_BLANK})*+(?P<mark>---)\s*?$"
    rf"|^(?P<block>(?:env|source|transform|sink):)(?:{_BLANK})++[^\S\n]*{_KEY}[ :]",
    re.MULTILINE,
)
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class JobReading:
    """What a job file says, and all that is to be said about it."""

    path: str
    spec: JobSpec | None  # None: there are problems
    problems: tuple[Problem, ...]
    more: int  # problems beside these
    warnings: tuple[JobWarning, ...]
    unknown: int  # options that nothing declares, and that are ignored

    def check(self) -> JobSpec:
        """The job. Raises `BadJobFile` with all problems."""
        if self.spec is not None:
            return self.spec
        first, *others = (FileProblem(*each.place, each.text) for each in self.problems)
        raise BadJobFile(self.path, *first, others=others, more=self.more)

    def line_of(self, found: Problem | JobWarning) -> str:
        return f"{self.path}:{found.place.line}:{found.place.column}: {found.text}"


def read_job(
    path: Path | str,
    *,
    text: str | None = None,
    variables: Mapping[str, str] = _NOTHING,
    environment: Mapping[str, str] = _NOTHING,
    note: Callable[[str], None] | None = None,
    strict: bool = False,
) -> JobSpec:
    """The job that a file describes; with `text`, the file itself is not opened.

    `note` takes warnings, with their places: what is accepted without the effect it seems to have,
    and options that nothing declares. `strict`: the latter are refused.

    Raises `BadJobFile` with every problem and its line and column, `JobFileUnreadable`, or
    `BadSetting` for a variable that can't be given.
    """
    reading = examine_job(
        path, text=text, variables=variables, environment=environment, strict=strict
    )
    spec = reading.check()
    for warning in reading.warnings:
        if note is not None:
            note(reading.line_of(warning))
    return spec


def examine_job(
    path: Path | str,
    *,
    text: str | None = None,
    variables: Mapping[str, str] = _NOTHING,
    environment: Mapping[str, str] = _NOTHING,
    strict: bool = False,
) -> JobReading:
    """What `read_job` finds out, problems included. Raises `JobFileUnreadable`, or `BadSetting`
    for a variable that can't be given.

    Each step is taken only if the ones before it found nothing wrong: syntax, variables, options
    and tables, what the parts of the job do to each other.
    """
    check_variables(variables)
    text = read_text(path) if text is None else text
    problems = Problems(strict=strict)
    syntax = _syntax_of(path, text)
    document = syntax.read(text, problems)
    referred: frozenset[str] = frozenset()
    if not problems.count:
        document, referred = substitute(
            document, variables=variables, environment=environment, problems=problems
        )
    spec: JobSpec | None = None
    if not problems.count:
        _check_root(document, referred, problems)
        spec = _job(document, syntax, legible(Path(path).stem), problems)
    return JobReading(
        str(path),
        spec,
        tuple(problems.found),
        problems.more,
        tuple(problems.warnings),
        problems.unknown_count,
    )


def _syntax_of(path: Path | str, text: str) -> JobSyntax:
    """By the end of the file's name. Any other file is HOCON, unless it looks like YAML and can't
    be read as HOCON."""
    syntax = _SYNTAXES.get(Path(path).suffix.lower())
    if syntax is not None:
        return syntax
    return JobSyntax(_read_hocon_or_yaml if _YAML.search(text) else _read_hocon)


def _read_hocon(text: str, problems: Problems) -> Document:
    return read_document(text, problems=problems)


def _read_hocon_or_yaml(text: str, problems: Problems) -> Document:
    tried = Problems()
    document = read_document(text, problems=tried)
    return document if not tried.count else _read_yaml(text, problems)


def _read_yaml(text: str, problems: Problems) -> Document:
    from headrace.jobfile.yaml_document import read_yaml  # noqa: PLC0415 - for YAML files only

    return read_yaml(text, problems)


@dataclass(frozen=True, slots=True)
class JobSyntax:
    """A language that job files are written in."""

    read: Callable[[str, Problems], Document]
    a_plugin: str = "write a {role} {{ … }} block with one"  # how a missing one is written


_YAML_SYNTAX = JobSyntax(_read_yaml, "write `{role}:` with one")
_SYNTAXES: Mapping[str, JobSyntax] = {
    ".json": JobSyntax(_read_hocon, "write a list {role} with one"),
    ".yaml": _YAML_SYNTAX,
    ".yml": _YAML_SYNTAX,
    ".sql": JobSyntax(
        read_sql, "write CREATE TABLE … WITH (…, 'type' = '{role}'), and INSERT INTO a sink"
    ),
}


def read_text(path: Path | str) -> str:
    """What a job file holds. Raises `JobFileUnreadable`."""
    try:
        _check_regular(path)
        with Path(path).open("rb") as file:
            data = file.read(JOB_FILE_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        problem = "no such file; check its name and the directory you are in"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8; save the file in that encoding"
    except OSError as error:
        problem = f"{(error.strerror or str(error)).lower()}; check what the path names"
    except ValueError as error:
        problem = f"{error}; check what the path names"
    else:
        if len(data) <= JOB_FILE_BYTES_MAX:
            return text
        problem = f"it is larger than {JOB_FILE_BYTES_MAX} bytes; keep data out of job files"
    raise JobFileUnreadable(str(path), f"can't be read: {problem}")


def _check_regular(path: Path | str) -> None:
    """Refuse a pipe or a device: reading it may never end, or opening it may block for ever."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise JobFileUnreadable(
            str(path), "can't be read: it is no regular file; save the job in a file and name that"
        )


def _check_root(document: Document, referred: frozenset[str], problems: Problems) -> None:
    """A root key beside the four blocks is a constant for `${…}`. An unused one is ignored, unless
    it is nearly the name of a block: a whole sink must not get lost by a letter."""
    known = ("env", *ROLES)
    for key, place, _ in document.root.walk():
        if key in known or key in referred:
            continue
        way_out = hint(key, known, noun="blocks")
        if nearest(key, known) is not None:
            problems.add(Problem(place, f"unknown block {key!r}; {way_out}"))
        else:
            problems.unknown(place, f"block {key!r}", way_out)


def _job(
    document: Document, syntax: JobSyntax, default_name: str, problems: Problems
) -> JobSpec | None:
    block = read_env(document.root.members.get("env"), problems=problems)
    roles: set[Role] = {plugin.role for plugin in document.plugins}
    plugins = [_plugin(each, block.env, problems) for each in document.plugins]
    check_roles(roles, end=document.root.place, problems=problems, where=syntax.a_plugin)
    wirable = [plugin for plugin in plugins if plugin is not None]
    pipelines: list[list[WiredPlugin]] = []
    if len(wirable) == len(plugins) and {"source", "sink"} <= roles:
        pipelines = wire(wirable, problems=problems)
    if problems.count:
        return None
    with problems.collect():
        _check_targets(pipelines)
    other, secrets = take_secrets("env", None, block.env.other)
    specs = [_pipeline(number, part, secrets) for number, part in enumerate(pipelines, start=1)]
    for part, spec in zip(pipelines, specs, strict=True):
        with problems.collect():
            _check_flow(part, spec)
    if problems.count:
        return None
    return JobSpec(
        name=block.name or default_name[:JOB_NAME_CHARS_MAX] or "job",
        env=block.env.model_copy(update={"other": other}),
        pipelines=tuple(specs),
        secrets=secrets,
        group=block.group,
    )


def _plugin(block: PluginBlock, env: EnvSpec, problems: Problems) -> Plugin | None:
    before = problems.count
    plugin = read_plugin(block, problems=problems)
    if plugin is not None and problems.count == before:
        with problems.collect():
            check_mode(plugin, env)
    return plugin


def _check_targets(pipelines: Sequence[Sequence[WiredPlugin]]) -> None:
    sinks = [
        (
            wired.plugin.place,
            ConfiguredSink(number, wired.name, wired.plugin.descriptor.name, wired.plugin.options),
        )
        for number, part in enumerate(pipelines, start=1)
        for wired in part
        if wired.role == "sink"
    ]
    if clash := find_clash([sink for _, sink in sinks]):
        place = next(place for place, sink in sinks if sink is clash.other)
        raise Problem(place, str(clash))


def _check_flow(part: Sequence[WiredPlugin], spec: PipelineSpec) -> None:
    if obstacle := find_flow_obstacle(spec):
        place = next(wired.plugin.place for wired in part if wired.name == obstacle.plugin)
        raise Problem(place, str(obstacle))


def _pipeline(
    number: int, part: Sequence[WiredPlugin], secrets: dict[str, JsonValue]
) -> PipelineSpec:
    specs: dict[Role, list[PluginSpec]] = {role: [] for role in ROLES}
    for wired in part:
        specs[wired.role].append(_spec(wired, secrets))
    return PipelineSpec(
        number=number,
        sources=tuple(specs["source"]),
        transforms=tuple(specs["transform"]),
        sinks=tuple(specs["sink"]),
    )


def _spec(wired: WiredPlugin, secrets: dict[str, JsonValue]) -> PluginSpec:
    options, taken = take_secrets(wired.name, wired.plugin.descriptor, wired.plugin.options)
    secrets.update(taken)
    return PluginSpec(
        name=wired.name,
        plugin=wired.plugin.descriptor.name,
        options=options,
        inputs=tuple(name.table for name in wired.inputs),
        output=wired.output.table if wired.output else None,
    )
