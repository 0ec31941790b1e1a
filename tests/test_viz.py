"""What the pictures hold, against isl: points, arrows, tiles and their waves, orders, footprints, trees, plans. No pixels are compared."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from poly_programs import PROGRAMS, Inst, brute_force, dates_of, pairs_of

import polyopt as po
from polyopt import viz
from polyopt.errors import OutputError, UserError
from polyopt.ir.affine import affine
from polyopt.ir.dtype import f32
from polyopt.ir.graph import Graph, Group, Node, Plan, Value
from polyopt.ir.program import Arg, KernelCall, Program
from polyopt.ir.scop import Scop
from polyopt.lower.loops import lower_to_loops
from polyopt.passes.memory import plan_memory
from polyopt.poly.deps import compute_dependences
from polyopt.verbs import distribute, interchange, parallelize, skew, tile
from polyopt.viz.arena import bytes_in_use, find_regions
from polyopt.viz.figure import KINDS, RED
from polyopt.viz.footprints import find_footprint
from polyopt.viz.graphs import Item, edges
from polyopt.viz.mosaic import outline
from polyopt.viz.place import make_plane
from polyopt.viz.tiling import Tiling, compute_waves, find_tile_maps, make_tiling

M, N, K, T = po.dims("M N K T")


@po.scop
def gemm(A: po.f32[M, K], B: po.f32[K, N], C: po.f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@po.scop
def sweep(A: po.f64[N]):
    for t in range(T):
        for i in range(1, N - 1):
            A[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0


GEMM = po.schedule(gemm).scop
SWEEP = po.schedule(sweep).scop
SKEWED = skew(SWEEP, "i", by="t")


# ---- reading pictures
def artists(fig: Figure, gid: str) -> list:
    return fig.findobj(lambda a: a.get_gid() == gid)


def points(fig: Figure, statement: str) -> set[tuple[float, ...]]:
    return {(x, y) for line in artists(fig, f"points:{statement}") for x, y in line.get_xydata().tolist()}


def arrow_count(fig: Figure, kind: str) -> int:
    found = [a for gid in (kind, f"{kind}:bent") for a in artists(fig, gid)]
    assert all(isinstance(a, LineCollection) for a in found)
    return sum(len(a.get_segments()) for a in found)


# ---- domains
def test_domain_has_the_points_of_the_set() -> None:
    fig = viz.domain(GEMM, params={"M": 3, "N": 4, "K": 5}, axes=["i", "k"])
    assert points(fig, "S1") == {(i, k) for i in range(3) for k in range(5)}
    assert points(fig, "S0") == {(i, -1) for i in range(3)}  # before the loop k
    assert "72 instances" in fig.axes[0].get_title(loc="left") and "j projected away" in fig.axes[0].get_title(loc="left")


def test_domain_in_one_and_three_dimensions_and_as_a_slice() -> None:
    one = viz.domain(SWEEP, params={"T": 2, "N": 9}, axes=["i"])
    assert points(one, "S0") == {(i, 0) for i in range(1, 8)}
    solid = viz.domain(GEMM, "S1", params={"M": 3, "N": 4, "K": 5})
    (cloud,) = artists(solid, "points:S1")
    assert len(cloud._offsets3d[0]) == 60
    part = viz.domain(GEMM, "S1", params={"M": 3, "N": 4, "K": 5}, at={"j": 2})
    assert points(part, "S1") == {(i, k) for i in range(3) for k in range(5)}
    assert "j = 2" in part.axes[0].get_title(loc="left")


def test_statements_that_share_axes_stand_beside_each_other() -> None:
    fig = viz.domain(PROGRAMS["jacobi"][0](), params={"T": 2, "N": 5})
    assert points(fig, "S") == {(t, i) for t in range(2) for i in range(1, 4)}
    assert points(fig, "R") == {(t + 0.34, i) for t in range(2) for i in range(1, 4)}


def test_many_points_draw_within_two_seconds_of_processor_time() -> None:
    start = time.process_time()
    fig = viz.domain(SWEEP, params={"T": 250, "N": 402})
    fig.png()
    assert time.process_time() - start < 2
    assert len(points(fig, "S0")) == 100_000


# ---- dependences
@pytest.mark.parametrize("name", ["seidel", "jacobi", "heat_mod", "lu", "scan", "two_updates"])
def test_arrows_are_the_dependences(name: str) -> None:
    make, params = PROGRAMS[name]
    scop = compute_dependences(make())
    fig = viz.dependences(scop, params=params, direct=False)
    want = brute_force(scop, params)
    axes = [fig.axes[0].get_xlabel(), fig.axes[0].get_ylabel()]
    plane = make_plane(scop, params, None, [a for a in axes if a])

    def place(inst: Inst) -> tuple[float, ...]:
        return tuple(plane.at(inst[0], np.array([inst[1]], np.int64).reshape(1, -1))[0].tolist())

    texts = [t.get_text() for t in fig.axes[0].get_legend().get_texts()]
    for kind in KINDS:
        assert arrow_count(fig, kind) == len({(place(a), place(b)) for a, b in want[kind] if place(a) != place(b)})
        assert (f"{kind}: {len(want[kind])}" in texts) == bool(want[kind])


def test_arrows_start_and_end_at_their_instances_and_have_the_colour_of_their_kind() -> None:
    fig = viz.dependences(SWEEP, "flow", params={"T": 3, "N": 6})
    assert SWEEP.dependences is not None
    want = {(a[1], b[1]) for a, b in pairs_of(SWEEP.dependences.flow, {"T": 3, "N": 6})}
    (arrows,) = artists(fig, "flow")
    got = {(tuple(np.rint(s[0]).astype(int)), tuple(np.rint(s[-1]).astype(int))) for s in arrows.get_segments()}
    assert got == want
    assert tuple(arrows.get_color()[0][:3]) == pytest.approx(to_rgb(KINDS["flow"][0]))
    assert arrow_count(fig, "anti") == 0


def test_reductions_show_their_direct_pairs_and_count_all() -> None:
    fig = viz.dependences(GEMM, "reduction", params={"M": 2, "N": 2, "K": 5})
    assert arrow_count(fig, "reduction") == 2 * 4  # j is projected away
    texts = [t.get_text() for t in fig.axes[0].get_legend().get_texts()]
    assert "reduction: 40, the 16 direct ones drawn" in texts
    assert arrow_count(viz.dependences(GEMM, "reduction", params={"M": 2, "N": 2, "K": 5}, direct=False), "reduction") == 2 * 10


def test_in_the_loops_of_a_skewed_schedule_no_arrow_goes_back() -> None:
    fig = viz.dependences(SKEWED, "flow", params={"T": 4, "N": 8}, space="schedule")
    assert points(fig, "S0") == {(t, t + i) for t in range(4) for i in range(1, 7)}
    (arrows,) = artists(fig, "flow")
    assert all((np.rint(s[-1] - s[0]) >= 0).all() for s in arrows.get_segments())


# ---- tiles
def tiling_of(scop: Scop, params: dict[str, int]) -> Tiling:
    return make_tiling(scop, find_tile_maps(scop, [s.name for s in scop.statements]), params)


def test_tiles_hold_the_instances_that_the_schedule_puts_there() -> None:
    scop = tile(SKEWED, t=4, i=3)
    params = {"T": 9, "N": 12}
    tiling = tiling_of(scop, params)
    want = {(t // 4, (t + i) // 3) for t in range(9) for i in range(1, 11)}
    assert set(tiling.waves) == want and tiling.loops == ("tt", "ti") and tiling.legal
    fig = viz.tiles(scop, params=params)
    drawn = {a.get_gid() for a in fig.findobj(Polygon) if (a.get_gid() or "").startswith("tile:")}
    assert drawn == {f"tile:{a},{b}" for a, b in want}
    assert points(fig, "S0") == {(t, i) for t in range(9) for i in range(1, 11)}


def test_waves_are_the_longest_chains_and_give_the_colours() -> None:
    scop = tile(SKEWED, t=3, i=3)
    params = {"T": 9, "N": 14}
    assert scop.dependences is not None
    where = {("S0", (t, i)): (t // 3, (t + i) // 3) for t in range(9) for i in range(1, 13)}
    needs = {(where[a], where[b]) for a, b in pairs_of(scop.dependences.all(), params)} - {(t, t) for t in where.values()}
    waves: dict[tuple[int, int], int] = {}
    for t in sorted(set(where.values())):  # lexicographic order is legal
        waves[t] = max((waves[a] + 1 for a, b in needs if b == t), default=0)
    tiling = tiling_of(scop, params)
    assert tiling.needs == needs and tiling.waves == waves
    fig = viz.tiles(scop, params=params)
    colours = {t: artists(fig, f"tile:{t[0]},{t[1]}")[0].get_edgecolor() for t in waves}
    for a in waves:
        for b in waves:
            if abs(waves[a] - waves[b]) < 7:
                assert (colours[a] == colours[b]) == (waves[a] == waves[b])


def test_points_have_the_colour_of_their_tile() -> None:
    scop = tile(SKEWED, t=4, i=4)
    fig = viz.tiles(scop, params={"T": 8, "N": 12})
    for line in artists(fig, "points:S0"):
        for t, i in line.get_xydata().astype(int).tolist():
            patch = artists(fig, f"tile:{t // 4},{(t + i) // 4}")[0]
            assert to_rgb(patch.get_edgecolor()) == pytest.approx(to_rgb(line.get_color()))


def test_an_illegal_tiling_is_red_where_tiles_need_each_other() -> None:
    fig = viz.tiles(SWEEP, sizes={"t": 4, "i": 4}, params={"T": 8, "N": 14})
    assert "8 of them need each other in a cycle" in fig.axes[0].get_title(loc="left")
    assert all(to_rgb(p.get_edgecolor()) == to_rgb(RED) for p in fig.findobj(Polygon) if (p.get_gid() or "").startswith("tile:"))
    assert artists(fig, "cycle") and not artists(fig, "needs")


def test_waves_of_a_small_graph_with_a_cycle() -> None:
    t = [(k,) for k in range(6)]
    waves = compute_waves(t, frozenset({(t[0], t[1]), (t[0], t[2]), (t[1], t[2]), (t[3], t[4]), (t[4], t[3]), (t[4], t[5])}))
    assert waves == {t[0]: 0, t[1]: 1, t[2]: 2, t[3]: -1, t[4]: -1, t[5]: -1}


def test_outline_is_around_all_points() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 300):
        p = rng.integers(0, 40, (n, 2)).astype(float)
        hull = outline(p)
        for a, b in pairwise([*hull, hull[0]]):
            side = (b[0] - a[0]) * (p[:, 1] - a[1]) - (b[1] - a[1]) * (p[:, 0] - a[0])
            assert (side > 0).all()


def test_tiles_of_a_contraction_run_in_waves_of_the_reduction() -> None:
    scop = tile(distribute(GEMM, "k"), i=4, j=4, k=4)
    params = {"M": 8, "N": 8, "K": 12}
    tiling = tiling_of(scop, params)
    assert list(tiling.of) == ["S1"]
    assert tiling.waves == {(i, j, k): k for i in range(2) for j in range(2) for k in range(3)}


# ---- order
@pytest.mark.parametrize("scop", [SWEEP, tile(SKEWED, t=3, i=2)], ids=["plain", "tiled"])
def test_the_path_follows_the_dates(scop: Scop) -> None:
    params = {"T": 4, "N": 8}
    fig = viz.order(scop, params=params)
    dates = dates_of(scop.schedule.get_map().intersect_domain(scop.domain()), params)
    want = [inst[1] for inst in sorted(dates, key=lambda x: dates[x])]
    (path,) = artists(fig, "path")
    steps = path.get_segments()
    assert [tuple(s[0].astype(int)) for s in steps] + [tuple(steps[-1][1].astype(int))] == want
    numbers = [t.get_text() for t in fig.axes[0].texts if t.get_text().isdigit()]
    assert numbers == [str(k) for k in range(len(want))]


def test_animation_writes_html_and_gif(tmp_path: Path) -> None:
    text = viz.animation(SWEEP, params={"T": 2, "N": 5})
    assert text.count("frames[") >= 6 and "<script" in text
    film = viz.animation(SWEEP, tmp_path / "a.gif", params={"T": 2, "N": 5})
    assert Path(film).read_bytes()[:6] == b"GIF89a"
    assert Path(viz.animation(SWEEP, tmp_path / "a.html", params={"T": 2, "N": 4})).read_text().count("<script")
    with pytest.raises(UserError, match=r"must end in \.gif or \.html"):
        viz.animation(SWEEP, tmp_path / "a.mp4")
    with pytest.raises(OutputError):
        viz.animation(SWEEP, tmp_path / "no" / "a.gif", params={"T": 1, "N": 4})


# ---- footprints
def test_footprint_is_what_the_tile_touches() -> None:
    scop = tile(SKEWED, t=4, i=8)
    params = {"T": 12, "N": 30}
    found = find_footprint(scop, "A", "ti", params, {"tt": 1, "ti": 2})
    count: dict[int, int] = {}
    for t in range(4, 8):
        for i in range(1, 29):
            if (t + i) // 8 == 2:
                for x in (i - 1, i, i + 1, i):  # three reads, one write
                    count[x] = count.get(x, 0) + 1
    assert {int(e): int(n) for (e,), n in zip(found.elements, found.accesses)} == count
    fig = viz.footprint(scop, "A", "ti", params, {"tt": 1, "ti": 2})
    (cells,) = artists(fig, "footprint")
    assert isinstance(cells, PatchCollection) and len(cells.get_paths()) == len(count)


def test_footprint_of_an_update_counts_its_own_cell_twice() -> None:
    scop = tile(distribute(GEMM, "k"), i=2, j=4, k=3)
    found = find_footprint(scop, "C", "tk", {"M": 4, "N": 4, "K": 6})
    assert len(found.elements) == 8 and set(found.accesses.tolist()) == {6}
    assert found.loops == ("ti", "tj", "tk")
    with pytest.raises(UserError, match="no loop 'tx'; the loops are i, j, k, ti, tj, tk"):
        viz.footprint(scop, "C", "tx")
    with pytest.raises(UserError, match="no tensor 'Q'; the tensors are A, B, C"):
        viz.footprint(scop, "Q", "tk")
    with pytest.raises(UserError, match="ti = 9 does not run; ti goes from 0 to 1"):
        viz.footprint(scop, "C", "tk", {"M": 4, "N": 4, "K": 6}, {"ti": 9})


# ---- trees
def test_tree_names_loops_dates_marks_and_statements() -> None:
    waves = parallelize(interchange(skew(tile(SKEWED, t=4, i=4), "ti", by="tt"), "ti", "tt"), "tt")
    text = [t.get_text() for t in viz.tree(waves).axes[0].texts]
    assert text[2:6] == ["ti: floor((i + t)/4) + floor(t/4)", "tt: floor(t/4)  [parallel]", "t", "i: i + t"]
    assert text[:2] == ["domain", "S0"] and text[6].startswith("S0: A[i] = ")
    whole = viz.tree(GEMM)
    assert [a.get_gid() for a in whole.axes[0].patches] == [
        "domain:domain", "band:i", "sequence:sequence", "statement:S0: C[i, j] = 0.0", "band:k", "statement:S1: C[i, j] += A[i, k] * B[k, j]",
    ]  # fmt: skip


def test_loop_nest_picture_has_every_loop() -> None:
    nest = lower_to_loops(tile(distribute(GEMM, "k"), i=4, j=4, k=4))
    text = [t.get_text() for t in viz.show(nest).axes[0].texts]
    assert sum(t.startswith("for ") for t in text) == 8 and sum(t.startswith(("S0:", "S1:")) for t in text) == 2


# ---- refusals
def test_violation_shows_the_witness() -> None:
    with pytest.raises(po.IllegalSchedule) as raised:
        tile(SWEEP, t=4, i=4)
    w = raised.value.violation
    fig = viz.violation(SWEEP, w)
    (arrow,) = artists(fig, "witness")
    (segment,) = arrow.get_segments()
    assert tuple(np.rint(segment[0])) == w.source[1] and tuple(np.rint(segment[-1])) == w.sink[1]
    assert to_rgb(arrow.get_color()[0]) == pytest.approx(to_rgb(RED))
    assert artists(fig, f"witness:S0{list(w.source[1])}") and artists(fig, f"witness:S0{list(w.sink[1])}")
    words = fig.texts[0].get_text()
    assert "must run before" in words and "Repair: skew" in words
    with pytest.raises(UserError, match="give larger ones"):
        viz.violation(SWEEP, w, params={"T": 1})


# ---- graphs, plans, memory
def small_plan() -> Plan:
    shape = (affine(1), affine(8))
    values = {n: Value(n, f32, shape) for n in "xabcy"}
    ops = (("Relu", ("x",), "a"), ("Exp", ("a",), "b"), ("Neg", ("b",), "c"), ("Add", ("a", "c"), "y"))
    nodes = tuple(Node(f"n{o}", op, ins, (o,)) for op, ins, o in ops)
    graph = Graph("g", ("x",), ("y",), values, {}, nodes)
    groups = (Group("na", nodes[:1], ("x",), ("a",)), Group("nb", nodes[1:3], ("a",), ("c",)), Group("ny", nodes[3:], ("a", "c"), ("y",)))
    return Plan(graph, groups, {})


def test_graph_and_plan_have_a_box_a_node_and_their_edges() -> None:
    plan = small_plan()
    fig = viz.show(plan.graph)
    assert [p.get_gid() for p in fig.axes[0].patches if p.get_gid()] == ["item:Relu", "item:Exp", "item:Neg", "item:Add"]
    fig = viz.show(plan)
    assert [p.get_gid() for p in fig.axes[0].patches if p.get_gid()] == ["item:Relu", "item:Exp + Neg", "item:Add"]
    items = [Item("", "", n.inputs, n.outputs) for n in plan.graph.nodes]
    assert edges(items, 0, 4) == {(0, 1), (1, 2), (2, 3), (0, 3)} and edges(items, 1, 3) == {(1, 2)}
    assert "nodes 1 to 2 of 4" in viz.graph(plan.graph, first=1, count=2).axes[0].get_title(loc="left")


def test_memory_picture_is_the_plan() -> None:
    names = [["a"], ["a", "b"], ["b", "c"], ["c", "d"], ["a", "d"]]
    calls = [KernelCall(f"k{i}", tuple(Arg("arena", n) for n in ns)) for i, ns in enumerate(names)]
    sizes = {"a": ((affine(40),), 4), "b": ((affine(100),), 4), "c": ((affine(10), affine(5)), 4), "d": ((po.dims("L"),), 4)}
    buffers, arena = plan_memory(calls, sizes)
    program = Program("p", (), (), ("L",), (), tuple(calls), buffers, arena, {})
    regions = find_regions(program, {"L": 16})
    assert {(r.name, r.size, r.first, r.last) for r in regions} == {("a", 160, 0, 4), ("b", 400, 1, 2), ("c", 200, 2, 3), ("d", 64, 3, 4)}
    for r in regions:
        for q in regions:
            if r.name < q.name and r.first <= q.last and q.first <= r.last:
                assert r.start + r.size <= q.start or q.start + q.size <= r.start
    used = bytes_in_use(regions, 5)
    assert used == [160, 560, 760, 424, 224]
    fig = viz.show(program, dims={"L": 16})
    (line,) = artists(fig, "in use")
    assert line.get_ydata().tolist() == used  # under 4 KiB the unit is bytes
    (box,) = artists(fig, "buffer:c")
    assert (box.get_x(), box.get_width(), box.get_height()) == (1.5, 2, 200)
    with pytest.raises(UserError, match="has no dim 'Z'; its dims are L"):
        viz.memory(program, {"Z": 1})


# ---- show
def test_show_picks_the_picture_by_the_value() -> None:
    title = lambda x, **o: viz.show(x, **o).axes[0].get_title(loc="left")  # noqa: E731
    assert title(GEMM).startswith("gemm at M = K = N = 6: ")
    assert title(gemm) == title(po.schedule(gemm)) == title(GEMM)
    assert "waves" in title(tile(SKEWED, t=4, i=4))
    assert title(GEMM.domain(), axes=["i", "j"]).startswith("domain of the set")
    assert title(SWEEP.dependences, params={"T": 3, "N": 6}).startswith("dependences at")
    assert po.show(SWEEP, view="order").axes[0].get_title(loc="left").startswith("order of sweep")
    assert po.schedule(sweep).show(view="tree").axes[0].get_title(loc="left") == "schedule tree of sweep"


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (GEMM, {"view": "tilez"}, "no view 'tilez' of a schedule; the views are domain, "),
        (GEMM, {"parms": {}}, "unexpected keyword argument 'parms'; dependences takes kinds, params, axes, at, direct, space"),
        (GEMM, {"kinds": "flaw"}, "no kind of dependence 'flaw'; the kinds are flow, anti, output, reduction"),
        (GEMM, {"view": "tiles"}, "gemm has no tile loops: tile it first, or give sizes="),
        (GEMM, {"view": "domain", "axes": ["x"]}, "no iterator 'x' to draw; the iterators are i, j, k"),
        (GEMM, {"params": {"Q": 3}}, "gemm has no parameter 'Q'; the parameters are M, K, N"),
        (GEMM, {"view": "domain", "statement": "S9"}, "gemm has no statement 'S9'; the statements are S0, S1"),
        (GEMM, {"space": "time"}, "space is 'time'; it must be iterations or schedule"),
        (42, {}, "a int has no picture"),
    ],
)
def test_user_errors_are_one_line(value: object, options: dict, message: str) -> None:
    with pytest.raises(UserError) as raised:
        viz.show(value, **options)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_pictures_save_and_render_the_same_twice(tmp_path: Path) -> None:
    fig = viz.dependences(SWEEP, params={"T": 3, "N": 6})
    assert fig.png()[:8] == b"\x89PNG\r\n\x1a\n"
    assert fig.save(tmp_path / "a.svg").read_text().startswith("<?xml") and fig.save(tmp_path / "a.png").exists()
    assert fig._repr_mimebundle_()["image/png"] == fig.png()
    assert repr(fig) == f"<picture: {fig.axes[0].get_title(loc='left')}>"
    with pytest.raises(UserError, match=r"must end in \.svg, \.png or \.pdf"):
        fig.save(tmp_path / "a.txt")
    with pytest.raises(OutputError):
        fig.save(tmp_path / "no" / "a.png")


def test_values_show_themselves_in_ipython() -> None:
    core = pytest.importorskip("IPython.core.interactiveshell")
    shell = core.InteractiveShell.instance()
    try:
        viz.load_ipython_extension(shell)
        data, _ = shell.display_formatter.format(po.schedule(sweep))
        assert data["image/png"][:4] == b"\x89PNG" and data["text/plain"].startswith("<schedule of sweep")
        data, _ = shell.display_formatter.format(GEMM)
        assert data["text/plain"].startswith("scop gemm[M, K, N]: 2 statements")
    finally:
        core.InteractiveShell.clear_instance()


def test_without_matplotlib_the_error_is_one_line_and_polyopt_does_not_load_viz() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\nimport polyopt as po, polyopt.api\nassert 'polyopt.viz' not in sys.modules\n"
        "try:\n    po.show(1)\nexcept po.UserError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout == "pictures need matplotlib: pip install 'polyopt[notebooks]'\n", done.stderr
