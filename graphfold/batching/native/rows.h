/* Operations on the rows of a block: those of elementwise.h, and those on whole rows. */

/* An elementwise operation row by row. */
static void run_rows(const block *b, const instruction *i, elementwise run) {
  const operand *o = &i->out, *x = &i->in[0], *y = &i->in[1], *z = &i->in[2];
  const rows_read of_x = find_rows(b, i, x), of_y = find_rows(b, i, y), of_z = find_rows(b, i, z);
  const int64_t num_rows = count_rows(b, i), *edge_end = b->links->edge_ptr + b->first_row;
  real *to = find(b, o);
  for (int64_t r = 0, node = 0; r < num_rows; r++, to += o->row) {
    if (i->rows_of == OF_EDGES)
      while (edge_end[node] <= b->first_edge + r) node++;
    const real *at_x = row_of(&of_x, r, node), *at_y = row_of(&of_y, r, node);
    const real *at_z = row_of(&of_z, r, node);
    for (int64_t j = 0; j < i->size[0]; j++)
      for (int64_t k = 0; k < i->size[1]; k++)
        run(i->size[2], to + j * o->step[0] + k * o->step[1], o->step[2],
            at_x + j * x->step[0] + k * x->step[1], x->step[2],
            at_y + j * y->step[0] + k * y->step[1], y->step[2],
            at_z + j * z->step[0] + k * z->step[1], z->step[2]);
  }
}

/* The same, all rows in one run if every operand lies in one piece. */
static void run_elementwise(const block *b, const instruction *i, elementwise run) {
  const int64_t n = i->size[2];
  int64_t is_one_piece = i->size[0] * i->size[1] == 1 && i->out.row == n * i->out.step[2];
  for (int64_t k = 0; k < 3; k++)
    is_one_piece &= i->in[k].read == OWN_ROW && i->in[k].row == n * i->in[k].step[2];
  if (!is_one_piece) {
    run_rows(b, i, run);
    return;
  }
  run(count_rows(b, i) * n, find(b, &i->out), i->out.step[2], find(b, &i->in[0]), i->in[0].step[2],
      find(b, &i->in[1]), i->in[1].step[2], find(b, &i->in[2]), i->in[2].step[2]);
}

static inline void add_row(real *to, const real *from, int64_t n) {
  SIMD for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* The edges of a node of the block, counted within the block. */
#define EACH_NODE(b, node)                                                                   \
  for (int64_t node = 0, begin = 0, end; node < (b)->num_rows; node++, begin = end)          \
    if ((end = (b)->links->edge_ptr[(b)->first_row + node] - (b)->first_edge), 1)

/* out = in[0] @ the weight that in[1] describes; with a row of in[2] added, relu of it, or both. */
static void multiply_block(const block *b, const instruction *i, end_of_tile end) {
  const right_side *right = (const right_side *)find(b, &i->in[1]);
  multiply_rows(find(b, &i->in[0]), i->in[0].row, i->size[0], *right, i->size[2], find(b, &i->out),
                i->out.row, count_rows(b, i), end);
}

static void multiply_only(const block *b, const instruction *i) {
  multiply_block(b, i, (end_of_tile){NULL});
}

static void multiply_add(const block *b, const instruction *i) {
  multiply_block(b, i, (end_of_tile){.added = find(b, &i->in[2]), .stride = i->in[2].row});
}

static void multiply_relu(const block *b, const instruction *i) {
  multiply_block(b, i, (end_of_tile){NULL, .is_relu = 1});
}

static void multiply_add_relu(const block *b, const instruction *i) {
  multiply_block(b, i, (end_of_tile){find(b, &i->in[2]), i->in[2].row, 1});
}

/* Rows of in[0], copied; faster than one elementwise copy for each. */
static void gather(const block *b, const instruction *i) {
  const int64_t n = i->size[2], count = count_rows(b, i);
  const int64_t *row = index_of(b->p, &i->in[0]) + first_row(b, i);
  const real *from = find(b, &i->in[0]);
  real *to = find(b, &i->out);
  for (int64_t e = 0; e < count; e++)
    copy(to + e * i->out.row, from + row[e] * i->in[0].row, n);
}

/* Node: the sum over its edges of the rows of in[0] that they read, or that are theirs without `row`;
 * each times a number of its edge, if there is a weight. */
static inline void add_edges(const block *b, const instruction *i, const int64_t *row,
                             const real *weight) {
  const int64_t n = i->size[2];
  const real *from = find(b, &i->in[0]);
  EACH_NODE(b, node) {
    row_sum sum;
    begin_sum(&sum, find(b, &i->out) + node * i->out.row, n);
    for (int64_t e = begin; e < end; e++)
      note(&sum, from + (row == NULL ? e : row[e]) * i->in[0].row,
           weight == NULL ? 1 : weight[e * i->in[1].row]);
    end_sum(&sum);
  }
}

static void sum_edges(const block *b, const instruction *i) { add_edges(b, i, NULL, NULL); }

static void gather_sum(const block *b, const instruction *i) {
  add_edges(b, i, index_of(b->p, &i->in[0]) + b->first_edge, NULL);
}

static void gather_weighted(const block *b, const instruction *i) {
  add_edges(b, i, index_of(b->p, &i->in[0]) + b->first_edge, find(b, &i->in[1]));
}

/* Node: the maximum over its edges, 0 without edges. */
static void max_edges(const block *b, const instruction *i) {
  const int64_t n = i->size[2];
  const real *from = find(b, &i->in[0]);
  EACH_NODE(b, node) {
    real *to = find(b, &i->out) + node * i->out.row;
    if (begin == end) clear(to, n);
    else copy(to, from + begin * i->in[0].row, n);
    for (int64_t e = begin + 1; e < end; e++)
      run_accumulate_max(n, to, 1, from + e * i->in[0].row, 1, NULL, 0, NULL, 0);
  }
}

/* Node: how many edges it has. */
static void count_edges(const block *b, const instruction *i) {
  real *to = find(b, &i->out);
  EACH_NODE(b, node) to[node * i->out.row] = (real)(end - begin);
}

/* The number in an array of integers, one for each row of the pass. */
static void integer(const block *b, const instruction *i) {
  const int64_t count = count_rows(b, i), *number = index_of(b->p, &i->in[0]) + first_row(b, i);
  real *to = find(b, &i->out);
  for (int64_t r = 0; r < count; r++) to[r * i->out.row] = (real)number[r];
}

/* The parts of the cotangents of the rows of a field; NULL for none. */
typedef struct {
  const real *upstream; /* from what reads the results of the pass */
  const int64_t *place; /* the row of `upstream` for each row of the field, or -1; NULL: the same */
  const real *of_edges; /* by the edges that read a row */
  const real *of_nodes; /* by the nodes that read a row */
  const real *of_next;  /* by the rows that follow a row in the next round */
  const real *weighted, *weight; /* by the nodes that read a row, times the weight of the edge */
} cotangents;

/* to = the cotangent of a row. */
static void pull_row(const links *l, int64_t row, int64_t n, const cotangents *a, real *to) {
  const int64_t where = a->upstream == NULL ? -1 : a->place == NULL ? row : a->place[row];
  row_sum sum;
  begin_sum(&sum, to, n);
  if (where >= 0) note(&sum, a->upstream + where * n, 1);
  if (a->of_edges != NULL || a->of_nodes != NULL || a->weighted != NULL)
    for (int64_t r = l->reader_ptr[row]; r < l->reader_ptr[row + 1]; r++) {
      const int64_t edge = l->reader_edge[r], node = l->reader_row[r] + 1;
      if (a->of_edges != NULL) note(&sum, a->of_edges + edge * n, 1);
      if (a->of_nodes != NULL) note(&sum, a->of_nodes + node * n, 1);
      if (a->weighted != NULL) note(&sum, a->weighted + node * n, a->weight[edge]);
    }
  if (a->of_next != NULL && l->next_ptr != NULL)
    for (int64_t r = l->next_ptr[row]; r < l->next_ptr[row + 1]; r++)
      note(&sum, a->of_next + (l->next_row[r] + 1) * n, 1);
  end_sum(&sum);
}

static void pull(const block *b, const instruction *i) {
  const cotangents a = {find(b, &i->in[0]), index_of(b->p, &i->in[0]), find(b, &i->in[1]),
                   find(b, &i->in[2]), find(b, &i->in[3]), find(b, &i->in[4]), find(b, &i->in[5])};
  for (int64_t r = 0; r < b->num_rows; r++)
    pull_row(b->links, b->first_row + r, i->size[2], &a, find(b, &i->out) + r * i->out.row);
}

/* in[0] of an edge is added to the row of a table that its number names. Every thread has a table of
 * its own; how many numbers it has is the first of another array. */
static void look_up_add(const block *b, const instruction *i) {
  const int64_t n = i->size[2], *number = index_of(b->p, &i->in[0]) + b->first_edge;
  real *table = find(b, &i->out) + b->thread * index_of(b->p, &i->out)[0];
  for (int64_t e = 0; e < b->num_edges; e++)
    add_row(table + number[e] * n, find(b, &i->in[0]) + e * i->in[0].row, n);
}

/* The rows of in[0] are added to a sum of the thread; those of a block apart, so that the sum of many
 * loses few digits. */
static void sum_of_group(const block *b, const instruction *i) {
  enum { WIDTH = 4 * VECTOR_BYTES / sizeof(real) };
  const int64_t n = i->size[2], row = i->in[0].row;
  real *sums = find(b, &i->out);
  for (int64_t begin = 0; begin < n; begin += WIDTH) {
    const real *from = find(b, &i->in[0]) + begin;
    real total[WIDTH] = {0};
    if (n - begin < WIDTH)
      for (int64_t r = 0; r < b->num_rows; r++) add_row(total, from + r * row, n - begin);
    else
      for (int64_t r = 0; r < b->num_rows; r++) add_row(total, from + r * row, WIDTH);
    add_row(sums + begin, total, smaller(n - begin, WIDTH));
  }
}

/* All blocks of the group end here; out is the sum of all threads, in[0], divided by the number of
 * rows. */
static void end_of_stage(const block *b, const instruction *i) {
  const int64_t n = i->size[2];
  const real *sums = find(b, &i->in[0]);
  real *mean = find(b, &i->out);
  clear(mean, n);
  for (int64_t t = 0; t < b->num_threads; t++) add_row(mean, sums + t * n, n);
  for (int64_t j = 0; j < n; j++) mean[j] /= (real)b->group_size;
}

#define ROW_OPERATIONS(do)                                                                         \
  do(multiply, multiply_only) do(multiply_add, multiply_add) do(multiply_relu, multiply_relu)      \
  do(multiply_add_relu, multiply_add_relu) do(gather, gather) do(gather_sum, gather_sum)           \
  do(gather_weighted, gather_weighted) do(sum_edges, sum_edges) do(max_edges, max_edges)           \
  do(count_edges, count_edges) do(integer, integer) do(pull, pull)                                 \
  do(look_up_add, look_up_add) do(sum_of_group, sum_of_group) do(end_of_stage, end_of_stage)
#define FUNCTION(name, function) function,
static void (*const ON_ROWS[])(const block *, const instruction *) = {ROW_OPERATIONS(FUNCTION)};

/* The name of an operation; NULL behind the last. */
const char *operation_name(int64_t number) {
#define NAME(name, value) #name,
  static const char *const names[] = {ELEMENTWISE_OPERATIONS(NAME) ROW_OPERATIONS(NAME) NULL};
  return names[number];
}

/* Whether its sizes are those of a product: what is summed over, and the columns. */
static inline int64_t is_product(const instruction *i) {
  if (i->operation < NUM_ELEMENTWISE) return 0;
  void (*const run)(const block *, const instruction *) = ON_ROWS[i->operation - NUM_ELEMENTWISE];
  return run == multiply_only || run == multiply_add || run == multiply_relu ||
         run == multiply_add_relu;
}

static void run_instruction(const block *b, const instruction *i) {
  if (i->operation < NUM_ELEMENTWISE) run_elementwise(b, i, ELEMENTWISE[i->operation]);
  else ON_ROWS[i->operation - NUM_ELEMENTWISE](b, i);
}
