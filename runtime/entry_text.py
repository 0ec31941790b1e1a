"""The fixed C text of an entry file, with @MARKS@ that `entry` fills. Takes and gives nothing else."""

INCLUDES = """/* The entry of a model compiled by polyopt. Built without ISA flags: it asks the CPU before a kernel runs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "@P@.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif
"""

CONTEXT = """
struct @P@_context {
  char *arena;             /* 64-byte aligned */
  char *scratch;
  size_t room;             /* bytes from the arena's start that may be used */
  void *mapping;           /* arena and scratch as mapped */
  size_t mapped;
  void *weights;           /* the weights file, or NULL */
  const void *constants[@NCONST@ + 1];
  char *at[@NBUFFERS@ + 1];        /* buffers whose place depends on the dims */
  int64_t params[@NPARAMS@ + 1];
  int64_t dims[@NDIMS@ + 1];
  int planned;
  int threads;
  double *profile;
  char error[512];
};

static int fail(@P@_context *context, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(context->error, sizeof context->error, format, args);
  va_end(args);
  return code;
}

/* Room for the arena and the scratch behind it; large ones start on a huge page. Fresh memory is zero. */
static int allocate(@P@_context *context, int64_t arena, int64_t scratch) {
  const size_t align = arena > (INT64_C(1) << 21) ? (size_t)1 << 21 : 64;
  if (arena > INT64_MAX / 4 || scratch > INT64_MAX / 4 || (uint64_t)arena + (uint64_t)scratch > SIZE_MAX / 2)
    return fail(context, 2, "a working memory of %" PRId64 " bytes does not fit in the address space", arena);
  const size_t start = ((size_t)arena + 63) & ~(size_t)63, room = start + (size_t)scratch + 64;
  if (!context->mapping || room > context->room) {
    if (context->mapping) munmap(context->mapping, context->mapped);
    context->mapped = room + align;
    context->planned = 0;
    context->mapping = mmap(NULL, context->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (context->mapping == MAP_FAILED) {
      context->mapping = NULL;
      context->room = 0;
      return fail(context, 2, "out of memory: %zu bytes of working memory", room);
    }
    context->room = room;
    context->arena = (char *)(((uintptr_t)context->mapping + align - 1) & ~(uintptr_t)(align - 1));
#ifdef MADV_HUGEPAGE
    if (align > 64) (void)madvise(context->arena, room, MADV_HUGEPAGE);
#endif
  }
  context->scratch = context->arena + start;
  return 0;
}
"""

WEIGHTS = """
#include <dlfcn.h>
/* weak: where the system's C library has no dladdr (glibc before 2.34 without -ldl), a path must be given */
extern int dladdr(const void *, Dl_info *) __attribute__((weak));

static int map_weights(@P@_context *context, const char *path) {
  static const int64_t offsets[] = {@OFFSETS@};
  static const unsigned char digest[] = {@DIGEST@};
  char beside[4096] = "@P@.weights";
  if (!path) {
    Dl_info info;
    if (dladdr && dladdr((const void *)(uintptr_t)&@P@_create, &info) && info.dli_fname) {
      const char *slash = strrchr(info.dli_fname, '/');
      const int length = slash ? (int)(slash - info.dli_fname) + 1 : 0;
      if (snprintf(beside, sizeof beside, "%.*s@P@.weights", length, info.dli_fname) >= (int)sizeof beside)
        return fail(context, 3, "the path of @P@.weights is too long: give weights_path");
    }
    path = beside;
  }
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail(context, 3, "cannot read the weights %s: %s", path, strerror(errno));
  struct stat status;
  if (fstat(file, &status) || status.st_size != INT64_C(@TOTAL@)) {
    close(file);
    return fail(context, 3, "the weights %s are not those of this library: expected @TOTAL@ bytes", path);
  }
  void *weights = mmap(NULL, INT64_C(@TOTAL@), PROT_READ, MAP_PRIVATE, file, 0);
  const int reason = errno;
  close(file);
  if (weights == MAP_FAILED) return fail(context, 2, "cannot map the weights %s: %s", path, strerror(reason));
  context->weights = weights;
  if (memcmp(weights, "POLYOPT1", 8) || memcmp((const char *)weights + 8, digest, @DIGEST_BYTES@))
    return fail(context, 3, "the weights %s are not those of this library: their digest differs", path);
  (void)madvise(weights, INT64_C(@TOTAL@), MADV_WILLNEED);
  for (int i = 0; i < @NCONST@; i++) context->constants[i] = (const char *)weights + offsets[i];
  return 0;
}
"""

CREATE = """
static @P@_context *begin(char *error, size_t error_bytes) {
  const char *missing = missing_feature();
  if (missing) {
    if (error) snprintf(error, error_bytes, "model @NAME@ was compiled for a CPU with %s, which this one lacks", missing);
    return NULL;
  }
  @P@_context *context = calloc(1, sizeof *context);
  if (!context && error) snprintf(error, error_bytes, "out of memory");
  if (context) context->threads = @THREADS@;
  return context;
}

static @P@_context *finish(@P@_context *context, int failed, char *error, size_t error_bytes) {
  if (!failed && @NDIMS@ == 0) failed = plan(context, NULL);
  if (!failed) return context;
  if (error) snprintf(error, error_bytes, "%s", context->error);
  @P@_destroy(context);
  return NULL;
}

@P@_context *@P@_create(const char *weights_path, char *error, size_t error_bytes) {
  @P@_context *context = begin(error, error_bytes);
  (void)weights_path;
  return context ? finish(context, @MAP@, error, error_bytes) : NULL;
}

@P@_context *@P@_create_with(const void *const *constants, char *error, size_t error_bytes) {
  @P@_context *context = begin(error, error_bytes);
  for (int i = 0; context && i < @NCONST@; i++) context->constants[i] = constants[i];
  return context ? finish(context, 0, error, error_bytes) : NULL;
}

void @P@_destroy(@P@_context *context) {
  if (!context) return;
  if (context->mapping) munmap(context->mapping, context->mapped);
  if (context->weights) munmap(context->weights, INT64_C(@TOTAL@));
  free(context);
}

const char *@P@_last_error(const @P@_context *context) { return context ? context->error : "there is no context"; }

int @P@_set_threads(@P@_context *context, int threads) {
  context->threads = threads < 1 ? 1 : threads > @THREADS@ ? @THREADS@ : threads;
#ifndef _OPENMP
  context->threads = 1;
#endif
  return context->threads;
}

void @P@_set_profile(@P@_context *context, double *ns) { context->profile = ns; }

size_t @P@_arena_bytes(const @P@_context *context) { return context->room; }
"""

RUN = """
__attribute__((unused)) static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define CALL(i, ...) \\
  if (profile) { \\
    const double start = now(); \\
    __VA_ARGS__; \\
    profile[i] += now() - start; \\
  } else { \\
    __VA_ARGS__; \\
  }

int @P@_run(@P@_context *context, const void *const *inputs, void *const *outputs, const int64_t *dims) {
  if (!context) return 1;
  for (int i = 0; i < @NIN@; i++)
    if (!inputs || !inputs[i]) return fail(context, 1, "input %s is NULL", input_table[i].name);
  for (int i = 0; i < @NOUT@; i++)
    if (!outputs || !outputs[i]) return fail(context, 1, "output %s is NULL", output_table[i].name);
  if (@NDIMS@ > 0 && !dims) return fail(context, 1, "dims is NULL: give @NDIMS@ values");
  if (!context->planned || (@NDIMS@ > 0 && memcmp(context->dims, dims, @NDIMS@ * sizeof *dims))) {
    context->planned = 0;
    const int failed = plan(context, dims);
    if (failed) return failed;
  }
  double *const profile = context->profile;
  (void)profile;
#ifdef _OPENMP
  const int threads = omp_get_max_threads();
  if (threads != context->threads) omp_set_num_threads(context->threads);
#endif
@CALLS@
#ifdef _OPENMP
  if (threads != context->threads) omp_set_num_threads(threads);
#endif
  return 0;
}
"""

KERNEL_WRAPPER = """/* Around one kernel: pointers in arrays, so that one calling sequence serves every kernel. Built without ISA flags. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif
@PROTOTYPE@
@CPU@
#define API __attribute__((visibility("default")))
API const char *polyopt_missing_feature(void) { return missing_feature(); }

API int64_t polyopt_scratch_bytes(const int64_t *params) {
  (void)params;
  return @SCRATCH@;
}

API void polyopt_call(void *const *tensors, const void *const *scalars, const int64_t *params, char *scratch, int threads) {
  (void)tensors; (void)scalars; (void)params; (void)scratch; (void)threads;
#ifdef _OPENMP
  const int before = omp_get_max_threads();
  if (threads > 0 && threads != before) omp_set_num_threads(threads);
#endif
  @CALL@;
#ifdef _OPENMP
  if (threads > 0 && threads != before) omp_set_num_threads(before);
#endif
}

API double polyopt_time(void *const *tensors, const void *const *scalars, const int64_t *params, char *scratch, int threads) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  polyopt_call(tensors, scalars, params, scratch, threads);
  clock_gettime(CLOCK_MONOTONIC, &b);
  return (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
}
"""
