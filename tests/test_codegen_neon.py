"""The NEON table: the cases of test_codegen.py, cross-compiled and run under qemu."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import test_codegen as cases

from polyopt.ir.dtype import f16, f32, f64, i64, u8

pytestmark = pytest.mark.qemu
CASES: list[tuple[Callable[..., None], tuple[object, ...]]] = [
    (cases.test_axpy_with_tails, (16,)), (cases.test_axpy_with_tails, (12,)), (cases.test_masked_copy_of_every_dtype_touches_nothing_else, ()),
    (cases.test_gemm_micro_kernel, (f32, 16, True)), (cases.test_gemm_micro_kernel, (f64, 16, False)),
    (cases.test_parametric_gemm_with_min_bounds, (40,)), (cases.test_reduction_over_lanes, (f32,)), (cases.test_reduction_over_lanes, (u8,)),
    (cases.test_reduction_over_lanes, (i64,)), (cases.test_row_reductions_read_between_strips, ()), (cases.test_scatter, ()),
    (cases.test_pooling_with_private_accumulator_and_padding, ()), (cases.test_compare_select_and_bool, (f32,)),
    (cases.test_compare_select_and_bool, (f16,)), (cases.test_integer_operators_wrap_and_floor, ("i32",)), (cases.test_casts, ("f32",)),
    (cases.test_casts, ("bool_",)), (cases.test_mixed_dtypes_in_one_loop, ()), (cases.test_float_operators_and_nan, ()),
    (cases.test_all_intrinsics, (f32, True)), (cases.test_select_on_lanes_reads_only_where_chosen, ()),
    (cases.test_packing_into_scratch_constant_and_parametric, ()),
]  # fmt: skip


@pytest.mark.parametrize("case, args", CASES, ids=lambda x: getattr(x, "__name__", None))
def test_neon(case: Callable[..., None], args: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "UNDER_TEST", ["neon"])
    case(*args)
