/* UTF-8: how much of some bytes is valid, and a number for each character. */

#include <stdint.h>
#include <string.h>

enum { LANES = 16, VECTORS = 4, BLOCK = 4096, WORD = 8, UNKNOWN = -1 };

typedef uint8_t bytes __attribute__((vector_size(LANES)));

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

/* Where a byte cannot follow the three before it, each byte compared with its own three. */
static bytes misplaced(const uint8_t *at) {
    bytes now = loaded(at), before = loaded(at - 1), second = loaded(at - 2), third = loaded(at - 3);
    bytes must_continue = (bytes)(before >= 0xC0) | (bytes)(second >= 0xE0) | (bytes)(third >= 0xF0);
    bytes wrong = must_continue ^ (bytes)((now & 0xC0) == 0x80);
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

/* The bits of a code point in a byte, by its upper five. */
static const uint8_t BITS[32] = {
    [0 ... 15] = 0x7F, [16 ... 23] = 0x3F, [24 ... 27] = 0x1F, [28 ... 29] = 0x0F, [30] = 0x07,
};

struct numbering {
    const int32_t *number; /* of each code point, or UNKNOWN */
    void *out;
    int width;      /* bytes of a number there */
    long count;     /* characters begun */
    uint32_t point; /* the last of them, as far as it has been read */
    int32_t last;   /* its number, likewise */
    int32_t seen;   /* negative: one that is whole has no number */
};

INLINE void put(struct numbering *now, long place, int32_t number) {
    if (now->width == 1)
        ((uint8_t *)now->out)[place] = number;
    else if (now->width == 2)
        ((uint16_t *)now->out)[place] = number;
    else
        ((int32_t *)now->out)[place] = number;
}

/* No branch asks whether a character is whole, which nothing could foretell: each byte writes the number of what there
 * is so far, and those that continue it write over that. */
INLINE void read_byte(struct numbering *now, uint8_t byte) {
    uint32_t more = -(uint32_t)continues(byte);
    now->seen |= now->last & ~more;
    now->count += 1 + (int32_t)more;
    now->point = (now->point << 6 & more) | (byte & BITS[byte >> 3]);
    now->last = now->number[now->point];
    put(now, now->count - 1, now->last);
}

INLINE void read_ascii(struct numbering *now, const uint8_t *text) {
    now->seen |= now->last;
#pragma GCC unroll 8
    for (int i = 0; i < WORD; i++) {
        now->last = now->number[text[i]];
        now->seen |= now->last;
        put(now, now->count + i, now->last);
    }
    now->count += WORD;
}

/* Whole characters; how many, or UNKNOWN if one of them has no number. */
INLINE long numbers_of(const uint8_t *text, long size, const int32_t *number, void *out, int width) {
    struct numbering now = {.number = number, .out = out, .width = width};
    long at = 0;
    for (; at + WORD <= size; at += WORD) {
        uint64_t word;
        memcpy(&word, text + at, sizeof word);
        if (word & 0x8080808080808080) {
#pragma GCC unroll 8
            for (int i = 0; i < WORD; i++) read_byte(&now, text[at + i]);
        } else
            read_ascii(&now, text + at);
    }
    for (; at < size; at++) read_byte(&now, text[at]);
    return (now.seen | now.last) < 0 ? UNKNOWN : now.count;
}

static long numbers_in(const uint8_t *text, long size, const int32_t *number, void *out, int width) {
    if (width == 1) return numbers_of(text, size, number, out, 1);
    if (width == 2) return numbers_of(text, size, number, out, 2);
    return numbers_of(text, size, number, out, 4);
}

/* Give the next numbers to those of some whole characters that have none. */
static void meet(const uint8_t *text, long size, int32_t *number, int32_t *points, int32_t *known) {
    for (long at = 0, next; at < size; at = next) {
        int32_t point = text[at] & BITS[text[at] >> 3];
        for (next = at + 1; next < size && continues(text[next]); next++) point = point << 6 | (text[next] & 0x3F);
        if (number[point] == UNKNOWN) {
            points[*known] = point;
            number[point] = (*known)++;
        }
    }
}

/* Write the number of each character of a valid text, new ones for those that have none; how many characters.
 *
 * number: of each code point, or UNKNOWN. points: the code point of each number. known: how many there are.
 * out: room for a number of `width` bytes for each byte of the text; of larger numbers only the lower bits. */
long numbers(const uint8_t *text, long size, int32_t *number, int32_t *points, int32_t *known, void *out, int width) {
    long count = 0;
    for (long begin = 0, end; begin < size; begin = end) {
        end = least(size, begin + BLOCK);
        while (end < size && continues(text[end])) end--; /* whole characters */
        uint8_t *to = (uint8_t *)out + count * width;
        long more = numbers_in(text + begin, end - begin, number, to, width);
        if (more == UNKNOWN) {
            meet(text + begin, end - begin, number, points, known);
            more = numbers_in(text + begin, end - begin, number, to, width);
        }
        count += more;
    }
    return count;
}
