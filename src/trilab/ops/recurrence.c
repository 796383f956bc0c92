/* Prefix sums and means, and h_t = a_t h_{t-1} + b_t x_t, over rows of contiguous channels.
 *
 * A row is read and written as it lies in memory, forwards or wholly backwards: a walk that goes forwards inside rows
 * and backwards over them is lost on the processor's prefetchers and takes twice the time. Threads share out batch rows
 * and channels, never time, and what is added over channels is added by one thread: the same bits for any number of
 * them. Vectors are of one length wherever they are computed, and compiled without contraction to fused products: the
 * same bits on all processors. */

#include <stdint.h>
#include <string.h>

#include "threads.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { BLOCK = 512, UNIT = 64 };

/* Work on channels first … end - 1, at most BLOCK, of one batch row. */
typedef void row_work(const void *job, long row, long first, long end);

struct rows {
    row_work *work;
    const void *job;
    long channels, unit; /* unit: channels that stay together */
};

static long pieces_of_a_row(const struct rows *all) { return (all->channels + all->unit - 1) / all->unit; }

static void do_rows(const void *given, long begin, long end, long thread) {
    const struct rows *all = given;
    long pieces = pieces_of_a_row(all);
    (void)thread;
    for (long now = begin; now < end;) {
        long row = now / pieces, piece = now % pieces;
        long stop = least(pieces, piece + end - now);
        long last = least(all->channels, stop * all->unit);
        for (long first = piece * all->unit; first < last;) { /* cut at the same places whatever the share */
            long next = least(last, (first / BLOCK + 1) * BLOCK);
            all->work(all->job, row, first, next);
            first = next;
        }
        now += stop - piece;
    }
#ifdef __SSE__
    _mm_sfence(); /* what was streamed is seen by whoever waits for this thread */
#endif
}

static void spread_rows(row_work *work, const void *job, long rows, long channels, long unit, long threads) {
    struct rows all = {work, job, channels, unit};
    spread(do_rows, &all, rows * pieces_of_a_row(&all), threads);
}

/* For the widest registers that there are when the kernels are loaded. */
#ifndef WIDEST
#if defined __x86_64__ && defined __GLIBC__ && !defined __clang__
#define WIDEST __attribute__((target_clones("avx2", "default")))
#else
#define WIDEST
#endif
#endif

#define INLINE static inline __attribute__((always_inline))

/* Vectors of 32 bytes, of what is computed: compilers split what fills more than a register by way of the stack. */
#define VECTOR(type, lanes) __attribute__((vector_size((lanes) * sizeof(type)))) type
typedef VECTOR(float, 8) floats;
typedef VECTOR(double, 4) doubles;

/* LANES numbers, or fewer at the end of a row: the others are zeros, and stay in the register. */
#define LOAD(TYPE, at, count)                                                                                          \
    ({                                                                                                                 \
        TYPE loaded_ = {0};                                                                                            \
        memcpy(&loaded_, at, (count) * sizeof *(at));                                                                  \
        loaded_;                                                                                                       \
    })
#define STORE(at, given, count)                                                                                        \
    do {                                                                                                               \
        __typeof__(given) stored_ = given;                                                                             \
        memcpy(at, &stored_, (count) * sizeof *(at));                                                                  \
    } while (0)

/* How many of `count` numbers fill whole vectors. The rest is rare, and slow: a copy of a length not known here. */
#define WHOLE(count) ((count) / LANES * LANES)

/* Stores past the caches, in which there is no room for all of it anyhow: what is written is then not read first, and
 * drives nothing out. From STREAMED bytes on that gains a fifth, with whatever reads it next; below, it loses. */
enum { STREAMED = 8 << 20 };

#ifdef __SSE__
#define STREAM(at, given, count, streamed)                                                                             \
    do {                                                                                                               \
        __typeof__(given) value_ = given;                                                                              \
        if (streamed && (count) == LANES && sizeof value_ >= sizeof(__m128) && (uintptr_t)(at) % sizeof(__m128) == 0)   \
            for (unsigned part_ = 0; part_ < sizeof value_ / sizeof(__m128); part_++) {                                \
                __m128 quarter_;                                                                                       \
                memcpy(&quarter_, (const char *)&value_ + part_ * sizeof quarter_, sizeof quarter_);                    \
                _mm_stream_ps((float *)(at) + part_ * 4, quarter_);                                                    \
            }                                                                                                          \
        else                                                                                                           \
            STORE(at, value_, count);                                                                                  \
    } while (0)
#else
#define STREAM(at, given, count, streamed) STORE(at, given, count)
#endif

/* What will be read a page further on is fetched: processors do that by themselves, but stop where a page ends. */
enum { PAGE = 4096 };
#define FETCH(at, bytes) __builtin_prefetch((const char *)(at) + (bytes))

struct prefix {
    long time, channels;
    int mean;
    const void *x;
    void *y;
    int streamed;
};

/* Sums in double. A double is divided by the count; for what is stored in less, a product with its inverse rounds to
 * the same number, or to the other side of a tie, at a third of the time. */
#define LANES 4
typedef VECTOR(float, LANES) singles;
typedef VECTOR(uint16_t, LANES) halves;
typedef VECTOR(uint32_t, LANES) bits;

/* bfloat16: the upper half of a float, rounded to even. */
INLINE singles from_bfloat16(halves stored) {
    bits upper = __builtin_convertvector(stored, bits) << 16;
    return (singles)upper;
}

INLINE halves to_bfloat16(singles value) {
    bits all = (bits)value, even = all >> 16 & 1, not_a_number = (bits)(value != value);
    bits rounded = (all + 0x7fff + even) >> 16;
    return __builtin_convertvector((rounded & ~not_a_number) | (0x7fc0 & not_a_number), halves);
}

#define STORED double
#define STOREDS doubles
#define OF(name) name##_float64
#define WIDENED(x) (x)
#define ROUNDED(sum) (sum)
#define BY(count) (count)
#define MEAN(sum, by) ((sum) / (by))
#include "prefix_of.h"
#define STORED float
#define STOREDS singles
#define OF(name) name##_float32
#define WIDENED(x) __builtin_convertvector(x, doubles)
#define ROUNDED(sum) __builtin_convertvector(sum, singles)
#define BY(count) (1.0 / (count))
#define MEAN(sum, by) ((sum) * (by))
#include "prefix_of.h"
#define STORED uint16_t
#define STOREDS halves
#define OF(name) name##_bfloat16
#define WIDENED(x) __builtin_convertvector(from_bfloat16(x), doubles)
#define ROUNDED(sum) to_bfloat16(__builtin_convertvector(sum, singles))
#define BY(count) (1.0 / (count))
#define MEAN(sum, by) ((sum) * (by))
#include "prefix_of.h"
#undef LANES

/* Factors of a row and time: one for each channel (wide) or one for all `size` channels of a head. */
struct factors {
    const void *at;
    long row, time; /* strides in numbers */
    int wide;
};

struct scan {
    long time, channels, size;
    struct factors a, b; /* b.at is null for factors of 1 */
    const void *x, *h, *into;
    void *out, *to_a, *to_b; /* to_a, to_b: null if not wanted; of one number a head they start as zeros */
    int streamed;
};

#define LANES 8
#define REAL float
#define REALS floats
#define OF(name) name##_float32
#include "scan_of.h"
#undef LANES
#define LANES 4
#define REAL double
#define REALS doubles
#define OF(name) name##_float64
#include "scan_of.h"
