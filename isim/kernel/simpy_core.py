"""What the kernel uses of SimPy, without the rest of the package.

`import simpy` brings in every kind of resource and looks up the package's own version, for which it imports half of the
standard library. So the package is left for later: the two modules that the kernel stands on are imported from it, and
its front page is read when somebody asks it for anything else.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec


def _leave_for_later(spec: ModuleSpec) -> None:
    package = sys.modules["simpy"] = module_from_spec(spec)
    loader = spec.loader

    def read(name: str) -> object:
        del package.__dict__["__getattr__"]
        if loader is not None:
            loader.exec_module(package)
        return getattr(package, name)

    package.__dict__["__getattr__"] = read


_spec = None if "simpy" in sys.modules else PathFinder.find_spec("simpy")
if _spec is not None:
    _leave_for_later(_spec)

from simpy.core import Environment  # noqa: E402 - the package is prepared above
from simpy.events import Event, EventPriority, Initialize, Process  # noqa: E402

__all__ = ["Environment", "Event", "EventPriority", "Initialize", "Process"]
