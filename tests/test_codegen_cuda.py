"""Device kernels: the text compiles by nvcc without a warning, launch shapes and refusals are right."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from polyopt.codegen.cuda import emit_device_kernel
from polyopt.errors import ScheduleError, UserError
from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import f16, f32
from polyopt.ir.expr import Access, Binary, Call, Const, Load
from polyopt.ir.loops import Declare, Instance, Loop, LoopNest
from polyopt.ir.tensor import Tensor

I, J, K, BI, BJ, M, N = (var(n) for n in ("i", "j", "k", "bi", "bj", "M", "N"))


def gemm(dtype=f32, scope: str = "registers") -> LoopNest:  # type: ignore[no-untyped-def]
    """16 x 16 tiles, one element a thread, an accumulator in a register, a tanh on the way out."""

    def at(name: str, *idx: object) -> Access:
        return Access(name, tuple(map(affine, idx)))  # type: ignore[arg-type]

    product = Binary("*", Load(at("A", I, K), dtype), Load(at("B", K, J), dtype))
    inner = (
        Declare("acc"),
        Instance("Z", (I, J), at("acc", 0), Const(0.0, dtype)),
        Loop("k", (affine(0),), (affine(64),), (Instance("U", (I, J, K), at("acc", 0), product, "+"),)),
        Instance("W", (I, J), at("C", I, J), Call("tanh", (Load(at("acc", 0), dtype),))),
    )
    body: Loop = Loop("j", (BJ * 16,), (BJ * 16 + 16, N), inner, mark="bind:thread.x")
    body = Loop("i", (BI * 16,), (BI * 16 + 16, M), (body,), mark="bind:thread.y")
    body = Loop("bj", (affine(0),), ((N + 15) // 16,), (body,), mark="bind:block.x")
    body = Loop("bi", (affine(0),), ((M + 15) // 16,), (body,), mark="bind:block.y")
    tensors = (Tensor("A", dtype, (M, affine(64)), "input"), Tensor("B", dtype, (affine(64), N), "input"),
               Tensor("C", dtype, (M, N), "output"), Tensor("acc", dtype, (affine(1),), "local", scope))  # fmt: skip
    return LoopNest("gemm", ("M", "N"), tensors, (), (body,), (("M", (1, 8192)), ("N", (1, 8192))))


def test_launch_shape_covers_partial_tiles() -> None:
    src = emit_device_kernel(gemm())
    assert src.launch is not None and src.dialect == "cuda"
    (gx, gy, gz), block = src.launch
    for n in (1, 15, 16, 17, 100):
        assert [eval(g.replace("/", "//"), {}, {"M": n, "N": 2 * n}) for g in (gx, gy, gz)] == [-(-2 * n // 16), -(-n // 16), 1]
    assert block == ("16", "16", "1")


def test_refusals() -> None:
    with pytest.raises(ScheduleError, match="shared memory"):
        emit_device_kernel(gemm(scope="shared"))
    with pytest.raises(UserError, match="dialect 'metal'"):
        emit_device_kernel(gemm(), dialect="metal")


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_nvcc_compiles_without_a_warning(dtype, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    src = emit_device_kernel(gemm(dtype))
    (tmp_path / "k.cu").write_text(src.text)
    command = ["nvcc", *src.flags, "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin", "-o", str(tmp_path / "k.cubin"), str(tmp_path / "k.cu")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + src.text
    assert "0 bytes spill stores" in done.stderr, done.stderr
