"""headrace connectors list and show: what is installed here, without asking anybody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import connectors
from headrace.cli.main import app
from headrace.errors import NotFound, Refused
from headrace.plugins import catalog as catalog_module
from headrace.plugins.catalog import BrokenEntryPoint, NameConflict, PluginCatalog, installed


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["connectors", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def told(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--output", "json"))


def test_all_that_is_installed_is_listed_with_its_package() -> None:
    text = said("list")

    for each in installed():
        (line,) = (line for line in text.splitlines() if line.split()[:2] == [each.role, each.name])
        assert line.split()[-2:] == [each.package, each.version]
    assert "exactly once" in text
    assert [row["digest"] for row in told("list")["plugins"]] == [e.digest for e in installed()]
    assert told("list")["unusable"] == []


def test_a_name_is_shown_in_each_of_its_roles_with_every_option() -> None:
    text = said("show", "jdbc")

    assert text.startswith("source Jdbc: Reads a table or a query, once.")
    assert "\nsink Jdbc: Inserts into a table, exactly once." in text
    assert "  job.mode      BATCH\n" in text
    assert "  save modes    RECREATE_SCHEMA, " in text
    assert "Sensitive: stored apart from the job, never shown." in text
    source, sink = told("show", "Jdbc")
    assert (source["role"], sink["role"]) == ("source", "sink")
    assert source["capabilities"]["repeatable"] is False
    batch = next(option for option in sink["options"] if option["name"] == "batch_size")
    assert (batch["kind"], batch["default"], batch["minimum"]) == ("INT", 1000, 1)
    for descriptor in (each for each in installed() if each.name == "Jdbc"):
        assert all(option.name in text for option in descriptor.options.declared)


def test_a_transform_promises_nothing_of_its_own() -> None:
    text = said("show", "Sql")

    assert text.startswith("transform Sql: ")
    assert "guarantee" not in text


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean 'Iceberg'"):
        said("show", "Icebrg")


def test_what_is_broken_or_twice_there_is_listed_and_said_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = BrokenEntryPoint("Toy", "toy-one", "1.2", "ImportError: no luck")
    conflict = NameConflict("sink", "Two", ("toy-two 1", "toy-three 2"))
    found = PluginCatalog(installed(), (broken,), (conflict,))
    monkeypatch.setattr(catalog_module, "catalog", lambda: found)

    assert "plug-in 'Toy' of package toy-one 1.2 can't be loaded: ImportError" in said("list")
    assert "toy-two 1 and toy-three 2" in said("list")
    assert len(told("list")["unusable"]) == 2
    with pytest.raises(Refused, match="can't be loaded: ImportError: no luck"):
        said("show", "toy")
    with pytest.raises(Refused, match="declared by 2 packages"):
        said("show", "two")


def test_the_commands_are_light_until_they_are_called() -> None:
    assert not hasattr(connectors, "catalog")
