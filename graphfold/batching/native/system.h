/* What the operating system has for threads: sleeping and waking, a clock, memory of a thread.
 *
 * POSIX, which is Linux and macOS, and Windows; the rest of the code knows of neither. */
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <malloc.h>
#include <windows.h>

typedef SRWLOCK lock_type;
typedef CONDITION_VARIABLE condition;
typedef INIT_ONCE once;
#define LOCK_INIT SRWLOCK_INIT
#define CONDITION_INIT CONDITION_VARIABLE_INIT
#define ONCE_INIT INIT_ONCE_STATIC_INIT

static inline void lock(lock_type *l) { AcquireSRWLockExclusive(l); }
static inline void unlock(lock_type *l) { ReleaseSRWLockExclusive(l); }
static inline void wait_for(condition *c, lock_type *l) {
  SleepConditionVariableSRW(c, l, INFINITE, 0);
}
static inline void wake(condition *c) { WakeConditionVariable(c); }

static BOOL CALLBACK call(INIT_ONCE *o, void *function, void **result) {
  (void)o, (void)result;
  ((void (*)(void))function)();
  return TRUE;
}
static inline void run_first(once *o, void (*function)(void)) {
  InitOnceExecuteOnce(o, call, (void *)function, NULL);
}

/* Nothing is forked there. */
static inline void after_fork(void (*function)(void)) { (void)function; }

/* Defines `name`, which runs work(given) for a thread that is started. */
#define THREAD(name, work)                 \
  static DWORD WINAPI name(void *given) {  \
    work(given);                           \
    return 0;                              \
  }
typedef LPTHREAD_START_ROUTINE thread_start;
/* Whether there is a new thread. */
static inline int start_thread(thread_start start, void *given) {
  const HANDLE thread = CreateThread(NULL, 0, start, given, 0, NULL);
  if (thread != NULL) CloseHandle(thread);
  return thread != NULL;
}

/* Nanoseconds since some moment. */
static inline int64_t now(void) {
  LARGE_INTEGER count, per_second;
  QueryPerformanceCounter(&count);
  QueryPerformanceFrequency(&per_second);
  return (int64_t)((double)count.QuadPart * (1e9 / (double)per_second.QuadPart));
}

static inline void *allocate_lines(size_t size) { return _aligned_malloc(size, 64); }
static inline void free_lines(void *memory) { _aligned_free(memory); }

/* Memory that is freed when its thread ends. */
static DWORD at_end;
static void WINAPI free_at_end(void *memory) { free_lines(memory); }
static void make_key(void) { at_end = FlsAlloc(free_at_end); }
static inline void set_memory_of_thread(void *memory) { FlsSetValue(at_end, memory); }

#else
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef pthread_mutex_t lock_type;
typedef pthread_cond_t condition;
typedef pthread_once_t once;
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
#define CONDITION_INIT PTHREAD_COND_INITIALIZER
#define ONCE_INIT PTHREAD_ONCE_INIT

static inline void lock(lock_type *l) { pthread_mutex_lock(l); }
static inline void unlock(lock_type *l) { pthread_mutex_unlock(l); }
static inline void wait_for(condition *c, lock_type *l) { pthread_cond_wait(c, l); }
static inline void wake(condition *c) { pthread_cond_signal(c); }
static inline void run_first(once *o, void (*function)(void)) { pthread_once(o, function); }

/* Runs a function in the new process of every fork. */
static inline void after_fork(void (*function)(void)) { pthread_atfork(NULL, NULL, function); }

/* Defines `name`, which runs work(given) for a thread that is started. */
#define THREAD(name, work)         \
  static void *name(void *given) { \
    work(given);                   \
    return NULL;                   \
  }
typedef void *(*thread_start)(void *);
/* Whether there is a new thread. */
static inline int start_thread(thread_start start, void *given) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, start, given) != 0) return 0;
  pthread_detach(thread);
  return 1;
}

/* Nanoseconds since some moment. */
static inline int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void *allocate_lines(size_t size) { return aligned_alloc(64, size); }
static inline void free_lines(void *memory) { free(memory); }

/* Memory that is freed when its thread ends. */
static pthread_key_t at_end;
static void make_key(void) { pthread_key_create(&at_end, free_lines); }
static inline void set_memory_of_thread(void *memory) { pthread_setspecific(at_end, memory); }
#endif
