/* Sums of rows that lie apart, each times a number.
 *
 * Rows are noted first and then added up some vectors at a time, so that a sum stays in registers
 * until its last row. It runs over them in the order in which they were noted. */

enum { MOST_NOTED = 16 };

typedef struct {
  real *to;
  int64_t size, is_begun, num_noted; /* is_begun: `to` holds a sum already */
  const real *rows[MOST_NOTED];
  real factors[MOST_NOTED];
} row_sum;

static inline void begin_sum(row_sum *s, real *to, int64_t size) {
  s->to = to;
  s->size = size;
  s->is_begun = s->num_noted = 0;
}

/* Adds what is noted to so many vectors of the sum, from a column on. */
#define DEFINE_ADD_NOTED(VECTORS)                                                                \
  static inline void add_noted_##VECTORS(const row_sum *s, int64_t column) {                     \
    vector total[VECTORS] = {0};                                                                 \
    if (s->is_begun)                                                                             \
      UNROLLED for (int j = 0; j < VECTORS; j++) total[j] = load(s->to + column + j * LANES);    \
    for (int64_t i = 0; i < s->num_noted; i++)                                                   \
      UNROLLED for (int j = 0; j < VECTORS; j++)                                                 \
        total[j] = FUSED(s->factors[i], load(s->rows[i] + column + j * LANES), total[j]);        \
    UNROLLED for (int j = 0; j < VECTORS; j++) store(s->to + column + j * LANES, total[j]);      \
  }
DEFINE_ADD_NOTED(4)
DEFINE_ADD_NOTED(1)

/* Adds what is noted; without any, the sum is 0. */
static void add_noted(row_sum *s) {
  int64_t column = 0;
  for (; column + 4 * LANES <= s->size; column += 4 * LANES) add_noted_4(s, column);
  for (; column + LANES <= s->size; column += LANES) add_noted_1(s, column);
  for (; column < s->size; column++) {
    real total = s->is_begun ? s->to[column] : 0;
    for (int64_t i = 0; i < s->num_noted; i++) total += s->factors[i] * s->rows[i][column];
    s->to[column] = total;
  }
  s->num_noted = 0;
  s->is_begun = 1;
}

/* Notes that a row, times a factor, belongs to a sum. */
static inline void note(row_sum *s, const real *row, real factor) {
  s->rows[s->num_noted] = row;
  s->factors[s->num_noted] = factor;
  if (++s->num_noted == MOST_NOTED) add_noted(s);
}

/* All that was noted is in the sum. */
static inline void end_sum(row_sum *s) {
  if (s->num_noted > 0 || !s->is_begun) add_noted(s);
}
