"""Plug-ins are found by entry points; one that is broken, or twice there, takes no other along."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, distribution
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Refused, Unavailable
from headrace.jobfile.graph import ConfiguredSink, find_clash
from headrace.jobfile.registry import find_plugin
from headrace.model.jobs.spec import PipelineSpec, PluginSpec
from headrace.plugins import catalog as catalog_module
from headrace.plugins import factory
from headrace.plugins.catalog import (
    GROUPS,
    NOTHING_INSTALLED,
    PluginCatalog,
    catalog,
    installed,
    needed_by,
    opens,
    read_catalog,
    save_modes_of,
)
from headrace.plugins.syntax_tree import NOWHERE, Problem
from tests.jobfile.samples import FIRST, read
from tools.tree import ROOT

CONNECTORS, TRANSFORMS = GROUPS
DESCRIPTOR = """
from headrace.plugins.descriptor import Descriptor
from headrace.plugins.options import OptionSet

TOY = Descriptor(
    name={name!r}, role={role!r}, make={make!r}, options=OptionSet(()), read_options=lambda o: o
)
"""


class Shelf:
    """Packages as pip leaves them: a module, and metadata that name its entry points."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: list[str] = []

    def put(
        self,
        package: str,
        *,
        code: str | None = None,
        point: str = "toy",
        group: str = CONNECTORS,
        name: str = "Toy",
        role: str = "source",
        make: str = "json:JSONDecoder",
    ) -> None:
        module = package.replace("-", "_")
        self.modules.append(module)
        text = DESCRIPTOR.format(name=name, role=role, make=make) if code is None else code
        (self.folder / f"{module}.py").write_text(text)
        metadata = self.folder / f"{module}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
        )
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{point} = {module}:TOY\n")

    def leave_behind(self, folder: str, name: str | None, version: str | None) -> None:
        """More metadata that declare the plug-in of `headrace-toy`."""
        metadata = self.folder / folder
        metadata.mkdir()
        lines = [f"Name: {name}", f"Version: {version}"] if name else []
        (metadata / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
        (metadata / "entry_points.txt").write_text(f"[{CONNECTORS}]\ntoy = headrace_toy:TOY\n")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    catalog.cache_clear()
    made = Shelf(tmp_path)
    yield made
    monkeypatch.undo()
    for module in made.modules:
        sys.modules.pop(module, None)
    catalog.cache_clear()


def test_headraces_own_plugins_come_through_the_same_door() -> None:
    own = [each for each in installed() if each.package == "headrace"]

    assert [f"{each.role} {each.name}" for each in own] == [
        *("source FakeSource", "source HdfsFile", "source Iceberg", "source Jdbc"),
        *("source LocalFile", "transform Copy", "transform DataValidator"),
        *("transform FieldMapper", "transform FieldRename", "transform Filter"),
        *("transform FilterRowKind", "transform JsonPath", "transform Metadata"),
        *("transform RegexExtract", "transform Replace", "transform RowKindExtractor"),
        *("transform Split", "transform Sql", "transform TableFilter"),
        *("transform TableMerge", "transform TableRename"),
        *("sink Assert", "sink Console", "sink HdfsFile", "sink Iceberg", "sink InMemory"),
        *("sink Jdbc", "sink LocalFile"),
    ]
    assert not catalog().broken
    assert not catalog().conflicts


def test_a_package_that_is_installed_is_found_with_its_name_and_version(shelf: Shelf) -> None:
    shelf.put("headrace-toy")

    toy = find_plugin("source", "tOY", NOWHERE)

    assert (toy.name, toy.package, toy.version) == ("Toy", "headrace-toy", "1.2")


@pytest.mark.parametrize(
    ("package", "code", "group", "reason"),
    [
        ("toy-a", "import nowhere_to_be_found", CONNECTORS, "ModuleNotFoundError: No module named"),
        ("toy-b", "raise SystemError('no luck')", CONNECTORS, "SystemError: no luck"),
        ("toy-f", "raise SystemExit('no license')", CONNECTORS, "SystemExit: no license"),
        ("toy-g", "raise GeneratorExit", CONNECTORS, "GeneratorExit"),
        ("toy-c", "TOY = 1", CONNECTORS, "TypeError: toy_c:TOY must be a Descriptor, or a tuple"),
        ("toy-d", "", CONNECTORS, "AttributeError: module 'toy_d' has no attribute 'TOY'"),
        ("toy-e", None, TRANSFORMS, "TypeError: toy_e:TOY: a source does not belong to"),
    ],
)
def test_a_package_that_cant_be_loaded_breaks_nothing_else_and_says_so_where_it_is_used(
    shelf: Shelf, package: str, code: str | None, group: str, reason: str
) -> None:
    shelf.put(package, code=code, group=group)

    (broken,) = catalog().broken
    assert (broken.name, broken.package, broken.version) == ("toy", package, "1.2")
    assert broken.reason.startswith(reason)
    assert catalog().find("source", "FakeSource") is not None
    with pytest.raises(Problem) as problem:
        find_plugin("source", "Toy", NOWHERE)
    assert str(problem.value).startswith(
        f"plug-in 'toy' of package {package} 1.2 can't be loaded: {reason}"
    )
    assert str(problem.value).endswith("; install it again, with what it needs, and restart")
    with pytest.raises(Problem, match=f"there is no source 'Tay'.* package {package} 1.2 can't"):
        find_plugin("source", "Tay", NOWHERE)


def test_what_two_packages_declare_is_unusable_and_both_are_named(shelf: Shelf) -> None:
    shelf.put("toy-one")
    shelf.put("toy-two", name="TOY")
    shelf.put("toy-three", role="sink")

    said = (
        "source Toy is declared by 2 packages, toy-one 1.2 and toy-two 1.2; uninstall all of them "
        "but one, and restart"
    )
    with pytest.raises(Problem) as problem:
        find_plugin("source", "toy", NOWHERE)
    assert str(problem.value) == said
    with pytest.raises(Unavailable) as lacking:
        factory.make_plugin("source", PluginSpec(name="Toy-1", plugin="Toy"), None, secrets={})
    assert str(lacking.value) == f"this worker has no source 'Toy'; {said}"
    assert find_plugin("sink", "Toy", NOWHERE).package == "toy-three"


def test_metadata_that_pip_left_behind_take_no_plugin_away(shelf: Shelf) -> None:
    shelf.put("headrace-toy")
    shelf.leave_behind("~eadrace_toy-0.0.1.dist-info", "headrace-toy", "0.0.1")
    own = distribution("headrace")
    left = shelf.folder / "~eadrace-0.0.1.dist-info"
    left.mkdir()
    (left / "METADATA").write_text("Metadata-Version: 2.1\nName: headrace\nVersion: 0.0.1\n")
    (left / "entry_points.txt").write_text(own.read_text("entry_points.txt") or "")

    assert (catalog().conflicts, catalog().broken) == ((), ())
    assert find_plugin("source", "Toy", NOWHERE).brought_by == "headrace-toy 1.2"
    assert find_plugin("source", "FakeSource", NOWHERE).version == own.version


def test_metadata_without_a_name_take_no_plugin_away(shelf: Shelf) -> None:
    shelf.put("headrace-toy")
    shelf.leave_behind("damaged-1.dist-info", None, None)

    assert find_plugin("source", "Toy", NOWHERE).name == "Toy"
    assert find_plugin("source", "FakeSource", NOWHERE).package == "headrace"


def test_one_descriptor_under_two_names_of_a_package_is_one_plugin(shelf: Shelf) -> None:
    shelf.put("toy-one")
    module = shelf.folder / "toy_one.py"
    module.write_text(f"{module.read_text()}ALL = (TOY,)\n")
    points = [EntryPoint(n, f"toy_one:{n}", CONNECTORS) for n in ("TOY", "ALL")]

    assert [each.name for each in read_catalog(points).descriptors] == ["Toy"]


def test_who_interrupts_the_reading_of_packages_is_heard(shelf: Shelf) -> None:
    shelf.put("toy-h", code="raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        catalog()


def test_a_package_may_not_take_the_place_of_a_plugin_of_ours(shelf: Shelf) -> None:
    shelf.put("toy-one", name="FakeSource")

    with pytest.raises(Problem, match=r"headrace \S+ and toy-one 1\.2"):
        find_plugin("source", "FakeSource", NOWHERE)


def test_who_lacks_a_plugin_is_told_where_to_install_it() -> None:
    with pytest.raises(Problem) as problem:
        find_plugin("source", "Nowhere", NOWHERE)
    with pytest.raises(Unavailable) as lacking:
        factory.make_plugin("source", PluginSpec(name="N-1", plugin="Nowhere"), None, secrets={})

    way = (
        "If it comes with a package of its own, type `pip install PACKAGE` where the job file is "
        "read, at every coordinator and at every worker, and restart them."
    )
    assert str(problem.value).endswith(f". {way}")
    assert str(lacking.value).startswith(
        "this worker has no source 'Nowhere'; known are FakeSource"
    )
    assert str(lacking.value).endswith(f". {way}")


def no_entry_points(*, group: str) -> list[EntryPoint]:
    return []


def test_an_installation_without_entry_points_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "entry_points", no_entry_points)
    catalog.cache_clear()
    try:
        with pytest.raises(Problem) as problem:
            find_plugin("source", "FakeSorce", NOWHERE)
    finally:
        catalog.cache_clear()
    assert str(problem.value).endswith(NOTHING_INSTALLED)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("nowhere_to_be_found:Toy", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("json:Toy", "AttributeError: module 'json' has no attribute 'Toy'"),
        ("toy_of_java:Toy", "RuntimeError: no Java"),
        ("toy_that_exits:Toy", "SystemExit: 3"),
    ],
)
def test_a_class_that_cant_be_imported_is_lacking_on_the_worker_only(
    shelf: Shelf, make: str, reason: str
) -> None:
    shelf.put("headrace-toy", make=make)
    (shelf.folder / "toy_of_java.py").write_text("raise RuntimeError('no Java')")
    (shelf.folder / "toy_that_exits.py").write_text("raise SystemExit(3)")

    assert find_plugin("source", "Toy", NOWHERE).make == make
    with pytest.raises(Unavailable) as lacking:
        factory.make_plugin("source", PluginSpec(name="Toy-1", plugin="Toy"), None, secrets={})
    assert str(lacking.value) == (
        f"source Toy of package headrace-toy 1.2 can't be loaded here: {reason}; install the "
        "package again, with what it needs, and restart"
    )


SAVING = """
from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import Kind, Option, OptionSet
from headrace.plugins.save_modes import ALL_SAVE_MODES

TOY = Descriptor(
    name="Toy",
    role="sink",
    make="json:JSONDecoder",
    options=OptionSet((Option("data_save_mode", Kind.STRING, {default!r}),)),
    read_options=lambda options: options,
    target_key=lambda options: ("toy",),
    capabilities=Capabilities(save_modes={modes}),
)
"""


@pytest.mark.parametrize(
    ("default", "modes", "given", "opening"),
    [
        ("DROP_DATA", "ALL_SAVE_MODES", {}, True),
        ("DROP_DATA", "ALL_SAVE_MODES", {"data_save_mode": "APPEND_DATA"}, False),
        ("APPEND_DATA", "ALL_SAVE_MODES", {}, False),
        ("APPEND_DATA", "()", {"data_save_mode": "UPSERT"}, False),
        ("DROP_DATA", "()", {}, False),
    ],
)
def test_save_modes_are_those_of_the_descriptor_with_its_defaults(
    shelf: Shelf, default: str, modes: str, given: dict[str, Any], opening: object
) -> None:
    shelf.put("headrace-toy", code=SAVING.format(default=default, modes=modes))
    sinks = [PluginSpec(name=f"Toy-{n}", plugin="Toy", options=given) for n in (1, 2)]
    source = PluginSpec(name="S", plugin="FakeSource")
    pipeline = PipelineSpec(number=1, sources=(source,), sinks=(sinks[0],))

    assert opens(pipeline) is opening
    clash = find_clash([ConfiguredSink(n, s.name, "Toy", given) for n, s in enumerate(sinks)])
    assert (clash is not None) is opening
    assert clash is None or "data_save_mode = DROP_DATA" in str(clash)


def test_a_value_that_is_no_save_mode_is_refused_by_name(shelf: Shelf) -> None:
    shelf.put("headrace-toy", code=SAVING.format(default="APPEND_DATA", modes="ALL_SAVE_MODES"))

    with pytest.raises(Refused, match="sink Toy: 'UPSERT' is not a valid DataMode"):
        save_modes_of("Toy", {"data_save_mode": "UPSERT"})


def test_what_a_job_names_is_looked_up_and_never_imported() -> None:
    for name in ("json:JSONDecoder", "os.system", "../toy", "__import__('os')"):
        with pytest.raises(Problem, match="there is no source"):
            find_plugin("source", name, NOWHERE)


def test_the_plugins_that_a_job_needs_are_known_by_role_and_name() -> None:
    job = read(FIRST)
    expected = {("source", "FakeSource"), ("transform", "Sql"), ("sink", "Iceberg")}

    assert needed_by(job) == expected
    assert needed_by(job.pipelines[0]) == expected


def test_the_order_of_packages_on_the_path_changes_nothing() -> None:
    points = [
        EntryPoint(name, f"headrace.connectors.{name}.descriptor:DESCRIPTORS", CONNECTORS)
        for name in ("console", "fake", "jdbc")
    ]
    assert read_catalog(points) == read_catalog(reversed(points))
    assert isinstance(read_catalog(points), PluginCatalog)


READS_ALL = """
import json, pkgutil, sys
from importlib import import_module
import headrace.connectors, headrace.transforms
read = []
for room in (headrace.connectors, headrace.transforms):
    for package in pkgutil.iter_modules(room.__path__):
        if package.ispkg:
            read.append(f"{room.__name__}.{package.name}.descriptor")
            import_module(read[-1])
from headrace.plugins import catalog, factory
catalog.installed()
heavy = [m for m in sys.modules if m.split(".")[0] in ("pyspark", "py4j", "sqlalchemy")]
rooms = {m.split(".")[1] for m in sys.modules if m.startswith("headrace.")}
siblings = [m for m in sys.modules if m.startswith(("headrace.connectors.", "headrace.transforms."))
            and m.count(".") == 3 and not m.endswith((".descriptor", "options"))]
print(json.dumps([read, heavy, sorted(rooms), siblings]))
"""


def test_every_descriptor_is_read_without_spark_and_without_the_code_beside_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READS_ALL],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    read_modules, heavy, rooms, siblings = json.loads(done.stdout)

    assert len(read_modules) == 13
    assert (heavy, siblings) == ([], [])
    assert {*rooms} <= {"plugins", "connectors", "transforms", "model", "errors", "logs"}
