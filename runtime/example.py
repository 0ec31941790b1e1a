"""example.c of an artifact, and its inputs in NumPy. Takes a `Program`; gives C text, and `example_inputs`, which makes the very arrays that the C
program makes where no input file is given.

Element i of input j is made from z = mix(2^32·j + i), splitmix64's finaliser over a counter (Steele, Lea, Flood, OOPSLA 2014): floats are
(z >> 40)/2^23 - 1, uniform in [-1, 1); integers and bools are z >> 63, 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyopt.ir.program import Port, Program

from .arrays import Array, numpy_dtype
from .ctext import string
from .header import prefix_of


def example_inputs(inputs: Sequence[Port], dims: Mapping[str, int]) -> dict[str, Array]:
    """The inputs that example.c makes by itself, at these dims."""
    out = {}
    for j, port in enumerate(inputs):
        shape = tuple(d.evaluate(dims) for d in port.shape)
        z = _mix(j, int(np.prod(shape, dtype=object)))
        values: Array = (z >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0 if port.dtype.is_float else z >> np.uint64(63)
        out[port.name] = values.astype(numpy_dtype(port.dtype)).reshape(shape)
    return out


def _mix(j: int, n: int) -> Array:
    z: Array = np.arange(n, dtype=np.uint64) + np.uint64((j << 32) + 1)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def emit_example(program: Program) -> str:
    """The text of example.c."""
    marks = {
        "@NI@": str(len(program.inputs)),
        "@NO@": str(len(program.outputs)),
        "@ND@": str(len(program.dims)),
        "@MODEL@": string(program.name)[1:-1].replace("*/", "* /"),
        "@P@": prefix_of(program),
    }
    text = _EXAMPLE
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


_EXAMPLE = r"""/* Runs the model @MODEL@: ./example [--dim NAME=SIZE]... [--threads N] [--repeat N] [INPUT.bin | -]...
 *
 * An input is a file of raw values, dense and row-major; `-`, or none given: pseudo-random values, floats in [-1, 1), integers 0 or 1.
 * Dims that are not given are 1. For every output: its name, type and shape, its sum, and its first values.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "@P@.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUTS = @NI@, OUTPUTS = @NO@, DIMS = @ND@, SHOWN = 8, MAX_RANK = 64 };

static void die(const char *what, const char *why) {
  fprintf(stderr, "example: %s: %s\n", what, why);
  exit(1);
}

/* IEEE half and bfloat16 without compiler support */
static float half_value(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
  float f;
  uint32_t bits;
  if (magnitude < 0x400) { /* subnormal: a multiple of 2^-24 */
    f = (float)magnitude / 16777216.0f;
    memcpy(&bits, &f, 4);
    bits |= sign;
  } else {
    bits = sign | (magnitude >= 0x7c00 ? 0x7f800000u | (magnitude & 0x3ff) << 13 : (magnitude << 13) + 0x38000000u);
  }
  memcpy(&f, &bits, 4);
  return f;
}

/* round to nearest even; |f| < 2 here, and no NaN */
static uint16_t half_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude < 0x38800000) { /* below 2^-14: the addition rounds to a multiple of 2^-24 */
    float g = 0.5f;
    memcpy(&f, &magnitude, 4);
    g += f;
    memcpy(&bits, &g, 4);
    return (uint16_t)(sign | (bits - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

static uint16_t bfloat_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double value_at(const char *dtype, const void *p, int64_t i) {
  if (!strcmp(dtype, "float32")) return ((const float *)p)[i];
  if (!strcmp(dtype, "float64")) return ((const double *)p)[i];
  if (!strcmp(dtype, "float16")) return half_value(((const uint16_t *)p)[i]);
  if (!strcmp(dtype, "int64")) return (double)((const int64_t *)p)[i];
  if (!strcmp(dtype, "uint64")) return (double)((const uint64_t *)p)[i];
  if (!strcmp(dtype, "int32")) return ((const int32_t *)p)[i];
  if (!strcmp(dtype, "uint32")) return ((const uint32_t *)p)[i];
  if (!strcmp(dtype, "int16")) return ((const int16_t *)p)[i];
  if (!strcmp(dtype, "uint16")) return ((const uint16_t *)p)[i];
  if (!strcmp(dtype, "int8")) return ((const int8_t *)p)[i];
  if (!strcmp(dtype, "bfloat16")) {
    const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  }
  return ((const uint8_t *)p)[i];
}

static void make_input(const @P@_tensor *t, int j, void *p, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t z = (((uint64_t)j << 32) + (uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    const double value = (double)(z >> 40) / 8388608.0 - 1.0;
    char *const element = (char *)p + (size_t)i * t->itemsize;
    const float f = (float)value;
    uint16_t bits;
    if (!strcmp(t->dtype, "float32")) memcpy(element, &f, 4);
    else if (!strcmp(t->dtype, "float64")) memcpy(element, &value, 8);
    else if (!strcmp(t->dtype, "float16")) bits = half_bits(f), memcpy(element, &bits, 2);
    else if (!strcmp(t->dtype, "bfloat16")) bits = bfloat_bits(f), memcpy(element, &bits, 2);
    else memset(element, 0, t->itemsize), *element = (char)(z >> 63); /* little-endian integers */
  }
}

static void read_input(const char *path, void *p, size_t bytes) {
  FILE *const file = fopen(path, "rb");
  if (!file) die(path, strerror(errno));
  const size_t got = fread(p, 1, bytes, file);
  if (got != bytes || fgetc(file) != EOF) {
    fprintf(stderr, "example: %s: expected %zu bytes\n", path, bytes);
    exit(1);
  }
  fclose(file);
}

static int64_t count(const int64_t *shape, int rank) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++)
    if (__builtin_mul_overflow(n, shape[i], &n)) die("shape", "too large");
  return n;
}

static void *allocate(int64_t n, size_t itemsize) {
  void *p = NULL;
  size_t bytes;
  if (__builtin_mul_overflow((size_t)n, itemsize, &bytes) || bytes > SIZE_MAX - 64 || posix_memalign(&p, 64, bytes + 64)) die("memory", "too little");
  return p;
}

static void show(const @P@_tensor *t, const int64_t *shape, const void *p) {
  const int64_t n = count(shape, t->rank);
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += value_at(t->dtype, p, i);
  printf("%s %s (", t->name, t->dtype);
  for (int i = 0; i < t->rank; i++) printf("%s%" PRId64, i ? ", " : "", shape[i]);
  printf(")\n  sum %.9g\n  values", sum);
  for (int64_t i = 0; i < n && i < SHOWN; i++) printf(" %.9g", value_at(t->dtype, p, i));
  printf("\n");
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void set_dim(const char *text, int64_t *dims) {
  const char *const equals = strchr(text, '=');
  char *end = NULL;
  const int64_t value = equals ? strtoll(equals + 1, &end, 10) : -1;
  if (!equals || *end || end == equals + 1 || value < 0) die(text, "expected NAME=SIZE");
  for (int i = 0; i < DIMS; i++) {
    if (strlen(@P@_dim_name(i)) == (size_t)(equals - text) && !strncmp(@P@_dim_name(i), text, (size_t)(equals - text))) {
      dims[i] = value;
      return;
    }
  }
  die(text, "there is no such dim");
}

int main(int argc, char **argv) {
  int64_t dims[DIMS + 1], shape[MAX_RANK];
  const char *files[INPUTS + 1] = {NULL};
  void *inputs[INPUTS + 1] = {NULL}, *outputs[OUTPUTS + 1] = {NULL};
  int given = 0, repeat = 0, threads = 0;
  for (int i = 0; i < DIMS; i++) dims[i] = 1;
  for (int i = 1; i < argc; i++) {
    const int more = i + 1 < argc;
    if (!strcmp(argv[i], "--dim") && more) set_dim(argv[++i], dims);
    else if (!strcmp(argv[i], "--repeat") && more) repeat = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--threads") && more) threads = atoi(argv[++i]);
    else if (argv[i][0] == '-' && argv[i][1]) die(argv[i], "unknown option; see the head of example.c");
    else if (given == INPUTS) die(argv[i], "more files than inputs");
    else files[given++] = argv[i];
  }
  char error[512];
  @P@_context *const context = @P@_create(NULL, error, sizeof error);
  if (!context) die("@P@_create", error);
  if (threads) @P@_set_threads(context, threads);
  for (int i = 0; i < INPUTS; i++) {
    const @P@_tensor *const t = @P@_input(i);
    if (t->rank > MAX_RANK || @P@_input_shape(i, dims, shape)) die(t->name, "has no shape at these dims");
    const int64_t n = count(shape, t->rank);
    inputs[i] = allocate(n, t->itemsize);
    if (files[i] && strcmp(files[i], "-")) read_input(files[i], inputs[i], (size_t)n * t->itemsize);
    else make_input(t, i, inputs[i], n);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    const @P@_tensor *const t = @P@_output(i);
    if (t->rank > MAX_RANK || @P@_output_shape(i, dims, shape)) die(t->name, "has no shape at these dims");
    outputs[i] = allocate(count(shape, t->rank), t->itemsize);
  }
  double best = 0.0;
  for (int i = 0; i <= repeat; i++) {
    const double start = seconds();
    if (@P@_run(context, (const void *const *)inputs, outputs, dims)) die("@P@_run", @P@_last_error(context));
    const double took = seconds() - start;
    if (i == 1 || took < best) best = took;
  }
  for (int i = 0; i < OUTPUTS; i++) {
    if (@P@_output_shape(i, dims, shape)) die(@P@_output(i)->name, "has no shape at these dims");
    show(@P@_output(i), shape, outputs[i]);
  }
  if (repeat) fprintf(stderr, "best of %d: %.3f ms\n", repeat, best * 1e3);
  for (int i = 0; i < INPUTS; i++) free(inputs[i]);
  for (int i = 0; i < OUTPUTS; i++) free(outputs[i]);
  @P@_destroy(context);
  return 0;
}
"""
