"""Makes the source or sink that a plugin's name stands for, as its descriptor says."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from headrace.connectors.connector import Setting, Sink, Source
from headrace.model.jobs.spec import PluginSpec
from headrace.plugins.factory import make_plugin


def make_source(spec: PluginSpec, setting: Setting, *, secrets: Mapping[str, JsonValue]) -> Source:
    """Raises `Unavailable` when it can't be used here, `Refused` when it refuses its options."""
    source: Source = make_plugin("source", spec, setting, secrets=secrets)
    return source


def make_sink(spec: PluginSpec, setting: Setting, *, secrets: Mapping[str, JsonValue]) -> Sink:
    """Raises `Unavailable` when it can't be used here, `Refused` when it refuses its options."""
    sink: Sink = make_plugin("sink", spec, setting, secrets=secrets)
    return sink
