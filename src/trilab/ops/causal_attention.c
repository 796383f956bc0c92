/* y_t = Σ_s softmax_s(scale · q_t · k_s) v_s over the last `window` positions s ≤ t, and its gradients.
 *
 * A head is done by one thread, some queries at a time: their affinities with the keys that one of them sees, then the
 * weights, then the averages. Powers are of 2: e^x = 2^(x log2 e), the factor being multiplied into the keys. What
 * is added is added in the same order for any number of threads. */

#include <math.h>

#include "threads.h"
#include "tiles.h"

enum { QUERIES = 24, BLOCK = 64 }; /* queries of a block; queries and keys of one in the gradient */

INLINE floats chosen(ints where, floats one, floats other) {
    return (floats)(((ints)one & where) | ((ints)other & ~where));
}

#if defined __AVX512F__
#define LARGER(one, other) __builtin_ia32_maxps512_mask(one, other, one, -1, 4)
#elif defined __AVX__
#define LARGER(one, other) __builtin_ia32_maxps256(one, other)
#else
#define LARGER(one, other) chosen((one) > (other), one, other)
#endif

/* Each lane with the one that is `step` before or after it. */
#define NEIGHBOUR(x, step) __builtin_shuffle(x, LANE ^ (step))

/* Of all lanes, in each of them. */
INLINE floats total(floats x) {
#pragma GCC unroll 4
    for (int step = LANES / 2; step; step /= 2) x += NEIGHBOUR(x, step);
    return x;
}

INLINE floats largest(floats x) {
#pragma GCC unroll 4
    for (int step = LANES / 2; step; step /= 2) x = LARGER(x, NEIGHBOUR(x, step));
    return x;
}

/* 2^x to a unit in the last place or two, for x ≤ 0; 0 below 2^-125, NaN of NaN. The nearest whole number goes into the
 * exponent; for the rest f, at most 1/2, Taylor's series of e^(f ln 2), whose next term is below 2e-7. */
INLINE floats power_of_2(floats x) {
    const float rounds = 3 << 22; /* 1.5 · 2^23: added, it leaves whole numbers, in the lowest bits */
    floats shifted = x + rounds, f = x - (shifted - rounds);
    floats y = all(1.540353039e-4f);
    y = y * f + 1.333355815e-3f;
    y = y * f + 9.618129108e-3f;
    y = y * f + 5.550410866e-2f;
    y = y * f + 2.402265070e-1f;
    y = y * f + 6.931471806e-1f;
    y = y * f + 1.0f;
    ints bits = (ints)((words)y + ((words)shifted << 23)) & (x >= -125.0f); /* far below, it overflows, and is 0 */
    return chosen(x == x, (floats)bits, x);
}

/* (B, H, T, D), the D side by side: where it begins, and how far it is from one to the next. */
struct tensor {
    float *at;
    long batch, head, time;
};

struct job {
    long heads, time, size, window;
    float scale;
    struct tensor q, k, v, y, into, to_q, to_k, to_v;
    float *logs;               /* (B, H, T): log2 of the sums of powers */
    float *scratch;
    long scratch_size;         /* of one thread */
};

static float *of_head(const struct tensor *all, const struct job *job, long piece) {
    return all->at + piece / job->heads * all->batch + piece % job->heads * all->head;
}

/* The first key that a query sees, and the panel that it lies in. */
INLINE long first_seen(const struct job *job, long t) { return t < job->window ? 0 : t - job->window + 1; }
INLINE long first_panel(const struct job *job, long t) { return first_seen(job, t) / PANEL * PANEL; }

/* Numbers of the keys from … end - 1, the first in front: those of keys that the query t does not see become `hidden`. */
INLINE void hide(const struct job *job, long t, long from, long end, float *numbers, float hidden) {
    long first = first_seen(job, t), after = (t + 1) / LANES * LANES;
    for (long s = from; s < end; s += LANES) {
        if (s >= first && s < after) continue; /* all are seen */
        ints key = LANE + (int)s;
        float *at = numbers + s - from;
        store(at, chosen((key <= (int)t) & (key >= (int)first), load(at), all(hidden)));
    }
}

/* Keys in panels, by the scale and log2 e. */
INLINE void to_keys(const struct job *job, const float *k, float *keys) {
    to_panels(job->time, job->size, k, job->k.time, keys);
    for (long i = 0; i < padded(job->time) * job->size; i += LANES)
        store(keys + i, load(keys + i) * (job->scale * 1.442695041f));
}

/* Affinities of the keys from … end - 1 become weights; the log2 of their sum is returned. */
INLINE float to_weights(const struct job *job, long t, long from, long end, float *row) {
    hide(job, t, from, end, row, -INFINITY);
    floats top = all(-INFINITY), sum = all(0);
    for (long s = 0; s < end - from; s += LANES) top = LARGER(load(row + s), top);
    top = largest(top);
    for (long s = 0; s < end - from; s += LANES) {
        floats x = power_of_2(load(row + s) - top);
        sum += x;
        store(row + s, x);
    }
    sum = total(sum);
    floats inverse = 1 / sum;
    for (long s = 0; s < end - from; s += LANES) store(row + s, load(row + s) * inverse);
    return top[0] + log2f(sum[0]);
}

/* Of the queries t … t + count - 1 the tiles (ROWS of them) that see a key of the panel s: begin … end - 1. */
struct range {
    long begin, end;
};

INLINE struct range that_see(const struct job *job, long t, long count, long s) {
    long end = (s + PANEL - 1 + job->window - t + ROWS - 1) / ROWS * ROWS;
    return (struct range){s < t ? 0 : (s - t) / ROWS * ROWS, least(count, end)};
}

static void forward_heads(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, size = job->size, width = padded(time);
    float *keys = job->scratch + thread * job->scratch_size, *weights = keys + width * size;
    for (long piece = begin; piece < end; piece++) {
        const float *q = of_head(&job->q, job, piece), *v = of_head(&job->v, job, piece);
        float *y = of_head(&job->y, job, piece), *logs = job->logs + piece * time;
        to_keys(job, of_head(&job->k, job, piece), keys);
        for (long t = 0; t < time; t += QUERIES) {
            long count = least(QUERIES, time - t);
            for (long s = first_panel(job, t); s < t + count; s += PANEL) {
                struct range rows = that_see(job, t, count, s);
                product(
                    rows.end - rows.begin, PANEL, size, q + (t + rows.begin) * job->q.time, job->q.time, 1,
                    keys + s * size, PANEL, weights + rows.begin * width + s, width, 0);
            }
            for (long r = 0; r < count; r += ROWS) {
                long rows = least(ROWS, count - r), from = first_panel(job, t + r), last = t + r + rows;
                for (long i = r; i < r + rows; i++)
                    logs[t + i] = to_weights(job, t + i, from, last, weights + i * width + from);
                product(
                    rows, size, last - from, weights + r * width + from, width, 1, v + from * job->v.time, job->v.time,
                    y + (t + r) * job->y.time, job->y.time, 0);
            }
        }
    }
}

/* Affinities of the keys from … end - 1 with a query become weights again, and what arrives at the weights what arrives
 * at the affinities: w_s · (into_s - Σ w · into), the sum being y · into. */
INLINE void to_changes(
    const struct job *job, long t, long from, long end, float log, floats mean, float *weights, float *changes) {
    for (long s = 0; s < end - from; s += LANES) {
        floats weight = power_of_2(load(weights + s) - log);
        store(weights + s, weight);
        store(changes + s, weight * (load(changes + s) - mean) * job->scale);
    }
    hide(job, t, from, end, weights, 0);
    hide(job, t, from, end, changes, 0);
}

static void backward_heads(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, size = job->size;
    float *keys = job->scratch + thread * job->scratch_size, *values = keys + padded(time) * size;
    float weights[BLOCK * BLOCK], changes[BLOCK * BLOCK];
    floats mean[BLOCK];
    long q_row = job->q.time, k_row = job->k.time, y_row = job->y.time, into_row = job->into.time;
    for (long piece = begin; piece < end; piece++) {
        const float *q = of_head(&job->q, job, piece), *k = of_head(&job->k, job, piece);
        const float *y = of_head(&job->y, job, piece), *into = of_head(&job->into, job, piece);
        float *to_q = of_head(&job->to_q, job, piece), *to_k = of_head(&job->to_k, job, piece);
        float *to_v = of_head(&job->to_v, job, piece), *logs = job->logs + piece * time;
        to_keys(job, k, keys);
        to_panels(time, size, of_head(&job->v, job, piece), job->v.time, values);
        for (long t = 0; t < time; t += BLOCK) {
            long count = least(BLOCK, time - t), last = t + count;
            for (long r = 0; r < count; r++) {
                floats sum = all(0);
                for (long d = 0; d < size; d += LANES)
                    sum += load(y + (t + r) * y_row + d) * load(into + (t + r) * into_row + d);
                mean[r] = total(sum);
            }
            for (long first = first_panel(job, t); first < last; first += BLOCK) {
                long beyond = least(first + BLOCK, last);
                for (long s = first; s < beyond; s += PANEL) {
                    struct range rows = that_see(job, t, count, s);
                    long many = rows.end - rows.begin, at = rows.begin * BLOCK + s - first;
                    product(
                        many, PANEL, size, q + (t + rows.begin) * q_row, q_row, 1, keys + s * size, PANEL, weights + at,
                        BLOCK, 0);
                    product(
                        many, PANEL, size, into + (t + rows.begin) * into_row, into_row, 1, values + s * size, PANEL,
                        changes + at, BLOCK, 0);
                }
                for (long r = 0; r < count; r += ROWS) {
                    long rows = least(ROWS, count - r), seen = first_panel(job, t + r);
                    long from = seen > first ? seen : first, to = least(beyond, t + r + rows);
                    if (from >= to) continue;
                    long at = r * BLOCK + from - first;
                    for (long i = 0; i < rows; i++)
                        to_changes(
                            job, t + r + i, from, padded(to), logs[t + r + i], mean[r + i], weights + at + i * BLOCK,
                            changes + at + i * BLOCK);
                    product(
                        rows, size, to - from, changes + at, BLOCK, 1, k + from * k_row, k_row,
                        to_q + (t + r) * job->to_q.time, job->to_q.time, seen < first);
                }
                for (long s = first; s < beyond; s += PANEL) {
                    long rows_end = that_see(job, t, count, s).end, keys_end = least(s + PANEL, beyond);
                    for (long i = s; i < keys_end; i += ROWS) {
                        long many = least(ROWS, keys_end - i), row = i > t ? i - t : 0, inner = rows_end - row;
                        long at = row * BLOCK + i - first;
                        product(
                            many, size, inner, changes + at, 1, BLOCK, q + (t + row) * q_row, q_row,
                            to_k + i * job->to_k.time, job->to_k.time, s < t);
                        product(
                            many, size, inner, weights + at, 1, BLOCK, into + (t + row) * into_row, into_row,
                            to_v + i * job->to_v.time, job->to_v.time, s < t);
                    }
                }
            }
        }
    }
}

/* Numbers that a thread needs for itself. */
long scratch_size(long time, long size) { return padded(time) * (2 * size + QUERIES); }

void forward(long batch, const struct job *job, long threads) { spread(forward_heads, job, batch * job->heads, threads); }
void backward(long batch, const struct job *job, long threads) { spread(backward_heads, job, batch * job->heads, threads); }
