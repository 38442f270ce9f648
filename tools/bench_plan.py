"""One load of the topology world in one process: compile, validate, execute by the closed form, replay.

    python tools/bench_plan.py TARGET TOKENS [EXECUTIONS]

With EXECUTIONS it is a seeded campaign of so many executions of the plan. `tools/bench.py` measures it.
"""

from __future__ import annotations

import sys

from isim.analyze.execution import ExecutionCollector
from isim.machine.campaign import DEFAULT_WINDOW_NS, campaign_requests
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import resources_of
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.plan.validate import validate_plan
from isim.replay.execution import ExecutionReplay
from isim.topology.load import load_target


def main(arguments: list[str]) -> int:
    target, tokens, *executions = arguments
    topology = load_target(target)
    plan = compile_plan(topology, target_only_profile(int(tokens))).plan
    assert validate_plan(plan, topology) == []
    machine = resources_of(topology)
    program = program_of(plan, machine)
    requests = [ExecutionRequest(program=program, execution=plan.execution_id)]
    if executions:
        requests = campaign_requests(program, plan.execution_id, int(executions[0]), DEFAULT_WINDOW_NS, 42)
    collector, replay = ExecutionCollector(), ExecutionReplay()
    execute(machine, requests, readers=[collector.read, replay.read])
    summary = replay.finish()
    assert summary.operations == len(collector.operations) == len(requests) * len(plan.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
