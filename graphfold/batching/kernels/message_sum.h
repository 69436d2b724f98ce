/* Sums of messages that are never held, forward and backward:
 *
 *   out[v] = own[v] * values[previous[v]] + sum over e of weight[e] * message(e)
 *
 * for e from ptr[v] to ptr[v + 1]. A message is values[read[e]], or, where there are addends,
 * relu(values[read[e]] + addend[kind[e]]).
 *
 * Before this comes vectors.h. */

/* A thread has whole lines of a row of gradients: a multiple of so many numbers. */
#define LINE ((int64_t)(64 / sizeof(real)))

/* NULL stands for weights and own factors that are one or none, for rows that stay where they are,
 * and for messages without relu. */
typedef struct {
  const real *values; /* [num_rows, width], `stride` numbers apart */
  int64_t stride, width, num_rows;
  const int64_t *read, *ptr;
  const real *weight;
  const real *addend; /* [num_kinds, width], in one piece */
  const int64_t *kind;
  int64_t num_kinds;
  const real *own;
  const int64_t *previous;
} messages;

static inline int64_t previous_of(const messages *m, int64_t segment) {
  return m->previous == NULL ? segment : m->previous[segment];
}

/* Whether numbers are from zero up to below a limit. */
int64_t is_below(const int64_t *numbers, int64_t count, int64_t limit) {
  int64_t found = 1;
  for (int64_t i = 0; i < count; i++) found &= (uint64_t)numbers[i] < (uint64_t)limit;
  return found;
}

/* Columns of a row: whole vectors up to `whole`, and one that ends with the row, of which the lanes
 * in `rest` are not done by then. A row shorter than a vector has its numbers one by one. */
typedef struct {
  int64_t width, whole;
  mask rest;
} columns;

static inline columns columns_of(int64_t width) {
  columns c = {width, width / LANES * LANES};
  for (int64_t i = 0; i < LANES; i++) c.rest[i] = width - LANES + i >= c.whole ? -1 : 0;
  return c;
}

/* What a message adds to a sum; NaN stays what it is, as in torch. */
static inline vector relu(vector sum) { return (vector)((mask)sum & ~(sum < 0)); }
static inline real relu_of(real sum) { return sum < 0 ? 0 : sum; }

/* VECTORS vectors of a sum, from a column on; they stay in registers until it is complete. */
#define DEFINE_SUM(VECTORS)                                                                       \
  static inline void sum_##VECTORS(const messages *m, int64_t v, int64_t column, real *total) {   \
    vector sums[VECTORS] = {0};                                                                   \
    if (m->own != NULL) {                                                                         \
      const real *row = m->values + previous_of(m, v) * m->stride + column, factor = m->own[v];   \
      UNROLLED for (int i = 0; i < VECTORS; i++) sums[i] = factor * load(row + i * LANES);        \
    }                                                                                             \
    for (int64_t e = m->ptr[v]; e < m->ptr[v + 1]; e++) {                                         \
      const real *row = m->values + m->read[e] * m->stride + column;                             \
      const real factor = m->weight == NULL ? 1 : m->weight[e];                                   \
      if (m->addend == NULL) {                                                                    \
        UNROLLED for (int i = 0; i < VECTORS; i++) sums[i] += factor * load(row + i * LANES);     \
      } else {                                                                                    \
        const real *addend = m->addend + m->kind[e] * m->width + column;                          \
        UNROLLED for (int i = 0; i < VECTORS; i++)                                                \
          sums[i] += factor * relu(load(row + i * LANES) + load(addend + i * LANES));             \
      }                                                                                           \
    }                                                                                             \
    UNROLLED for (int i = 0; i < VECTORS; i++) store(total + column + i * LANES, sums[i]);        \
  }
DEFINE_SUM(8)
DEFINE_SUM(2)
DEFINE_SUM(1)

/* The same for a row that is shorter than a vector. */
static void sum_short(const messages *m, int64_t v, real *total) {
  for (int64_t j = 0; j < m->width; j++) {
    real sum = m->own == NULL ? 0 : m->own[v] * m->values[previous_of(m, v) * m->stride + j];
    for (int64_t e = m->ptr[v]; e < m->ptr[v + 1]; e++) {
      real message = m->values[m->read[e] * m->stride + j];
      if (m->addend != NULL) message = relu_of(message + m->addend[m->kind[e] * m->width + j]);
      sum += (m->weight == NULL ? 1 : m->weight[e]) * message;
    }
    total[j] = sum;
  }
}

/* The last vector comes first: what it writes must have reached the cache before the whole vector
 * that it overlaps is read, or that waits. */
static inline void add(real *to, const real *from, real factor, columns c) {
  if (c.whole < c.width && c.whole > 0) {
    const int64_t last = c.width - LANES;
    const vector rest = (vector)((mask)load(from + last) & c.rest);
    store(to + last, load(to + last) + factor * rest);
  }
  for (int64_t j = 0; j < c.whole; j += LANES)
    store(to + j, load(to + j) + factor * load(from + j));
  for (int64_t j = 0; c.whole == 0 && j < c.width; j++) to[j] += factor * from[j];
}

static inline void pass_relu(real *of_value, real *of_addend, const real *value, const real *addend,
                             const real *grad, real factor, const mask *wanted) {
  const vector sum = load(value) + load(addend);
  vector passed = (vector)((mask)(factor * load(grad)) & ~(sum <= 0));
  if (wanted != NULL) passed = (vector)((mask)passed & *wanted);
  store(of_value, load(of_value) + passed);
  store(of_addend, load(of_addend) + passed);
}

static inline void add_where(real *of_value, real *of_addend, const real *value, const real *addend,
                             const real *grad, real factor, columns c) {
  const int64_t last = c.width - LANES;
  if (c.whole < c.width && c.whole > 0)
    pass_relu(of_value + last, of_addend + last, value + last, addend + last, grad + last, factor,
              &c.rest);
  for (int64_t j = 0; j < c.whole; j += LANES)
    pass_relu(of_value + j, of_addend + j, value + j, addend + j, grad + j, factor, NULL);
  for (int64_t j = 0; c.whole == 0 && j < c.width; j++) {
    const real passed = value[j] + addend[j] <= 0 ? 0 : factor * grad[j];
    of_value[j] += passed;
    of_addend[j] += passed;
  }
}

void sum_messages(const messages *m, real *out, int64_t num_segments, int64_t num_threads) {
  const int64_t last = m->width - LANES;
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1)
  for (int64_t v = 0; v < num_segments; v++) {
    real *total = out + v * m->width;
    int64_t column = 0;
    if (last < 0) {
      sum_short(m, v, total);
    } else {
      for (; column + 8 * LANES <= m->width; column += 8 * LANES) sum_8(m, v, column, total);
      for (; column + 2 * LANES <= m->width; column += 2 * LANES) sum_2(m, v, column, total);
      for (; column < m->width; column += LANES) sum_1(m, v, smaller(column, last), total);
    }
  }
}

/* The gradients of values and addends. Every thread has columns of its own, so no two add to the
 * same number, and all sums have one order. */
void sum_messages_back(const messages *m, const real *grad, real *of_values, real *of_addend,
                       int64_t num_segments, int64_t num_threads) {
  if (m->width == 0) return;
  const int64_t share = pieces(pieces(m->width, num_threads), LINE) * LINE;
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1)
  for (int64_t begin = 0; begin < m->width; begin += share) {
    const int64_t width = smaller(share, m->width - begin);
    const columns c = columns_of(width);
    for (int64_t row = 0; row < m->num_rows; row++)
      memset(of_values + row * m->width + begin, 0, width * sizeof(real));
    for (int64_t kind = 0; kind < m->num_kinds; kind++)
      memset(of_addend + kind * m->width + begin, 0, width * sizeof(real));
    for (int64_t v = 0; v < num_segments; v++) {
      const real *of_total = grad + v * m->width + begin;
      if (m->own != NULL)
        add(of_values + previous_of(m, v) * m->width + begin, of_total, m->own[v], c);
      for (int64_t e = m->ptr[v]; e < m->ptr[v + 1]; e++) {
        real *of_value = of_values + m->read[e] * m->width + begin;
        const real factor = m->weight == NULL ? 1 : m->weight[e];
        if (m->addend == NULL) {
          add(of_value, of_total, factor, c);
        } else {
          const int64_t at = m->kind[e] * m->width + begin;
          add_where(of_value, of_addend + at, m->values + m->read[e] * m->stride + begin,
                        m->addend + at, of_total, factor, c);
        }
      }
    }
  }
}
