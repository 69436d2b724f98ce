/* Functions for kernels in C, without branches and calls, so that compilers compute many at once.
 *
 * exp: x = n log 2 + r with a whole n and |r| <= log(2) / 2; exp(r) by the polynomial (float) or the
 * rational function (double) of the Cephes library (S. L. Moshier, expf.c and exp.c), and 2^n by its
 * bits: as 2 * 2^(n - 1), for 2^n itself may be too large where exp(x) is not. What would be smaller
 * than twice the smallest normal number is 0, and NaN stays NaN.
 *
 * tanh: the rational function of Cephes (tanh.c) below 0.625, where the formula with exp would lose
 * digits; above it 1 - 2 / (exp(2 |x|) + 1), which cannot overflow: an infinite exp leaves 1. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define where(condition, yes, no) ((condition) ? (yes) : (no))

/* exp(r) of what is left after whole powers of two. */
static inline float exp_rest_float(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}

static inline double exp_rest_double(double r) {
  const double s = r * r;
  const double above =
      r * ((1.26177193074810590878e-4 * s + 3.02994407707441961300e-2) * s + 1.0);
  const double below = ((3.00198505138664455042e-6 * s + 2.52448340349684104192e-3) * s +
                        2.27265548208155028766e-1) * s + 2.0;
  return 1.0 + 2.0 * (above / (below - above));
}

/* whole: an unsigned integer as long as the number; digits: of its fraction; bias: of its exponent;
 * to_whole: 1.5 * 2^digits, to which a number is added to become a whole one; log2_high + log2_low:
 * log 2, the first so short that its product with n is exact. */
#define DEFINE_EXP(real, whole, digits, bias, to_whole, low, high, log2_high, log2_low) \
  static inline real exp_##real(real x) {                                               \
    const real above = x < low ? low : x;                                               \
    const real z = above > high ? high : above;                                         \
    const real shifted = z * (real)1.4426950408889634074 + to_whole;                    \
    const real n = shifted - to_whole;                                                  \
    whole bits;                                                                         \
    memcpy(&bits, &shifted, sizeof bits);                                               \
    bits = (bits + bias - 1) << digits;                                                 \
    real power;                                                                         \
    memcpy(&power, &bits, sizeof power);                                                \
    const real y = 2 * exp_rest_##real((z - n * log2_high) - n * log2_low) * power;     \
    return x > high ? INFINITY : x < low ? 0 : y;                                       \
  }

DEFINE_EXP(float, uint32_t, 23, 127u, 12582912.0f, -86.9f, 88.72283f, 0.693359375f, -2.12194440e-4f)
DEFINE_EXP(double, uint64_t, 52, 1023u, 6755399441055744.0, -708.0, 709.7827, 6.93145751953125e-1,
           1.42860682030941723212e-6)

#define DEFINE_FUNCTIONS(real, of_c)                                                            \
  static inline real abs_##real(real x) { return fabs##of_c(x); }                               \
  static inline real log_##real(real x) { return log##of_c(x); }                                \
  static inline real sqrt_##real(real x) { return sqrt##of_c(x); }                              \
  static inline real sigmoid_##real(real x) { return 1 / (1 + exp_##real(-x)); }                \
  static inline real tanh_##real(real x) {                                                      \
    const real z = x * x;                                                                       \
    const real above = ((real)-9.64399179425052238628e-1 * z - (real)9.92877231001918586564e1) * z \
                       - (real)1.61468768441708447952e3;                                        \
    const real below = ((z + (real)1.12811678491632931402e2) * z +                              \
                        (real)2.23548839060100448583e3) * z + (real)4.84406305325125486048e3;   \
    const real small = x + x * z * (above / below);                                             \
    const real size = 1 - 2 / (exp_##real(2 * abs_##real(x)) + 1);                              \
    const real large = x < 0 ? -size : size;                                                    \
    return abs_##real(x) < (real)0.625 ? small : large;                                         \
  }

DEFINE_FUNCTIONS(float, f)
DEFINE_FUNCTIONS(double, )
