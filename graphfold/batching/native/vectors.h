/* Vectors: as many numbers as the processor computes with at once.
 *
 * Defined before this: `real`, float or double. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTOR_BYTES 64
#elif defined(__AVX__) && defined(__FMA__)
#include <immintrin.h>
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES ((int64_t)(VECTOR_BYTES / sizeof(real)))

#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#define NOT_IN_VECTORS _Pragma("clang loop vectorize(disable)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#define NOT_IN_VECTORS
#endif

typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef __typeof__((vector){0} < (vector){0}) mask;

static inline vector load(const real *from) { return *(const vector *)from; }
static inline void store(real *to, vector value) { *(vector *)to = value; }

/* A row of no numbers may have no memory, and C's own functions take no null pointers. */
static inline void copy(real *to, const real *from, int64_t count) {
  if (count > 0) memcpy(to, from, count * sizeof(real));
}
static inline void clear(real *to, int64_t count) {
  if (count > 0) memset(to, 0, count * sizeof(real));
}

static inline int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }
static inline int64_t pieces(int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; }

/* FUSED_float, FUSED_double: number * right + sum, rounded once. Compilers may take two operations
 * for that in one tile and one in another, and then a row's bits would hang on its tile. */
#if defined(__AVX512F__)
#define FUSED_float(number, right, sum) \
  (vector)_mm512_fmadd_ps(_mm512_set1_ps(number), (__m512)(right), (__m512)(sum))
#define FUSED_double(number, right, sum) \
  (vector)_mm512_fmadd_pd(_mm512_set1_pd(number), (__m512d)(right), (__m512d)(sum))
#elif defined(__AVX__) && defined(__FMA__)
#define FUSED_float(number, right, sum) \
  (vector)_mm256_fmadd_ps(_mm256_set1_ps(number), (__m256)(right), (__m256)(sum))
#define FUSED_double(number, right, sum) \
  (vector)_mm256_fmadd_pd(_mm256_set1_pd(number), (__m256d)(right), (__m256d)(sum))
#elif defined(__aarch64__)
#include <arm_neon.h>
#define FUSED_float(number, right, sum) \
  (vector)vfmaq_n_f32((float32x4_t)(sum), (float32x4_t)(right), number)
#define FUSED_double(number, right, sum) \
  (vector)vfmaq_n_f64((float64x2_t)(sum), (float64x2_t)(right), number)
#else /* there is no such operation */
#define FUSED_float(number, right, sum) (number) * (right) + (sum)
#define FUSED_double(number, right, sum) (number) * (right) + (sum)
#endif

#define JOINED(a, b) a##b
#define FUSED_OF(real) JOINED(FUSED_, real)
#define FUSED FUSED_OF(real)
