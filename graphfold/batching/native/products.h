/* Products of matrices.
 *
 * What is multiplied by is packed first, into panels: LANES columns wide, one row after the other, so
 * that a vector is read where it is needed; where few rows would not repay that, it is read as it
 * lies. A tile is a few rows times a few panels, and its sums stay in registers. The left rows are
 * read number by number. A sum runs over its terms from the first to the last, whatever else is
 * computed, so the bits of a row depend on that row alone. Sums of products over all rows also take
 * rows that lie apart, as the children of nodes do.
 *
 * Before this come vectors.h and MAX_PARTS, the most pieces of a row. */

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

/* Tiles of so many rows and panels. Their sums, a vector of each panel and one number fill the
 * registers; those of few rows are wide, so that sums need not wait for each other. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define ALL_TILES(do)                                                                           \
  do(12, 2) do(11, 2) do(10, 2) do(9, 2) do(8, 2) do(7, 3) do(6, 4) do(5, 4) do(4, 4) do(3, 6) \
  do(2, 8) do(1, 8)
#define MAX_ROWS 12
#else
#define ALL_TILES(do) do(6, 2) do(5, 2) do(4, 3) do(3, 3) do(2, 4) do(1, 8)
#define MAX_ROWS 6
#endif

/* So many panels stay in the second cache while as many rows go by as stay there, too. It is a
 * multiple of what any tile takes at once where there are several tiles. */
#define BLOCK_PANELS 12
#define BLOCK_ROWS 96
/* Sums over more rows than these are added up block by block: so long are the panels that a thread
 * holds. */
#define BLOCK_TERMS 256
#define SUM_PANELS 2
#define LINE 64 /* bytes of a line of a cache */

#define JOINED(a, b) a##b
#define FUSED_OF(real) JOINED(FUSED_, real)
#define FUSED FUSED_OF(real)

/* Writes the first few numbers of a vector. */
static __attribute__((noinline)) void write_some(real *to, vector value, int64_t count,
                                                 const real *added, int64_t is_relu) {
  real numbers[VECTOR_BYTES / sizeof(real)];
  memcpy(numbers, &value, sizeof value);
  for (int64_t i = 0; i < count; i++) {
    const real sum = added == NULL ? numbers[i] : numbers[i] + added[i];
    to[i] = is_relu && sum < 0 ? 0 : sum;
  }
}

/* Numbers below 0 as 0. */
static inline vector relu(vector x) { return (vector)((mask)x & ~(x < 0)); }

/* What is done with the sums of a tile before they are written. */
typedef struct {
  const real *added; /* rows that are added to them, or NULL */
  int64_t stride;    /* from one to the next */
  int64_t is_relu;   /* what is below 0 then becomes 0 */
} end_of_tile;

/* What is multiplied by: packed, or a matrix as it lies if its rows are whole vectors. */
typedef struct {
  const real *start;
  int64_t stride; /* from one row of the matrix to the next; 0 if it is packed */
} right_side;

static const real ZEROS[VECTOR_BYTES / sizeof(real)];

/* Where a tile reads its panels and writes its sums. */
typedef struct {
  const real *sums;             /* what they begin with */
  int64_t sums_step;            /* from those of one panel to those of the next */
  const real *panels;           /* the first one */
  int64_t panel_step, row_step; /* to the next panel, and to the next row of one */
  real *out;
  int64_t out_stride, num_rows, num_columns;
  end_of_tile end;
} tile;

#define EACH_SUM(M, V) UNROLLED for (int i = 0; i < M; i++) UNROLLED for (int j = 0; j < V; j++)

#define BEGIN_SUMS(M, V)                                            \
  const int64_t panel_step = t->panel_step, row_step = t->row_step; \
  const real *panel = t->panels;                                    \
  vector sums[M][V];                                                \
  EACH_SUM(M, V) sums[i][j] = load(t->sums + j * t->sums_step);

/* number: what the next row of the panels is multiplied by, for row i of the tile. */
#define ADD_TO_SUMS(M, V, number)                                                              \
  {                                                                                            \
    vector right[V];                                                                           \
    UNROLLED for (int j = 0; j < V; j++) right[j] = load(panel + j * panel_step);              \
    panel += row_step;                                                                         \
    EACH_SUM(M, V) sums[i][j] = FUSED(number, right[j], sums[i][j]);                           \
  }

#define END_SUMS(M, V, is_relu)                                                             \
  {                                                                                         \
    real *to = t->out;                                                                      \
    const real *added = t->end.added;                                                       \
    const int64_t stride = t->out_stride, added_stride = t->end.stride;                     \
    if (V * LANES <= t->num_columns) {                                                      \
      if (added != NULL)                                                                    \
        EACH_SUM(M, V) sums[i][j] += load(added + i * added_stride + j * LANES);            \
      if (is_relu) EACH_SUM(M, V) sums[i][j] = relu(sums[i][j]);                            \
      EACH_SUM(M, V) store(to + i * stride + j * LANES, sums[i][j]);                        \
    } else {                                                                                \
      EACH_SUM(M, V) write_some(to + i * stride + j * LANES, sums[i][j],                    \
                                smaller(t->num_columns - j * LANES, LANES),                 \
                                added == NULL ? NULL : added + i * added_stride + j * LANES, \
                                is_relu);                                                   \
    }                                                                                       \
  }

/* out = rows @ panels. */
#define DEFINE_MULTIPLY(M, V)                                                           \
  static __attribute__((noinline)) void multiply_##M##_##V(                             \
      const tile *t, const real *x, int64_t stride, int64_t width) {                    \
    BEGIN_SUMS(M, V)                                                                    \
    const real *rows[M];                                                                \
    UNROLLED for (int i = 0; i < M; i++) rows[i] = x + i * stride;                      \
    for (int64_t k = 0; k < width; k++) ADD_TO_SUMS(M, V, rows[i][k])                   \
    END_SUMS(M, V, t->end.is_relu)                                                      \
  }

/* out = columns.T @ panels, for columns side by side. */
#define DEFINE_SUM(M, V)                                                                          \
  static __attribute__((noinline)) void sum_##M##_##V(const tile *t, const real *columns,         \
                                                      int64_t stride, int64_t num_rows) {         \
    BEGIN_SUMS(M, V)                                                                              \
    for (int64_t r = 0; r < num_rows; r++, columns += stride) ADD_TO_SUMS(M, V, columns[i])       \
    END_SUMS(M, V, 0)                                                                             \
  }

#define DEFINE_TILES(M, V) \
  DEFINE_MULTIPLY(M, V) DEFINE_MULTIPLY(M, 1) DEFINE_SUM(M, 2) DEFINE_SUM(M, 1)
ALL_TILES(DEFINE_TILES)

/* Some rows times some panels: tiles side by side. */
static void multiply_panels(int64_t num_tile_rows, tile t, int64_t num_panels, const real *x,
                            int64_t stride, int64_t width) {
  while (num_panels > 0) {
    int64_t done = 1;
#define RUN_MULTIPLY(M, V)                         \
  if (num_tile_rows == M) {                        \
    if (num_panels >= V) {                         \
      multiply_##M##_##V(&t, x, stride, width);    \
      done = V;                                    \
    } else {                                       \
      multiply_##M##_1(&t, x, stride, width);      \
    }                                              \
  }
    ALL_TILES(RUN_MULTIPLY)
    t.sums += done * t.sums_step;
    t.panels += done * t.panel_step;
    t.out += done * LANES;
    if (t.end.added != NULL) t.end.added += done * LANES;
    t.num_columns -= done * LANES;
    num_panels -= done;
  }
}

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

/* A tile of the first panels. */
static tile first_panels(right_side right, int64_t width, int64_t num_columns) {
  const int64_t size = (width + 1) * LANES;
  if (right.stride == 0)
    return (tile){right.start, size, right.start + LANES, size, LANES, .num_columns = num_columns};
  return (tile){ZEROS, 0, right.start, LANES, right.stride, .num_columns = num_columns};
}

/* out = x @ right + bias, the bias if it is packed with it, and what the end adds. Tiles have as equally many rows as can
 * be: one of a single row would take as long as one of many. */
static void multiply_rows(const real *x, int64_t stride, int64_t width, right_side right,
                          int64_t num_columns, real *out, int64_t out_stride, int64_t num_rows,
                          end_of_tile end) {
  const tile first = first_panels(right, width, num_columns);
  const int64_t num_panels = pieces(num_columns, LANES);
  const int64_t num_tiles = pieces(num_rows, MAX_ROWS);
  const int64_t few = num_tiles < 2 ? num_panels : BLOCK_PANELS;
  for (int64_t panel = 0; panel < num_panels; panel += few)
    for (int64_t i = 0; i < num_tiles; i++) {
      const int64_t row = i * num_rows / num_tiles;
      const int64_t num_here = (i + 1) * num_rows / num_tiles - row;
      tile t = first;
      t.sums += panel * t.sums_step;
      t.panels += panel * t.panel_step;
      t.out = out + row * out_stride + panel * LANES;
      t.out_stride = out_stride;
      t.num_rows = num_here;
      t.num_columns -= panel * LANES;
      t.end = end;
      if (end.added != NULL) t.end.added += row * end.stride + panel * LANES;
      multiply_panels(num_here, t, smaller(num_panels - panel, few), x + row * stride, stride,
                      width);
    }
}

/* The same with threads, each for rows of its own. */
void multiply(const real *x, int64_t stride, int64_t width, const real *packed, int64_t num_columns,
              real *out, int64_t out_stride, int64_t num_rows, int64_t num_threads) {
  if (num_rows == 0) return;
  const int64_t share = pieces(pieces(num_rows, num_threads), MAX_ROWS) * MAX_ROWS;
  const int64_t size = smaller(share, BLOCK_ROWS);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
  for (int64_t row = 0; row < num_rows; row += size)
    multiply_rows(x + row * stride, stride, width, (right_side){packed, 0}, num_columns,
                  out + row * out_stride, out_stride, smaller(num_rows - row, size),
                  (end_of_tile){NULL});
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

/* sums += the sum over rows, of so many vectors next to each other. */
#define DEFINE_SUM_ROWS(VECTORS)                                                  \
  static void sum_rows_##VECTORS(const real *rows, int64_t stride,                \
                                 int64_t num_rows, real *sums) {                  \
    vector total[VECTORS];                                                        \
    UNROLLED for (int j = 0; j < VECTORS; j++) total[j] = load(sums + j * LANES); \
    for (int64_t r = 0; r < num_rows; r++)                                        \
      UNROLLED for (int j = 0; j < VECTORS; j++)                                  \
        total[j] += load(rows + r * stride + j * LANES);                          \
    UNROLLED for (int j = 0; j < VECTORS; j++) store(sums + j * LANES, total[j]); \
  }
DEFINE_SUM_ROWS(8)
DEFINE_SUM_ROWS(1)

/* sums += the sum over rows. */
static void sum_rows(const real *rows, int64_t stride, int64_t num_rows, int64_t num_columns,
                     real *sums) {
  int64_t j = 0;
  for (; j + 8 * LANES <= num_columns; j += 8 * LANES)
    sum_rows_8(rows + j, stride, num_rows, sums + j);
  for (; j + LANES <= num_columns; j += LANES) sum_rows_1(rows + j, stride, num_rows, sums + j);
  for (; j < num_columns; j++)
    for (int64_t r = 0; r < num_rows; r++) sums[j] += rows[r * stride + j];
}

/* A tile of sums, for as many columns as it has rows. */
static void sum_columns(const tile *t, const real *columns, int64_t stride, int64_t num_rows) {
#define RUN_SUM(M, V)                                                      \
  if (t->num_rows == M) {                                                  \
    if (t->num_columns > LANES) sum_##M##_2(t, columns, stride, num_rows); \
    else sum_##M##_1(t, columns, stride, num_rows);                        \
  }
  ALL_TILES(RUN_SUM)
}

/* Copies the columns of each tile side by side: strips, one behind the other. */
static void pack_strips(const real *row, int64_t num_columns, real *strip, int64_t strip_size) {
  for (; num_columns > 0; num_columns -= MAX_ROWS, row += MAX_ROWS, strip += strip_size)
    memcpy(strip, row, smaller(num_columns, MAX_ROWS) * sizeof(real));
}

/* total = left.T @ x and sums += left.sum(0), for left [num_rows, left_columns]; sums may be NULL.
 * Returns whether there was memory for it. */
int64_t sum_products(const real *left, int64_t left_stride, int64_t left_columns,
                     const real *start, const int64_t *index, int64_t stride, int64_t num_parts,
                     int64_t width, real *total, real *sums, int64_t num_rows,
                     int64_t num_threads) {
  const apart x = {start, index, stride, num_parts, width};
  const int64_t num_columns = num_parts * width, num_tiles = pieces(left_columns, MAX_ROWS);
  if (num_columns == 0) { /* a layer of no inputs may have a bias */
    if (sums != NULL) sum_rows(left, left_stride, num_rows, left_columns, sums);
    return 1;
  }
  /* Tiles of few columns would fetch each line of `left` too often, so they get strips; a line of
   * room between these, or they would fight for the same places of a cache. */
  const int64_t in_strips = MAX_ROWS * sizeof(real) < 3 * LINE / 4;
  const int64_t strip_size = smaller(num_rows, BLOCK_TERMS) * MAX_ROWS + LINE / sizeof(real);
  const int64_t from_tile = in_strips ? strip_size : MAX_ROWS; /* to the columns of the next one */
  real *strips = in_strips ? malloc((num_tiles * strip_size + 1) * sizeof(real)) : NULL;
  if (in_strips && strips == NULL) return 0;
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
  for (int64_t row = 0; row == 0 || row < num_rows; row += BLOCK_TERMS) { /* no rows sum to 0 */
    real panels[SUM_PANELS * (BLOCK_TERMS + 1) * (VECTOR_BYTES / sizeof(real))];
    const int64_t num_terms = smaller(num_rows - row, BLOCK_TERMS);
    const int64_t panel_size = (num_terms + 1) * LANES;
    const real *rows = left + row * left_stride, *columns = in_strips ? strips : rows;
    if (in_strips) {
#pragma omp for schedule(static)
      for (int64_t r = 0; r < num_terms; r++)
        pack_strips(rows + r * left_stride, left_columns, strips + r * MAX_ROWS, strip_size);
    }
#pragma omp for schedule(static)
    for (int64_t column = 0; column < num_columns; column += SUM_PANELS * LANES) {
      const int64_t num_here = smaller(num_columns - column, SUM_PANELS * LANES);
      if (column == 0 && sums != NULL) sum_rows(rows, left_stride, num_terms, left_columns, sums);
      pack_terms(&x, row, num_terms, column, num_here, panels);
      for (int64_t i = 0; i < num_tiles; i++) {
        const int64_t at = i * MAX_ROWS;
        real *to = total + at * num_columns + column;
        const tile t = {panels, panel_size, panels + LANES, panel_size, LANES, to, num_columns,
                        smaller(MAX_ROWS, left_columns - at), num_here,
                        {row > 0 ? to : NULL, num_columns}};
        sum_columns(&t, columns + i * from_tile, in_strips ? MAX_ROWS : left_stride, num_terms);
      }
    }
  }
  free(strips);
  return 1;
}
