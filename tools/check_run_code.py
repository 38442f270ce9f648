"""Run code is a function of scenario and seed: this finds, in the syntax trees of `isim/`, what could make it more.

    clock     time, datetime, and the clocks of os
    random    random, secrets, uuid, numpy.random, os.urandom: draws come from isim.draw
    hash      the builtin: it moves with PYTHONHASHSEED and with the machine
    identity  the builtin id(): addresses move from run to run
    set       anything that shows the order of a set: loops, list(), unpacking, join, pop, printing it
    threads   threads, processes and event loops: their order is nobody's
    file      more than 400 lines
    function  more than 70 lines

What is a set is found out from displays, comprehensions, calls, operators, annotations and assignments within the same
function or class; it is a net with small meshes, not a proof. `sorted(...)` of a set is what to do instead. Everything
in `isim/` is run code unless a table below says otherwise, with its reason.

    python tools/check_run_code.py [ROOT]    prints `file:line: what, what to do`; exit 1 when there is anything
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70


class Rule(StrEnum):
    CLOCK = "clock"
    RANDOM = "random"
    HASH = "hash"
    IDENTITY = "identity"
    SET_ORDER = "set"
    THREADS = "threads"
    FILE_LENGTH = "file"
    FUNCTION_LENGTH = "function"


REMEDY = {
    Rule.CLOCK: "run code knows simulated time only; take it from the kernel",
    Rule.RANDOM: "draw from isim.draw by (seed, stream, request, position)",
    Rule.HASH: "use the value itself as a key, or hashlib",
    Rule.IDENTITY: "number the objects when they are made and use that number",
    Rule.SET_ORDER: "use sorted(...), or a dict, which keeps the order of insertion",
    Rule.THREADS: "actors of the kernel are the only concurrency of a run",
    Rule.FILE_LENGTH: f"at most {MAX_FILE_LINES} lines; it is probably two ideas",
    Rule.FUNCTION_LENGTH: f"at most {MAX_FUNCTION_LINES} lines; it is probably two ideas",
}

MODULES = {
    "time": Rule.CLOCK,
    "datetime": Rule.CLOCK,
    "sched": Rule.CLOCK,
    "random": Rule.RANDOM,
    "secrets": Rule.RANDOM,
    "uuid": Rule.RANDOM,
    "numpy.random": Rule.RANDOM,
    "threading": Rule.THREADS,
    "_thread": Rule.THREADS,
    "multiprocessing": Rule.THREADS,
    "concurrent": Rule.THREADS,
    "asyncio": Rule.THREADS,
    "queue": Rule.THREADS,
}
ATTRIBUTES = {
    "os.times": Rule.CLOCK,
    "os.urandom": Rule.RANDOM,
    "os.getrandom": Rule.RANDOM,
    "os.getpid": Rule.RANDOM,
    "os.fork": Rule.THREADS,
    "numpy.random": Rule.RANDOM,
    "np.random": Rule.RANDOM,
}
BUILTINS = {"hash": Rule.HASH, "id": Rule.IDENTITY}

ROOMS: dict[str, tuple[tuple[Rule, ...], str]] = {
    "cli": ((Rule.CLOCK,), "a person may be shown how long something takes; no result is made here"),
}
"""Rules that do not hold in a whole room, and why."""

ALLOWED: dict[tuple[str, Rule], str] = {}
"""(file, rule) that is let through, and why. An entry that lets nothing through is itself an error."""

_SET_MAKERS = ("set", "frozenset")
_SET_METHODS = ("union", "intersection", "difference", "symmetric_difference", "copy")
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_ORDER_BLIND = ("sorted", "len", "any", "all", "set", "frozenset", "min", "max")
_LOOKING_METHODS = ("join", "fromkeys", "extend", "from_iterable", "writelines", "format")
_LOOKING_CALLS = (
    *("list", "tuple", "dict", "iter", "next", "enumerate", "zip", "map", "filter", "reversed", "sum"),
    *("str", "repr", "print", "deque", "accumulate", "chain", "islice"),
)
_SET_ANNOTATIONS = ("set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`file` is relative to the root."""

    file: str
    line: int
    rule: Rule
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}; {REMEDY[self.rule]}"


def check(root: Path) -> list[Finding]:
    """Everything found under `root/isim` that no table lets through, ordered by file and line."""
    found: list[Finding] = []
    used: list[tuple[str, Rule]] = []
    for path in sorted((root / "isim").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        excused, _ = ROOMS.get(file.split("/")[1], ((), ""))
        for finding in check_source(path.read_text(encoding="utf-8"), file):
            if (file, finding.rule) in ALLOWED:
                used.append((file, finding.rule))
            elif finding.rule not in excused:
                found.append(finding)
    for file, rule in ALLOWED:
        if (file, rule) not in used:
            found.append(Finding(file=file, line=1, rule=rule, what=f"the allowance for {rule} is not needed"))
    return sorted(found, key=lambda finding: (finding.file, finding.line, finding.rule, finding.what))


def check_source(text: str, file: str) -> list[Finding]:
    """All findings in one file's text, whatever the tables say."""
    tree = ast.parse(text, file)
    checker = _Checker(file)
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MAX_FILE_LINES:
        checker.report(1, Rule.FILE_LENGTH, f"{lines} lines in a file")
    checker.visit(tree)
    return checker.found


class _Scope:
    """The names of one function, class or module, and which of them are sets."""

    def __init__(self, node: ast.AST) -> None:
        self.bound: dict[str, bool] = {}
        for child in _inside(node):
            if isinstance(child, ast.arg):
                self.bound[child.arg] = _is_set_annotation(child.annotation)
            elif isinstance(child, ast.AnnAssign):
                self._bind(child.target, _is_set_annotation(child.annotation))
            elif isinstance(child, ast.Assign):
                for target in child.targets:
                    self._bind(target, _is_set(child.value, self._look_up))
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                self._bind(child, False)

    def _bind(self, target: ast.expr, is_set: bool) -> None:
        name = _dotted(target)
        if name:
            self.bound[name] = self._look_up(name) or is_set

    def _look_up(self, name: str) -> bool:
        return self.bound.get(name, False)


class _Checker(ast.NodeVisitor):
    def __init__(self, file: str) -> None:
        self.found: list[Finding] = []
        self._file = file
        self._scopes: list[_Scope] = []
        self._fields: list[dict[str, bool]] = []

    def report(self, line: int, rule: Rule, what: str) -> None:
        self.found.append(Finding(file=self._file, line=line, rule=rule, what=what))

    # ---- scopes

    def visit_Module(self, node: ast.Module) -> None:
        self._enter(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            self.report(node.lineno, Rule.FUNCTION_LENGTH, f"{lines} lines in {node.name}()")
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.report(node.lineno, Rule.THREADS, f"async def {node.name}")
        self._enter(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        fields: dict[str, bool] = {}
        for child in ast.walk(node):
            targets: list[ast.expr] = []
            is_set = False
            if isinstance(child, ast.AnnAssign):
                targets, is_set = [child.target], _is_set_annotation(child.annotation)
            elif isinstance(child, ast.Assign):
                targets, is_set = child.targets, _is_set(child.value, lambda _: False)
            for target in targets:
                name = _dotted(target).removeprefix("self.")
                fields[name] = fields.get(name, False) or is_set
        self._fields.append(fields)
        self._enter(node)
        self._fields.pop()

    def _enter(self, node: ast.AST) -> None:
        self._scopes.append(_Scope(node))
        self.generic_visit(node)
        self._scopes.pop()

    # ---- imports and names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(node.lineno, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            return
        for alias in node.names:
            self._import(node.lineno, f"{node.module}.{alias.name}")

    def _import(self, line: int, name: str) -> None:
        rule = ATTRIBUTES.get(name)
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            rule = rule or MODULES.get(".".join(parts[:length]))
        if rule is not None:
            self.report(line, rule, f"import of {name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        rule = ATTRIBUTES.get(_dotted(node))
        if rule is not None:
            self.report(node.lineno, rule, f"use of {_dotted(node)}")
        if node.attr == "__hash__" and isinstance(node.ctx, ast.Load):
            self.report(node.lineno, Rule.HASH, "use of __hash__")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        rule = BUILTINS.get(node.id)
        if rule is not None and isinstance(node.ctx, ast.Load) and not any(node.id in s.bound for s in self._scopes):
            self.report(node.lineno, rule, f"use of the builtin {node.id}()")

    # ---- what shows the order of a set

    def visit_For(self, node: ast.For) -> None:
        self._ordered(node.iter, "a loop over a set")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._ordered(node.iter, "a comprehension over a set")
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._ordered(node.value, "yield from a set")
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._ordered(node.value, "a set unpacked")
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self._ordered(node.value, "a set printed")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self._ordered(node.value, "a set unpacked")
        self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._blind(node)

    def visit_Call(self, node: ast.Call) -> None:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = method or _dotted(node.func)
        if method == "pop" and isinstance(node.func, ast.Attribute) and self._is_set(node.func.value):
            self.report(node.lineno, Rule.SET_ORDER, "an arbitrary element of a set")
        if name in (_LOOKING_METHODS if method else _LOOKING_CALLS):
            for argument in node.args:
                self._ordered(argument, f"{name}() of a set")
        if name in _ORDER_BLIND and node.args and isinstance(node.args[0], ast.GeneratorExp):
            self.visit(node.func)
            self._blind(node.args[0])
            for rest in (*node.args[1:], *node.keywords):
                self.visit(rest)
        else:
            self.generic_visit(node)

    def _blind(self, node: ast.GeneratorExp | ast.SetComp) -> None:
        """Visit a comprehension whose order nobody sees."""
        self.visit(node.elt)
        for part in node.generators:
            for child in ast.iter_child_nodes(part):
                self.visit(child)

    def _ordered(self, node: ast.expr, what: str) -> None:
        if self._is_set(node):
            self.report(node.lineno, Rule.SET_ORDER, what)

    def _is_set(self, node: ast.expr) -> bool:
        return _is_set(node, self._look_up)

    def _look_up(self, name: str) -> bool:
        if name.startswith("self.") and self._fields:
            return self._fields[-1].get(name.removeprefix("self."), False)
        return next((scope.bound[name] for scope in reversed(self._scopes) if name in scope.bound), False)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope, but not those of the functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _inside(child)


def _dotted(node: ast.expr) -> str:
    """`a.b.c` for names and attributes of names; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


def _is_set(node: ast.expr, is_set_name: Callable[[str], bool]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, _SET_OPERATORS):
        return any(_is_set(side, is_set_name) or _is_keys(side) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS:
            return _is_set(node.func.value, is_set_name)
        return _dotted(node.func) in _SET_MAKERS
    if isinstance(node, ast.IfExp):
        return _is_set(node.body, is_set_name) or _is_set(node.orelse, is_set_name)
    return is_set_name(_dotted(node))


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def _is_set_annotation(node: ast.expr | None) -> bool:
    """`set[...]`, `frozenset[...]`, the abstract ones, and unions with them; a string annotation is not looked into."""
    if isinstance(node, ast.BinOp):
        return _is_set_annotation(node.left) or _is_set_annotation(node.right)
    if isinstance(node, ast.Subscript):
        node = node.value
    return node is not None and _dotted(node).split(".")[-1] in _SET_ANNOTATIONS


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).parents[1]
    found = check(root)
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
