/* Operations on single numbers, each over a run of them.
 *
 * A run reads up to three inputs and writes one output, `n` numbers each, that lie side by side
 * (step 1) or are the same number every time (step 0). An operation that adds, ACCUMULATE or
 * ACCUMULATE_MAX, may have an output of step 0: then it reduces. */

typedef void (*elementwise)(int64_t n, real *o, int64_t so, const real *a, int64_t sa, const real *b,
                            int64_t sb, const real *c, int64_t sc);

#define SIMD _Pragma("omp simd")
#ifdef __clang__ /* it warns where functions of libm are called one number at a time */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
#define RUN(name)                                                                             \
  static void run_##name(int64_t n, real *o, int64_t so, const real *a, int64_t sa, const real *b, \
                         int64_t sb, const real *c, int64_t sc)

/* The operations, with their numbers in programs: unary of x, binary of x and y, ternary with z. */
#define UNARY_OPERATIONS(do)                            \
  do(0, copy, x)                                        \
  do(1, neg, -x)                                        \
  do(2, abs, real_abs(x))                               \
  do(3, exp, real_exp(x))                               \
  do(4, log, OF_C(log)(x))                              \
  do(5, sqrt, OF_C(sqrt)(x))                            \
  do(6, rsqrt, 1 / OF_C(sqrt)(x))                       \
  do(7, reciprocal, 1 / x)                              \
  do(8, sigmoid, real_sigmoid(x))                       \
  do(9, tanh, real_tanh(x))                             \
  do(10, relu, x < 0 ? 0 : x)                           \
  do(11, sign, (real)(x > 0) - (real)(x < 0))           \
  do(12, logical_not, (real)(x == 0))                   \
  do(13, erf, OF_C(erf)(x))                             \
  do(14, sin, OF_C(sin)(x))                             \
  do(15, cos, OF_C(cos)(x))                             \
  do(16, log1p, OF_C(log1p)(x))                         \
  do(17, expm1, OF_C(expm1)(x))

#define BINARY_OPERATIONS(do)                                                \
  do(32, add, x + y)                                                         \
  do(33, sub, x - y)                                                         \
  do(34, mul, x * y)                                                         \
  do(35, div, x / y)                                                         \
  do(36, maximum, ((x > y) | (x != x)) ? x : y)                              \
  do(37, minimum, ((x < y) | (x != x)) ? x : y)                              \
  do(38, eq, (real)(x == y))                                                 \
  do(39, ne, (real)(x != y))                                                 \
  do(40, lt, (real)(x < y))                                                  \
  do(41, le, (real)(x <= y))                                                 \
  do(42, gt, (real)(x > y))                                                  \
  do(43, ge, (real)(x >= y))                                                 \
  do(44, logical_and, (real)((x != 0) & (y != 0)))                           \
  do(45, logical_or, (real)((x != 0) | (y != 0)))                            \
  do(46, pow, OF_C(pow)(x, y))                                               \
  do(47, sigmoid_grad, x *(1 - y) * y) /* x: of the output y */              \
  do(48, tanh_grad, x *(1 - y * y))                                          \
  do(49, relu_grad, y > 0 ? x : 0)

#define TERNARY_OPERATIONS(do)          \
  do(64, where, x != 0 ? y : z)         \
  do(65, fma, x *y + z)                            \
  do(66, standardise, (x - y) * z)

#define DEFINE_UNARY(number, name, value)                       \
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
#define DEFINE_BINARY(number, name, value)                              \
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

#define DEFINE_TERNARY(number, name, value)                     \
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
  for (int64_t i = 0; i < n; i++) {
    const real x = a[i * sa], most = o[i * so];
    o[i * so] = ((x > most) | (x != x)) ? x : most;
  }
}

#define ENTRY(number, name, value) [number] = run_##name,
static const elementwise ELEMENTWISE[] = {
    UNARY_OPERATIONS(ENTRY) BINARY_OPERATIONS(ENTRY) TERNARY_OPERATIONS(ENTRY)
    [80] = run_accumulate, [81] = run_accumulate_max,
};
