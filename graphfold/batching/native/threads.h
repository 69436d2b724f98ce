/* Threads: a piece of work in shares, which are run at once.
 *
 * A share belongs to no thread. Whoever is free takes the next one, the caller too: if the machine is
 * busy and the other threads get no processor, the caller does their shares itself. Threads without
 * work look for some for a moment, as the next group of a plan comes soon, and then sleep, so that
 * other processes get the processor. What is computed does not hang on who takes which share.
 *
 * This is a pool of its own and not OpenMP's, whose threads spin for milliseconds at the end of each
 * loop: on a busy machine the thread that is waited for cannot run meanwhile. It also needs no library
 * beside the compiler, and a process that is forked starts threads of its own. */
#include <stdatomic.h>

enum { MOST_WORKERS = 255 };
/* Nanoseconds that a thread looks for work, or waits for the others' shares, before it sleeps. */
#define PATIENCE 200000

typedef void (*task)(void *work, int64_t share);

typedef struct {
  condition woken;
  atomic_int sleeps;
} worker;

/* `turn` is the number of the work in its upper half, how many shares it has and how many are taken in
 * the lower. A share is taken by one exchange of `turn`, which fails if the work is another by then. */
static struct {
  lock_type lock; /* of whoever goes to sleep or wakes others */
  condition done;
  atomic_int is_busy, caller_sleeps;
  _Atomic uint64_t turn;
  _Atomic(task) run;
  _Atomic(void *) work;
  atomic_int_least64_t num_left; /* shares that are not done */
  int64_t num_workers;
  worker workers[MOST_WORKERS];
} pool = {.lock = LOCK_INIT, .done = CONDITION_INIT};

static inline int64_t shares_of(uint64_t turn) { return turn >> 16 & 0xffff; }
static inline int64_t taken_of(uint64_t turn) { return turn & 0xffff; }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Waits for some microseconds until `condition` holds. */
#define LOOK_FOR(condition)                                                   \
  for (int64_t end = now() + PATIENCE, tries = 1; !(condition); tries++) {    \
    relax();                                                                  \
    if (tries % 32 == 0 && now() > end) break;                                \
  }

/* Takes shares of the current work, one after the other, until none is left. */
static void take_shares(void) {
  uint64_t turn = atomic_load(&pool.turn);
  while (taken_of(turn) < shares_of(turn)) {
    const task run = atomic_load(&pool.run);
    void *work = atomic_load(&pool.work);
    if (!atomic_compare_exchange_weak(&pool.turn, &turn, turn + 1)) continue;
    run(work, taken_of(turn));
    if (atomic_fetch_sub(&pool.num_left, 1) == 1 && atomic_load(&pool.caller_sleeps)) {
      lock(&pool.lock);
      wake(&pool.done);
      unlock(&pool.lock);
    }
    turn = atomic_load(&pool.turn);
  }
}

/* Whether there is a share for a worker: with fewer threads than once, the last ones sleep on. */
static int has_work(int64_t number) {
  const uint64_t turn = atomic_load(&pool.turn);
  return taken_of(turn) < shares_of(turn) && number + 1 < shares_of(turn);
}

static void run_worker(void *own) {
  worker *w = own;
  const int64_t number = w - pool.workers;
  for (;;) {
    LOOK_FOR(has_work(number))
    if (!has_work(number)) {
      lock(&pool.lock);
      atomic_store(&w->sleeps, 1);
      while (!has_work(number)) wait_for(&w->woken, &pool.lock);
      atomic_store(&w->sleeps, 0);
      unlock(&pool.lock);
    }
    take_shares();
  }
}
THREAD(begin_worker, run_worker)

/* A process that was forked has none of the threads. */
static void forget_workers(void) {
  pool.lock = (lock_type)LOCK_INIT;
  pool.done = (condition)CONDITION_INIT;
  atomic_store(&pool.turn, 0);
  atomic_store(&pool.is_busy, 0);
  atomic_store(&pool.caller_sleeps, 0);
  pool.num_workers = 0;
}

static void prepare_for_fork(void) { after_fork(forget_workers); }

/* Starts workers until there are so many; if the system has no more, the others do their shares. */
static void start_workers(int64_t count) {
  static once prepared = ONCE_INIT;
  run_first(&prepared, prepare_for_fork);
  while (pool.num_workers < smaller(count, MOST_WORKERS)) {
    worker *w = &pool.workers[pool.num_workers];
    w->woken = (condition)CONDITION_INIT;
    atomic_store(&w->sleeps, 0);
    if (!start_thread(begin_worker, w)) return;
    pool.num_workers++;
  }
}

static void wake_workers(int64_t count) {
  int64_t is_locked = 0;
  for (int64_t i = 0; i < smaller(count, pool.num_workers); i++)
    if (atomic_load(&pool.workers[i].sleeps)) {
      if (!is_locked) lock(&pool.lock);
      is_locked = 1;
      wake(&pool.workers[i].woken);
    }
  if (is_locked) unlock(&pool.lock);
}

/* Runs all shares of some work, 65535 at most, and returns when they are done. Where another thread of
 * the process has the pool, the caller does them all. */
static void run_shares(task run, void *work, int64_t num_shares) {
  int is_free = 0;
  if (num_shares < 2 || !atomic_compare_exchange_strong(&pool.is_busy, &is_free, 1)) {
    for (int64_t i = 0; i < num_shares; i++) run(work, i);
    return;
  }
  start_workers(num_shares - 1);
  atomic_store(&pool.run, run);
  atomic_store(&pool.work, work);
  atomic_store(&pool.num_left, num_shares);
  const uint64_t number = (atomic_load(&pool.turn) >> 32) + 1;
  atomic_store(&pool.turn, number << 32 | (uint64_t)num_shares << 16);
  wake_workers(num_shares - 1);
  take_shares();
  LOOK_FOR(atomic_load(&pool.num_left) == 0)
  if (atomic_load(&pool.num_left) > 0) {
    lock(&pool.lock);
    atomic_store(&pool.caller_sleeps, 1);
    while (atomic_load(&pool.num_left) > 0) wait_for(&pool.done, &pool.lock);
    atomic_store(&pool.caller_sleeps, 0);
    unlock(&pool.lock);
  }
  atomic_store(&pool.is_busy, 0);
}

/* Where a share of so many pieces begins. */
static inline int64_t share_begins(int64_t count, int64_t share, int64_t num_shares) {
  return count * share / num_shares;
}
