/* Functions for kernels in C, without branches and calls, so that compilers compute many at once.
 *
 * exp: x = n log 2 + r with a whole n and |r| <= log(2) / 2; exp(r) by the polynomial (float) or the
 * rational function (double) of the Cephes library (S. L. Moshier, expf.c and exp.c), and 2^n by its
 * bits. What would be smaller than the smallest normal number is 0, and NaN stays NaN.
 *
 * tanh: the rational function of Cephes (tanh.c) below 0.625, where the formula with exp would lose
 * digits; above it 1 - 2 / (exp(2 |x|) + 1), which cannot overflow: an infinite exp leaves 1. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define where(condition, yes, no) ((condition) ? (yes) : (no))

static inline float exp_float(float x) {
  const float to_whole = 12582912.0f; /* 1.5 * 2^23: what is added to it becomes a whole number */
  const float low = x < -87.3f ? -87.3f : x;
  const float z = low > 88.7f ? 88.7f : low;
  const float shifted = z * 1.44269504088896341f + to_whole;
  const float n = shifted - to_whole;
  const float r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127u) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  const float y = x < -87.3f ? 0.0f : p * power;
  return x > 88.7f ? INFINITY : y;
}

static inline double exp_double(double x) {
  const double to_whole = 6755399441055744.0; /* 1.5 * 2^52 */
  const double low = x < -708.3 ? -708.3 : x;
  const double z = low > 709.4 ? 709.4 : low;
  const double shifted = z * 1.4426950408889634074 + to_whole;
  const double n = shifted - to_whole;
  const double r = (z - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  const double s = r * r;
  const double above =
      r * ((1.26177193074810590878e-4 * s + 3.02994407707441961300e-2) * s + 1.0);
  const double below = ((3.00198505138664455042e-6 * s + 2.52448340349684104192e-3) * s +
                        2.27265548208155028766e-1) * s + 2.0;
  const double p = 1.0 + 2.0 * (above / (below - above));
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023u) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  const double y = x < -708.3 ? 0.0 : p * power;
  return x > 709.4 ? INFINITY : y;
}

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
