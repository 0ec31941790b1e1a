"""Programs for the tests of polyopt/poly: small Scops built by hand, and a trace of their execution as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import islpy as isl
from build_scop import build

from polyopt.ir.affine import Affine
from polyopt.ir.expr import Access
from polyopt.ir.scop import Scop
from polyopt.isl_ext import IN, OUT, SET, fix_params, maps_of

Inst = tuple[str, tuple[int, ...]]


def band(*members: str) -> str:
    """A band node's text out of members such as "S[i] -> [i]; T[i] -> [i]"."""
    return "[" + ",".join("{" + m + "}" for m in members) + "]"


def gemm() -> Scop:
    return build(
        "gemm",
        {"A": "M,K", "B": "K,N", "C": "M,N"},
        [("I[i,j]: 0<=i<M and 0<=j<N", "C[i,j]=0.0"), ("U[i,j,k]: 0<=i<M and 0<=j<N and 0<=k<K", "C[i,j]+=A[i,k]*B[k,j]")],
        f"""{{schedule: "{band("I[i,j]->[i];U[i,j,k]->[i]", "I[i,j]->[j];U[i,j,k]->[j]")}", child: {{sequence: [
            {{filter: "{{I[i,j]}}"}}, {{filter: "{{U[i,j,k]}}", child: {{schedule: "{band("U[i,j,k]->[k]")}"}}}}]}}}}""",
        "M N K",
        "M>0 and N>0 and K>0",
    )


def conv() -> Scop:
    return build(
        "conv",
        {"X": "2,4,4", "W": "2,2,3,3", "Y": "2,4,4", "Z": "2,4,4"},
        [
            ("I[o,h,w]: 0<=o<2 and 0<=h<4 and 0<=w<4", "Y[o,h,w]=0.0"),
            (
                "U[o,h,w,c,r,s]: 0<=o<2 and 0<=h<4 and 0<=w<4 and 0<=c<2 and 0<=r<3 and 0<=s<3",
                "Y[o,h,w] += (X[c,h+r-1,w+s-1] if 0 <= h+r-1 < 4 and 0 <= w+s-1 < 4 else 0.0)*W[o,c,r,s]",
            ),
            ("E[o,h,w]: 0<=o<2 and 0<=h<4 and 0<=w<4", "Z[o,h,w]=max(Y[o,h,w],0.0)"),
        ],
        f"""{{sequence: [
          {{filter: "{{I[o,h,w]}}", child: {{schedule: "{band("I[o,h,w]->[o]", "I[o,h,w]->[h]", "I[o,h,w]->[w]")}"}}}},
          {{filter: "{{U[o,h,w,c,r,s]}}", child: {{schedule: "{band(*(f"U[o,h,w,c,r,s]->[{x}]" for x in "ohwcrs"))}"}}}},
          {{filter: "{{E[o,h,w]}}", child: {{schedule: "{band("E[o,h,w]->[o]", "E[o,h,w]->[h]", "E[o,h,w]->[w]")}"}}}}]}}""",
    )


def seidel() -> Scop:
    return build(
        "seidel",
        {"A": "N,N"},
        [("S[t,i,j]: 0<=t<T and 1<=i<N-1 and 1<=j<N-1", "A[i,j]=A[i-1,j]+A[i,j-1]+A[i,j]+A[i+1,j]+A[i,j+1]")],
        f'{{schedule: "{band("S[t,i,j]->[t]", "S[t,i,j]->[i]", "S[t,i,j]->[j]")}"}}',
        "T N",
        "N>3 and T>1",
    )


def jacobi() -> Scop:
    return build(
        "jacobi",
        {"A": "N", "B": "N"},
        [("S[t,i]: 0<=t<T and 1<=i<N-1", "B[i]=A[i-1]+A[i]+A[i+1]"), ("R[t,i]: 0<=t<T and 1<=i<N-1", "A[i]=B[i]")],
        f"""{{schedule: "{band("S[t,i]->[t];R[t,i]->[t]")}", child: {{sequence: [
            {{filter: "{{S[t,i]}}", child: {{schedule: "{band("S[t,i]->[i]")}"}}}},
            {{filter: "{{R[t,i]}}", child: {{schedule: "{band("R[t,i]->[i]")}"}}}}]}}}}""",
        "T N",
        "N>3 and T>1",
    )


def heat_mod() -> Scop:
    return build(
        "heat_mod",
        {"A": "2,N"},
        [("S[t,i]: 1<=t<T and 1<=i<N-1", "A[t%2,i]=A[(t-1)%2,i-1]+A[(t-1)%2,i+1]")],
        f'{{schedule: "{band("S[t,i]->[t]", "S[t,i]->[i]")}"}}',
        "T N",
        "N>3 and T>2",
    )


def lu() -> Scop:
    return build(
        "lu",
        {"A": "N,N"},
        [("D[k,i]: 0<=k<N and k<i<N", "A[i,k]=A[i,k]/A[k,k]"), ("U[k,i,j]: 0<=k<N and k<i<N and k<j<N", "A[i,j]+=-A[i,k]*A[k,j]")],
        f"""{{schedule: "{band("D[k,i]->[k];U[k,i,j]->[k]")}", child: {{sequence: [
            {{filter: "{{D[k,i]}}", child: {{schedule: "{band("D[k,i]->[i]")}"}}}},
            {{filter: "{{U[k,i,j]}}", child: {{schedule: "{band("U[k,i,j]->[i]", "U[k,i,j]->[j]")}"}}}}]}}}}""",
        "N",
        "N>1",
    )


def scan() -> Scop:
    return build(
        "scan",
        {"A": "N", "B": "N"},
        [("I[]:", "A[0]=B[0]"), ("S[i]: 1<=i<N", "A[i]=A[i-1]+B[i]")],
        f"""{{sequence: [{{filter: "{{I[]}}"}}, {{filter: "{{S[i]}}", child: {{schedule: "{band("S[i]->[i]")}"}}}}]}}""",
        "N",
        "N>1",
    )


def two_updates() -> Scop:
    return build(
        "two_updates",
        {"A": "N,N", "s": "N", "out": "N,N"},
        [
            ("I[i]: 0<=i<N", "s[i]=0.0"),
            ("U[i,j]: 0<=i<N and 0<=j<N", "s[i]+=A[i,j]"),
            ("V[i,j]: 0<=i<N and 0<=j<i", "s[i]+=A[j,i]"),
            ("R[i,j]: 0<=i<N and 0<=j<N", "out[i,j]=s[j]+A[i,j]"),
        ],
        f"""{{sequence: [{{filter: "{{I[i]}}", child: {{schedule: "{band("I[i]->[i]")}"}}}},
            {{filter: "{{U[i,j];V[i,j]}}", child: {{schedule: "{band("U[i,j]->[i];V[i,j]->[i]", "U[i,j]->[j];V[i,j]->[j]")}", child:
              {{sequence: [{{filter: "{{U[i,j]}}"}}, {{filter: "{{V[i,j]}}"}}]}}}}}},
            {{filter: "{{R[i,j]}}", child: {{schedule: "{band("R[i,j]->[i]", "R[i,j]->[j]")}"}}}}]}}""",
        "N",
        "N>1",
    )


def partial_sums() -> Scop:
    """The sum is read in the middle and restarted: readers and starts separate the updates."""
    return build(
        "partial_sums",
        {"A": "N,N", "s": "1", "out": "N,N"},
        [
            ("I[i]: 0<=i<N", "s[0]=0.0"),
            ("U[i,j]: 0<=i<N and 0<=j<N", "s[0]+=A[i,j]"),
            ("R[i,j]: 0<=i<N and 0<=j<N", "out[i,j]=s[0]"),
        ],
        f"""{{schedule: "{band("I[i]->[i];U[i,j]->[i];R[i,j]->[i]")}", child: {{sequence: [{{filter: "{{I[i]}}"}},
            {{filter: "{{U[i,j];R[i,j]}}", child: {{schedule: "{band("U[i,j]->[j];R[i,j]->[j]")}", child:
              {{sequence: [{{filter: "{{U[i,j]}}"}}, {{filter: "{{R[i,j]}}"}}]}}}}}}]}}}}""",
        "N",
        "N>1",
    )


def gather() -> Scop:
    return build(
        "gather",
        {"X": "inout: N", "idx": "input: 4", "Y": "4"},
        [("P[i]: 0<=i<N", "X[i]=1.0"), ("G[i]: 0<=i<4", "Y[i]=X[idx[i]]"), ("Q[i]: 0<=i<N", "X[i]=2.0")],
        f"""{{sequence: [{{filter: "{{P[i]}}", child: {{schedule: "{band("P[i]->[i]")}"}}}},
            {{filter: "{{G[i]}}", child: {{schedule: "{band("G[i]->[i]")}"}}}},
            {{filter: "{{Q[i]}}", child: {{schedule: "{band("Q[i]->[i]")}"}}}}]}}""",
        "N",
        "N>1",
    )


def scatter() -> Scop:
    return build(
        "scatter",
        {"X": "N", "idx": "input: 4", "Y": "4", "Z": "N"},
        [
            ("P[i]: 0<=i<N", "X[i]=1.0"),
            ("S[i]: 0<=i<4", "X[idx[i]]=Y[i]"),
            ("A[i]: 0<=i<4", "X[idx[i]]+=Y[i]"),
            ("R[i]: 0<=i<N", "Z[i]=X[i]"),
        ],
        f"""{{sequence: [{{filter: "{{P[i]}}", child: {{schedule: "{band("P[i]->[i]")}"}}}},
            {{filter: "{{S[i]}}", child: {{schedule: "{band("S[i]->[i]")}"}}}},
            {{filter: "{{A[i]}}", child: {{schedule: "{band("A[i]->[i]")}"}}}},
            {{filter: "{{R[i]}}", child: {{schedule: "{band("R[i]->[i]")}"}}}}]}}""",
        "N",
        "N>1",
    )


def blocked() -> Scop:
    return build(
        "blocked",
        {"X": "N", "Y": "N//4+1,4", "Z": "N"},
        [("P[i]: 0<=i<N", "Y[i//4,i%4]=X[i]"), ("Q[i]: 1<=i<N", "Z[i]=Y[(i-1)//4,(i-1)%4]+Y[i//4,i%4]")],
        f"""{{schedule: "{band("P[i]->[i];Q[i]->[i]")}", child: {{sequence: [{{filter: "{{P[i]}}"}}, {{filter: "{{Q[i]}}"}}]}}}}""",
        "N",
        "N>1",
    )


def reversal() -> Scop:
    return build(
        "reversal",
        {"A": "N", "B": "N"},
        [("S[i]: 0<=i<N", "A[N-1-i]=A[i]"), ("T[i]: 0<=2*i<N", "B[2*i]=A[i]")],
        f"""{{sequence: [{{filter: "{{S[i]}}", child: {{schedule: "{band("S[i]->[i]")}"}}}},
            {{filter: "{{T[i]}}", child: {{schedule: "{band("T[i]->[-i]")}"}}}}]}}""",
        "N",
        "N>1",
    )


PROGRAMS: dict[str, tuple[Callable[[], Scop], dict[str, int]]] = {
    "gemm": (gemm, {"M": 3, "N": 2, "K": 3}),
    "conv": (conv, {}),
    "seidel": (seidel, {"T": 3, "N": 5}),
    "jacobi": (jacobi, {"T": 3, "N": 6}),
    "heat_mod": (heat_mod, {"T": 5, "N": 6}),
    "lu": (lu, {"N": 5}),
    "scan": (scan, {"N": 6}),
    "two_updates": (two_updates, {"N": 4}),
    "partial_sums": (partial_sums, {"N": 3}),
    "gather": (gather, {"N": 5}),
    "scatter": (scatter, {"N": 3}),
    "blocked": (blocked, {"N": 11}),
    "reversal": (reversal, {"N": 7}),
}


# ---- the oracle
def pairs_of(u: isl.UnionMap, params: Mapping[str, int]) -> set[tuple[Inst, Inst]]:
    """All pairs of a union map at given parameters."""
    out: set[tuple[Inst, Inst]] = set()
    for m in maps_of(fix_params(u, params)):
        n, names = m.dim(IN), (m.get_tuple_name(IN) or "", m.get_tuple_name(OUT) or "")

        def note(p: isl.Point, n: int = n, names: tuple[str, str] = names) -> None:
            x = tuple(p.get_coordinate_val(SET, i).to_python() for i in range(p.get_space().dim(SET)))
            out.add(((names[0], x[:n]), (names[1], x[n:])))

        m.project_out_all_params().wrap().foreach_point(note)
    return out


def dates_of(order: isl.UnionMap, params: Mapping[str, int]) -> dict[Inst, tuple[int, ...]]:
    """The date of every instance at given parameters."""
    return {inst: date[1] for inst, date in pairs_of(order, params)}


def cells_of(scop: Scop, access: Access, values: Mapping[str, int], params: Mapping[str, int]) -> list[tuple[str, tuple[int, ...]]]:
    """The elements that an access may touch at one instance (those outside the tensor left out)."""
    shape = [n.evaluate(params) for n in scop.tensor(access.tensor).shape]
    ranges = [[x.evaluate({**params, **values})] if isinstance(x, Affine) else range(n) for x, n in zip(access.indices, shape)]
    return [(access.tensor, idx) for idx in product(*ranges)]


def trace(scop: Scop, params: Mapping[str, int]) -> list[tuple[Inst, list, list, str]]:
    """The execution: (instance, cells read by loads, cells written, how) in order; how is must, may, or update."""
    dates = dates_of(scop.schedule.get_map().intersect_domain(scop.domain()), params)
    out = []
    for inst in sorted(dates, key=lambda x: dates[x]):
        s = scop.statement(inst[0])
        values = dict(zip(s.iters, inst[1]))
        loads = [c for a in s.reads() for c in cells_of(scop, a, values, params)]
        how = "update" if s.reduction else "must" if s.write.is_affine else "may"
        out.append((inst, loads, cells_of(scop, s.write, values, params), how))
    return out


def brute_force(scop: Scop, params: Mapping[str, int]) -> dict[str, set[tuple[Inst, Inst]]]:
    """The dependences by their definition: see the docstring of polyopt/poly/deps.py."""
    deps: dict[str, set[tuple[Inst, Inst]]] = {"flow": set(), "anti": set(), "output": set(), "reduction": set()}
    operator = {s.name: s.reduction for s in scop.statements}
    last: dict = {}  # cell -> the last sure write
    soft: dict = {}  # cell -> updates and may writes since
    readers: dict = {}  # cell -> loads since the last sure write

    def writers(cell: object) -> list[tuple[Inst, str]]:
        return ([(last[cell], "must")] if cell in last else []) + soft.get(cell, [])

    for inst, loads, written, how in trace(scop, params):
        for c in loads:
            deps["flow"] |= {(w, inst) for w, _ in writers(c)}
        for c in written:
            if how == "update":
                for w, kind in writers(c):
                    same = kind == "update" and operator[w[0]] == operator[inst[0]]
                    deps["reduction" if same else "flow"].add((w, inst))
            else:
                deps["output"] |= {(w, inst) for w, _ in writers(c)}
            deps["anti"] |= {(r, inst) for r in readers.get(c, [])}
        for c in loads:
            readers.setdefault(c, []).append(inst)
        for c in written:
            if how == "must":
                last[c], soft[c] = inst, []
                readers[c] = [r for r in readers.get(c, []) if r == inst]  # isl: a write hides no read of its own instance
            else:
                soft.setdefault(c, []).append((inst, how))
    return {k: {(a, b) for a, b in v if a != b} for k, v in deps.items()}
