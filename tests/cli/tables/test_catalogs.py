"""headrace catalog …: through the real commands, against fake coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.tables import catalogs, commands, waits
from headrace.errors import BadSetting
from tests.cli.jobs.test_jobs import always, invoke
from tests.cli.tables.lake import CATALOG, NOW, Script


@pytest.fixture(autouse=True)
def still_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "POLL_S", 0.001)
    for module in (catalogs, commands):
        monkeypatch.setattr(module, "now_ms", lambda: NOW)


def test_a_catalog_is_added_with_properties_from_a_file(tmp_path: Path) -> None:
    script = Script({"POST /v1/catalogs": [CATALOG]})
    path = tmp_path / "secret"
    path.write_text("# not for the list of processes\ntoken=a=b\n\nuri=http://x\n")

    shown = invoke(
        script,
        *("catalog", "add", "lake", "--type", "rest", "--property", "uri=http://rest:8181"),
        *("--property-file", str(path), "--default", "self-optimizing.quota=2"),
        *("--filter", "sales\\..*", "--group", "etl"),
    )

    [(_, _, body)] = script.heard
    assert body == {
        "name": "lake",
        "type": "rest",
        "properties": {"token": "a=b", "uri": "http://rest:8181"},
        "defaults": {"self-optimizing.quota": "2"},
        "table_filter": "sales\\..*",
        "group": "etl",
    }
    for part in ("lake: rest catalog, 12 tables", "token = ******", "sales\\..*", "1 min 0 s ago"):
        assert part in shown


def test_a_catalog_is_changed_by_what_is_given_alone() -> None:
    script = Script({"PATCH /v1/catalogs/lake": [CATALOG]})

    invoke(
        script,
        *("catalog", "set", "lake", "--property", "a=1", "--unset", "b", "--no-filter"),
        *("--unset-default", "self-optimizing.quota"),
    )

    [(_, _, body)] = script.heard
    assert body == {
        "properties": {"a": "1", "b": None},
        "defaults": {"self-optimizing.quota": None},
        "table_filter": "",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--property", "a"), "--property takes NAME=VALUE, and 'a' is not of that form"),
        (("--property-file", "nowhere"), "--property-file nowhere can't be read"),
        (("--filter", "a", "--no-filter"), "exclude each other"),
    ],
)
def test_options_of_a_catalog_that_can_not_be_used_are_refused(
    arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        invoke(Script({}), "catalog", "set", "lake", *arguments)


def test_a_line_of_a_property_file_that_is_no_pair_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("a=1\nhush\n")
    with pytest.raises(BadSetting, match="entry 2 is not of the form") as refused:
        invoke(Script({}), "catalog", "set", "lake", "--property-file", str(path))
    assert "hush" not in str(refused.value)


def test_catalogs_are_listed_with_what_is_wrong_with_them() -> None:
    failing = {**CATALOG, "name": "far", "failures": 2, "error": "connection refused"}
    shown = invoke(always(200, {"catalogs": [CATALOG, failing]}), "catalog", "list")

    for part in ("lake", "rest", "12", "1 min 0 s ago", "2 tries failed", "connection refused"):
        assert part in shown


def test_a_removed_catalog_says_that_nothing_is_deleted() -> None:
    script = Script({"DELETE /v1/catalogs/lake": [{**CATALOG, "removing": True}]})

    assert "nothing in it is deleted" in invoke(script, "catalog", "remove", "lake")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"changed": True},
            "lake is looked into now; 12 tables known so far, last looked into 1 m",
        ),
        ({"changed": False}, "lake was about to be looked into anyway"),
        ({"changed": False, "looking": True}, "lake is being looked into already"),
        (
            {"changed": True, "waits_for": "a worker of its group 'etl', which has none"},
            "looked into now, once there is a worker of its group 'etl', which has none",
        ),
    ],
)
def test_a_catalog_is_refreshed_and_where_to_look_is_said(
    told: dict[str, object], said: str
) -> None:
    script = Script({"POST /v1/catalogs/lake/refresh": [{**CATALOG, **told}]})

    shown = invoke(script, "catalog", "refresh", "lake")

    assert said in shown
    assert "`headrace table list --catalog lake` the tables" in shown
