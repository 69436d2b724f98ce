/* Programs: what a cell computes for some rows, as a list of instructions.
 *
 * A block is a few nodes of a group with their edges. An instruction computes one value for all
 * nodes of the block, or for all of their edges; a value is a tensor of up to three dimensions for
 * each of them. What only the block needs lies in scratch memory, small enough to stay in a cache;
 * the rest lies in buffers of the whole pass.
 *
 * The numbers of spaces, and the order of the fields, are those of program.py; operations are asked for
 * by name. */

/* Where the rows of a buffer are counted from. */
enum {
  SCRATCH_NODES, /* of the block */
  SCRATCH_EDGES,
  ROWS,       /* the row of a node in the plan */
  EDGES,      /* the position of an edge in the plan */
  WHOLE,      /* nothing: the same for all rows */
  PER_THREAD, /* a copy for every thread */
};

typedef struct {
  int64_t space, size; /* numbers per row; of PER_THREAD, per thread */
  int64_t start;       /* of scratch memory, how many numbers per row lie before it */
} buffer;

typedef struct {
  int64_t buffer, offset, row; /* row: numbers from one row to the next */
  int64_t step[3];             /* from one number to the next in each dimension */
  int64_t read;                /* which row is read, see `row_of` */
} operand;

typedef struct {
  int64_t operation, rows_of; /* what it computes a row for: each node, each edge, or the group */
  int64_t size[3];
  operand out, in[6];
} instruction;

typedef struct {
  const buffer *buffers;
  const instruction *instructions;
  int64_t num_buffers, num_instructions;
  int64_t node_scratch, edge_scratch; /* numbers per node and per edge of a block */
  int64_t address[];                  /* of every buffer, then of every array of integers */
} program;

/* The array of integers by which an operand is read. */
static inline const int64_t *index_of(const program *p, const operand *x) {
  return (const int64_t *)p->address[p->num_buffers + x->read - 1];
}

enum { OF_NODES, OF_EDGES, OF_GROUP };

/* What all programs of a pass read. Rows begin with 1; row 0 is an absent child. */
typedef struct {
  const int64_t *edge_ptr;      /* [num_rows + 1] where the edges of row 1, 2, ... begin */
  const int64_t *reader_ptr;    /* [num_rows + 2] where the readers of row 0, 1, ... begin */
  const int64_t *reader_edge;   /* the edges sorted by the row that they read */
  const int64_t *reader_row;    /* the rows that read, minus one, in the same order */
  const int64_t *next_ptr;      /* [num_rows + 2] in rounds: where the rows that follow each begin */
  const int64_t *next_row;      /* these rows, minus one */
} links;

typedef struct {
  const program *p;
  const links *links;
  int64_t first_row, num_rows, first_edge, num_edges, thread, num_threads, group_size;
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

enum { OWN_ROW = 0, ROW_OF_NODE = -1 };

/* Which row of an operand is read for one of a block: the own one, that of an edge's node, or what an
 * array of integers names. */
typedef struct {
  const real *start;
  int64_t row, of_node;
  const int64_t *named; /* NULL: not by name */
} rows_read;

static inline rows_read find_rows(const block *b, const instruction *i, const operand *x) {
  return (rows_read){find(b, x), x->row, x->read == ROW_OF_NODE,
                     x->read > OWN_ROW ? index_of(b->p, x) + first_row(b, i) : NULL};
}

static inline const real *row_of(const rows_read *x, int64_t row, int64_t node) {
  return x->start + x->row * (x->named != NULL ? x->named[row] : x->of_node ? node : row);
}
