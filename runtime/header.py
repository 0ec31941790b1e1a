"""The public C interface of a compiled model: NAME.h and the functions that answer what its inputs and outputs are.

Takes a `Program`; gives text. The prefix NAME is the model's name as a C identifier.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyopt.ir.affine import Affine
from polyopt.ir.program import Port, Program

from .ctext import checked, identifier, string

_NAMES = (
    *("context", "tensor", "create", "create_with", "run", "destroy", "last_error", "set_threads", "set_profile", "num_calls", "call_label"),
    *("num_inputs", "num_outputs", "num_dims", "input", "output", "dim_name", "input_shape", "output_shape", "arena_bytes"),
)
_FILES = frozenset({"example", "makefile", "gnumakefile"})  # PREFIX.c would be the example, or what make takes for the Makefile's source
_LIBRARIES = frozenset({  # libPREFIX.so would be found in their place, by name or by soname
    *("m", "mvec", "c", "pthread", "dl", "rt", "util", "crypt", "resolv", "nsl", "anl", "ld", "z", "system", "systemb", "objc", "cuda", "cudart"),
    *("gcc", "gcc_s", "stdc", "stdc__", "c__", "c__abi", "supc__", "unwind", "atomic", "gomp", "omp", "omp5", "iomp5", "quadmath", "gfortran"),
    *("itm", "ssp", "asan", "tsan", "lsan", "ubsan", "clang", "llvm"),
})  # fmt: skip
_HEADERS = frozenset({  # PREFIX.h would be found in their place where the folder is searched for headers
    *("assert", "complex", "cpuid", "ctype", "dlfcn", "errno", "fcntl", "fenv", "float", "immintrin", "inttypes", "iso646", "limits", "locale"),
    *("math", "memory", "malloc", "arm_neon", "omp", "pthread", "sched", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool"),
    *("stddef", "stdint", "stdio", "stdlib", "stdnoreturn", "string", "strings", "tgmath", "threads", "time", "uchar", "unistd", "wchar", "wctype"),
    *("alloca", "endian", "features", "elf", "link", "poll", "semaphore", "values"),
})  # fmt: skip


def prefix_of(program: Program) -> str:
    """The prefix of the model's C names and files; longer where a kernel, another file of the artifact, or the system already has one."""
    prefix, taken = identifier(program.name), {k.entry for k in program.kernels}
    if prefix.lower() in _FILES | _LIBRARIES | _HEADERS:
        prefix = f"m_{prefix}"
    while any(f"{prefix}_{name}" in taken for name in _NAMES):
        prefix += "_"
    return prefix


def emit_header(program: Program) -> str:
    """The text of NAME.h."""
    return _HEADER.replace("@G@", f"POLYOPT_{prefix_of(program).upper()}_H").replace("@P@", prefix_of(program)).replace("@IO@", _signature(program))


def _signature(program: Program) -> str:
    lines = ["inputs:"]
    lines += [f"  {i}  {_comment(_port(p))}" for i, p in enumerate(program.inputs)]
    lines += ["outputs:", *(f"  {i}  {_comment(_port(p))}" for i, p in enumerate(program.outputs))]
    lines += [f"dims: {_comment(', '.join(program.dims))}" if program.dims else "dims: none"]
    return "\n".join(f" *   {line}" for line in lines)


def _port(port: Port) -> str:
    return f"{port.name}: {port.dtype.numpy}[{', '.join(map(str, port.shape))}]"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ").replace("\\", "/").replace("??", "? ?")


def emit_metadata(program: Program) -> str:
    """The definitions of the functions that describe inputs, outputs, dims and calls."""
    parts = [_tables("input", program.inputs), _tables("output", program.outputs)]
    dims = ", ".join(string(d) for d in program.dims) or "NULL"
    labels = ",\n".join(f"  {string(call.label or call.entry)}" for call in program.calls) or "  NULL"
    parts.append(f"static const char *const dim_names[] = {{{dims}}};\n")
    parts.append(f"static const char *const call_labels[] = {{\n{labels}\n}};\n")
    for kind, ports in (("input", program.inputs), ("output", program.outputs)):
        parts.append(_shape_function(program, kind, ports))
    counts = {"@NI@": len(program.inputs), "@NO@": len(program.outputs), "@ND@": len(program.dims), "@NC@": len(program.calls)}
    text = "".join(parts) + _QUERIES
    text += _lookup("const @P@_tensor *@P@_input", "&input_table[i]", len(program.inputs))
    text += _lookup("const @P@_tensor *@P@_output", "&output_table[i]", len(program.outputs))
    text += _lookup("const char *@P@_dim_name", "dim_names[i]", len(program.dims))
    text += _lookup("const char *@P@_call_label", "call_labels[i]", len(program.calls))
    for mark, value in counts.items():
        text = text.replace(mark, str(value))
    return text


def _lookup(name: str, value: str, count: int) -> str:
    # a comparison with no possible value is a warning
    body = f"i >= 0 && i < {count} ? {value} : NULL" if count else f"(void)i, (void){value.lstrip('&')[:-3]}, NULL"
    return f"{name}(int i) {{ return {body}; }}\n"


def _tables(kind: str, ports: Sequence[Port]) -> str:
    out, rows = [], []
    for i, port in enumerate(ports):
        shape = dims = "NULL"
        if port.shape:
            shape, dims = f"{kind}_{i}_shape", f"{kind}_{i}_dims"
            sizes = ", ".join(str(int(d)) if d.is_const else "-1" for d in port.shape)
            texts = ", ".join(string(str(d)) for d in port.shape)
            out.append(f"static const int64_t {shape}[] = {{{sizes}}};\nstatic const char *const {dims}[] = {{{texts}}};\n")
        rows.append(f"  {{{string(port.name)}, {string(port.dtype.numpy)}, {port.dtype.bytes}, {len(port.shape)}, {shape}, {dims}}},\n")
    rows = rows or ["  {NULL, NULL, 0, 0, NULL, NULL},\n"]
    return "".join(out) + f"static const @P@_tensor {kind}_table[] = {{\n{''.join(rows)}}};\n"


def _shape_function(program: Program, kind: str, ports: Sequence[Port]) -> str:
    names = {d: f"dims[{i}]" for i, d in enumerate(program.dims)}

    def dim(d: Affine) -> str:
        return str(int(d)) if d.is_const else f"size({checked(d, names.__getitem__)}, &bad)"

    cases = []
    for i, port in enumerate(ports):
        body = " ".join(f"shape[{j}] = {dim(d)};" for j, d in enumerate(port.shape))
        cases.append(f"  case {i}:{' ' + body if body else ''} break;\n")
    return (
        f"int @P@_{kind}_shape(int i, const int64_t *dims, int64_t *shape) {{\n  int bad = 0;\n  (void)dims; (void)shape;\n"
        f"  switch (i) {{\n{''.join(cases)}  default: return 1;\n  }}\n  return bad;\n}}\n"
    )


_QUERIES = """int @P@_num_inputs(void) { return @NI@; }
int @P@_num_outputs(void) { return @NO@; }
int @P@_num_dims(void) { return @ND@; }
int @P@_num_calls(void) { return @NC@; }
"""

_HEADER = """/* Compiled by polyopt. One context is one arena: threads that run at once need a context each; the weights are shared.
 *
@IO@
 */
#ifndef @G@
#define @G@

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define POLYOPT_API __attribute__((visibility("default")))
#else
#define POLYOPT_API
#endif

typedef struct @P@_context @P@_context;

typedef struct {
  const char *name;
  const char *dtype;       /* NumPy's name: float32, int64, bool, ... */
  size_t itemsize;
  int rank;
  const int64_t *shape;    /* rank sizes; -1 where a size depends on the dims */
  const char *const *dims; /* rank texts: numbers, or expressions in the dims */
} @P@_tensor;

/* Makes a context. weights_path NULL: @P@.weights beside the library. NULL on failure, with the reason in error (if error is not NULL). */
POLYOPT_API @P@_context *@P@_create(const char *weights_path, char *error, size_t error_bytes);

/* The same with the constants in memory, each 64-byte aligned, in the order of the manifest; they must outlive the context. */
POLYOPT_API @P@_context *@P@_create_with(const void *const *constants, char *error, size_t error_bytes);

/* Runs the model. inputs and outputs: dense row-major arrays in the order above, outputs apart from inputs. dims: the values of the
 * dims in their order (NULL where there are none). 0 on success, else @P@_last_error says why. */
POLYOPT_API int @P@_run(@P@_context *context, const void *const *inputs, void *const *outputs, const int64_t *dims);

POLYOPT_API void @P@_destroy(@P@_context *context);
POLYOPT_API const char *@P@_last_error(const @P@_context *context);

/* Threads of the kernels that are parallel, from 1 to what the model was compiled for; gives the number in force. */
POLYOPT_API int @P@_set_threads(@P@_context *context, int threads);

/* Adds the nanoseconds of call i to ns[i] in every run, until set to NULL. */
POLYOPT_API void @P@_set_profile(@P@_context *context, double *ns);

/* Bytes of the context's arena (it grows with the dims). */
POLYOPT_API size_t @P@_arena_bytes(const @P@_context *context);

POLYOPT_API int @P@_num_inputs(void);
POLYOPT_API int @P@_num_outputs(void);
POLYOPT_API int @P@_num_dims(void);
POLYOPT_API int @P@_num_calls(void);
POLYOPT_API const @P@_tensor *@P@_input(int i);
POLYOPT_API const @P@_tensor *@P@_output(int i);
POLYOPT_API const char *@P@_dim_name(int i);
POLYOPT_API const char *@P@_call_label(int i);

/* The sizes at given dims; not 0 where i or the dims are out of range. */
POLYOPT_API int @P@_input_shape(int i, const int64_t *dims, int64_t *shape);
POLYOPT_API int @P@_output_shape(int i, const int64_t *dims, int64_t *shape);

#ifdef __cplusplus
}
#endif

#endif
"""
