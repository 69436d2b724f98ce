/* Programs: what a cell computes for some rows, as a list of instructions.
 *
 * A block is a few nodes of a group with their edges. An instruction computes one value for all
 * nodes of the block, or for all of their edges; a value is a tensor of up to three dimensions for
 * each of them. What only the block needs lies in scratch memory, small enough to stay in a cache;
 * the rest lies in buffers of the whole pass.
 *
 * The numbers of operations and spaces, and the order of the fields, are those of program.py. */

/* Where the rows of a buffer are counted from. */
enum {
  SCRATCH_NODES, /* of the block */
  SCRATCH_EDGES,
  ROWS,        /* the row of a node in the plan */
  TYPE_ROWS,   /* its position among the nodes of its type */
  EDGES,       /* the position of an edge in the plan */
  TYPE_EDGES,  /* its position among the edges of nodes of the type */
  WHOLE,       /* nothing: the same for all rows */
  PER_THREAD,  /* a copy for every thread */
};

typedef struct {
  int64_t space, size; /* numbers per row; of PER_THREAD, per thread */
  int64_t start;       /* of scratch memory, how many numbers per row lie before it */
} buffer;

typedef struct {
  int64_t buffer, offset, row; /* row: numbers from one row to the next */
  int64_t step[3];             /* from one number to the next in each dimension */
} operand;

typedef struct {
  int64_t operation, rows_of; /* what it computes a row for: each node, each edge, or the group */
  int64_t size[3];
  int64_t index; /* which array of integers it reads, if any */
  operand out, in[3];
} instruction;

typedef struct {
  const buffer *buffers;
  const instruction *instructions;
  int64_t num_buffers, num_instructions;
  int64_t node_scratch, edge_scratch; /* numbers per node and per edge of a block */
  int64_t address[];                  /* of every buffer, then of every array of integers */
} program;

static inline const int64_t *index_of(const program *p, int64_t number) {
  return (const int64_t *)p->address[p->num_buffers + number];
}

enum { OF_NODES, OF_EDGES, OF_GROUP };

/* Operations beside those of elementwise.h. */
enum {
  ACCUMULATE = 80,
  ACCUMULATE_MAX = 81,
  MULTIPLY,     /* out = in[0] @ packed weight in[1] */
  GATHER,       /* edge: the row of in[0] that the edge reads */
  GATHER_SUM,   /* node: the sum of the rows of in[0] that its edges read */
  SUM_EDGES,    /* node: the sum over its edges */
  MAX_EDGES,    /* node: the maximum over its edges, 0 without edges */
  EXPAND,       /* edge: the row of its node */
  COUNT_EDGES,  /* node: how many edges it has */
  INTEGER,      /* the number in an array of integers, one for each row of the pass */
  PULL,         /* node: gradients from outside (in[0]), of edges (in[1]) and of nodes (in[2]) that
                   read it */
  PULL_NEXT,    /* node: in[0] of the rows that follow it in the next round is added */
  LOOK_UP,      /* edge: the row of a table in[0] that its number names */
  LOOK_UP_ADD,  /* in[0] of an edge is added to that row */
  SUM_OF_GROUP, /* the rows of in[0] are added to a sum of the thread */
  END_OF_STAGE, /* all blocks of the group end here; out is the sum of all threads, in[0], divided by
                   the number of rows */
  GATHER_WEIGHTED, /* node: the sum of the rows of in[0] that its edges read, each times in[1] */
  PULL_WEIGHTED,   /* node: in[0] of the rows that read it, times in[1] of the edge, is added */
};

/* What all programs of a pass read. Rows begin with 1; row 0 is an absent child. */
typedef struct {
  const int64_t *edge_ptr;      /* [num_rows + 1] where the edges of row 1, 2, ... begin */
  const int64_t *reader_ptr;    /* [num_rows + 2] where the readers of row 0, 1, ... begin */
  const int64_t *reader_edge;   /* the edges sorted by the row that they read */
  const int64_t *reader_row;    /* the rows that read, minus one, in the same order */
  const int64_t *reader_of_row; /* 1 + the only edge that reads a row, or 0; NULL if several do */
  const int64_t *next_ptr;      /* [num_rows + 2] in rounds: where the rows that follow each begin */
  const int64_t *next_row;      /* these rows, minus one */
} links;

typedef struct {
  const program *p;
  const links *links;
  int64_t first_row, num_rows, first_edge, num_edges, thread;
  real *at[MAX_BUFFERS]; /* where the block's rows begin in each buffer */
} block;

static inline real *find(const block *b, const operand *x) { return b->at[x->buffer] + x->offset; }

/* How many rows an instruction computes, and the first of them in the plan. */
static inline int64_t count_rows(const block *b, const instruction *i) {
  return i->rows_of == OF_EDGES ? b->num_edges : b->num_rows;
}
static inline int64_t first_row(const block *b, const instruction *i) {
  return i->rows_of == OF_EDGES ? b->first_edge : b->first_row;
}

/* An elementwise operation: all rows in one run where every operand lies in one piece. */
static void run_elementwise(const block *b, const instruction *i, elementwise run) {
  const operand *o = &i->out, *x = &i->in[0], *y = &i->in[1], *z = &i->in[2];
  const int64_t n = i->size[2], num_rows = count_rows(b, i);
  real *to = find(b, o);
  const real *from_x = find(b, x), *from_y = find(b, y), *from_z = find(b, z);
  const int64_t so = o->step[2], sx = x->step[2], sy = y->step[2], sz = z->step[2];
  if (i->size[0] * i->size[1] == 1 && o->row == n * so && x->row == n * sx && y->row == n * sy &&
      z->row == n * sz) {
    run(num_rows * n, to, so, from_x, sx, from_y, sy, from_z, sz);
    return;
  }
  for (int64_t r = 0; r < num_rows; r++)
    for (int64_t j = 0; j < i->size[0]; j++)
      for (int64_t k = 0; k < i->size[1]; k++)
        run(n, to + r * o->row + j * o->step[0] + k * o->step[1], so,
            from_x + r * x->row + j * x->step[0] + k * x->step[1], sx,
            from_y + r * y->row + j * y->step[0] + k * y->step[1], sy,
            from_z + r * z->row + j * z->step[0] + k * z->step[1], sz);
}

static inline void copy_row(real *to, const real *from, int64_t n) {
  memcpy(to, from, n * sizeof(real));
}

static inline void add_row(real *to, const real *from, int64_t n) {
  SIMD for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* The edges of a node of the block, counted within the block. */
#define EACH_NODE(b, node)                                                                   \
  for (int64_t node = 0, begin = 0, end; node < (b)->num_rows; node++, begin = end)          \
    if ((end = (b)->links->edge_ptr[(b)->first_row + node] - (b)->first_edge), 1)

static void gather(const block *b, const instruction *i) {
  const int64_t n = i->size[2], *row = index_of(b->p, i->index);
  const int64_t first = first_row(b, i), count = count_rows(b, i);
  const real *from = find(b, &i->in[0]);
  real *to = find(b, &i->out);
  for (int64_t e = 0; e < count; e++)
    copy_row(to + e * i->out.row, from + row[first + e] * i->in[0].row, n);
}

static void gather_sum(const block *b, const instruction *i) {
  const int64_t n = i->size[2], *row = index_of(b->p, i->index) + b->first_edge;
  const real *from = find(b, &i->in[0]);
  EACH_NODE(b, node) {
    real *to = find(b, &i->out) + node * i->out.row;
    memset(to, 0, n * sizeof(real));
    for (int64_t e = begin; e < end; e++) add_row(to, from + row[e] * i->in[0].row, n);
  }
}

static inline void add_times(real *to, real factor, const real *from, int64_t n) {
  SIMD for (int64_t i = 0; i < n; i++) to[i] += factor * from[i];
}

static void gather_weighted(const block *b, const instruction *i) {
  const int64_t n = i->size[2], *row = index_of(b->p, i->index) + b->first_edge;
  const real *from = find(b, &i->in[0]), *weight = find(b, &i->in[1]);
  EACH_NODE(b, node) {
    real *to = find(b, &i->out) + node * i->out.row;
    memset(to, 0, n * sizeof(real));
    for (int64_t e = begin; e < end; e++)
      add_times(to, weight[e * i->in[1].row], from + row[e] * i->in[0].row, n);
  }
}

static void sum_edges(const block *b, const instruction *i) {
  const int64_t n = i->size[2];
  const real *from = find(b, &i->in[0]);
  EACH_NODE(b, node) {
    real *to = find(b, &i->out) + node * i->out.row;
    memset(to, 0, n * sizeof(real));
    for (int64_t e = begin; e < end; e++) add_row(to, from + e * i->in[0].row, n);
  }
}

static void max_edges(const block *b, const instruction *i) {
  const int64_t n = i->size[2];
  const real *from = find(b, &i->in[0]);
  EACH_NODE(b, node) {
    real *to = find(b, &i->out) + node * i->out.row;
    if (begin == end) memset(to, 0, n * sizeof(real));
    else copy_row(to, from + begin * i->in[0].row, n);
    for (int64_t e = begin + 1; e < end; e++)
      run_accumulate_max(n, to, 1, from + e * i->in[0].row, 1, NULL, 0, NULL, 0);
  }
}

static void expand(const block *b, const instruction *i) {
  const int64_t n = i->size[2];
  real *to = find(b, &i->out);
  EACH_NODE(b, node) {
    const real *from = find(b, &i->in[0]) + node * i->in[0].row;
    for (int64_t e = begin; e < end; e++) copy_row(to + e * i->out.row, from, n);
  }
}

static void count_edges(const block *b, const instruction *i) {
  real *to = find(b, &i->out);
  EACH_NODE(b, node) to[node * i->out.row] = (real)(end - begin);
}

static void integers(const block *b, const instruction *i) {
  const int64_t count = count_rows(b, i), *number = index_of(b->p, i->index) + first_row(b, i);
  real *to = find(b, &i->out);
  for (int64_t r = 0; r < count; r++) to[r * i->out.row] = (real)number[r];
}

/* to = what is asked of a row from outside, by the edges and by the nodes that read it. */
static void pull_row(const links *l, int64_t row, int64_t n, const real *outside,
                     const int64_t *place, const real *of_edges, const real *of_nodes, real *to) {
  const int64_t where = outside == NULL ? -1 : place == NULL ? row : place[row];
  int64_t is_set = where >= 0;
  if (is_set) copy_row(to, outside + where * n, n);
  if (l->reader_of_row != NULL && of_nodes == NULL && row > 0) {
    const int64_t edge = of_edges == NULL ? -1 : l->reader_of_row[row] - 1;
    if (edge >= 0 && is_set) add_row(to, of_edges + edge * n, n);
    else if (edge >= 0) copy_row(to, of_edges + edge * n, n);
    else if (!is_set) memset(to, 0, n * sizeof(real));
    return;
  }
  if (!is_set) memset(to, 0, n * sizeof(real));
  for (int64_t r = l->reader_ptr[row]; r < l->reader_ptr[row + 1]; r++) {
    if (of_edges != NULL) add_row(to, of_edges + l->reader_edge[r] * n, n);
    if (of_nodes != NULL) add_row(to, of_nodes + (l->reader_row[r] + 1) * n, n);
  }
}

static void pull(const block *b, const instruction *i) {
  const int64_t *place = index_of(b->p, i->index);
  for (int64_t r = 0; r < b->num_rows; r++)
    pull_row(b->links, b->first_row + r, i->size[2], find(b, &i->in[0]), place,
             find(b, &i->in[1]), find(b, &i->in[2]), find(b, &i->out) + r * i->out.row);
}

/* to += what the rows that follow a row in the next round ask of it. */
static void add_next(const links *l, int64_t row, int64_t n, const real *of_next, real *to) {
  if (of_next == NULL || l->next_ptr == NULL) return;
  for (int64_t i = l->next_ptr[row]; i < l->next_ptr[row + 1]; i++)
    add_row(to, of_next + (l->next_row[i] + 1) * n, n);
}

static void pull_next(const block *b, const instruction *i) {
  for (int64_t r = 0; r < b->num_rows; r++)
    add_next(b->links, b->first_row + r, i->size[2], find(b, &i->in[0]),
             find(b, &i->out) + r * i->out.row);
}

/* to += what the rows that read a row ask of it, each times the weight of its edge. */
static void add_weighted(const links *l, int64_t row, int64_t n, const real *of_nodes,
                         const real *weight, real *to) {
  if (of_nodes == NULL) return;
  for (int64_t r = l->reader_ptr[row]; r < l->reader_ptr[row + 1]; r++)
    add_times(to, weight[l->reader_edge[r]], of_nodes + (l->reader_row[r] + 1) * n, n);
}

static void pull_weighted(const block *b, const instruction *i) {
  for (int64_t r = 0; r < b->num_rows; r++)
    add_weighted(b->links, b->first_row + r, i->size[2], find(b, &i->in[0]), find(b, &i->in[1]),
                 find(b, &i->out) + r * i->out.row);
}

static void look_up(const block *b, const instruction *i) {
  const int64_t n = i->size[2], *number = index_of(b->p, i->index) + b->first_edge;
  const real *table = find(b, &i->in[0]);
  for (int64_t e = 0; e < b->num_edges; e++)
    copy_row(find(b, &i->out) + e * i->out.row, table + number[e] * n, n);
}

/* Every thread has a table of its own; how many numbers it has is the first of another array. */
static void look_up_add(const block *b, const instruction *i) {
  const int64_t n = i->size[2], *number = index_of(b->p, i->index) + b->first_edge;
  real *table = find(b, &i->out) + b->thread * index_of(b->p, i->size[0])[0];
  for (int64_t e = 0; e < b->num_edges; e++)
    add_row(table + number[e] * n, find(b, &i->in[0]) + e * i->in[0].row, n);
}

/* The rows of a block are added up apart, so that the sum of many loses few digits. */
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

static void end_stage(const block *b, const instruction *i, int64_t num_rows,
                      int64_t num_threads) {
  const int64_t n = i->size[2];
  const real *sums = find(b, &i->in[0]);
  real *mean = find(b, &i->out);
  memset(mean, 0, n * sizeof(real));
  for (int64_t t = 0; t < num_threads; t++) add_row(mean, sums + t * n, n);
  for (int64_t j = 0; j < n; j++) mean[j] /= (real)num_rows;
}

static void run_instruction(const block *b, const instruction *i) {
  const int64_t num_rows = count_rows(b, i);
  switch (i->operation) {
    case MULTIPLY:
      multiply_rows(find(b, &i->in[0]), i->in[0].row, i->size[0], find(b, &i->in[1]), i->size[2],
                    find(b, &i->out), i->out.row, num_rows);
      break;
    case GATHER: gather(b, i); break;
    case GATHER_SUM: gather_sum(b, i); break;
    case SUM_EDGES: sum_edges(b, i); break;
    case MAX_EDGES: max_edges(b, i); break;
    case EXPAND: expand(b, i); break;
    case COUNT_EDGES: count_edges(b, i); break;
    case INTEGER: integers(b, i); break;
    case PULL: pull(b, i); break;
    case PULL_NEXT: pull_next(b, i); break;
    case GATHER_WEIGHTED: gather_weighted(b, i); break;
    case PULL_WEIGHTED: pull_weighted(b, i); break;
    case LOOK_UP: look_up(b, i); break;
    case LOOK_UP_ADD: look_up_add(b, i); break;
    case SUM_OF_GROUP: sum_of_group(b, i); break;
    default: run_elementwise(b, i, ELEMENTWISE[i->operation]);
  }
}
