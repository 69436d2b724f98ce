/* Packing: matrices, and rows that lie apart, as panels. */

int64_t lanes(void) { return LANES; }

/* How many numbers the panels of [num_rows, num_columns] take. */
int64_t packed_size(int64_t num_rows, int64_t num_columns) {
  return pieces(num_columns, LANES) * (num_rows + 1) * LANES;
}

/* The numbers of two vectors in turns: of their first halves, or of those that begin at `half`. */
static inline vector zip(vector a, vector b, int half) {
#ifdef __clang__
  vector both;
  UNROLLED for (int i = 0; i < LANES; i++) both[i] = (i % 2 ? b : a)[half + i / 2];
  return both;
#else
  mask order;
  UNROLLED for (int i = 0; i < LANES; i++) order[i] = half + i / 2 + i % 2 * LANES;
  return __builtin_shuffle(a, b, order);
#endif
}

/* to = from.T, for LANES rows of each. Rows zipped with those half of the matrix away, as often as
 * LANES can be halved, are its columns. */
static void transpose(const real *from, int64_t stride, real *to) {
  vector rows[VECTOR_BYTES / sizeof(real)], zipped[VECTOR_BYTES / sizeof(real)];
  const int half = LANES / 2;
  UNROLLED for (int i = 0; i < LANES; i++) rows[i] = load(from + i * stride);
  for (int64_t left = LANES; left > 1; left /= 2) {
    UNROLLED for (int i = 0; i < LANES; i++)
      zipped[i] = zip(rows[i / 2], rows[i / 2 + half], i % 2 ? half : 0);
    memcpy(rows, zipped, sizeof rows);
  }
  UNROLLED for (int i = 0; i < LANES; i++) store(to + i * LANES, rows[i]);
}

/* Packs [num_rows, num_columns] and what the sums of its columns begin with: bias, or zero. */
void pack(const real *right, int64_t row_stride, int64_t column_stride, const real *bias,
          int64_t num_rows, int64_t num_columns, real *packed) {
  for (int64_t first = 0; first < num_columns; first += LANES) {
    const int64_t num_here = smaller(num_columns - first, LANES);
    const real *from = right + first * column_stride;
    memset(packed, 0, LANES * sizeof(real));
    if (bias != NULL) memcpy(packed, bias + first, num_here * sizeof(real));
    packed += LANES;
    if (num_here < LANES) memset(packed, 0, num_rows * LANES * sizeof(real));
    if (column_stride == 1 && num_here == LANES) {
      for (int64_t k = 0; k < num_rows; k++)
        store(packed + k * LANES, load(from + k * row_stride));
    } else {
      int64_t begin = 0;
      if (row_stride == 1 && num_here == LANES)
        for (; begin + LANES <= num_rows; begin += LANES)
          transpose(from + begin, column_stride, packed + begin * LANES);
      for (int64_t j = 0; j < num_here; j++)
        for (int64_t k = begin; k < num_rows; k++)
          packed[k * LANES + j] = from[k * row_stride + j * column_stride];
    }
    packed += num_rows * LANES;
  }
}

/* Rows that lie apart. Row i is num_parts pieces of `width` numbers; piece p of it begins at
 * start + index[i * num_parts + p] * stride, or without an index at start + i * stride. */
typedef struct {
  const real *start;
  const int64_t *index;
  int64_t stride, num_parts, width;
} apart;

static inline const real *part_of(const apart *x, int64_t row, int64_t part) {
  if (x->index == NULL) return x->start + row * x->stride;
  return x->start + x->index[row * x->num_parts + part] * x->stride;
}

/* Packs whole vectors of some rows, in one part, to panels next to each other, which begin with
 * zeros. A row's lines are fetched once for all of them. */
#define DEFINE_PACK_WHOLE(PANELS)                                                               \
  static void pack_whole_##PANELS(const apart *x, int64_t first_row, int64_t num_rows,          \
                                  int64_t part, int64_t at, real *panels) {                     \
    const int64_t panel_size = (num_rows + 1) * LANES;                                          \
    UNROLLED for (int j = 0; j < PANELS; j++)                                                   \
      memset(panels + j * panel_size, 0, LANES * sizeof(real));                                 \
    for (int64_t r = 0; r < num_rows; r++) {                                                    \
      const real *from = part_of(x, first_row + r, part) + at;                                  \
      UNROLLED for (int j = 0; j < PANELS; j++)                                                 \
        store(panels + j * panel_size + (r + 1) * LANES, load(from + j * LANES));               \
    }                                                                                           \
  }
DEFINE_PACK_WHOLE(2)
DEFINE_PACK_WHOLE(1)

/* Packs columns of some rows, a panel's at most. */
static void pack_panel(const apart *x, int64_t first_row, int64_t num_rows, int64_t first_column,
                       int64_t num_columns, real *panel) {
  const int64_t part = first_column / x->width, at = first_column % x->width;
  if (num_columns == LANES && at + LANES <= x->width) {
    pack_whole_1(x, first_row, num_rows, part, at, panel);
    return;
  }
  memset(panel, 0, (num_rows + 1) * LANES * sizeof(real));
  for (int64_t j = 0; j < num_columns; j++) { /* across the end of a part, or of a row */
    const int64_t column = first_column + j;
    for (int64_t r = 0; r < num_rows; r++)
      panel[(r + 1) * LANES + j] = part_of(x, first_row + r, column / x->width)[column % x->width];
  }
}

/* Packs columns of some rows, those of two panels at most. */
static void pack_terms(const apart *x, int64_t first_row, int64_t num_rows, int64_t first_column,
                       int64_t num_columns, real *panels) {
  const int64_t part = first_column / x->width, at = first_column % x->width;
  if (num_columns == 2 * LANES && at + num_columns <= x->width) {
    pack_whole_2(x, first_row, num_rows, part, at, panels);
    return;
  }
  for (int64_t j = 0; j < num_columns; j += LANES)
    pack_panel(x, first_row, num_rows, first_column + j, smaller(num_columns - j, LANES),
               panels + j * (num_rows + 1));
}
