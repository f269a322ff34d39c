"""Which row kinds and tables may come with each table of a pipeline, and who can't take them.

All of it follows from descriptors and options, so that a job is refused when its file is read, and
again where it is submitted and where it is run; no frame is needed. What only a frame shows, such
as a query that merges rows, is found by the worker before it reads a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import Refused
from headrace.model.jobs.spec import PipelineSpec, PluginSpec
from headrace.plugins.catalog import catalog
from headrace.plugins.descriptor import AnyDescriptor, Capabilities
from headrace.plugins.row_kinds import PLAIN, KindTreatment, RowFlow, joined, kind_names
from headrace.plugins.syntax_tree import Role

WAY_OUT = (
    "leave them out with a FilterRowKind before it, or have a RowKindExtractor write the kind into "
    "a field"
)
_NOTHING_SAID = Capabilities()


@dataclass(frozen=True, slots=True)
class FlowObstacle:
    """A plugin that can't take what may come with its inputs."""

    plugin: str  # its name within the job
    why: str  # names it, the kinds and the way out

    def __str__(self) -> str:
        return self.why


def flows_of(pipeline: PipelineSpec) -> Mapping[str, RowFlow]:
    """The flow of each table, by the table's name. Raises `Refused` as `find_flow_obstacle` has
    it."""
    flows, obstacle = _walk(pipeline)
    if obstacle is not None:
        raise Refused(str(obstacle))
    return flows


def find_flow_obstacle(pipeline: PipelineSpec) -> FlowObstacle | None:
    """The first transform that would lose the kinds of rows, or sink that can't take one of them;
    None when there is none."""
    return _walk(pipeline)[1]


def treatment_of(transform: PluginSpec) -> KindTreatment:
    return _capabilities(catalog().find("transform", transform.plugin)).treats_kinds


def _walk(pipeline: PipelineSpec) -> tuple[dict[str, RowFlow], FlowObstacle | None]:
    flows: dict[str, RowFlow] = {}
    for plugin in pipeline.sources:
        descriptor = catalog().find("source", plugin.plugin)
        given = PLAIN if descriptor is None else descriptor.source_flow(plugin.options)
        flows[plugin.output or plugin.name] = given
    for plugin in pipeline.transforms:
        come = _inputs(plugin, flows)
        descriptor = catalog().find("transform", plugin.plugin)
        if not come.is_plain and treatment_of(plugin) is KindTreatment.REFUSES:
            return flows, _unsaid(plugin, come)
        after = come if descriptor is None else descriptor.flow_after(plugin.options, come)
        flows[plugin.output or plugin.name] = after
    for plugin in pipeline.sinks:
        obstacle = _not_taken(plugin, _inputs(plugin, flows))
        if obstacle is not None:
            return flows, obstacle
    return flows, None


def _inputs(plugin: PluginSpec, flows: Mapping[str, RowFlow]) -> RowFlow:
    return joined(flows.get(table, PLAIN) for table in plugin.inputs)


def _unsaid(plugin: PluginSpec, come: RowFlow) -> FlowObstacle:
    return FlowObstacle(
        plugin.name,
        f"{_title('transform', plugin)} does not say what it makes of {_text(come)}, which come "
        f"with {_tables(plugin)}; put it behind a FilterRowKind that leaves only INSERT, or a "
        "RowKindExtractor, which writes the kind into a field",
    )


def _not_taken(plugin: PluginSpec, come: RowFlow) -> FlowObstacle | None:
    able = _capabilities(catalog().find("sink", plugin.plugin))
    title, tables = _title("sink", plugin), _tables(plugin)
    if strange := come.kinds - able.row_kinds:
        why = (
            f"{title} can't take rows of the kind {kind_names(strange)}, which may come with "
            f"{tables}; it takes {kind_names(able.row_kinds)}. Either {WAY_OUT}"
        )
    elif come.several_tables and not able.multi_table:
        why = (
            f"{title} can't take rows of several tables, which come with {tables}; write a source "
            "and a sink for each table"
        )
    else:
        return None
    return FlowObstacle(plugin.name, why)


def _capabilities(descriptor: AnyDescriptor | None) -> Capabilities:
    return _NOTHING_SAID if descriptor is None else descriptor.capabilities


def _title(role: Role, plugin: PluginSpec) -> str:
    return f"{role} {plugin.name}"


def _tables(plugin: PluginSpec) -> str:
    return f"table {' and '.join(map(repr, plugin.inputs))}"


def _text(come: RowFlow) -> str:
    kinds = f"rows of the kinds {kind_names(come.kinds)}"
    if not come.several_tables:
        return kinds
    return "rows of several tables" if RowFlow(come.kinds).is_plain else f"{kinds}, of many tables"
