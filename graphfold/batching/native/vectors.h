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
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef __typeof__((vector){0} < (vector){0}) mask;

static inline vector load(const real *from) { return *(const vector *)from; }
static inline void store(real *to, vector value) { *(vector *)to = value; }

static inline int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }
static inline int64_t pieces(int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; }
