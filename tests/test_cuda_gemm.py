"""One LoopNest, two dialects: a gemm mapped to blocks and threads by verbs becomes CUDA C that nvcc takes without a warning."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_verbs import check_gemm, gemm

from polyopt.codegen.cuda import emit_device_kernel
from polyopt.errors import IllegalSchedule
from polyopt.ir.scop import Scop
from polyopt.lower.loops import lower_to_loops
from polyopt.verbs import bind, distribute, interchange, promote, tile


def mapped(m: int, n: int, k: int) -> Scop:
    """Blocks of 16 × 16 threads, one result each, accumulated in a register."""
    s = tile(gemm(m, n, k), i=16, j=16)
    for loop, axis in (("ti", "block.y"), ("tj", "block.x"), ("i", "thread.y"), ("j", "thread.x")):
        s = bind(s, loop, axis)
    return promote(s, "C", at="j", scope="registers")


def test_the_mapped_nest_computes_the_same() -> None:
    check_gemm(mapped(20, 35, 6), 20, 35, 6)


def test_a_reduction_is_not_mapped_to_threads() -> None:
    s = interchange(distribute(gemm(8, 8, 8), "k"), "k", "i", "j")
    with pytest.raises(IllegalSchedule):
        bind(s, "k", "thread.x")


@pytest.mark.nvcc
@pytest.mark.parametrize("size", [(64, 64, 32), (70, 33, 9)])
def test_nvcc_takes_it(size: tuple[int, int, int], tmp_path: Path) -> None:
    source = emit_device_kernel(lower_to_loops(mapped(*size)), "cuda", "sm_90")
    file = tmp_path / "gemm.cu"
    file.write_text(source.text)
    nvcc = shutil.which("nvcc")
    assert nvcc is not None
    command = [nvcc, "-arch=sm_90", "-Werror", "all-warnings", "-Xptxas", "-v,-warn-spills", "-cubin", "-o", str(tmp_path / "gemm.cubin"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr and source.launch is not None
