/* Tiles: a few rows times a few panels, with sums that stay in registers.
 *
 * A panel is LANES columns wide, one row after the other, so that a vector is read where it is needed;
 * the left rows are read number by number. A sum runs over its terms from the first to the last,
 * whatever else is computed, so the bits of a row depend on that row alone. */

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

/* Numbers below 0 as 0. */
static inline vector relu(vector x) { return (vector)((mask)x & ~(x < 0)); }

/* Writes the first few numbers of a vector, or all of them. */
static __attribute__((noinline)) void write_some(real *to, vector value, int64_t count,
                                                 const real *added, int64_t is_relu) {
  if (count == LANES) {
    if (added != NULL) value += load(added);
    store(to, is_relu ? relu(value) : value);
    return;
  }
  real numbers[VECTOR_BYTES / sizeof(real)];
  memcpy(numbers, &value, sizeof value);
  NOT_IN_VECTORS for (int64_t i = 0; i < count; i++) {
    const real sum = added == NULL ? numbers[i] : numbers[i] + added[i];
    to[i] = is_relu && sum < 0 ? 0 : sum;
  }
}

/* What is done with the sums of a tile before they are written. */
typedef struct {
  const real *added; /* rows that are added to them, or NULL */
  int64_t stride;    /* from one to the next */
  int64_t is_relu;   /* what is below 0 then becomes 0 */
} end_of_tile;

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

/* A tile that fills all registers has one for the number of a row; clang would take a second one, for
 * that of the next row, and keep a sum in memory. */
#if defined(__clang__) && VECTOR_BYTES == 32
#define SUM_BY_SUM(sum) __asm__ volatile("" : "+x"(sum) : : "memory")
#else
#define SUM_BY_SUM(sum)
#endif

/* number: what the next row of the panels is multiplied by, for row i of the tile. */
#define ADD_TO_SUMS(M, V, number)                                                              \
  {                                                                                            \
    vector right[V];                                                                           \
    UNROLLED for (int j = 0; j < V; j++) right[j] = load(panel + j * panel_step);              \
    panel += row_step;                                                                         \
    UNROLLED for (int i = 0; i < M; i++) {                                                     \
      UNROLLED for (int j = 0; j < V; j++) sums[i][j] = FUSED(number, right[j], sums[i][j]);   \
      UNROLLED for (int j = 0; j < V; j++) SUM_BY_SUM(sums[i][j]);                             \
    }                                                                                          \
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
