"""What the kernel uses of SimPy, without the rest of the package.

`import simpy` brings in every kind of resource and looks up the package's own version, for which it imports half of the
standard library. So the package is an empty one while the two modules that the kernel stands on are imported; whoever
imports SimPy later gets all of it, with the same classes.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from types import ModuleType

_found = None if "simpy" in sys.modules else PathFinder.find_spec("simpy")
if _found is not None and _found.submodule_search_locations is not None:
    _package = sys.modules["simpy"] = ModuleType("simpy")
    _package.__path__ = list(_found.submodule_search_locations)

from simpy.core import Environment  # noqa: E402 - this is what was prepared above
from simpy.events import Event, EventPriority, Initialize, Process  # noqa: E402

if _found is not None:
    del sys.modules["simpy"]

__all__ = ["Environment", "Event", "EventPriority", "Initialize", "Process"]
