"""Everything that is wrong with a topology scenario, at once."""

from __future__ import annotations

from isim.scenario.topology.types import TopologyScenario
from isim.topology.check_basics import check_basics
from isim.topology.check_groups import check_calibration, check_groups, check_parallelism
from isim.topology.check_memory import check_memory
from isim.topology.check_network import check_network
from isim.topology.check_placements import check_placements, check_transfers
from isim.topology.index import Topology
from isim.topology.issues import Findings, Issue
from isim.topology.routes import Router


def validate_topology(scenario: TopologyScenario) -> list[Issue]:
    """The issues of a scenario; of one that has none, everything in `isim.topology` may be asked."""
    found = Findings()
    topology = Topology(scenario)
    check_basics(scenario, found)
    check_memory(topology, found)
    check_network(topology, found)
    check_placements(topology, found)
    check_transfers(topology, Router(topology), found)
    check_groups(topology, found)
    check_parallelism(topology, found)
    check_calibration(topology, found)
    return found.issues
