/* y = A v with A lower-triangular, and its gradients: Aᵀ g, and the lower triangle of g vᵀ.
 *
 * What lies above the diagonal is left out to within a tile. The factor whose columns lie side by side in a tile is
 * copied to where a panel of them fits the nearest cache. What is added is added in the same order for any number of
 * threads. */

#include <math.h>

#include "threads.h"
#include "tiles.h"

/* How much is copied: DEPTH terms of WIDTH sums; and how many rows of the transposed table. */
enum { DEPTH = 256, WIDTH = LANES > 8 ? 384 : 256, STRIP = 16 * ROWS }; /* wide registers, larger caches */

/* (B, T, H·N), and (H, T, T); N a multiple of LANES, T one of PANEL. */
struct job {
    long batch, heads, time, columns;
    const float *table, *v, *into;
    float *y, *to_table, *to_v, *scratch;
};

INLINE long most(long one, long two) { return one > two ? one : two; }
INLINE long width(const struct job *job) { return job->heads * job->columns; }

/* Of one thread, in numbers. */
long scratch_size(void) { return DEPTH * (WIDTH + STRIP); }

/* `depth` rows of `count` numbers as panels of PANEL columns, DEPTH rows each. */
INLINE void to_columns(long depth, long count, const float *rows, long row, float *panels) {
    for (long k = 0; k < depth; k++)
        for (long j = 0; j < count; j += LANES)
            store(panels + j / PANEL * PANEL * DEPTH + k * PANEL + j % PANEL, load(rows + k * row + j));
}

/* Rows of y: of each row of the batch and head, some columns, some terms at a time. */
static void forward_heads(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, row = width(job);
    float *panels = job->scratch + thread * scratch_size();
    for (long piece = begin; piece < end; piece++) {
        long head = piece % job->heads, start = piece / job->heads * time * row + head * job->columns;
        const float *table = job->table + head * time * time;
        for (long c = 0; c < job->columns; c += WIDTH) {
            long count = least(WIDTH, job->columns - c);
            const float *v = job->v + start + c;
            float *y = job->y + start + c;
            for (long from = 0; from < time; from += DEPTH) {
                to_columns(least(DEPTH, time - from), count, v + from * row, row, panels);
                for (long strip = from / ROWS * ROWS; strip < time; strip += STRIP)
                    for (long j = 0; j < count; j += PANEL)
                        for (long t = strip; t < least(strip + STRIP, time); t += ROWS) {
                            long rows = least(ROWS, time - t), depth = least(DEPTH, t + rows - from);
                            product(
                                rows, least(PANEL, count - j), depth, table + t * time + from, time, 1,
                                panels + j * DEPTH, PANEL, y + t * row + j, row, from > 0);
                        }
            }
        }
    }
}

/* One row of a strip: ROWS numbers for each of its tiles. */
INLINE void copy_strip(long count, const float *row, float *strip) {
    long r = 0;
    for (; r + ROWS <= count; r += ROWS) memcpy(strip + r * DEPTH, row + r, ROWS * sizeof *row);
    if (r < count) memcpy(strip + r * DEPTH, row + r, (count - r) * sizeof *row);
}

/* The gradient of v, likewise: rows of the transposed table are copied, in strips. */
static void backward_heads(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, row = width(job);
    float *panels = job->scratch + thread * scratch_size(), *strip = panels + DEPTH * WIDTH;
    for (long piece = begin; piece < end; piece++) {
        long head = piece % job->heads, start = piece / job->heads * time * row + head * job->columns;
        const float *table = job->table + head * time * time;
        for (long c = 0; c < job->columns; c += WIDTH) {
            long count = least(WIDTH, job->columns - c);
            const float *into = job->into + start + c;
            float *to_v = job->to_v + start + c;
            for (long from = 0; from < time; from += DEPTH) {
                long last = least(time, from + DEPTH);
                to_columns(last - from, count, into + from * row, row, panels);
                for (long s = 0; s < last; s += STRIP) {
                    long many = least(STRIP, time - s);
                    for (long t = most(from, s); t < last; t++)
                        copy_strip(many, table + t * time + s, strip + (t - from) * ROWS);
                    for (long j = 0; j < count; j += PANEL)
                        for (long r = 0; r < many; r += ROWS) {
                            long skipped = most(0, s + r - from);
                            product(
                                least(ROWS, many - r), least(PANEL, count - j), last - from - skipped,
                                strip + r * DEPTH + skipped * ROWS, 1, ROWS, panels + j * DEPTH + skipped * PANEL,
                                PANEL, to_v + (s + r) * row + j, row, from > (s + r) / DEPTH * DEPTH);
                        }
                }
            }
        }
    }
}

enum { SHARES = 1 << 10 };

/* The row up to which a triangle has so many of SHARES equal shares. */
static long row_of(const struct job *job, long share) {
    return share == SHARES ? job->time : (long)(job->time * sqrt((double)share / SHARES)) / ROWS * ROWS;
}

/* The gradient of the table, up to the panel that the diagonal crosses: some rows, all heads. */
static void backward_rows(const void *given, long begin, long end, long thread) {
    const struct job *job = given;
    long time = job->time, row = width(job), first = row_of(job, begin), last = row_of(job, end);
    float *panels = job->scratch + thread * scratch_size();
    for (long head = 0; head < job->heads; head++) {
        float *to_table = job->to_table + head * time * time;
        for (long from = 0; from < last; from += WIDTH)
            for (long b = 0; b < job->batch; b++)
                for (long c = 0; c < job->columns; c += DEPTH) {
                    long depth = least(DEPTH, job->columns - c), count = least(WIDTH, last - from);
                    long start = b * time * row + head * job->columns + c;
                    to_panels(padded(count), depth, job->v + start + from * row, row, panels);
                    for (long strip = most(first, from / ROWS * ROWS); strip < last; strip += STRIP)
                        for (long s = from; s < least(from + count, strip + STRIP); s += PANEL)
                            for (long t = most(strip, s / ROWS * ROWS); t < least(strip + STRIP, last); t += ROWS)
                                product(
                                    least(ROWS, last - t), PANEL, depth, job->into + start + t * row, row, 1,
                                    panels + (s - from) * depth, PANEL, to_table + t * time + s, time, b + c > 0);
                }
    }
}

void forward(const struct job *job, long threads) { spread(forward_heads, job, job->batch * job->heads, threads); }

void backward(const struct job *job, long threads) {
    if (job->to_v) spread(backward_heads, job, job->batch * job->heads, threads);
    if (job->to_table) spread(backward_rows, job, SHARES, threads);
}
