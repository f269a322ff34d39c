"""Reads a job file into a JobSpec: the entry point of this package.

The text is parsed and its variables are replaced; then the env block and the plugins are checked,
wired into pipelines, and their secrets are taken out.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pydantic import JsonValue

from headrace.errors import BadJobFile, JobFileUnreadable
from headrace.jobfile.env import JOB_NAME_CHARS_MAX, read_env
from headrace.jobfile.graph import ConfiguredSink, WiredPlugin, find_clash, wire
from headrace.jobfile.hocon import Document, read_document
from headrace.jobfile.registry import check_mode, read_plugin
from headrace.jobfile.variables import check_variables, substitute
from headrace.model.jobs.spec import JobSpec, PipelineSpec, PluginSpec
from headrace.model.text import hint, legible
from headrace.plugins.row_flow import find_flow_obstacle
from headrace.plugins.secrets import take_secrets
from headrace.plugins.syntax_tree import ROLES, FilePlace, Note, Problem, Role

JOB_FILE_BYTES_MAX = 1_000_000
_YAML_SUFFIXES = frozenset({".yaml", ".yml"})
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


def read_job(
    path: Path | str,
    *,
    text: str | None = None,
    variables: Mapping[str, str] = _NOTHING,
    environment: Mapping[str, str] = _NOTHING,
    note: Callable[[str], None] | None = None,
) -> JobSpec:
    """The job that a file describes; with `text`, the file itself is not opened.

    `note` takes warnings, with their places: what is accepted without the effect it seems to have.

    Raises `BadJobFile` with line and column, `JobFileUnreadable`, or `BadSetting` for a variable
    that can't be given.
    """
    check_variables(variables)

    def note_at(place: FilePlace, warning: str) -> None:
        if note is not None:
            note(f"{path}:{place.line}:{place.column}: {warning}")

    _check_syntax(path, Path(path).suffix.lower())
    text = _read_text(path) if text is None else text
    try:
        document, referred = substitute(
            _document(path, text), variables=variables, environment=environment
        )
        _check_root(document, referred)
        return _job(document, default_name=legible(Path(path).stem), note=note_at)
    except Problem as problem:
        raise BadJobFile(str(path), *problem.place, problem.text) from None


def _check_syntax(path: Path | str, suffix: str) -> None:
    if suffix == ".sql":
        raise JobFileUnreadable(
            str(path), "SQL job files are not supported yet; write the job as HOCON or JSON"
        )
    if suffix in _YAML_SUFFIXES:
        raise _yaml_error(path, f"its name ends in {suffix}")


def _yaml_error(path: Path | str, why: str, problem: Problem | None = None) -> JobFileUnreadable:
    as_hocon = (
        f". As HOCON it fails at line {problem.place.line}: {problem.text}" if problem else ""
    )
    return JobFileUnreadable(
        str(path),
        f"this is YAML ({why}), and YAML job files are not supported yet; write the job as HOCON, "
        f"with blocks in braces, or convert it to JSON{as_hocon}",
    )


def _document(path: Path | str, text: str) -> Document:
    """Parse the text. If that fails and it looks like YAML, the error says so first, and only then
    what HOCON misses in it."""
    try:
        return read_document(text)
    except Problem as problem:
        if (yaml := _YAML.search(text)) and (kind := yaml.lastgroup):
            line = text.count("\n", 0, yaml.start(kind)) + 1
            raise _yaml_error(path, f"line {line} is {yaml[kind]!r}", problem) from None
        raise


def _read_text(path: Path | str) -> str:
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


def _check_root(document: Document, referred: frozenset[str]) -> None:
    """A root key beside the four blocks is a constant for `${…}`; an unused one is a mistake."""
    known = ("env", *ROLES)
    for key, place, _ in document.root.walk():
        if key not in known and key not in referred:
            raise Problem(place, f"unknown block {key!r}; {hint(key, known, noun='blocks')}")


def _job(document: Document, *, default_name: str, note: Note) -> JobSpec:
    env, name = read_env(document.root.members.get("env"), note=note)
    plugins = [read_plugin(block, note=note) for block in document.plugins]
    for plugin in plugins:
        check_mode(plugin, env)
    pipelines = wire(plugins, end=document.root.place, note=note)
    _check_targets(pipelines)
    other, secrets = take_secrets("env", None, env.other)
    specs = [_pipeline(number, part, secrets) for number, part in enumerate(pipelines, start=1)]
    for part, spec in zip(pipelines, specs, strict=True):
        _check_flow(part, spec)
    return JobSpec(
        name=name or default_name[:JOB_NAME_CHARS_MAX] or "job",
        env=env.model_copy(update={"other": other}),
        pipelines=tuple(specs),
        secrets=secrets,
    )


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
