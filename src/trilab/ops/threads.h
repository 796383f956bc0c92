/* Work shared out among threads, which are made for each call: nothing is left that a forked child would miss. */

#include <pthread.h>

enum { MOST_THREADS = 256 };

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

static void spread(work *work, const void *job, long pieces, long threads) {
    threads = least(least(threads, MOST_THREADS), pieces);
    if (threads < 1) threads = 1;
    struct share shares[MOST_THREADS];
    pthread_t made[MOST_THREADS];
    int running[MOST_THREADS];
    for (long i = threads - 1; i >= 0; i--) {
        shares[i] = (struct share){work, job, pieces * i / threads, pieces * (i + 1) / threads, i};
        running[i] = i > 0 && !pthread_create(&made[i], 0, do_share, &shares[i]);
        if (!running[i]) do_share(&shares[i]);
    }
    for (long i = 1; i < threads; i++)
        if (running[i]) pthread_join(made[i], 0);
}
