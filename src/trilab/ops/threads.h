/* Work shared out among threads. */

#include <pthread.h>
#include <unistd.h>

enum { MOST_THREADS = 256 };

/* The threads of the OpenMP that torch itself computes with, where the process has GNU's: between two operations they
 * spin for a while, and threads of our own would have to share their cores with them, at half the speed. Elsewhere, and
 * in a forked child, where they are missing, threads are made for each call. */
#if defined __linux__ && defined __GNUC__
extern void GOMP_parallel(void (*work)(void *), void *given, unsigned threads, unsigned flags) __attribute__((weak));
#define HAS_TEAM (GOMP_parallel && getpid() == loaded_in)

static pid_t loaded_in;

__attribute__((constructor)) static void remember_process(void) { loaded_in = getpid(); }
#else
#define HAS_TEAM 0
#define GOMP_parallel(work, given, threads, flags) ((void)(work), (void)(given))
#endif

/* Work on pieces begin … end - 1; `thread` counts those that work at the same time, from 0. */
typedef void work(const void *job, long begin, long end, long thread);

struct share {
    work *work;
    const void *job;
    long begin, end, thread;
};

static inline long least(long one, long two) { return one < two ? one : two; }

static void *do_share(void *given) {
    const struct share *share = given;
    share->work(share->job, share->begin, share->end, share->thread);
    return 0;
}

struct shares {
    struct share all[MOST_THREADS];
    long number, taken;
};

/* A team may be smaller than was asked for: each of it goes on until all is done. */
static void do_shares(void *given) {
    struct shares *shares = given;
    for (long next; (next = __atomic_fetch_add(&shares->taken, 1, __ATOMIC_RELAXED)) < shares->number;)
        do_share(&shares->all[next]);
}

static void spread_over_new_threads(struct shares *shares) {
    pthread_t made[MOST_THREADS];
    int running[MOST_THREADS];
    for (long i = shares->number - 1; i >= 0; i--) {
        running[i] = i > 0 && !pthread_create(&made[i], 0, do_share, &shares->all[i]);
        if (!running[i]) do_share(&shares->all[i]);
    }
    for (long i = 1; i < shares->number; i++)
        if (running[i]) pthread_join(made[i], 0);
}

static void spread(work *work, const void *job, long pieces, long threads) {
    threads = least(least(threads, MOST_THREADS), pieces);
    if (threads < 1) threads = 1;
    struct shares shares;
    shares.number = threads;
    shares.taken = 0;
    for (long i = 0; i < threads; i++)
        shares.all[i] = (struct share){work, job, pieces * i / threads, pieces * (i + 1) / threads, i};
    if (threads == 1) do_share(&shares.all[0]);
    else if (HAS_TEAM) GOMP_parallel(do_shares, &shares, threads, 0);
    else spread_over_new_threads(&shares);
}
