"""PolyBench: `po.auto` against compilers on the same loop nests.

    python -m benchmarks.polybench [KERNEL…] [--size LARGE] [--against gcc,clang,polly] [--threads N] [--json]

Each kernel is checked on its live-out arrays, at MINI against plain Python and at its size against gcc -O1; then it is timed, interleaved with
the peers. Ours is compiled at fp="fast", since the peers have -ffast-math. A wrong result makes the exit code 2; a kernel that ours cannot compile,
or that takes over a minute, is noted in its row. Ratios below 1 mean that ours is faster than the fastest peer."""

from __future__ import annotations

import sys

from benchmarks.polybench import KERNELS, SIZES
from benchmarks.timing import finish, parser, run
from polyopt.errors import UserError

from .measure import PEERS, PolyRow, measure


def main() -> int:
    """Measure the kernels that are asked for."""
    p = parser("polybench", "PolyBench/C 4.2.1 as Python loop nests: po.auto against gcc, clang and Polly.")
    p.add_argument("kernels", nargs="*", metavar="KERNEL", help="names (all 30 by default)")
    p.add_argument("--size", default="LARGE", help=f"data set: {', '.join(SIZES)} (default LARGE)")
    p.add_argument("--against", default="gcc,clang,polly", help="peers, comma-separated (default gcc,clang,polly)")
    p.set_defaults(seconds=15.0)
    args = p.parse_args()
    against = [x for x in args.against.split(",") if x]
    for given, known, what in ((args.kernels, KERNELS, "kernel"), (against, PEERS, "peer"), ([args.size], SIZES, "size")):
        unknown = [x for x in given if x not in known]
        if unknown:
            raise UserError(f"there is no {what} {unknown[0]!r}; choose from {', '.join(known)}")
    rows, wrong = [], []
    for name in args.kernels or list(KERNELS):
        r = measure(name, args.size, against, args.threads, args.seconds)
        rows.append(r)
        print(_progress(r), file=sys.stderr, flush=True)
        if r.error is not None and not r.error <= KERNELS[name].tolerance:
            wrong.append(f"{name}: error {r.error:.1e}")
    return finish(rows, wrong, args.json, size=args.size, threads=args.threads)


def _progress(r: PolyRow) -> str:
    peers = " ".join(f"{p} {t:.4f}" for p, t in r.peers.items())
    ratio = "-" if r.ratio is None else f"{r.ratio:.2f}"
    cost = "" if r.compile_s is None else f"  [{r.compile_s:.1f}+{r.c_compile_s:.1f} s, {r.lines} lines]"
    return f"{r.name:15} ours {r.ours:.4f} {peers}  ratio {ratio}{cost} {r.note}"


if __name__ == "__main__":
    run(main)
