/* Products of matrices.
 *
 * What is multiplied by is packed first; where few rows would not repay that, it is read as it lies.
 * Sums of products over all rows also take rows that lie apart, as the children of nodes do. */

/* So many panels stay in the second cache while as many rows go by as stay there, too. It is a
 * multiple of what any tile takes at once where there are several tiles. */
#define BLOCK_PANELS 12
#define BLOCK_ROWS 96
/* Sums over more rows than these are added up block by block: so long are the panels that a thread
 * holds. */
#define BLOCK_TERMS 256
#define SUM_PANELS 2
#define LINE 64 /* bytes of a line of a cache */

/* What is multiplied by: packed, or a matrix as it lies if its rows are whole vectors. */
typedef struct {
  const real *start;
  int64_t stride; /* from one row of the matrix to the next; 0 if it is packed */
} right_side;

static const real ZEROS[VECTOR_BYTES / sizeof(real)];

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

/* A tile of the first panels. */
static tile first_panels(right_side right, int64_t width, int64_t num_columns) {
  const int64_t size = (width + 1) * LANES;
  if (right.stride == 0)
    return (tile){right.start, size, right.start + LANES, size, LANES, .num_columns = num_columns};
  return (tile){ZEROS, 0, right.start, LANES, right.stride, .num_columns = num_columns};
}

/* out = x @ right + bias, the bias if it is packed with it, and then what `end` says. Tiles have as
 * equally many rows as can be: one of a single row would take as long as one of many. */
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

/* out = x @ packed, by shares of rows. */
typedef struct {
  const real *x, *packed;
  real *out;
  int64_t stride, width, num_columns, out_stride, num_rows, size, num_shares;
} product;

static void multiply_some_rows(void *work, int64_t share) {
  const product *p = work;
  const int64_t num_blocks = pieces(p->num_rows, p->size);
  const int64_t begin = share_begins(num_blocks, share, p->num_shares) * p->size;
  const int64_t end = share_begins(num_blocks, share + 1, p->num_shares) * p->size;
  for (int64_t row = begin; row < smaller(end, p->num_rows); row += p->size)
    multiply_rows(p->x + row * p->stride, p->stride, p->width, (right_side){p->packed, 0},
                  p->num_columns, p->out + row * p->out_stride, p->out_stride,
                  smaller(p->num_rows - row, p->size), (end_of_tile){NULL});
}

/* The same as `multiply_rows` with threads, each for rows of its own. */
void multiply(const real *x, int64_t stride, int64_t width, const real *packed, int64_t num_columns,
              real *out, int64_t out_stride, int64_t num_rows, int64_t num_threads) {
  if (num_rows == 0) return;
  const int64_t share = pieces(pieces(num_rows, num_threads), MAX_ROWS) * MAX_ROWS;
  product p = {x, packed, out, stride, width, num_columns, out_stride, num_rows,
               smaller(share, BLOCK_ROWS), num_threads};
  run_shares(multiply_some_rows, &p, num_threads);
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

/* total = left.T @ x and sums += left.sum(0), by shares of columns. */
typedef struct {
  const real *left;
  int64_t left_stride, left_columns;
  apart x;
  real *total, *sums;
  int64_t num_rows, num_shares;
  real *strips; /* NULL: columns are read as they lie */
  int64_t strip_size, row; /* of `strips`: the first row that they hold */
} product_sums;

/* Adds the products of BLOCK_TERMS rows at most, for a share of the columns. */
static void sum_some_terms(const product_sums *p, int64_t row, int64_t share) {
  enum { COLUMNS = SUM_PANELS * VECTOR_BYTES / sizeof(real) };
  real panels[COLUMNS * (BLOCK_TERMS + 1)];
  const int64_t num_terms = smaller(p->num_rows - row, BLOCK_TERMS);
  const int64_t panel_size = (num_terms + 1) * LANES;
  const real *rows = p->left + row * p->left_stride;
  const int64_t num_columns = p->x.num_parts * p->x.width, num_pieces = pieces(num_columns, COLUMNS);
  const int64_t end = share_begins(num_pieces, share + 1, p->num_shares) * COLUMNS;
  int64_t column = share_begins(num_pieces, share, p->num_shares) * COLUMNS;
  for (; column < smaller(end, num_columns); column += COLUMNS) {
    const int64_t num_here = smaller(num_columns - column, COLUMNS);
    if (column == 0 && p->sums != NULL)
      sum_rows(rows, p->left_stride, num_terms, p->left_columns, p->sums);
    pack_terms(&p->x, row, num_terms, column, num_here, panels);
    for (int64_t at = 0; at < p->left_columns; at += MAX_ROWS) {
      real *to = p->total + at * num_columns + column;
      const tile t = {panels, panel_size, panels + LANES, panel_size, LANES, to, num_columns,
                      smaller(MAX_ROWS, p->left_columns - at), num_here,
                      {.added = row > 0 ? to : NULL, .stride = num_columns}};
      if (p->strips == NULL) sum_columns(&t, rows + at, p->left_stride, num_terms);
      else sum_columns(&t, p->strips + at / MAX_ROWS * p->strip_size, MAX_ROWS, num_terms);
    }
  }
}

static void sum_all_terms(void *work, int64_t share) {
  const product_sums *p = work;
  for (int64_t row = 0; row == 0 || row < p->num_rows; row += BLOCK_TERMS) /* no rows sum to 0 */
    sum_some_terms(p, row, share);
}

static void sum_strips(void *work, int64_t share) {
  const product_sums *p = work;
  sum_some_terms(p, p->row, share);
}

static void pack_some_strips(void *work, int64_t share) {
  const product_sums *p = work;
  const int64_t num_terms = smaller(p->num_rows - p->row, BLOCK_TERMS);
  const int64_t end = share_begins(num_terms, share + 1, p->num_shares);
  for (int64_t r = share_begins(num_terms, share, p->num_shares); r < end; r++)
    pack_strips(p->left + (p->row + r) * p->left_stride, p->left_columns, p->strips + r * MAX_ROWS,
                p->strip_size);
}

/* total = left.T @ x and sums += left.sum(0), for left [num_rows, left_columns]; sums may be NULL.
 * Returns whether there was memory for it. */
int64_t sum_products(const real *left, int64_t left_stride, int64_t left_columns,
                     const real *start, const int64_t *index, int64_t stride, int64_t num_parts,
                     int64_t width, real *total, real *sums, int64_t num_rows,
                     int64_t num_threads) {
  if (num_parts * width == 0) { /* a layer of no inputs may have a bias */
    if (sums != NULL) sum_rows(left, left_stride, num_rows, left_columns, sums);
    return 1;
  }
  /* Tiles of few columns would fetch each line of `left` too often, so they get strips; a line of
   * room between these, or they would fight for the same places of a cache. */
  const int64_t in_strips = MAX_ROWS * sizeof(real) < 3 * LINE / 4;
  const int64_t strip_size = smaller(num_rows, BLOCK_TERMS) * MAX_ROWS + LINE / sizeof(real);
  const int64_t num_strips = pieces(left_columns, MAX_ROWS);
  real *strips = in_strips ? malloc((num_strips * strip_size + 1) * sizeof(real)) : NULL;
  if (in_strips && strips == NULL) return 0;
  product_sums p = {left, left_stride, left_columns, {start, index, stride, num_parts, width},
                    total, sums, num_rows, num_threads, strips, strip_size, 0};
  if (!in_strips) run_shares(sum_all_terms, &p, num_threads);
  for (; in_strips && (p.row == 0 || p.row < num_rows); p.row += BLOCK_TERMS) {
    run_shares(pack_some_strips, &p, num_threads);
    run_shares(sum_strips, &p, num_threads);
  }
  free(strips);
  return 1;
}
