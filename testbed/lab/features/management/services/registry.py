"""All services, by name. The module of each is found by its row in the model, and has it as `SERVICE`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import cast

from testbed.lab.core.model.management import SERVICES
from testbed.lab.features.management.services.service import Service

REGISTRY: Mapping[str, Service] = MappingProxyType(
    {
        name: cast(Service, import_module(f"testbed.lab.features.management.services.{kind.module or name}").SERVICE)
        for name, kind in SERVICES.items()
    }
)
