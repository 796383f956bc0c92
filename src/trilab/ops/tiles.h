/* Products of small matrices of floats that stay in registers and near caches. */

#include <stdint.h>
#include <string.h>

/* A panel: columns of a product that are computed side by side. A tile of so many rows and a panel fits the registers. */
#ifdef __AVX512F__
enum { LANES = 16, PANEL = 2 * LANES, ROWS = 8 };
#else
enum { LANES = 8, PANEL = 2 * LANES, ROWS = 6 };
#endif

#define INLINE static inline __attribute__((always_inline))
typedef __attribute__((vector_size(LANES * sizeof(float)))) float floats;
typedef __attribute__((vector_size(LANES * sizeof(int32_t)))) int32_t ints;
typedef __attribute__((vector_size(LANES * sizeof(uint32_t)))) uint32_t words;

#ifdef __AVX512F__
static const ints LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
static const ints LANE = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

INLINE floats load(const float *at) {
    floats loaded;
    memcpy(&loaded, at, sizeof loaded);
    return loaded;
}

INLINE void store(float *at, floats given) { memcpy(at, &given, sizeof given); }

INLINE floats all(float one) { return one - (floats){0}; }

/* C = A B, or C += A B, for so many rows, ROWS at most, and columns, in vectors; all of C stays in registers. */
INLINE void tile(
    int rows, int vectors, long inner, const float *a, long a_row, long a_column, const float *b, long b_row, float *c,
    long c_row, int add) {
    floats sum[ROWS][PANEL / LANES], of_b[PANEL / LANES];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = all(0);
            if (add && v == 0) __builtin_prefetch(c + r * c_row, 1);
        }
    for (long i = 0; i < inner; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) of_b[v] = load(b + i * b_row + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            floats of_a = all(a[r * a_row + i * a_column]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] += of_a * of_b[v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * c_row + v * LANES;
            store(at, add ? load(at) + sum[r][v] : sum[r][v]);
        }
}

/* C = A B, or C += A B, where the columns of B lie side by side, a multiple of LANES of them. */
INLINE void product(
    long rows, long columns, long inner, const float *a, long a_row, long a_column, const float *b, long b_row,
    float *c, long c_row, int add) {
    for (long j = 0; j < columns; j += PANEL) {
        int wide = columns - j >= PANEL;
        for (long r = 0, done; r < rows; r += done) {
            const float *of_a = a + r * a_row;
            float *of_c = c + r * c_row + j;
            done = rows - r >= ROWS ? ROWS : rows - r >= 4 ? 4 : 1;
#define TILE(ROWS_, VECTORS) tile(ROWS_, VECTORS, inner, of_a, a_row, a_column, b + j, b_row, of_c, c_row, add)
            if (done == ROWS && wide) TILE(ROWS, 2);
            else if (done == ROWS) TILE(ROWS, 1);
            else if (done == 4 && wide) TILE(4, 2);
            else if (done == 4) TILE(4, 1);
            else if (wide) TILE(1, 2);
            else TILE(1, 1);
#undef TILE
        }
    }
}

/* Of each pair of rows, `step` apart, the upper lanes of the first change places with the lower of the second. */
INLINE void exchange(floats *x, int step) {
    ints upper = (LANE & step) != 0;
    ints first = (LANE & ~upper) | ((LANES + LANE - step) & upper);
    ints second = ((LANE + step) & ~upper) | ((LANES + LANE) & upper);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        if (!(i & step)) {
            floats one = x[i], other = x[i + step];
            x[i] = __builtin_shuffle(one, other, first);
            x[i + step] = __builtin_shuffle(one, other, second);
        }
}

/* (LANES, LANES) */
INLINE void transpose(const float *from, long from_row, float *to, long to_row) {
    floats x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) x[i] = load(from + i * from_row);
    exchange(x, 1);
    exchange(x, 2);
    exchange(x, 4);
    if (LANES > 8) exchange(x, 8);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) store(to + i * to_row, x[i]);
}

static long padded(long time) { return (time + PANEL - 1) / PANEL * PANEL; }

/* Rows of `size` numbers as panels of PANEL of them side by side, (size, PANEL) each; the last is filled up with 0. */
INLINE void to_panels(long time, long size, const float *rows, long row, float *panels) {
    for (long t = 0; t < padded(time); t += LANES) {
        float *panel = panels + t / PANEL * PANEL * size + t % PANEL;
        if (t + LANES <= time)
            for (long d = 0; d < size; d += LANES) transpose(rows + t * row + d, row, panel + d * PANEL, PANEL);
        else
            for (long d = 0; d < size; d++)
                for (int i = 0; i < LANES; i++) panel[d * PANEL + i] = t + i < time ? rows[(t + i) * row + d] : 0;
    }
}

