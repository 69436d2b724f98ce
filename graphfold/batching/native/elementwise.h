/* Operations on single numbers, each over a run of them.
 *
 * A run reads up to three inputs and writes one output, `n` numbers each, that lie side by side
 * (step 1) or are the same number every time (step 0). An operation that adds, ACCUMULATE or
 * ACCUMULATE_MAX, may have an output of step 0: then it reduces. */

typedef void (*elementwise)(int64_t n, real *o, int64_t so, const real *a, int64_t sa, const real *b,
                            int64_t sb, const real *c, int64_t sc);

#ifdef __clang__ /* several vectors at once would leave much of a short run to the end */
#define SIMD _Pragma("clang loop vectorize(assume_safety) interleave_count(1)")
#pragma clang diagnostic ignored "-Wpass-failed" /* of functions of libm, one number at a time */
#else
#define SIMD _Pragma("omp simd")
#endif
#define RUN(name)                                                                             \
  static void run_##name(int64_t n, real *o, int64_t so, const real *a, int64_t sa, const real *b, \
                         int64_t sb, const real *c, int64_t sc)

/* 1 or 0, without a detour over integers. */
#define TRUTH(condition) ((condition) ? (real)1 : (real)0)

/* The operations: unary of x, binary of x and y, ternary with z. */
#define UNARY_OPERATIONS(do)                            \
  do(neg, -x)                                        \
  do(abs, real_abs(x))                               \
  do(exp, real_exp(x))                               \
  do(log, OF_C(log)(x))                              \
  do(sqrt, OF_C(sqrt)(x))                            \
  do(rsqrt, 1 / OF_C(sqrt)(x))                       \
  do(reciprocal, 1 / x)                              \
  do(sigmoid, real_sigmoid(x))                       \
  do(tanh, real_tanh(x))                             \
  do(relu, x < 0 ? 0 : x)                           \
  do(sign, TRUTH(x > 0) - TRUTH(x < 0))              \
  do(logical_not, TRUTH(x == 0))                     \
  do(erf, OF_C(erf)(x))                             \
  do(sin, OF_C(sin)(x))                             \
  do(cos, OF_C(cos)(x))                             \
  do(log1p, OF_C(log1p)(x))                         \
  do(expm1, OF_C(expm1)(x))

#define BINARY_OPERATIONS(do)                                                \
  do(add, x + y)                                                         \
  do(sub, x - y)                                                         \
  do(mul, x * y)                                                         \
  do(div, x / y)                                                         \
  do(maximum, ((x > y) | (x != x)) ? x : y)                              \
  do(minimum, ((x < y) | (x != x)) ? x : y)                              \
  do(eq, TRUTH(x == y))                                                  \
  do(ne, TRUTH(x != y))                                                  \
  do(lt, TRUTH(x < y))                                                   \
  do(le, TRUTH(x <= y))                                                  \
  do(gt, TRUTH(x > y))                                                   \
  do(ge, TRUTH(x >= y))                                                  \
  do(logical_and, TRUTH((x != 0) & (y != 0)))                            \
  do(logical_or, TRUTH((x != 0) | (y != 0)))                             \
  do(pow, OF_C(pow)(x, y))                                               \
  do(sigmoid_grad, x *(1 - y) * y) /* x: of the output y */              \
  do(tanh_grad, x *(1 - y * y))                                          \
  do(relu_grad, y <= 0 ? 0 : x)

#define TERNARY_OPERATIONS(do)          \
  do(where, x != 0 ? y : z)         \
  do(fma, x *y + z)                            \
  do(standardise, (x - y) * z)

#define DEFINE_UNARY(name, value)                       \
  RUN(name) {                                                   \
    if (sa) {                                                   \
      SIMD for (int64_t i = 0; i < n; i++) {                    \
        const real x = a[i];                                    \
        o[i] = value;                                           \
      }                                                         \
    } else {                                                    \
      const real x = *a, found = value;                         \
      for (int64_t i = 0; i < n; i++) o[i] = found;             \
    }                                                           \
  }
UNARY_OPERATIONS(DEFINE_UNARY)

#define BINARY_LOOP(first, second, value)   \
  SIMD for (int64_t i = 0; i < n; i++) {    \
    const real x = first, y = second;       \
    o[i] = value;                           \
  }
#define DEFINE_BINARY(name, value)                              \
  RUN(name) {                                                           \
    if (sa && sb) {                                                     \
      BINARY_LOOP(a[i], b[i], value)                                    \
    } else if (sa) {                                                    \
      const real same = *b;                                             \
      BINARY_LOOP(a[i], same, value)                                    \
    } else {                                                            \
      const real same = *a;                                             \
      BINARY_LOOP(same, b[i * sb], value)                               \
    }                                                                   \
  }
BINARY_OPERATIONS(DEFINE_BINARY)

#define DEFINE_TERNARY(name, value)                     \
  RUN(name) {                                                   \
    if (sa && sb && sc) {                                       \
      SIMD for (int64_t i = 0; i < n; i++) {                    \
        const real x = a[i], y = b[i], z = c[i];                \
        o[i] = value;                                           \
      }                                                         \
    } else {                                                    \
      SIMD for (int64_t i = 0; i < n; i++) {                    \
        const real x = a[i * sa], y = b[i * sb], z = c[i * sc]; \
        o[i] = value;                                           \
      }                                                         \
    }                                                           \
  }
TERNARY_OPERATIONS(DEFINE_TERNARY)

RUN(copy) {
  if (sa) copy(o, a, n);
  else
    for (int64_t i = 0; i < n; i++) o[i] = *a;
}

RUN(accumulate) {
  if (so) {
    SIMD for (int64_t i = 0; i < n; i++) o[i] += a[i * sa];
  } else if (sa) {
    real total = 0;
    _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < n; i++) total += a[i];
    *o += total;
  } else {
    *o += (real)n * *a;
  }
}

RUN(accumulate_max) {
  if (so) {
    SIMD for (int64_t i = 0; i < n; i++) {
      const real x = a[i * sa], most = o[i];
      o[i] = ((x > most) | (x != x)) ? x : most;
    }
  } else {
    real most = *o, nan = 0; /* apart, for each waits for the last one */
    for (int64_t i = 0; i < n; i++) {
      const real x = a[i * sa];
      most = x > most ? x : most;
      nan = x != x ? x : nan;
    }
    *o = nan != nan ? nan : most;
  }
}

#define ELEMENTWISE_OPERATIONS(do)                                                \
  UNARY_OPERATIONS(do) BINARY_OPERATIONS(do) TERNARY_OPERATIONS(do) do(copy, )    \
  do(accumulate, ) do(accumulate_max, )
#define ENTRY(name, value) run_##name,
static const elementwise ELEMENTWISE[] = {ELEMENTWISE_OPERATIONS(ENTRY)};
#define NUM_ELEMENTWISE ((int64_t)(sizeof ELEMENTWISE / sizeof *ELEMENTWISE))
