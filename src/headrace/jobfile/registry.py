"""The registry of plugins: finds a descriptor by role and name, and checks a block against it.

Names are found whatever their case. SeaTunnel's names are listed as well, so that an error can
tell a plugin that is not built yet from one that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.model.jobs.spec import EnvSpec
from headrace.model.text import hint
from headrace.plugins.catalog import catalog
from headrace.plugins.descriptor import WIRING, AnyDescriptor
from headrace.plugins.option_values import convert
from headrace.plugins.options import (
    BlockOptions,
    GivenOption,
    given_options,
    judge_unknown,
    note_idle,
)
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import (
    ROLES,
    FilePlace,
    Node,
    PluginBlock,
    Problem,
    Role,
)

_SOURCES_AND_SINKS = """
AmazonDynamoDB AmazonSqs Cassandra Clickhouse CosFile DB2 Doris Easysearch Elasticsearch FtpFile
Greenplum Hbase HdfsFile Hive Http Iceberg InfluxDB IoTDB Jdbc Kafka Kingbase Kudu LocalFile
Maxcompute Milvus MongoDB Mysql Neo4j ObsFile OceanBase Oracle OssFile OssJindoFile Paimon Phoenix
PostgreSQL Pulsar Qdrant RabbitMQ Redis Redshift Rocketmq S3File SftpFile Sls Snowflake Socket
SqlServer StarRocks TDengine Tablestore Typesense Vertica Databend DuckDB BigQuery Fluss GraphQL
HugeGraph Lance Mqtt Prometheus SingleStore SensorsData Aerospike GcsFile ADLSFile BosFile SmbFile
"""
_SOURCES = """
FakeSource Github Gitlab GoogleSheets HiveJdbc Jira Klaviyo Lemlist MongoDB-CDC MyHours MySQL-CDC
Notion OneSignal OpenMldb Opengauss-CDC Oracle-CDC Persistiq Postgres-CDC SqlServer-CDC TiDB-CDC
Web3j Salesforce HubSpot GoogleAds PythonSource DB2-CDC MariaDB-CDC OceanBase-CDC GaussDB-CDC
"""
_SINKS = """
ActiveMQ Assert ClickhouseFile Console DataHub DingTalk Druid EmailSink Enterprise-WeChat Feishu
GoogleFirestore Hudi S3Redshift SelectDBCloud Sentry Slack InMemory
"""
_TRANSFORMS = """
Sql FieldMapper Filter FilterRowKind Replace Split Copy JsonPath RowKindExtractor DynamicCompile
LLM Embedding Metadata FieldRename TableRename TableFilter TableMerge DataValidator RegexExtract
DefineSinkType FieldEncrypt TextChunk Calcite Python
"""

# SeaTunnel's plugins that will not be built, each with the reason and the way out.
NEVER_BUILT: dict[tuple[Role, str], str] = {
    ("transform", "DynamicCompile"): (
        "compiles Java or Groovy code of the job file, and workers run no such code; write it as "
        "a Sql transform, or as a transform of your own: docs/how-to/write-a-transform.md"
    )
}
SEATUNNEL_PLUGINS: dict[Role, tuple[str, ...]] = {
    "source": (*_SOURCES_AND_SINKS.split(), *_SOURCES.split()),
    "transform": tuple(_TRANSFORMS.split()),
    "sink": (*_SOURCES_AND_SINKS.split(), *_SINKS.split()),
}


@dataclass(frozen=True, slots=True)
class NamedTable:
    """The name of an input or output table, and the place where it is written."""

    table: str
    place: FilePlace


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin whose options are checked and converted, but not wired yet."""

    descriptor: AnyDescriptor
    place: FilePlace
    options: Mapping[str, JsonValue]  # without plugin_input and plugin_output
    inputs: tuple[NamedTable, ...]
    output: NamedTable | None

    @property
    def role(self) -> Role:
        return self.descriptor.role


def find_plugin(role: Role, name: str, place: FilePlace, *, here: str = "") -> AnyDescriptor:
    """The descriptor of a plugin. Raises `Problem`, which suggests the nearest name, and says how a
    missing package is installed. `here`: where it is missing, if that is not plain."""
    known = catalog()
    if (descriptor := known.find(role, name)) is not None:
        return descriptor
    if (obstacle := known.obstacle(role, name)) is not None:
        raise Problem(place, obstacle)
    for (of, listed), why in NEVER_BUILT.items():
        if (of, listed.lower()) == (role, name.lower()):
            raise Problem(place, f"{role} {listed} {why}")
    if any(name.lower() == listed.lower() for listed in SEATUNNEL_PLUGINS[role]):
        built = ", ".join(known.names(role))
        text = f"{role} {name} is not built yet; built so far: {built}"
        raise Problem(place, text, lacks=f"{role} {name}")
    for other in ROLES:
        if (namesake := known.find(other, name)) is not None:
            raise Problem(place, f"{namesake.name} is a {other}, not a {role}")
    near = hint(name, known.names(role), noun=f"{role}s")
    end = "" if near.endswith("?") else "."
    missing = f"there is no {role} {name!r}{here}; {near}{end}"
    raise Problem(place, f"{missing} {known.way_to_install()}")


def read_plugin(block: PluginBlock, *, problems: Problems, here: str = "") -> Plugin | None:
    """The plugin with its options converted. What is wrong with it is added to `problems`, and its
    options are complete only if nothing was. None: it is not even known what it reads or makes."""
    before = problems.count
    try:
        descriptor = find_plugin(block.role, block.name, block.place, here=here)
    except Problem as problem:
        problems.add(problem)
        return None
    title = descriptor.title
    written = given_options(descriptor.options, block.options, title=title, problems=problems)
    options: dict[str, JsonValue] = {}
    not_built = False
    for given in written.usable:
        try:
            options[_option_name(given)] = convert(given, title=title)
        except Problem as problem:
            problems.add(problem)
            not_built = not_built or bool(problem.lacks)
    if not_built:  # it may say what other options would, such as tables_configs the schema
        judge_unknown(written, missing=(), title=title, problems=problems)
    else:
        _check_needed(descriptor, written, block.place, problems)
    if problems.count == before:
        with problems.collect():
            _check_combination(descriptor, options, block.place)
            note_idle(descriptor.options, written.given, title=title, note=problems.note)
    return _with_tables(block, descriptor, options, written, problems)


def _with_tables(
    block: PluginBlock,
    descriptor: AnyDescriptor,
    options: dict[str, JsonValue],
    written: BlockOptions,
    problems: Problems,
) -> Plugin | None:
    if any(name in written.names and name not in options for name in WIRING):
        return None
    nodes = {_option_name(each): each.node for each in written.given}
    inputs, output = options.pop("plugin_input", None), options.pop("plugin_output", None)
    try:
        return Plugin(
            descriptor,
            block.place,
            options,
            _named_tables(inputs if isinstance(inputs, list) else [], nodes.get("plugin_input")),
            next(
                iter(_named_tables([] if output is None else [output], nodes.get("plugin_output"))),
                None,
            ),
        )
    except Problem as problem:
        problems.add(problem)
        return None


def check_mode(plugin: Plugin, env: EnvSpec) -> None:
    """Refuse a plugin that can't run in a streaming job, which does not end, such as a source that
    does. Raises `Problem`."""
    if env.job_mode != "STREAMING":
        return
    descriptor = plugin.descriptor
    if not descriptor.capabilities.unbounded:
        raise Problem(
            plugin.place,
            f"{descriptor.title} reads what is there, once, and a streaming job does not end; set "
            "job.mode = BATCH in env",
        )
    if descriptor.streaming_flaw is not None and (
        flaw := descriptor.streaming_flaw(plugin.options)
    ):
        raise Problem(plugin.place, f"{descriptor.title}: {flaw}")


def _option_name(given: GivenOption) -> str:
    return given.option.name if given.option else given.path


def _named_tables(tables: list[JsonValue], node: Node | None) -> tuple[NamedTable, ...]:
    place = node.place if node is not None else FilePlace(0, 0)
    seen: list[str] = []
    for table in map(str, tables):
        if not table:
            raise Problem(place, "a table's name is empty")
        if table in seen:
            raise Problem(place, f"table {table!r} is listed twice")
        seen.append(table)
    return tuple(NamedTable(table, place) for table in seen)


def _check_needed(
    descriptor: AnyDescriptor, written: BlockOptions, place: FilePlace, problems: Problems
) -> None:
    """Check what must be given, and tell unknown options from misspelled ones that must be."""
    given, title = written.names, descriptor.title
    required = {
        option.name: option
        for option in descriptor.options.declared
        if option.required and option.name not in given
    }
    groups = [group for group in descriptor.one_of if given.isdisjoint(group)]
    missing = {*required, *(name for group in groups for name in group)}
    told = judge_unknown(written, missing=missing, title=title, problems=problems)
    for name, option in required.items():
        if name not in told:
            problems.add(Problem(place, f"{title} needs the option {name!r}: {option.doc}"))
    for group in groups:
        if told.isdisjoint(group):
            names = " or ".join(map(repr, group))
            problems.add(Problem(place, f"{title} needs the option {names}"))


def _check_combination(
    descriptor: AnyDescriptor, options: Mapping[str, JsonValue], place: FilePlace
) -> None:
    """Check what must be in order, and what does not go together."""
    for low in (name for name in options if name.endswith(".min")):
        high = low.removesuffix("min") + "max"
        if _number(options[low]) > _number(options.get(high)):
            raise Problem(place, f"option {low!r} of {descriptor.title} is above {high!r}")
    if descriptor.flaw is not None and (flaw := descriptor.flaw(options)):
        raise Problem(place, f"{descriptor.title}: {flaw}")


def _number(value: JsonValue) -> float:
    return value if isinstance(value, int | float) else float("inf")
