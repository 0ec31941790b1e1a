"""`@scop`: loop nests in plain Python. Takes a function whose arguments are annotated with tensor types; gives a `ScopFunction`: the
`Scop` (built on first use) and the original body as the reference.

    M, N, K = dims("M N K")

    @scop
    def gemm(alpha: f32, A: f32[M, K], B: f32[K, N], C: f32[M, N]):
        for i in range(M):
            for j in range(N):
                for k in range(K):
                    C[i, j] += alpha * A[i, k] * B[k, j]

Annotations: `f32[M, K]` is a tensor, `f32` a scalar, `int` a size that is passed as an argument (a parameter of the Scop). Dims are
at least 0; `assert N >= 1` at the top of the function states more, and is checked when the reference runs. What the body may hold
is described in `nest`, `values` and `typing_rules`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from polyopt.errors import ArgumentError, NotAffine
from polyopt.ir import dtype as dtypes
from polyopt.ir.affine import Affine, affine, dims
from polyopt.ir.dtype import DType, TensorType, f64
from polyopt.ir.scop import Scop
from polyopt.ir.tensor import ScalarArg, Tensor
from polyopt.isl_ext import fix_params

from .assignments import declared, local, zeros
from .intrinsics import numpy_dtype
from .nest import translate_body
from .pysource import MISSING, PySource, quote, source_of, source_of_text
from .reference import Reference, bind_dims
from .scope import Scope
from .to_isl import build_scop
from .tree import Loop, Node, Raw
from .webs import compute_webs

__all__ = ["ScopFunction", "dims", "local", "scop", "scop_from_source", "zeros"]

_ISL_WORDS = "exists and or implies not infty NaN min max rat true false ceil floor ceild floord mod"
_C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long main register restrict "
    "return scratch short signed sizeof static struct switch typedef union unsigned void volatile while"
)
RESERVED = frozenset(f"{_ISL_WORDS} {_C_WORDS}".split())


class ScopFunction:
    """A loop nest. `scop` is its polyhedral form, `reference(*args, **dims)` runs the original body in place on NumPy arrays."""

    def __init__(self, src: PySource, fn: Callable[..., Any] | None = None) -> None:
        self._src = src
        self.__name__ = src.name
        self.__doc__ = src.doc
        self.__wrapped__ = fn

    def __repr__(self) -> str:
        return f"<scop {self.__name__} from {self._src.where(self._src.tree)}>"

    @cached_property
    def scop(self) -> Scop:
        """The polyhedral form: domains, accesses, initial schedule. Raises NotAffine where the nest has none."""
        return build(self._src)

    @cached_property
    def signature(self) -> tuple[tuple[str, TensorType | DType | None], ...]:
        """The arguments in order: a tensor type, the dtype of a scalar, or None for a size."""
        return read_signature(self._src)

    def specialize(self, **sizes: int) -> ScopFunction:
        """The nest with some dims and size arguments bound to numbers: `gemm.specialize(M=64)`. A bound size is no argument any more.

        Raises ArgumentError for a name that is no dim of the nest, or a size that is no whole number of at least 0.
        """
        names = [n for n, kind in self.signature if kind is None]
        known = {*names, *self.scop.params}
        for k, v in sizes.items():
            if k not in known:
                raise ArgumentError(f"{self.__name__} has no dim {k}; its dims are {', '.join(sorted(known)) or 'none'}")
            if isinstance(v, bool) or not isinstance(v, int | np.integer) or v < 0:
                raise ArgumentError(f"{self.__name__}: the size of {k} is {v!r}: give a whole number of at least 0")
        if fix_params(self.scop.context, {k: int(v) for k, v in sizes.items() if k in self.scop.params}).is_empty():
            text = ", ".join(f"{k}={v}" for k, v in sizes.items())
            raise ArgumentError(f"{self.__name__}: the sizes {text} contradict the facts that the function asserts: {self.scop.context}")
        return ScopFunction(self._src.bind({k: int(v) for k, v in sizes.items()}), self.__wrapped__)

    @cached_property
    def _reference(self) -> Reference:
        return Reference(self._src)

    def reference(self, *args: Any, **sizes: int) -> None:
        """Run the original body as plain Python, in place. Dims that occur in no shape are given by keyword."""
        name = self.__name__
        if len(args) != len(self.signature):
            raise ArgumentError(f"{name} takes {len(self.signature)} arguments ({', '.join(n for n, _ in self.signature)}), not {len(args)}")
        values: list[Any] = []
        tensors: list[Tensor] = []
        params = {k: int(v) for k, v in sizes.items()}
        for (arg, kind), value in zip(self.signature, args):
            if kind is None:
                if isinstance(value, bool) or not isinstance(value, int | np.integer):
                    raise ArgumentError(f"{name}: argument {arg} is a size: give a whole number, not {value!r}")
                params[arg] = int(value)
                values.append(int(value))
            elif isinstance(kind, DType):
                values.append(np.asarray(value).astype(numpy_dtype(kind))[()])
            else:
                values.append(_checked_array(name, arg, kind, value))
                tensors.append(Tensor(arg, kind.dtype, tuple(affine(x) for x in kind.shape)))
        params = bind_dims(name, tensors, [v for v in values if isinstance(v, np.ndarray)], params)
        self._check_context(params)
        self._reference.run(values, params)

    __call__ = reference

    def _check_context(self, params: Mapping[str, int]) -> None:
        try:
            self.scop  # noqa: B018
        except NotAffine:
            if self._src.sizes:  # the nest without them has a Scop: at these sizes nothing runs
                return
            raise
        known = {k: v for k, v in params.items() if k in self.scop.params}
        missing = [p for p in self.scop.params if p not in known]
        if missing:
            raise ArgumentError(f"{self.__name__}: the dim {missing[0]} is in no array's shape: give it as a keyword, {missing[0]}=…")
        if fix_params(self.scop.context, known).is_empty():
            text = ", ".join(f"{k}={v}" for k, v in known.items())
            raise ArgumentError(f"{self.__name__}: the sizes {text} contradict the facts that the function asserts: {self.scop.context}")


def _checked_array(name: str, arg: str, kind: TensorType, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise ArgumentError(f"{name}: argument {arg} must be a NumPy array, not {type(value).__name__}")
    if value.dtype != numpy_dtype(kind.dtype):
        raise ArgumentError(f"{name}: argument {arg} has dtype {value.dtype}, {kind.dtype} is declared")
    return value


def scop(fn: Callable[..., Any]) -> ScopFunction:
    """Decorator: a Python function of plain loops as a `ScopFunction`. Raises NotAffine (file, line, term) for what is outside.

    Subscripts are affine in loop variables and dims, and proven in bounds; those of a read may also hold data, as in `A[I[k]]`. Such an index
    reads as in Python, a negative one from the end; beyond the ends a kernel reads the nearest element (0 of a tensor without elements), never
    memory outside, where `reference` raises Python's IndexError.
    """
    frame = sys._getframe(1)
    made = ScopFunction(source_of(fn, frame.f_locals if frame.f_locals is not frame.f_globals else None), fn)
    made.signature  # noqa: B018  (wrong annotations are reported where they are written)
    return made


def scop_from_source(text: str, names: Mapping[str, Any] | None = None, filename: str = "<text>") -> ScopFunction:
    """The one function that a text defines. `names` are its globals; the dtypes, `local`, `zeros` and `dims` are known anyway."""
    known: dict[str, Any] = {t.name: t for t in dtypes.ALL}
    known |= {"local": local, "zeros": zeros, "dims": dims, "scop": scop}
    return ScopFunction(source_of_text(text, {**known, **(names or {})}, filename))


# ---- from source to Scop
def read_signature(src: PySource) -> tuple[tuple[str, TensorType | DType | None], ...]:
    """The arguments with their kinds; raises NotAffine for annotations that mean nothing here."""
    a = src.tree.args
    if a.vararg or a.kwarg or a.kwonlyargs:
        raise src.refuse(src.tree, f"`{src.name}`: *args, **kwargs and keyword-only arguments are not supported: list every array and scalar")
    if a.defaults:
        raise src.refuse(a.defaults[0], f"`{src.name}`: default values are not supported: {quote(a.defaults[0])}")
    return tuple((x.arg, _kind(src, x)) for x in [*a.posonlyargs, *a.args])


def _kind(src: PySource, arg: ast.arg) -> TensorType | DType | None:
    example = f"`{arg.arg}: f32[M, N]` for a tensor, `{arg.arg}: f32` for a scalar, `{arg.arg}: int` for a size"
    if arg.annotation is None:
        raise src.refuse(arg, f"the argument `{arg.arg}` has no type: write {example}")
    if arg.arg in RESERVED or not arg.arg.isascii():
        raise src.refuse(arg, f"`{arg.arg}` is a reserved word of C or isl, or not ASCII: choose another name")
    free = replace(src, bound=frozenset())  # annotations see outer names only
    node: ast.expr = arg.annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    found = free.resolve(node) if not isinstance(node, ast.Subscript) else _tensor_type(free, arg, node)
    if found is int:
        return None
    if found is float:
        return f64
    if isinstance(found, TensorType):
        found = replace(found, shape=tuple(map(src.at_sizes, found.shape)))
        for x in found.shape:
            if not isinstance(x, int | Affine) or (isinstance(x, int) and x < 0):
                raise src.refuse(arg, f"{quote(arg.annotation)}: the size {x!r} is neither a whole number nor made of dims")
        return found
    if isinstance(found, DType):
        return found
    if found is MISSING:
        raise src.refuse(arg, f"the type {quote(arg.annotation)} of `{arg.arg}` is not defined: write {example}")
    raise src.refuse(arg, f"{quote(arg.annotation)} is not a type of an argument: write {example}")


def _tensor_type(src: PySource, arg: ast.arg, node: ast.Subscript) -> Any:
    base = src.resolve(node.value)
    if not isinstance(base, DType):
        raise src.refuse(arg, f"{quote(node)}: {quote(node.value)} is not a dtype such as f32, f64, i32")
    names = {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
    sizes = {x.arg for x in [*src.tree.args.posonlyargs, *src.tree.args.args] if isinstance(x.annotation, ast.Name) and x.annotation.id == "int"}
    known = {n: affine(n) if n in sizes else src.names.get(n, MISSING) for n in names}
    unknown = sorted(n for n, v in known.items() if v is MISSING)
    if unknown:
        raise src.refuse(arg, f'`{unknown[0]}` in {quote(node)} is not defined: write {unknown[0]} = dims("{unknown[0]}") outside the function')
    try:
        shape = eval(compile(ast.Expression(node.slice), src.filename, "eval"), {"__builtins__": {}}, known)
    except Exception as e:
        raise src.refuse(arg, f"{quote(node)}: the shape is not affine in the dims: {e}") from None
    return base[shape]


def build(src: PySource) -> Scop:
    """The Scop of a function's source."""
    signature = read_signature(src)
    scope = Scope(src, tuple(n for n, _ in signature))
    for name, kind in signature:
        if kind is None:
            scope.params.setdefault(name)
        elif isinstance(kind, DType):
            scope.scalars[name] = kind
        else:
            shape = tuple(scope.use_dims(affine(x)) for x in kind.shape)
            scope.tensors[name] = Tensor(name, kind.dtype, shape, "inout")
    _check_names(src)
    iters = {n.target.id for n in ast.walk(src.tree) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}
    arrays = declared(src, src.tree.body)
    locals_ = src.bound - iters - arrays - set(scope.arguments)
    scope.webs = compute_webs(src.tree.body, frozenset(locals_), {*scope.arguments, *arrays, *iters, *scope.params})
    blocks, facts = translate_body(scope, src.tree.body)
    tensors = dict(scope.tensors)
    for web in scope.webs.of.values():
        if web.name in scope.types and web.name not in scope.aliases:
            tensors[web.name] = Tensor(web.name, scope.types[web.name].dtype, ())
    inner = {*iters, *tensors, *(x for r in _raws(blocks) for x in r.iters)}
    clash = sorted(inner & set(scope.params))
    if clash:
        raise src.refuse(src.tree, f"`{clash[0]}` is both a dim and a loop variable or tensor of `{src.name}`: choose another name")
    scalars = tuple(ScalarArg(n, t) for n, t in scope.scalars.items())
    return build_scop(src, tuple(scope.params), tensors, scalars, blocks, facts, scope.arguments)


def _raws(blocks: tuple[Node, ...]) -> Iterator[Raw]:
    for n in blocks:
        if isinstance(n, Loop):
            yield from _raws(n.body)
        else:
            yield n


def _check_names(src: PySource) -> None:
    for n in ast.walk(src.tree):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and (n.id in RESERVED or not n.id.isascii()):
            raise src.refuse(n, f"`{n.id}` is a reserved word of C or isl, or not ASCII: choose another name")
