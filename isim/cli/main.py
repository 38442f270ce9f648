"""The command line: which verbs there are, and what every way to end means to the shell.

A verb lives in a file of its own that is imported only when it is called, so that help costs nothing. Results go to
standard output or to files, everything else to standard error. Exit codes:

    0    done; rejected requests are counted in the result
    1    a comparison or verdict asked for came out negative
    2    invalid input, a truncated file, `max_events` exceeded, a capacity that cannot hold
    3    a replay violation
    4    the run ended and nothing completed
    70   a bug of ours: what to report is printed, the traceback goes to a file
    130  interrupted; what was finished is kept
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from isim.record.errors import IsimError

BUG = 70
INTERRUPTED = 130

Verb = Callable[[argparse.Namespace], int]
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class _Whole:
    """Used as a context: an interrupt waits until it is left.

    Importing is not made to be interrupted: a C extension whose import is cut short may be left half made and crash
    later, and an interrupt that lands in a callback of the import system is lost.
    """

    def __enter__(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))

    def __exit__(self, *_: object) -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Only argparse itself exits (0 for help, 2 for bad usage)."""
    if sys.stdout is None or sys.stderr is None:
        from isim.cli.output import open_streams

        open_streams()
    try:
        arguments = _parser().parse_args(argv)
        verb: Verb = arguments.verb
        return verb(arguments)
    except IsimError as error:
        if error.exit_code == BUG:
            return _bug(error)
        _say(f"isim: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say("isim: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        return _bug(error)


def command() -> NoReturn:
    """`main` as a process, which ends at once: taking every object of a large run apart would only take time.

    What is printed or written was flushed and closed by whoever did it.
    """
    code = INTERRUPTED
    with contextlib.suppress(KeyboardInterrupt):
        code = main()
        _Whole().__enter__()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isim",
        description="Simulate serving an LLM: latency, throughput and memory of model, GPU and engine under a load.",
        epilog="Exit codes: 0 done, 2 invalid input, 3 replay violation, 4 nothing completed, 70 bug, 130 interrupted.",
    )
    parser.add_argument("--version", action="store_const", dest="verb", const=_version, help="print the version")
    verbs = parser.add_subparsers(metavar="VERB", title="verbs")
    _run_arguments(verbs.add_parser("run", help="simulate a run file and report", description="Simulate a run file."))
    replay = verbs.add_parser("replay", help="check that a log is legal", description="Check a log from itself alone.")
    replay.add_argument("log", metavar="LOG", help="log.jsonl.zst of a run")
    replay.set_defaults(verb=_replay)
    report = verbs.add_parser("report", help="print the report of a finished run", description="Print a report again.")
    report.add_argument("directory", metavar="DIR", help="what `isim run --out` wrote")
    report.add_argument("--json", action="store_true", help="print result.json instead of the report")
    report.set_defaults(verb=_report)
    compare = verbs.add_parser("compare", help="set results side by side", description="Set results side by side.")
    compare.add_argument("first", metavar="DIR", help="what the others are compared with")
    compare.add_argument("others", metavar="DIR", nargs="+", help="what `isim run --out` wrote")
    compare.add_argument("--json", action="store_true", help="print the comparison as JSON")
    compare.set_defaults(verb=_compare)
    _calibrate_arguments(
        verbs.add_parser("calibrate", help="fit cost factors to what was measured", description="Fit cost factors.")
    )
    validate = verbs.add_parser("validate", help="check a file without running it", description="Check a file.")
    validate.add_argument("file", metavar="FILE", help="run file, topology, topology workload or frozen plan")
    _set_argument(validate)
    validate.set_defaults(verb=_validate)
    export = verbs.add_parser("export", help="write a workload as a request file", description="Write all requests.")
    export.add_argument("file", metavar="FILE", help="run file, or log.jsonl.zst of a run")
    export.add_argument("--out", metavar="REQUESTS", required=True, help="new file: CSV if it ends in .csv, else JSONL")
    _set_argument(export)
    export.set_defaults(verb=_export)
    presets = verbs.add_parser("presets", help="list what is known by name", description="List presets.")
    presets.add_argument("what", nargs="?", choices=("gpus", "models", "topologies"), help="only these")
    presets.set_defaults(verb=_presets)
    schema = verbs.add_parser("schema", help="print a JSON Schema", description="Print the JSON Schema of a file.")
    schema.add_argument(
        "what",
        choices=(
            "log",
            "execution-log",
            "campaign",
            "run",
            "result",
            "comparison",
            "calibration",
            "topology",
            "topology-workload",
            "topology-run",
            "topology-comparison",
            "plan",
        ),
        help="of a log's line, run file, result.json, comparison, calibration, topology and its work, or frozen plan",
    )
    schema.set_defaults(verb=_schema)
    _scenario_arguments(verbs.add_parser("scenario", help="show a topology", description="Materialise a topology."))
    plan = verbs.add_parser("plan", help="compile a frozen plan, or execute one", description="Frozen plans.")
    _plan_arguments(plan.add_subparsers(metavar="export|run", title="verbs", required=True))
    topology = verbs.add_parser("topology", help="run work on topologies", description="Work on topologies.")
    _topology_arguments(topology.add_subparsers(metavar="run|compare", title="verbs", required=True))
    _campaign_arguments(verbs.add_parser("campaign", help="many executions of one plan", description="A campaign."))
    parser.set_defaults(verb=lambda _: parser.error("expected a verb; see isim --help"))
    return parser


def _run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument("file", metavar="FILE", help="run file, YAML or JSON")
    _set_argument(run)
    run.add_argument("--seed", type=int, metavar="N", help="the same as --set simulation.seed=N")
    run.add_argument(
        "--out", metavar="DIR", help="write result, requests, log and resolved run file to a new or empty folder"
    )
    printed = run.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print result.json instead of the report")
    printed.add_argument("--quiet", action="store_true", help="print nothing but errors")
    run.add_argument(
        "--no-log",
        action="store_true",
        help="write no log; with --no-replay its digest is not computed either, and null in the result",
    )
    run.add_argument(
        "--no-replay",
        action="store_true",
        help="do not check the run by replaying its log; `replay` is `not_run` in the result",
    )
    run.add_argument(
        "--details",
        choices=("auto", "always", "never"),
        default="auto",
        help="sensitivity, step-time split, queue and KV over time: auto for runs of at most 1,000 requests",
    )
    run.set_defaults(verb=_run)


def _calibrate_arguments(calibrate: argparse.ArgumentParser) -> None:
    calibrate.add_argument(
        "file", metavar="RUN", help="run file of the server that was measured, and of what it served"
    )
    calibrate.add_argument("measured", metavar="MEASURED", help="figures (YAML, JSON) or requests (.csv, .jsonl)")
    calibrate.add_argument(
        "--fit", nargs="+", action="extend", metavar="FACTOR", help="only these, as cost.memory_efficiency"
    )
    calibrate.add_argument(
        "--metric", nargs="+", action="extend", metavar="NAME", help="fit to only these, as latency.tpot_ns.mean"
    )
    calibrate.add_argument("--out", metavar="FILE", help="write the run file with the fitted factors to a new file")
    printed = calibrate.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the calibration as JSON")
    printed.add_argument("--quiet", action="store_true", help="print nothing but errors")
    _set_argument(calibrate)
    calibrate.set_defaults(verb=_calibrate)


def _scenario_arguments(scenario: argparse.ArgumentParser) -> None:
    scenario.add_argument("target", metavar="TARGET", help="preset (`isim presets topologies`) or file")
    scenario.add_argument("--json", action="store_true", help="print the scenario and its memory ledger as JSON")
    scenario.add_argument("--out", metavar="FILE", help="write the scenario to a new file, as JSON")
    scenario.set_defaults(verb=_scenario)


def _plan_arguments(verbs: Verbs) -> None:
    export = verbs.add_parser("export", help="compile a workload to a file", description="Compile a workload.")
    _target_argument(export)
    export.add_argument("workload", metavar="WORKLOAD", help="topology workload, YAML or JSON")
    export.add_argument("--out", metavar="FILE", help="new file; without it the plan is printed")
    export.set_defaults(verb=_plan_export)
    run = verbs.add_parser("run", help="check, execute and replay a plan", description="Execute a frozen plan.")
    run.add_argument("file", metavar="FILE", help="what `isim plan export` wrote")
    _execution_arguments(run)
    run.set_defaults(verb=_plan_run)


def _topology_arguments(verbs: Verbs) -> None:
    run = verbs.add_parser("run", help="compile, execute, replay, report", description="Run work on a topology.")
    _target_argument(run)
    run.add_argument("workload", metavar="WORKLOAD", help="topology workload, YAML or JSON")
    _execution_arguments(run)
    run.set_defaults(verb=_topology_run)
    compare = verbs.add_parser("compare", help="rank topologies by the same work", description="Compare topologies.")
    compare.add_argument(
        "targets", nargs="*", metavar="TARGET", help="presets or files; without any, one of each family"
    )
    compare.add_argument("workload", metavar="WORKLOAD", help="topology workload, YAML or JSON")
    compare.add_argument("--json", action="store_true", help="print the comparison as JSON")
    compare.add_argument("--no-replay", action="store_true", help="do not check the executions by replaying them")
    compare.set_defaults(verb=_topology_compare)


def _campaign_arguments(campaign: argparse.ArgumentParser) -> None:
    _target_argument(campaign)
    campaign.add_argument("workload", metavar="WORKLOAD", help="topology workload, YAML or JSON")
    campaign.add_argument("--executions", type=int, metavar="N", help="how many; default: the workload's, or 32")
    campaign.add_argument("--seed", type=int, metavar="S", help="of arrivals; default: the workload's or topology's")
    campaign.add_argument("--window", type=int, metavar="NS", help="arrivals are drawn from 0 to this; default: 1 ms")
    _execution_arguments(campaign)
    campaign.set_defaults(verb=_campaign)


def _target_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="preset (`isim presets topologies`) or file")


def _execution_arguments(parser: argparse.ArgumentParser) -> None:
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the result as JSON instead of the report")
    printed.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--log", metavar="FILE", help="write the execution log to a new file, as JSON Lines in zstd")
    parser.add_argument("--no-replay", action="store_true", help="do not check the execution by replaying it")
    parser.add_argument("--detailed", action="store_true", help="by a process for each lane: slower, to the same log")


def _set_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a value of the file, as a.b=c"
    )


def _run(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.run import run
    return run(arguments)


def _replay(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.replay import replay
    return replay(arguments.log)


def _report(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.report import report
    return report(arguments.directory, json=arguments.json)


def _compare(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.compare import compare
    return compare([arguments.first, *arguments.others], json=arguments.json)


def _calibrate(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.calibrate import calibrate
    return calibrate(arguments)


def _validate(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.validate import validate
    return validate(arguments.file, arguments.set)


def _export(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.export import export
    return export(arguments.file, arguments.out, arguments.set)


def _presets(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.presets import presets
    return presets(arguments.what)


def _schema(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.schema import schema
    return schema(arguments.what)


def _scenario(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.scenario import scenario
    return scenario(arguments.target, as_json=arguments.json, out=arguments.out)


def _plan_export(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.plan import export
    return export(arguments.target, arguments.workload, arguments.out)


def _plan_run(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.execution import Wishes
        from isim.cli.plan import run
    wishes = Wishes(log=arguments.log, replay=not arguments.no_replay, detailed=arguments.detailed)
    return run(arguments.file, wishes, as_json=arguments.json, quiet=arguments.quiet)


def _topology_run(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.execution import Wishes
        from isim.cli.topology import run
    wishes = Wishes(log=arguments.log, replay=not arguments.no_replay, detailed=arguments.detailed)
    return run(arguments.target, arguments.workload, wishes, as_json=arguments.json, quiet=arguments.quiet)


def _topology_compare(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.execution import Wishes
        from isim.cli.topology import compare
    wishes = Wishes(replay=not arguments.no_replay)
    return compare(arguments.targets, arguments.workload, wishes, as_json=arguments.json)


def _campaign(arguments: argparse.Namespace) -> int:
    with _Whole():
        from isim.cli.campaign import Asked, campaign
        from isim.cli.execution import Wishes
    asked = Asked(executions=arguments.executions, seed=arguments.seed, window_ns=arguments.window)
    wishes = Wishes(log=arguments.log, replay=not arguments.no_replay, detailed=arguments.detailed)
    options = {"as_json": arguments.json, "quiet": arguments.quiet}
    return campaign(arguments.target, arguments.workload, asked, wishes, **options)


def _version(_: argparse.Namespace) -> int:
    from isim import __version__
    from isim.cli.output import emit

    emit(f"isim {__version__}\n")
    return 0


def _bug(error: BaseException) -> int:
    from isim.cli.bug import report_bug

    _say(report_bug(error, sys.argv))
    return BUG


def _say(text: str) -> None:
    from isim.cli.output import say

    say(text)
