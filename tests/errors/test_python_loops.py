# ruff: noqa: E501  (a program and its message a line)
"""The smallest programs that @scop must refuse, each with its message: one line that says where, what, and what to do."""

import re
from typing import Any

import numpy as np
import pytest

from polyopt.errors import NotAffine
from polyopt.frontends.python_loops import dims, scop, scop_from_source
from polyopt.ir.dtype import f32

M, N = dims("M N")
W = np.zeros(3)
HEAD = "def f(A: f32[N], B: f32[N, N], idx: i32[N], alpha: f32, n: i32):\n    for i in range(N):\n        for j in range(N):\n            "

BODIES = {  # the innermost statement of two loops over N (line 4) -> what is refused
    "A[i * j] = 0.0": "4: `A[i * j]` is written through a subscript that is not affine: `i * j` multiplies two variables",
    "A[i] = A[i * j]": "4: `A[i * j]`: the subscript `i * j` multiplies two variables: subscripts must be affine in loop variables and dims",
    "A[i] = A[j // N]": "4: `A[j // N]`: the subscript `j // N` divides by `N`, which is not a constant",
    "A[i] = A[i / 2]": "4: `A[i / 2]`: the subscript `i / 2` is not affine: use // for whole numbers",
    "A[i] = A[j // 0]": "4: `j // 0`: this divides by zero",
    "A[idx[i]] = 0.0": "4: `A[idx[i]]` is written through a subscript that is not affine: `idx[i]` is read from a tensor; write to an affine place",
    "A[i] = A[A[i]]": "4: `A[A[i]]`: the subscript `A[i]` is f32: use an integer, as in int(A[i])",
    "A[i] = B[i]": "4: `B[i]`: B has 2 dims, and 1 subscript is given",
    "A[i, j] = 0.0": "4: `A[i, j]`: A has 1 dim, and 2 subscripts are given",
    "A[i:j] = 0.0": "4: `A[i:j]` takes a part of the tensor: write the loop over its elements",
    "A[i] = B[i, None]": "4: `B[i, None]` takes a part of the tensor",
    "A[i] = A": "4: `A` is a whole tensor: give its 1 subscript",
    "A = 0.0": "4: `A` cannot be assigned: it is an argument, a tensor or a loop variable; give it its subscripts",
    "i = 2": "4: `i` cannot be assigned",
    "alpha += 1.0": "4: `alpha` cannot be assigned",
    "A[i].x = 0.0": "4: `A[i].x` cannot be assigned: write to a tensor element or a local",
    "A[i] = W[i]": "4: `W` in `W[i]` is not a tensor: make it an argument",
    "W[i] = A[i]": "4: `W` in `W[i]` is not a tensor: make it an argument",
    "A[i] = W": "4: `W` is an array outside the function: make it an argument",
    "A[i] = zz": "4: `zz` is not defined: make it an argument, a dim or a constant outside the function",
    "A[i] = 'x'": "4: `'x'` is a str: only numbers and bools are allowed here",
    "while i < 3:\n                A[i] = 0.0": "4: `while i < 3:`: a while loop has no static trip count: write `for i in range(...)` with affine bounds",
    "break": "4: `break`: break makes the trip count depend on data: guard the statements with an `if` instead",
    "continue": "4: `continue`: continue is not supported: put the rest of the body under an `if`",
    "return A[i]": "4: `return A[i]`: a loop nest returns nothing: write the result into an argument",
    "print(A[i])": "4: `print(A[i])`: an expression alone has no effect: assign it to a tensor element",
    "import os": "4: `import os`: import outside the function",
    "with n: pass": "4: `with n:`: a with block is not supported: keep only the loops",
    "del A": "4: `del A`: del is not supported",
    "assert i > 0": "4: `assert i > 0`: facts about dims stand at the top of the function, outside loops and ifs",
    "t = local(f32[N])": "4: `t = local(f32[N])`: declare local arrays at the top of the function, outside loops and ifs",
    "A[i] = helper(A[i])": "4: `helper(A[i])`: `helper` is not a function that can be compiled: write its body here, or use one of min, max, abs,",
    "A[i] = f(A[i])": "4: `f(A[i])`: recursion is not a loop nest: write the loop",
    "A[i] = A.sum()": "4: `A.sum()`: `A.sum` is not a function that can be compiled",
    "A[i] = (lambda x: x)(A[i])": "4: `(lambda x: x)(A[i])`: `lambda x: x` is not a function that can be compiled",
    "A[i] = [x for x in A]": "4: `[x for x in A]`: a comprehension is not supported in a loop nest",
    "A[i] = min(*A)": "4: `min(*A)`: give plain positional arguments",
    "A[i] = min(A[i])": "4: `min(A[i])`: `min` takes at least 2 arguments, not 1",
    "A[i] = exp(A[i], 2)": "4: `exp(A[i], 2)`: `exp` takes 1 argument, not 2",
    "A[i] = A[i] @ A[j]": "4: `A[i] @ A[j]`: @ works on whole arrays: write the loops",
    "A[i] = 1.0 if A[i] in A else 0.0": "4: `A` is a whole tensor",
    "A[i] = 1.0 if A[i] is 2.0 else 0.0": "4: `A[i] is 2.0`: only < <= > >= == != compare numbers",
    "A[i] = A[i] and B[i, j]": "4: `A[i]` in `A[i] and B[i, j]` is not a bool: compare it, as in A[i] != 0",
    "A[i] = -(A[i] > 0)": "4: `-(A[i] > 0)`: - on a bool is refused",
    "A[i] = (A[i] > 0) + (A[j] > 0)": "4: `(A[i] > 0) + (A[j] > 0)`: + on two bools is refused",
    "A[i] = idx[i] / 2": "4: `idx[i] / 2`: / on i32 tensors is refused: use // or cast to a float dtype first, as in f32(x)",
    "A[i] = idx[i] // 0": "4: `idx[i] // 0`: this divides by zero",
    "A[i] = A[i] << 1": "4: `A[i] << 1`: << needs integers, not f32",
    "A[i] = idx[i] ** -1": "4: `idx[i] ** (-1)`: an integer to a negative power is not an integer",
    "idx[i] += 3000000000": "4: `idx[i] += 3000000000`: 3000000000 does not fit i32",
    "A[i], B[i, j] = B[i, j], A[i]": "4: `A[i], B[i, j] = (B[i, j], A[i])`: `A[i]` reads what is assigned before it: keep it in a local first",
    "A[i] = A[j] = A[i]": "4: `A[i] = A[j] = A[i]`: the value reads what is assigned: assign one name at a time",
    "x: float = 0.0": "4: `x: float = 0.0`: a typed local is written `name: f32 = value`",
    "A[i] = q\n            q = A[j]": "4: `q` is read before it is written at N=1, i=0, j=0: initialise it first",
    "A[i] += q\n            q += 1.0": "4: `q` is read before it is assigned",
    "for i in range(3):\n                A[i] = 0.0": "4: the loop variable `i` is already a loop around it, an argument, a dim or a local: choose another name",
    "for int in range(3):\n                A[i] = 0.0": "4: `int` is a reserved word of C or isl, or not ASCII: choose another name",
    "for k in A:\n                A[k] = 0.0": "4: `for k in A`: loop over range(stop), range(start, stop) or range(start, stop, step)",
    "for k in range(n):\n                A[i] = 0.0": "4: the bound of the loop k is not affine: `n` is a scalar argument, not a loop variable or dim; annotate it `n: int`",
    "for k in range(idx[i]):\n                A[i] = 0.0": "4: the bound of the loop k is not affine: `idx[i]` is read from a tensor",
    "for k in range(i * j):\n                A[i] = 0.0": "4: the bound of the loop k is not affine: `i * j` multiplies two variables",
    "for k in range(0, N, j):\n                A[i] = 0.0": "4: the step `j` must be a constant other than zero",
    "for k in range(0, N, 0):\n                A[i] = 0.0": "4: the step `0` must be a constant other than zero",
    "for k, l in range(3):\n                A[i] = 0.0": "4: `(k, l)`: a loop has one variable",
    "for k in range(3):\n                pass\n            else:\n                A[i] = 0.0": "4: for … else is not supported",
    "A[i + 1] = 0.0": "4: `A[i + 1]` is out of bounds: index 0 is 1 at i=0, j=0 with N=1, and A has 1 there; if the sizes exclude this, state it by `assert …`",
    "A[i] = A[i - 1]": "4: `A[i - 1]` is out of bounds: index 0 is -1 at i=0, j=0 with N=1, and A has 1 there; negative indices do not wrap around here",
    "A[i] = B[j, j] if A[i] > 0 else B[j, j + 1]": "4: `B[j, j + 1]` is out of bounds: index 1 is 1",
}  # fmt: skip

FUNCTIONS = {
    "def f(A):\n    pass": "1: the argument `A` has no type: write `A: f32[M, N]` for a tensor, `A: f32` for a scalar, `A: int` for a size",
    "def f(A: f32[N], *rest):\n    pass": "1: `f`: *args, **kwargs and keyword-only arguments are not supported: list every array and scalar",
    "def f(A: f32[N], x: f32 = 1.0):\n    pass": "1: `f`: default values are not supported: `1.0`",
    "def f(A: f32[Q]):\n    pass": '1: `Q` in `f32[Q]` is not defined: write Q = dims("Q") outside the function',
    "def f(A: foo):\n    pass": "1: the type `foo` of `A` is not defined: write `A: f32[M, N]` for a tensor",
    "def f(A: str):\n    pass": "1: `str` is not a type of an argument",
    "def f(A: f32[N * M]):\n    pass": "1: `f32[N * M]`: the shape is not affine in the dims",
    "def f(A: f32[N, 0.5]):\n    pass": "1: `f32[N, 0.5]`: the size 0.5 is neither a whole number nor made of dims",
    "def f(double: f32[N]):\n    pass": "1: `double` is a reserved word of C or isl",
    "def f(A: f32[N]):\n    'nothing'": "1: `f` has no statement that is ever executed",
    "def f(A: f32[N]):\n    for i in range(M):\n        A[i] = 0.0": "3: `A[i]` is out of bounds: index 0 is 0 at i=0 with N=0, M=1, and A has 0 there",
    "def f(A: f32[4]):\n    for i in range(5):\n        A[i] = 0.0": "3: `A[i]` is out of bounds: index 0 is 4 at i=4, and A has 4 there; shrink the loop or guard the statement by an `if`",
    "def f(A: f32[N]):\n    A[0] = 0.0": "2: `A[0]` is out of bounds: index 0 is 0 with N=0, and A has 0 there",
    "def f(A: f32[4]):\n    t = local(f32[4])\n    A[0] = t[1]": "3: `t[1]` is read before it is written: initialise it first",
    "def f(A: f32[N], B: f32[1]):\n    for i in range(N):\n        last = A[i]\n    B[0] = last": "4: `last` is read before it is written at N=0",
    "def f(A: f32[4]):\n    t = local(f32)\n    A[0] = 0.0": "2: `local(f32)`: give the type, as in local(f32[M, N])",
    "def f(A: f32[N]):\n    assert N >= 3\n    assert N < 2\n    A[0] = 0.0": "1: the asserted facts contradict each other",
    "def f(A: f32[N]):\n    assert A[0] > 0\n    A[0] = 0.0": "2: `assert A[0] > 0`: facts must be affine in the dims: `A[0]` is read from a tensor",
    "def f(A: f32[M]):\n    for N in range(M):\n        A[N] = 0.0\ndef g(): pass": "1: the text must define one function with `def`, it defines 2",
    "def f(A: f32[N, M]):\n    for M in range(N):\n        A[M, 0] = 0.0": "2: the loop variable `M` is already a loop around it, an argument, a dim or a local: choose another name",
    "def f(:": "1: this is not Python: ",
}  # fmt: skip


def refused(text: str, **names: Any) -> str:
    """The message that a text is refused with."""
    with pytest.raises(NotAffine) as e:
        scop_from_source(text, {**globals(), **names}, "k.py").scop  # noqa: B018
    assert "\n" not in str(e.value)
    return str(e.value)


@pytest.mark.parametrize("body", BODIES)
def test_body(body: str) -> None:
    assert refused(HEAD + body + "\n").startswith(f"k.py:{BODIES[body]}")


@pytest.mark.parametrize("text", FUNCTIONS)
def test_function(text: str) -> None:
    assert refused(text).startswith(f"k.py:{FUNCTIONS[text]}")


def test_message_has_file_and_line_of_a_decorated_function() -> None:
    @scop
    def broken(A: f32[N]):
        for i in range(N):
            A[i] = A[i * i]

    line = broken.__wrapped__.__code__.co_firstlineno + 3  # type: ignore[union-attr]
    with pytest.raises(NotAffine, match=rf"{re.escape(__file__)}:{line}: `A\[i \* i\]`: the subscript"):
        broken.scop  # noqa: B018


def test_wrong_annotations_are_refused_at_the_decorator() -> None:
    with pytest.raises(NotAffine, match="the argument `A` has no type"):

        @scop
        def untyped(A):  # type: ignore[no-untyped-def]
            pass


def test_no_source() -> None:
    names: dict[str, Any] = {"f32": f32, "N": N}
    exec("def typed(A: f32[N]):\n    A[0] = 0.0", names)
    with pytest.raises(NotAffine, match=r"<string>:1: the source of 'typed' is not available .* give the text to scop_from_source\(\)"):
        scop(names["typed"])


def test_not_a_function() -> None:
    with pytest.raises(NotAffine, match="a lambda has no loops: write a function with `def`"):
        scop(lambda A: None)
    with pytest.raises(NotAffine, match="decorate a plain Python function, not type 'int'"):
        scop(int)

    async def later(A: f32[N]):  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(NotAffine, match="'later' must be a plain `def` function"):
        scop(later)
