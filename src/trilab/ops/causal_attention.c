/* y_t = Σ_s softmax_s(scale · q_t · k_s) v_s over the last `window` positions s ≤ t, and its gradients.
 *
 * A head is done by one thread, some queries at a time: their affinities with the keys that one of them sees, then the
 * weights, then the averages. Powers are of 2: e^x = 2^(x log2 e), the factor being multiplied into the queries. What
 * is added is added in the same order for any number of threads. */

#include <math.h>

#include "threads.h"
#include "tiles.h"

enum { QUERIES = 16, KEYS = 64 }; /* of a block, of one in the gradient */

static const ints LANE = {0, 1, 2, 3, 4, 5, 6, 7};

INLINE floats chosen(ints where, floats one, floats other) {
    return (floats)(((ints)one & where) | ((ints)other & ~where));
}

INLINE float total(floats parts) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += parts[lane];
    return sum;
}

INLINE float largest(floats parts) {
    float top = parts[0];
    for (int lane = 1; lane < LANES; lane++) top = parts[lane] > top ? parts[lane] : top;
    return top;
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
    ints bits = ((ints)y + ((ints)shifted << 23)) & (x >= -125.0f);
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

/* Which of the keys s … s + LANES - 1 the query t sees. */
INLINE ints seen(const struct job *job, long t, long s) {
    ints key = LANE + (int)s;
    return (key <= (int)t) & (key >= (int)first_seen(job, t));
}

/* Queries t … t + count - 1, by scale and log2 e, in the order (count, size). */
INLINE void take_queries(const struct job *job, const float *q, long t, long count, float *queries) {
    for (long r = 0; r < count; r++)
        for (long d = 0; d < job->size; d += LANES)
            store(queries + r * job->size + d, load(q + (t + r) * job->q.time + d) * (job->scale * 1.442695041f));
}

/* Affinities of the keys from … end - 1 become weights; the log2 of their sum is returned. */
INLINE float to_weights(const struct job *job, long t, long from, long end, float *row) {
    floats top = all(-INFINITY), sum = all(0);
    for (long s = from; s < end; s += LANES) {
        floats x = chosen(seen(job, t, s), load(row + s), all(-INFINITY));
        top = chosen(x > top, x, top);
        store(row + s, x);
    }
    float most = largest(top);
    for (long s = from; s < end; s += LANES) {
        floats x = power_of_2(load(row + s) - most);
        sum += x;
        store(row + s, x);
    }
    float whole = total(sum), inverse = 1 / whole;
    for (long s = from; s < end; s += LANES) store(row + s, load(row + s) * inverse);
    return most + log2f(whole);
}

static void forward_heads(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, size = job->size, width = padded(time);
    float *keys = job->scratch + thread * job->scratch_size, *weights = keys + width * size;
    float *queries = weights + QUERIES * width;
    for (long piece = begin; piece < end; piece++) {
        const float *q = of_head(&job->q, job, piece), *v = of_head(&job->v, job, piece);
        float *y = of_head(&job->y, job, piece), *logs = job->logs + piece * time;
        to_panels(time, size, of_head(&job->k, job, piece), job->k.time, keys);
        for (long t = 0; t < time; t += QUERIES) {
            long count = least(QUERIES, time - t), last = t + count, from = first_panel(job, t);
            take_queries(job, q, t, count, queries);
            for (long s = from; s < last; s += PANEL)
                product(count, PANEL, size, queries, size, 1, keys + s * size, PANEL, weights + s, width, 0);
            for (long r = 0; r < count; r++) logs[t + r] = to_weights(job, t + r, from, last, weights + r * width);
            product(
                count, size, last - from, weights + from, width, 1, v + from * job->v.time, job->v.time,
                y + t * job->y.time, job->y.time, 0);
        }
    }
}

INLINE void clear(const struct tensor *tensor, float *head, long time, long size) {
    for (long t = 0; t < time; t++) memset(head + t * tensor->time, 0, size * sizeof *head);
}

/* Affinities of some keys with a query become weights again, and what arrives at the weights what arrives at the
 * affinities: w_s · (into_s - Σ w · into), the sum being y · into. */
INLINE void to_changes(
    const struct job *job, long t, long first, long many, float log, float mean, float *weights, float *changes) {
    for (long s = 0; s < many; s += LANES) {
        floats weight = power_of_2(load(weights + s) - log);
        weight = chosen(seen(job, t, first + s), weight, all(0));
        store(weights + s, weight);
        store(changes + s, weight * (load(changes + s) - mean) * job->scale);
    }
}

static void backward_heads(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, size = job->size;
    float *keys = job->scratch + thread * job->scratch_size, *values = keys + padded(time) * size;
    float *queries = values + padded(time) * size;
    float weights[QUERIES * KEYS], changes[QUERIES * KEYS], mean[QUERIES];
    long q_row = job->q.time, k_row = job->k.time, y_row = job->y.time, into_row = job->into.time;
    for (long piece = begin; piece < end; piece++) {
        const float *q = of_head(&job->q, job, piece), *k = of_head(&job->k, job, piece);
        const float *y = of_head(&job->y, job, piece), *into = of_head(&job->into, job, piece);
        float *to_q = of_head(&job->to_q, job, piece), *to_k = of_head(&job->to_k, job, piece);
        float *to_v = of_head(&job->to_v, job, piece), *logs = job->logs + piece * time;
        to_panels(time, size, k, k_row, keys);
        to_panels(time, size, of_head(&job->v, job, piece), job->v.time, values);
        clear(&job->to_q, to_q, time, size);
        clear(&job->to_k, to_k, time, size);
        clear(&job->to_v, to_v, time, size);
        for (long t = 0; t < time; t += QUERIES) {
            long count = least(QUERIES, time - t), last = t + count;
            take_queries(job, q, t, count, queries);
            for (long r = 0; r < count; r++) {
                floats sum = all(0);
                for (long d = 0; d < size; d += LANES)
                    sum += load(y + (t + r) * y_row + d) * load(into + (t + r) * into_row + d);
                mean[r] = total(sum);
            }
            for (long first = first_panel(job, t); first < last; first += KEYS) {
                long many = least(KEYS, last - first);
                for (long s = 0; s < many; s += PANEL) {
                    long panel = (first + s) * size;
                    product(count, PANEL, size, queries, size, 1, keys + panel, PANEL, weights + s, KEYS, 0);
                    product(
                        count, PANEL, size, into + t * into_row, into_row, 1, values + panel, PANEL, changes + s, KEYS,
                        0);
                }
                for (long r = 0; r < count; r++)
                    to_changes(
                        job, t + r, first, many, logs[t + r], mean[r], weights + r * KEYS, changes + r * KEYS);
                product(
                    count, size, many, changes, KEYS, 1, k + first * k_row, k_row, to_q + t * job->to_q.time,
                    job->to_q.time, 1);
                product(
                    many, size, count, changes, 1, KEYS, q + t * q_row, q_row, to_k + first * job->to_k.time,
                    job->to_k.time, 1);
                product(
                    many, size, count, weights, 1, KEYS, into + t * into_row, into_row, to_v + first * job->to_v.time,
                    job->to_v.time, 1);
            }
        }
    }
}

/* Numbers that a thread needs for itself. */
long scratch_size(long time, long size) { return padded(time) * (2 * size + QUERIES) + QUERIES * size; }

void forward(long batch, const struct job *job, long threads) { spread(forward_heads, job, batch * job->heads, threads); }
void backward(long batch, const struct job *job, long threads) { spread(backward_heads, job, batch * job->heads, threads); }
