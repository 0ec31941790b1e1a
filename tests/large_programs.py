"""Programs of many statements, for tests of how scheduling grows: text of @po.scop functions and the nests that come of it."""

from __future__ import annotations

from polyopt.frontends.python_loops import ScopFunction, dims, scop_from_source


def mixed(count: int, per_nest: int = 10) -> ScopFunction:
    """`count` statements in nests of `per_nest`, one after another: pointwise ones, three-point and five-point stencils, each on earlier results."""
    lines = []
    for k in range(count):
        if k % per_nest == 0:
            lines += ["    for i in range(1, N - 1):", "        for j in range(1, M - 1):"]
        x = (k * 7 + 1) % 8
        y = (k * 5 + 3) % 8 if (k * 5 + 3) % 8 != x else (x + 1) % 8
        # a stencil reads what an earlier nest wrote, so that the loops of its own nest carry nothing
        point, line, star = f"T{y}[i, j] * 0.5 + 1.0", f"T{y}[i, j - 1] + T{y}[i, j]", f"T{y}[i - 1, j] + T{y}[i, j - 1] + T{y}[i, j]"
        lines.append(f"            T{x}[i, j] = {(point, line, star, point)[k % 4]}")
    return _function("mixed", [f"T{k}: f64[N, M]" for k in range(8)], lines)


def one_nest(count: int) -> ScopFunction:
    """`count` statements in the body of one nest, each on results of the ones before, in the same point and in the point before."""
    lines = ["    for i in range(1, N):", "        for j in range(1, M):"]
    for k in range(count):
        before = f"T{(k - 1) % 16}[i, j]" if k % 3 else f"T{(k - 1) % 16}[i, j - 1]"
        lines.append(f"            T{k % 16}[i, j] = {before} * 0.5 + A[i, j]")
    return _function("one_nest", ["A: f64[N, M]", *(f"T{k}: f64[N, M]" for k in range(16))], lines)


def chain(count: int) -> ScopFunction:
    """`count` nests of one statement each, each on the result of the one before."""
    lines = []
    for k in range(count):
        a, b = ("A", "B") if k % 2 == 0 else ("B", "A")
        right = f"{a}[i - 1, j] + {a}[i, j] + {a}[i + 1, j]" if k % 2 else f"{a}[i, j] * 0.5"
        lines += ["    for i in range(1, N - 1):", "        for j in range(0, M):", f"            {b}[i, j] = {right}"]
    return _function("chain", ["A: f64[N, M]", "B: f64[N, M]"], lines)


def _function(name: str, arguments: list[str], lines: list[str]) -> ScopFunction:
    n, m = dims("N M")
    text = "\n".join([f"def {name}({', '.join(arguments)}):", *lines, ""])
    return scop_from_source(text, {"N": n, "M": m}, f"<{name}>")
