"""The model's one C entry point: contexts, memory plan, the calls in order.

Takes a `Program` (and the digest of its weights file); gives the text of NAME.c, and the C wrapper of a single kernel. The file is built without
ISA flags, since it asks the CPU before any kernel runs. Sizes of symbolic programs are computed with overflow checks when dims change.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyopt.errors import InternalError
from polyopt.ir.affine import Affine
from polyopt.ir.program import Buffer, KernelCall, Program
from polyopt.ir.source import Source

from .ctext import CHECKED, checked, cpu_check, cpu_features, literal, param_identifiers, pointer_type, prototype, string
from .entry_text import CONTEXT, CREATE, INCLUDES, KERNEL_WRAPPER, RUN, WEIGHTS
from .header import emit_metadata, prefix_of
from .weights import HEADER_BYTES, layout_constants, used_constants


def emit_entry(program: Program, digest: bytes = b"") -> str:
    """The text of NAME.c. `digest`: the sha256 in the header of the weights file (empty: not compared)."""
    check_program(program)
    plan = _Plan.of(program)
    features: set[str] = set()
    for kernel in program.kernels:
        features |= cpu_features(kernel.isa, kernel.flags)
    constants = used_constants(program)
    offsets, total = layout_constants(program)
    weights = WEIGHTS if constants else ""
    marks = {
        "@OFFSETS@": ", ".join(str(offsets[c]) for c in constants),
        "@TOTAL@": str(total),
        "@HEADER@": str(HEADER_BYTES),
        "@DIGEST@": ", ".join(f"0x{b:02x}" for b in digest) or "0",
        "@DIGEST_BYTES@": str(len(digest)),
        "@NCONST@": str(len(constants)),
        "@NDIMS@": str(len(program.dims)),
        "@NBUFFERS@": str(len(program.buffers)),
        "@NPARAMS@": str(len(plan.params)),
        "@NIN@": str(len(program.inputs)),
        "@NOUT@": str(len(program.outputs)),
        "@THREADS@": str(program.threads),
        "@NAME@": string(program.name)[1:-1].replace("%", "%%"),
        "@MAP@": "map_weights(context, weights_path)" if constants else "0",
        "@P@": prefix_of(program),
    }
    parts = [
        INCLUDES,
        "\n".join(prototype(k) for k in program.kernels) + "\n",
        CHECKED if plan.symbolic else "",
        "".join(scratch_function(k) for k in program.kernels if isinstance(k.scratch_bytes, str)),
        cpu_check(features),
        emit_metadata(program),
        CONTEXT,
        weights,
        plan.emit(),
        CREATE,
        RUN.replace("@CALLS@", _emit_calls(program, plan)),
    ]
    text = "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


# ---- what the contract promises
def check_program(program: Program) -> None:
    """Raise InternalError where the program breaks its contract (an unknown kernel, a wrong number of arguments, a buffer out of the arena)."""
    kernels = {k.entry: k for k in program.kernels}
    if len(kernels) != len(program.kernels):
        raise InternalError(f"program {program.name}: two kernels have one entry name")
    ports = {"input": {p.name for p in program.inputs}, "output": {p.name for p in program.outputs}}
    known = {**ports, "constant": set(program.constants), "arena": {b.name for b in program.buffers}}
    for call in program.calls:
        kernel = kernels.get(call.entry)
        if kernel is None:
            raise InternalError(f"program {program.name}: call of {call.entry}, which is no kernel")
        if len(call.args) != len(kernel.tensors) or len(call.params) != len(kernel.params) or kernel.scalars:
            raise InternalError(f"program {program.name}: call of {call.entry} does not fit the kernel's arguments")
        for arg, tensor in zip(call.args, kernel.tensors):
            if arg.name not in known.get(arg.kind, ()):
                raise InternalError(f"program {program.name}: call of {call.entry}: there is no {arg.kind} {arg.name!r}")
            if arg.kind in ("input", "constant") and tensor.role not in ("input", "constant"):
                raise InternalError(f"program {program.name}: call of {call.entry} writes the {arg.kind} {arg.name!r}")
    for buffer in program.buffers:
        if buffer.slot < 0:
            if any(not e.is_const for e in buffer.elements):
                raise InternalError(f"program {program.name}: buffer {buffer.name} has symbolic size and no slot")
            if buffer.offset + buffer_bytes(buffer) > program.arena_bytes:
                raise InternalError(f"program {program.name}: buffer {buffer.name} ends after the arena")


def buffer_bytes(buffer: Buffer) -> int:
    """The bytes of a buffer of constant size."""
    total = buffer.itemsize
    for e in buffer.elements:
        total *= int(e)
    return total


# ---- memory and parameters that depend on dims
@dataclass(frozen=True)
class _Plan:
    program: Program
    kernels: dict[str, Source]
    params: dict[Affine, int]  # the distinct values that depend on dims
    places: dict[tuple[str, str], str]  # the address of what an `Arg` names

    @staticmethod
    def of(program: Program) -> _Plan:
        params: dict[Affine, int] = {}
        for call in program.calls:
            for p in call.params:
                if not p.is_const:
                    params.setdefault(p, len(params))
        places = {("constant", c): f"context->constants[{i}]" for i, c in enumerate(used_constants(program))}
        places |= {("input", p.name): f"inputs[{i}]" for i, p in enumerate(program.inputs)}
        places |= {("output", p.name): f"outputs[{i}]" for i, p in enumerate(program.outputs)}
        for i, b in enumerate(program.buffers):
            places["arena", b.name] = f"(context->arena + {b.offset})" if b.slot < 0 else f"context->at[{i}]"
        return _Plan(program, {k.entry: k for k in program.kernels}, params, places)

    @property
    def symbolic(self) -> bool:
        """Whether anything is computed when dims are given."""
        return bool(self.program.dims or any(b.slot >= 0 for b in self.program.buffers) or self._scratch_expressions())

    def param(self, expr: Affine) -> str:
        """A kernel parameter's value at run time."""
        return literal(int(expr)) if expr.is_const else f"context->params[{self.params[expr]}]"

    def emit(self) -> str:
        """The C function `plan`: params, buffer places and scratch for the dims, then an arena that is large enough."""
        program = self.program
        names = {d: f"dims[{i}]" for i, d in enumerate(program.dims)}
        lines = [f"  if (dims[{i}] < 1) return fail(context, 1, \"dim %s is %\" PRId64 \", expected 1 or more\", dim_names[{i}], dims[{i}]);"
                 for i in range(len(program.dims))]  # fmt: skip
        for expr, i in self.params.items():
            lines.append(f"  context->params[{i}] = {checked(expr, names.__getitem__)};")
        head = _round(program.arena_bytes) if any(b.slot < 0 for b in program.buffers) else 0
        slots = sorted({b.slot for b in program.buffers if b.slot >= 0})
        if slots:
            lines.append(f"  int64_t slot[{len(slots)}] = {{0}};")
        for buffer in program.buffers:
            if buffer.slot >= 0:
                lines.append(f"  grow(&slot[{slots.index(buffer.slot)}], {_bytes(buffer, names)});")
        lines.append(f"  int64_t total = {literal(head)};")
        for j, slot in enumerate(slots):
            for i, buffer in enumerate(program.buffers):
                if buffer.slot == slot:
                    lines.append(f"  place[{i}] = add(total, {buffer.offset}, &bad);")
            lines.append(f"  total = add(total, round_up(slot[{j}], &bad), &bad);")
        lines.append(f"  int64_t scratch = {literal(self._fixed_scratch())};")
        lines += [f"  grow(&scratch, size({text}, &bad));" for text in self._scratch_expressions()]
        arrays = f"  int64_t place[{len(program.buffers)}] = {{0}};\n" if slots else ""
        places = "".join(f"  context->at[{i}] = context->arena + place[{i}];\n" for i, b in enumerate(program.buffers) if b.slot >= 0)
        # fresh memory is zero; a slot that moved with the dims is not
        places += "".join(
            f"  memset(context->at[{i}], 0, (size_t)({_bytes(b, names)}));\n" for i, b in enumerate(program.buffers) if b.slot >= 0 and b.zero
        )
        bad = '  if (bad) return fail(context, 1, "the sizes that these dims lead to are negative or do not fit in 64 bits");\n'
        symbolic = self.symbolic
        body = "\n".join(lines)
        return (
            (_GROW if symbolic else "")
            + f"static int plan(@P@_context *context, const int64_t *dims) {{\n  {'int bad = 0;' if symbolic else '(void)dims;'}\n{arrays}{body}\n"
            + (bad if symbolic else "")
            + "  if (allocate(context, total, scratch)) return 1;\n"
            + places
            + ("  memcpy(context->dims, dims, sizeof context->dims);\n" if program.dims else "")
            + "  context->planned = 1;\n  return 0;\n}\n"
        )

    def _fixed_scratch(self) -> int:
        fixed = [k.scratch_bytes for k in self.program.kernels if isinstance(k.scratch_bytes, int)]
        return max([self.program.scratch_bytes, *fixed])

    def _scratch_expressions(self) -> list[str]:
        """One C expression a call whose kernel needs scratch that depends on its params."""
        out: dict[str, None] = {}
        for call in self.program.calls:
            kernel = self.kernels[call.entry]
            if isinstance(kernel.scratch_bytes, str):
                out[f"scratch_{kernel.entry}({', '.join(map(self.param, call.params))})"] = None
        return list(out)


def _round(n: int) -> int:
    return -(-n // 64) * 64


def _bytes(buffer: Buffer, names: dict[str, str]) -> str:
    text = str(buffer.itemsize)
    for e in buffer.elements:
        text = f"mul({text}, size({checked(e, names.__getitem__)}, &bad), &bad)"
    return f"add({buffer.offset}, {text}, &bad)" if buffer.offset else text


_GROW = """UNUSED static inline void grow(int64_t *value, int64_t n) {
  if (n > *value) *value = n;
}
UNUSED static inline int64_t round_up(int64_t n, int *bad) {
  return add(n, 63, bad) & ~INT64_C(63);
}
"""


def scratch_function(kernel: Source) -> str:
    """A C function that gives a kernel's scratch bytes, where they are an expression in its params."""
    names = param_identifiers(kernel)
    params = ", ".join(f"int64_t {p}" for p in names) or "void"
    used = "".join(f" (void){p};" for p in names)
    return f"static int64_t scratch_{kernel.entry}({params}) {{{used} return (int64_t)({kernel.scratch_bytes}); }}\n"


# ---- the calls
def _emit_calls(program: Program, plan: _Plan) -> str:
    return "\n".join(f"  CALL({i}, {_emit_call(plan, call)})" for i, call in enumerate(program.calls))


def _emit_call(plan: _Plan, call: KernelCall) -> str:
    kernel = plan.kernels[call.entry]
    args = [f"({pointer_type(t.dtype.ctype, t.role)}){plan.places[a.kind, a.name]}" for a, t in zip(call.args, kernel.tensors)]
    args += [plan.param(p) for p in call.params]
    if kernel.needs_scratch:
        args.append("context->scratch")
    return f"{call.entry}({', '.join(args)})"


# ---- one kernel
def emit_kernel_wrapper(source: Source) -> str:
    """C text around one kernel: a call with pointers in arrays, one that is timed, its scratch bytes, and the CPU check."""
    args = [f"({pointer_type(t.dtype.ctype, t.role)})tensors[{i}]" for i, t in enumerate(source.tensors)]
    args += [f"*(const {s.dtype.ctype} *)scalars[{i}]" for i, s in enumerate(source.scalars)]
    args += [f"params[{i}]" for i in range(len(source.params))]
    if source.needs_scratch:
        args.append("scratch")
    dynamic = isinstance(source.scratch_bytes, str)
    values = ", ".join(f"params[{i}]" for i in range(len(source.params)))
    marks = {
        "@PROTOTYPE@": prototype(source) + "\n" + (scratch_function(source) if dynamic else ""),
        "@CPU@": cpu_check(cpu_features(source.isa, source.flags)),
        "@CALL@": f"{source.entry}({', '.join(args)})",
        "@SCRATCH@": f"scratch_{source.entry}({values})" if dynamic else literal(int(source.scratch_bytes)),
    }
    text = KERNEL_WRAPPER
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text
