"""Which requirement each test proves, and whether a run is a full one.

The set of proved ids is taken from what was collected, before any selection, so that a test item
can read it; each xdist process collects everything and so sees the same set. Whether the run is
full is decided where the command line is known and handed to the xdist processes.

`--req ID` runs only the tests that prove ID. What a full run leaves out, and what therefore proves
nothing there, is asked for: `--all-crash` adds the tests marked `matrix`, which kill at every seam
in turn; `--both-stores` those marked `other_store`, whose turn is on the other store;
`--all-histories` those marked `histories`, which search more of what `make test` samples; `--soak`
those marked `soak`, which go on for as long as one likes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.turns import mark_turns

PROVED = pytest.StashKey[frozenset[str]]()
FULL = pytest.StashKey[bool]()

_FULL_KEY = "headrace_full_run"
_ASKED_FOR = {
    "--all-crash": "matrix",
    "--both-stores": "other_store",
    "--all-histories": "histories",
    "--soak": "soak",
}
_NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "req")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headrace")
    group.addoption("--req", metavar="ID", help="run only the tests that prove this requirement")
    group.addoption("--all-crash", action="store_true", help="run the full kill matrix as well")
    group.addoption("--both-stores", action="store_true", help="run each test on each store")
    group.addoption("--all-histories", action="store_true", help="search more histories as well")
    group.addoption("--soak", action="store_true", help="run the long random writes as well")


def pytest_configure(config: pytest.Config) -> None:
    told: dict[str, Any] | None = getattr(config, "workerinput", None)
    config.stash[FULL] = told[_FULL_KEY] if told is not None else _is_full(config)


def _is_full(config: pytest.Config) -> bool:
    narrowed = any(config.getoption(name, None) for name in _NARROWING)
    return not narrowed and config.args_source is pytest.Config.ArgsSource.TESTPATHS


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by xdist in the process that was started by hand, for each one it starts."""
    node.workerinput[_FULL_KEY] = node.config.stash[FULL]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_turns(items)
    for option, marker in _ASKED_FOR.items():
        if not config.getoption(option):
            _keep(config, items, [item for item in items if not item.get_closest_marker(marker)])
    config.stash[PROVED] = frozenset(name for item in items for name in proved_by(item))
    if wanted := config.getoption("--req"):
        _keep(config, items, [item for item in items if wanted in proved_by(item)])


def proved_by(item: pytest.Item) -> frozenset[str]:
    return frozenset(str(name) for marker in item.iter_markers("req") for name in marker.args)


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    chosen = set(kept)
    if dropped := [item for item in items if item not in chosen]:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
