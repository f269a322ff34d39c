"""The plug-ins that this worker has, as it tells them to the leader when it registers."""

from __future__ import annotations

from headrace.plugins.catalog import installed
from headrace.protocol.messages import PluginVersion


def installed_plugins() -> tuple[PluginVersion, ...]:
    """Every source, transform and sink that a job can be run with here."""
    return tuple(
        PluginVersion(role=each.role, name=each.name, version=each.version, digest=each.digest)
        for each in installed()
    )
