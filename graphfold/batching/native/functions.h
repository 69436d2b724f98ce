/* Functions of one number, without branches and calls, so that compilers compute many at once.
 *
 * exp: x = n log 2 + r with a whole n and |r| <= log(2) / 2; exp(r) by the polynomial (float) or the
 * rational function (double) of the Cephes library (S. L. Moshier, expf.c and exp.c), and 2^n by its
 * bits: as 2 * 2^(n - 1), for 2^n itself may be too large where exp(x) is not. What would be smaller
 * than twice the smallest normal number is 0, and NaN stays NaN.
 *
 * sigmoid: 1 / (1 + exp(-x)).
 *
 * tanh, float: x p(x^2) / q(x^2) with the coefficients of Eigen's ptanh, within 3e-7 of tanh and of 1
 * beyond 7.9. double: the rational function of Cephes (tanh.c) below 0.625, where the formula with
 * exp would lose digits; above it 1 - 2 / (exp(2 |x|) + 1). */
#include <math.h>

#define LOCAL static inline __attribute__((always_inline))

#ifdef IS_DOUBLE
typedef uint64_t whole; /* an integer as long as a number */
#define FRACTION_BITS 52
#define EXPONENT_BIAS 1023u
#define TO_WHOLE 6755399441055744.0 /* 1.5 * 2^52: a number added to it becomes whole */
#define EXP_LOW -708.0
#define EXP_HIGH 709.7827
#define LOG2_HIGH 6.93145751953125e-1 /* so short that its product with n is exact */
#define LOG2_LOW 1.42860682030941723212e-6
LOCAL double exp_rest(double r) {
  const double s = r * r;
  const double above =
      r * ((1.26177193074810590878e-4 * s + 3.02994407707441961300e-2) * s + 1.0);
  const double below = ((3.00198505138664455042e-6 * s + 2.52448340349684104192e-3) * s +
                        2.27265548208155028766e-1) * s + 2.0;
  return 1.0 + 2.0 * (above / (below - above));
}
#else
typedef uint32_t whole;
#define FRACTION_BITS 23
#define EXPONENT_BIAS 127u
#define TO_WHOLE 12582912.0f
#define EXP_LOW -86.9f
#define EXP_HIGH 88.72283f
#define LOG2_HIGH 0.693359375f
#define LOG2_LOW -2.12194440e-4f
LOCAL float exp_rest(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}
#endif

/* exp(x), with what is beyond its range taken for the ends of it. */
LOCAL real exp_in_range(real x) {
  const real above = x < (real)EXP_LOW ? (real)EXP_LOW : x;
  const real z = above > (real)EXP_HIGH ? (real)EXP_HIGH : above;
  const real shifted = z * (real)1.4426950408889634074 + (real)TO_WHOLE;
  const real n = shifted - (real)TO_WHOLE;
  whole bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + EXPONENT_BIAS - 1) << FRACTION_BITS;
  real power;
  memcpy(&power, &bits, sizeof power);
  return 2 * exp_rest((z - n * (real)LOG2_HIGH) - n * (real)LOG2_LOW) * power;
}

LOCAL real real_exp(real x) {
  return x > (real)EXP_HIGH ? (real)INFINITY : x < (real)EXP_LOW ? 0 : exp_in_range(x);
}

LOCAL real real_abs(real x) { return x < 0 ? -x : x + 0; }
LOCAL real real_sigmoid(real x) {
  const real y = 1 / (1 + exp_in_range(-x));
  return x < -(real)EXP_HIGH ? 0 : y;
}

#ifdef IS_DOUBLE
LOCAL double real_tanh(double x) {
  const double z = x * x;
  const double above = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z -
                       1.61468768441708447952e3;
  const double below = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z +
                       4.84406305325125486048e3;
  const double small = x + x * z * (above / below);
  const double size = 1 - 2 / (exp_in_range(2 * real_abs(x)) + 1);
  const double large = x < 0 ? -size : size;
  return real_abs(x) < 0.625 ? small : large;
}
#else
LOCAL float real_tanh(float x) {
  const float above = x < -7.90531110763549805f ? -7.90531110763549805f : x;
  const float z = above > 7.90531110763549805f ? 7.90531110763549805f : above;
  const float s = z * z;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return z * p / q;
}
#endif

#ifdef IS_DOUBLE
#define OF_C(name) name
#else
#define OF_C(name) name##f
#endif
