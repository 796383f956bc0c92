/* UTF-8: how much of some bytes is valid, and a number for each character. */

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bytes are looked at in words as if the first was the lowest"
#endif

enum { LANES = 16, VECTORS = 4, WORD = 8, BLOCK = 4096, UNKNOWN = -1 };

typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef uint8_t half __attribute__((vector_size(LANES / 2)));
typedef uint16_t shorts __attribute__((vector_size(LANES)));

#define INLINE static inline __attribute__((always_inline))

static long least(long one, long two) { return one < two ? one : two; }

static int continues(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* Bytes of the character that begins here; 0 if none does, or only the beginning of one is there. */
static long character(const uint8_t *text, long left) {
    uint8_t lead = text[0];
    if (lead < 0x80) return 1;
    long length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || length > left) return 0;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;  /* below: could be said in fewer bytes */
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF; /* above: surrogates, or past U+10FFFF */
    if (text[1] < low || text[1] > high) return 0;
    for (long i = 2; i < length; i++)
        if (!continues(text[i])) return 0;
    return length;
}

static bytes loaded(const uint8_t *at) {
    bytes found;
    memcpy(&found, at, sizeof found);
    return found;
}

static int any(bytes of) {
    uint64_t parts[LANES / sizeof(uint64_t)], all = 0;
    memcpy(parts, &of, sizeof parts);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) all |= parts[i];
    return all != 0;
}

static bytes continuing(bytes of) { return (bytes)((of & 0xC0) == 0x80); }

/* Where a byte cannot follow the three before it, each byte compared with its own three. */
static bytes misplaced(const uint8_t *at) {
    bytes now = loaded(at), before = loaded(at - 1), second = loaded(at - 2), third = loaded(at - 3);
    bytes must_continue = (bytes)(before >= 0xC0) | (bytes)(second >= 0xE0) | (bytes)(third >= 0xF0);
    bytes wrong = must_continue ^ continuing(now);
    wrong |= (bytes)((now & 0xFE) == 0xC0) | (bytes)(now >= 0xF5);
    wrong |= (bytes)(before == 0xE0) & (bytes)(now < 0xA0);
    wrong |= (bytes)(before == 0xED) & (bytes)(now >= 0xA0);
    wrong |= (bytes)(before == 0xF0) & (bytes)(now < 0x90);
    wrong |= (bytes)(before == 0xF4) & (bytes)(now >= 0x90);
    return wrong;
}

/* Up to where no byte is misplaced, whole blocks at a time; the last character before may lack its end. */
static long well_placed(const uint8_t *text, long size) {
    const long block = LANES * VECTORS;
    uint8_t begin[3 + LANES * VECTORS] = {0}; /* as if three ASCII characters came before */
    for (long at = 0; at + block <= size; at += block) {
        const uint8_t *from = at ? text + at : begin + 3;
        if (!at) memcpy(begin + 3, text, block);
        bytes all = loaded(from - 3), wrong = {0};
        for (int i = 0; i < VECTORS; i++) all |= loaded(from + LANES * i);
        if (!any(all & 0x80)) continue; /* ASCII */
        for (int i = 0; i < VECTORS; i++) wrong |= misplaced(from + LANES * i);
        if (any(wrong)) return at;
    }
    return size - size % block;
}

/* How many bytes at the beginning are whole characters, by Unicode's strict rules. */
long valid(const uint8_t *text, long size) {
    long at = well_placed(text, size), length;
    at = at < 3 ? 0 : at - 3;
    while (at > 0 && continues(text[at])) at--; /* a character begins here, and all before are whole */
    while (at < size && (length = character(text + at, size - at))) at += length;
    return at;
}

/* Two bytes to one number, lane by lane. */
static void join(const bytes *low, const bytes *high, uint16_t *to) {
    half lows[2], highs[2];
    memcpy(lows, low, sizeof lows);
    memcpy(highs, high, sizeof highs);
    for (int i = 0; i < 2; i++) {
        shorts both = __builtin_convertvector(lows[i], shorts) | __builtin_convertvector(highs[i], shorts) << 8;
        memcpy(to + LANES / 2 * i, &both, sizeof both);
    }
}

/* The code points of valid whole characters, at most BLOCK bytes; how many.
 *
 * No branch asks where a character ends, which nothing could foretell: each byte writes the code point that it would be
 * the last byte of, and those that continue the character write over that. Up to LANES more points are written to. */
static long points_of(const uint8_t *text, long size, uint32_t *points) {
    uint8_t padded[LANES + BLOCK + LANES]; /* as if NULs came before and after */
    memset(padded, 0, LANES);
    memcpy(padded + LANES, text, size);
    memset(padded + LANES + size, 0, LANES);
    long count = 0, at = 0;
    for (; at < size; at += LANES) {
        const uint8_t *from = padded + LANES + at;
        bytes now = loaded(from);
        if (!any(now & 0x80)) { /* ASCII */
            for (int i = 0; i < LANES; i++) points[count + i] = from[i];
            count += LANES;
            continue;
        }
        bytes before = loaded(from - 1), second = loaded(from - 2), third = loaded(from - 3);
        bytes more = continuing(now), more2 = more & continuing(before), more3 = more2 & continuing(second);
        bytes sixes = now & 0x7F & ~(more & 0x40), sixes2 = before & more & 0x3F, sixes3 = second & more2 & 0x3F;
        bytes low = sixes | sixes2 << 6, high = sixes2 >> 2 | sixes3 << 4, begins = more + 1;
        uint64_t begun[LANES / WORD]; /* in words, of which a byte can be had without a way through memory */
        uint16_t point[LANES];
        memcpy(begun, &begins, sizeof begun);
        join(&low, &high, point);
        if (any(more3)) {
            bytes planes = more3 & (sixes3 >> 4 | (third & 0x07) << 2);
            uint8_t plane[LANES];
            memcpy(plane, &planes, sizeof plane);
            for (int i = 0; i < LANES; i++) {
                count += begun[i / WORD] >> i % WORD * 8 & 0xFF;
                points[count - 1] = point[i] | (uint32_t)plane[i] << 16;
            }
        } else {
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                count += begun[i / WORD] >> i % WORD * 8 & 0xFF;
                points[count - 1] = point[i];
            }
        }
    }
    return count - (at - size);
}

/* Negative if one of them has no number. */
INLINE int32_t look_up(const uint32_t *points, long count, const int32_t *number, void *out, int width) {
    int32_t all = 0;
#pragma GCC unroll 8
    for (long i = 0; i < count; i++) {
        int32_t found = number[points[i]];
        all |= found;
        if (width == 1)
            ((uint8_t *)out)[i] = found;
        else if (width == 2)
            ((uint16_t *)out)[i] = found;
        else
            ((int32_t *)out)[i] = found;
    }
    return all;
}

static int32_t numbers_of(const uint32_t *points, long count, const int32_t *number, void *out, int width) {
    if (width == 1) return look_up(points, count, number, out, 1);
    if (width == 2) return look_up(points, count, number, out, 2);
    return look_up(points, count, number, out, 4);
}

/* Write the number of each character of a valid text, the next ones for those that have none; how many characters.
 *
 * number: of each code point, or UNKNOWN. points: the code point of each number. known: how many there are.
 * out: room for a number of `width` bytes for each byte of the text; of larger numbers only the lower bits. */
long numbers(const uint8_t *text, long size, int32_t *number, int32_t *points, int32_t *known, void *out, int width) {
    uint32_t come[BLOCK + LANES];
    long done = 0;
    for (long begin = 0, end; begin < size; begin = end) {
        end = least(size, begin + BLOCK);
        while (end < size && continues(text[end])) end--; /* whole characters */
        long count = points_of(text + begin, end - begin, come);
        void *to = (char *)out + done * width;
        if (numbers_of(come, count, number, to, width) < 0) {
            for (long i = 0; i < count; i++)
                if (number[come[i]] == UNKNOWN) {
                    points[*known] = come[i];
                    number[come[i]] = (*known)++;
                }
            numbers_of(come, count, number, to, width);
        }
        done += count;
    }
    return done;
}
