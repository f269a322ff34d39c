"""Makes a plugin of a job, on a worker: the class that its descriptor names, with typed options.

Only names that an installed package declares are ever imported; what a job says is looked up among
them, and never imported or evaluated.

A plug-in that is missing or broken here says nothing of the job, and another worker may have it: so
that is `Unavailable`, and the task is tried again. What a job asks of a plug-in may be `Refused`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import JsonValue

from headrace.errors import Unavailable
from headrace.model.jobs.spec import PluginSpec
from headrace.plugins.catalog import catalog
from headrace.plugins.descriptor import AnyDescriptor
from headrace.plugins.entry_points import reason_of
from headrace.plugins.secrets import with_secrets
from headrace.plugins.syntax_tree import Role


def make_plugin(
    role: Role, spec: PluginSpec, setting: object, *, secrets: Mapping[str, JsonValue]
) -> Any:
    """The source, transform or sink of this spec: `make` of its descriptor, called with its name,
    its typed options and the setting. Raises `Unavailable` when it can't be used here, `Refused`
    when a secret is missing and for whatever the plugin itself refuses."""
    descriptor = _find(role, spec.plugin)
    options = descriptor.typed_options(with_secrets(spec, descriptor, secrets))
    return load(descriptor)(spec.name, options, setting)


def load(descriptor: AnyDescriptor) -> Callable[..., Any]:
    """What makes the plugin: the object that `make` names. Only workers call this, since it
    imports Spark. Raises `Unavailable` when it can't be imported."""
    module, _, name = descriptor.make.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # whatever a package does when it is imported
        raise Unavailable(
            f"{descriptor.title} of package {descriptor.brought_by} can't be loaded here: "
            f"{reason_of(error)}; install the package again, with what it needs, and restart"
        ) from error
    return cast("Callable[..., Any]", made)


def _find(role: Role, name: str) -> AnyDescriptor:
    known = catalog()
    descriptor = known.find(role, name)
    if descriptor is not None:
        return descriptor
    why = known.obstacle(role, name)
    if why is None:
        names = ", ".join(known.names(role))
        why = f"known are {names}. {known.way_to_install()}"
    raise Unavailable(f"this worker has no {role} {name!r}; {why}")
