"""Which assignments of a local scalar reach which reads. Takes the body of a function; gives the webs of every local: sets of
assignments that share a read, each of which becomes one zero-dim tensor.

The analysis is the usual reaching definitions on structured code (Muchnick, "Advanced Compiler Design", 16.3.3). It is
conservative: a loop may run zero times and both branches of an `if` may be taken. Splitting a name into webs keeps unrelated uses of it
(`acc` in two nests) free of dependences and free to have different dtypes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Reach = dict[str, frozenset[int]]
Path = tuple[tuple[int, int], ...]
"""The blocks around a node, outermost first, each with the position inside it: (identity of the block, statement number)."""


@dataclass
class Web:
    """Assignments of one variable that share reads. `plain`: the single `name = value` statement where there is no other."""

    name: str
    variable: str
    defs: list[ast.Name] = field(default_factory=list)
    uses: list[ast.Name] = field(default_factory=list)
    plain: ast.Assign | ast.AnnAssign | None = None
    dominates: bool = False


@dataclass
class Webs:
    """The webs of a function, by identity of the `ast.Name` nodes that store or load them."""

    of: dict[int, Web] = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)

    def get(self, node: ast.Name) -> Web | None:
        """The web of a name node, None where it is no local scalar."""
        return self.of.get(id(node))

    def private_to(self, web: Web, block: int) -> bool:
        """Whether the first assignment stands directly in a block, and all other mentions follow it inside that block."""
        first, *rest = sorted([*web.defs, *web.uses], key=lambda n: (self.paths[id(n)], n in web.uses))
        path = self.paths[id(first)]
        if not path or path[-1][0] != block or not any(first is d for d in web.defs):
            return False
        return all(_inside(self.paths[id(n)], path) for n in rest)


def _inside(path: Path, of: Path) -> bool:
    """Whether a path runs through the innermost block of another, at its statement or later."""
    n = len(of)
    return len(path) >= n and path[: n - 1] == of[: n - 1] and path[n - 1][0] == of[-1][0] and path[n - 1][1] >= of[-1][1]


class _Flow:
    def __init__(self, locals_: frozenset[str]) -> None:
        self.locals = locals_
        self.defs: dict[int, ast.Name] = {}
        self.uses: dict[int, tuple[ast.Name, set[int]]] = {}
        self.plain: dict[int, ast.Assign | ast.AnnAssign] = {}
        self.paths: dict[int, Path] = {}
        self.counter = 0

    def block(self, body: list[ast.stmt], reach: Reach, path: Path) -> Reach:
        for k, s in enumerate(body):
            reach = self.statement(s, reach, path, (id(body), k))
        return reach

    def statement(self, s: ast.stmt, reach: Reach, path: Path, here: tuple[int, int]) -> Reach:
        inner = (*path, here)
        if isinstance(s, ast.For | ast.While):
            self.read(s.iter if isinstance(s, ast.For) else s.test, reach, inner)
            while True:
                after = _join(reach, self.block(s.body, reach, inner))
                if after == reach:
                    return reach
                reach = after
        if isinstance(s, ast.If):
            self.read(s.test, reach, inner)
            return _join(self.block(s.body, reach, inner), self.block(s.orelse, reach, inner))
        if isinstance(s, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = s.targets if isinstance(s, ast.Assign) else [s.target]
            if s.value is not None:
                self.read(s.value, reach, inner)
            if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
                self.use(s.target, reach, inner)
            for t in targets:
                self.read(t, reach, inner)
            for name in (n for t in targets for n in _stored(t)):
                if name.id in self.locals:
                    self.defs[id(name)] = name
                    self.paths[id(name)] = inner
                    if not isinstance(s, ast.AugAssign) and len(targets) == 1 and targets[0] is name:
                        self.plain[id(name)] = s
                    reach = {**reach, name.id: frozenset([id(name)])}
            return reach
        for child in ast.iter_child_nodes(s):
            if isinstance(child, ast.expr):
                self.read(child, reach, inner)
        return reach

    def read(self, e: ast.expr, reach: Reach, path: Path) -> None:
        for n in ast.walk(e):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in self.locals:
                self.use(n, reach, path)

    def use(self, n: ast.Name, reach: Reach, path: Path) -> None:
        self.paths[id(n)] = path
        self.uses.setdefault(id(n), (n, set()))[1].update(reach.get(n.id, frozenset()))


def _join(a: Reach, b: Reach) -> Reach:
    return {k: a.get(k, frozenset()) | b.get(k, frozenset()) for k in {*a, *b}}


def _stored(t: ast.expr) -> Iterator[ast.Name]:
    return (n for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def compute_webs(body: list[ast.stmt], locals_: frozenset[str], taken: Iterable[str]) -> Webs:
    """The webs of the locals of a body. `taken` are names that no web may have."""
    flow = _Flow(locals_)
    flow.block(body, {}, ())
    parent = {d: d for d in flow.defs}

    def find(d: int) -> int:
        while parent[d] != d:
            parent[d] = parent[parent[d]]
            d = parent[d]
        return d

    for n, reaching in flow.uses.values():
        group = [*reaching, *([id(n)] if id(n) in flow.defs else [])]  # an augmented assignment joins what it reads
        for d in group[1:]:
            parent[find(d)] = find(group[0])
    out = Webs(paths=flow.paths)
    webs: dict[int, Web] = {}
    used = {*taken}
    for d, node in flow.defs.items():
        root = find(d)
        if root not in webs:
            webs[root] = Web(_fresh(node.id, used), node.id)
        webs[root].defs.append(node)
        out.of[d] = webs[root]
    for n, reaching in flow.uses.values():
        if reaching and id(n) not in flow.defs:
            web = webs[find(next(iter(reaching)))]
            web.uses.append(n)
            out.of[id(n)] = web
    for web in webs.values():
        if len(web.defs) == 1 and id(web.defs[0]) in flow.plain:
            web.plain = flow.plain[id(web.defs[0])]
            here = flow.paths[id(web.defs[0])]
            # the value of a single assignment is read first by its own statement: x = x + 1 does not dominate
            web.dominates = all(_inside(flow.paths[id(u)], here) and not _same(flow.paths[id(u)], here) for u in web.uses)
    return out


def _same(path: Path, of: Path) -> bool:
    return path[: len(of)] == of


def _fresh(name: str, used: set[str]) -> str:
    candidate, k = name, 0
    while candidate in used:
        k += 1
        candidate = f"{name}_{k}"
    used.add(candidate)
    return candidate
