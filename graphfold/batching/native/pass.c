/* A pass: the groups of a plan one after the other, each block by block.
 *
 * Blocks of a group do not depend on each other, so threads share them out; the end of a group is
 * their barrier. A block has so few rows that what one instruction writes is still in the cache when
 * the next one reads it.
 *
 * Compiled once for each dtype, with `real` defined, and IS_DOUBLE for double. */
#include <stdlib.h>

#define MAX_BUFFERS 256
#include "vectors.h"
#include "system.h"
#include "threads.h"
#include "tiles.h"
#include "packing.h"
#include "products.h"
#include "functions.h"
#include "elementwise.h"
#include "row_sums.h"
#include "program.h"
#include "rows.h"

/* Scratch memory of a block, in bytes: half of a small second cache. */
#define BLOCK_BYTES (192 * 1024)
#define MOST_ROWS 96
/* Edges of a block's nodes take up to so many bytes of it, and more only if they are of one node. */
#define EDGE_BYTES (2 << 20)
/* So many multiplications, or what takes as long, are worth a thread: it takes a while to wake one,
 * and whoever shares work waits for a thread that loses its processor. */
#define LEAST_WORK (1 << 18)
/* Multiplications in the time of one number of another operation. */
#define OF_NUMBER 8
/* A thread keeps up to so many bytes of scratch memory for its next pass. */
#define KEPT_BYTES (8 << 20)

/* As `Group` of pass_schedule.py. */
typedef struct {
  int64_t op_type, first_row, end_row, first_edge, end_edge;
} group;

static inline int64_t size_of(const group *g) { return g->end_row - g->first_row; }

static __thread real *scratch;
static __thread int64_t scratch_size;

static void keep(real *memory, int64_t size) {
  static once prepared = ONCE_INIT;
  run_first(&prepared, make_key);
  set_memory_of_thread(memory);
  scratch = memory;
  scratch_size = memory == NULL ? 0 : size;
}

/* Scratch memory for so many numbers; NULL if there is none. */
static real *reserve(int64_t size) {
  if (size > scratch_size) {
    free_lines(scratch);
    keep(allocate_lines((size * sizeof(real) / 64 + 1) * 64), size);
  }
  return scratch;
}

static void release(void) {
  if (scratch_size * (int64_t)sizeof(real) > KEPT_BYTES) {
    free_lines(scratch);
    keep(NULL, 0);
  }
}

/* How many rows a block of a group has: as many as fit, whole tiles of products, and no fewer
 * blocks than threads. */
static int64_t rows_of_block(const group *g, const program *p, int64_t num_threads) {
  const double edges = (double)(g->end_edge - g->first_edge) / size_of(g);
  const double bytes = (p->node_scratch + edges * p->edge_scratch) * sizeof(real);
  int64_t rows = bytes * MOST_ROWS <= BLOCK_BYTES ? MOST_ROWS : (int64_t)(BLOCK_BYTES / bytes);
  rows = smaller(rows, pieces(size_of(g), num_threads));
  return pieces(rows < 1 ? 1 : rows, MAX_ROWS) * MAX_ROWS;
}

/* Instructions of a program, from one to before another. */
typedef struct {
  const program *program;
  int64_t begin, end;
} stage;

/* Runs a stage on a block; returns whether there was memory for it. */
static int64_t run_block(stage s, const links *l, const group *g, int64_t first, int64_t num_rows,
                         int64_t thread) {
  const program *p = s.program;
  block b = {p, l, g->first_row + first, num_rows, .thread = thread};
  b.first_edge = l->edge_ptr[b.first_row - 1];
  b.num_edges = l->edge_ptr[b.first_row - 1 + num_rows] - b.first_edge;
  const int64_t node_numbers = p->node_scratch * num_rows;
  real *memory = reserve(node_numbers + p->edge_scratch * b.num_edges + 1);
  if (memory == NULL) return 0;
  const int64_t skipped[] = {
      [ROWS] = b.first_row, [EDGES] = b.first_edge, [WHOLE] = 0, [PER_THREAD] = thread};
  for (int64_t i = 0; i < p->num_buffers; i++) {
    const buffer *own = &p->buffers[i];
    if (own->space == SCRATCH_NODES) b.at[i] = memory + own->start * num_rows;
    else if (own->space == SCRATCH_EDGES) b.at[i] = memory + node_numbers + own->start * b.num_edges;
    else b.at[i] = (real *)p->address[i] + skipped[own->space] * own->size;
  }
  for (int64_t i = s.begin; i < s.end; i++) run_instruction(&b, &p->instructions[i]);
  release();
  return 1;
}

/* How many of some rows are a block: all, or fewer if they have very many edges. */
static int64_t cut_by_edges(const program *p, const int64_t *edge_ptr, int64_t num_rows) {
  while (num_rows > 1 && (edge_ptr[num_rows] - edge_ptr[0]) * p->edge_scratch *
                             (int64_t)sizeof(real) > EDGE_BYTES)
    num_rows = pieces(num_rows, 2);
  return num_rows;
}

/* A stage for all rows of a group, `size` at a time. */
typedef struct {
  stage s;
  const links *l;
  const group *g;
  int64_t size, num_blocks, num_shares;
  atomic_int has_failed;
} blocks;

static void run_some_blocks(void *work, int64_t share) {
  blocks *b = work;
  const int64_t begin = share_begins(b->num_blocks, share, b->num_shares) * b->size;
  const int64_t end = share_begins(b->num_blocks, share + 1, b->num_shares) * b->size;
  const int64_t last = smaller(end, size_of(b->g)), *edge_ptr = b->l->edge_ptr + b->g->first_row - 1;
  for (int64_t row = begin, count; row < last; row += count) {
    count = cut_by_edges(b->s.program, edge_ptr + row, smaller(b->size, last - row));
    if (!run_block(b->s, b->l, b->g, row, count, share)) {
      atomic_store(&b->has_failed, 1);
      return;
    }
  }
}

/* How many threads are worth their while for a stage. */
static int64_t count_threads(stage s, const group *g, int64_t num_threads) {
  int64_t work = 0;
  if (num_threads < 2) return 1;
  for (const instruction *i = s.program->instructions + s.begin,
                         *end = s.program->instructions + s.end; i < end; i++) {
    const int64_t rows = i->rows_of == OF_EDGES ? g->end_edge - g->first_edge : size_of(g);
    work += rows * i->size[0] * i->size[1] * i->size[2] * (is_product(i) ? 1 : OF_NUMBER);
  }
  return work < 2 * LEAST_WORK ? 1 : smaller(work / LEAST_WORK, num_threads);
}

/* Runs a stage on all rows of a group; returns whether there was memory for it. */
static int64_t run_blocks(stage s, const links *l, const group *g, int64_t most_threads) {
  const int64_t num_threads = count_threads(s, g, most_threads);
  const int64_t size = rows_of_block(g, s.program, num_threads);
  const int64_t num_blocks = pieces(size_of(g), size);
  blocks b = {s, l, g, size, num_blocks, smaller(num_blocks, num_threads), 0};
  run_shares(run_some_blocks, &b, b.num_shares);
  return !atomic_load(&b.has_failed);
}

/* An instruction that computes one row for the group. */
static void run_once(const program *p, const links *l, const group *g, const instruction *i,
                     int64_t num_threads) {
  block b = {p, l, g->first_row, 1, .num_threads = num_threads, .group_size = size_of(g)};
  for (int64_t k = 0; k < p->num_buffers; k++) b.at[k] = (real *)p->address[k];
  run_instruction(&b, i);
}

/* Runs the stages of a program one after the other. */
static int64_t run_group(const program *p, const links *l, const group *g, int64_t num_threads) {
  const instruction *i = p->instructions;
  int64_t is_done = 1;
  stage s = {p, 0, 0};
  for (; is_done && s.end < p->num_instructions; s.begin = s.end) {
    while (s.end < p->num_instructions && i[s.end].rows_of != OF_GROUP) s.end++;
    if (s.begin < s.end) is_done = run_blocks(s, l, g, num_threads);
    for (; s.end < p->num_instructions && i[s.end].rows_of == OF_GROUP; s.end++)
      run_once(p, l, g, &i[s.end], num_threads);
  }
  return is_done;
}

/* Runs the groups from the first to the last, or from the last to the first.
 *
 * table: for each type where in it its program begins, or 0 for types that are left as they are; then
 * the programs.
 * Returns whether there was memory for all. */
int64_t run_pass(const group *groups, int64_t num_groups, int64_t is_backward,
                 const int64_t *table, const links *l, int64_t num_threads) {
  int64_t is_done = 1;
  for (int64_t k = 0; k < num_groups && is_done; k++) {
    const group *g = &groups[is_backward ? num_groups - 1 - k : k];
    if (table[g->op_type] == 0) continue;
    is_done = run_group((const program *)(table + table[g->op_type]), l, g, num_threads);
  }
  return is_done;
}

/* The number of each row among some of them; -1 for the others. */
int64_t number_rows(const int64_t *rows, int64_t count, int64_t num_rows, int64_t *number) {
  int64_t num_repeated = 0;
  for (int64_t i = 0; i < num_rows; i++) number[i] = -1;
  for (int64_t i = 0; i < count; i++) {
    num_repeated += number[rows[i]] >= 0;
    number[rows[i]] = i;
  }
  return num_repeated == 0;
}

/* [num_rows, n] the cotangents of some rows, as far as the pass itself has made them. */
void pull_rows(const links *l, int64_t first_row, int64_t num_rows, int64_t n, const real *of_edges,
               const real *of_nodes, const real *of_next, const real *weighted,
               const real *weight, real *to) {
  const cotangents a = {NULL, NULL, of_edges, of_nodes, of_next, weighted, weight};
  for (int64_t r = 0; r < num_rows; r++) pull_row(l, first_row + r, n, &a, to + r * n);
}
