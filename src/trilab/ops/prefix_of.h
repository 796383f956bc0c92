/* Prefix sums and means of numbers of type STORED, and their adjoints; OF(name) is a name of this type's own. */

INLINE void OF(sum)(
    long size, int mean, double by, double *restrict sums, const STORED *restrict x, STORED *restrict y,
    int streamed) {
    FETCH(x, PAGE);
    doubles sum = LOAD(doubles, sums, LANES) + WIDENED(LOAD(STOREDS, x, size));
    STORE(sums, sum, LANES);
    if (mean) sum = MEAN(sum, by);
    STREAM(y, ROUNDED(sum), size, streamed);
}

INLINE void OF(forward_by)(const struct prefix *job, int mean, long row, long first, long end) {
    double sums[BLOCK] = {0};
    long count = end - first, in_vectors = WHOLE(count), rest = count - in_vectors;
    for (long t = 0; t < job->time; t++) {
        long at = (row * job->time + t) * job->channels + first;
        const STORED *x = (const STORED *)job->x + at;
        STORED *y = (STORED *)job->y + at;
        double by = BY(t + 1);
#pragma GCC unroll 4 /* a tenth of the time */
        for (long c = 0; c < in_vectors; c += LANES) OF(sum)(LANES, mean, by, sums + c, x + c, y + c, job->streamed);
        if (rest) OF(sum)(rest, mean, by, sums + in_vectors, x + in_vectors, y + in_vectors, 0);
    }
}

WIDEST static void OF(prefix_forward)(const void *given, long row, long first, long end) {
    const struct prefix *job = given;
    if (job->mean) OF(forward_by)(job, 1, row, first, end);
    else OF(forward_by)(job, 0, row, first, end);
}

INLINE void OF(sum_of_shares)(
    long size, int mean, double by, double *sums, const STORED *x, STORED *y, int streamed) {
    FETCH(x, -PAGE);
    doubles share = WIDENED(LOAD(STOREDS, x, size));
    if (mean) share = MEAN(share, by);
    doubles sum = LOAD(doubles, sums, LANES) + share;
    STORE(sums, sum, LANES);
    STREAM(y, ROUNDED(sum), size, streamed);
}

INLINE void OF(adjoint_by)(const struct prefix *job, int mean, long row, long first, long end) {
    double sums[BLOCK] = {0};
    long count = end - first, in_vectors = WHOLE(count), rest = count - in_vectors;
    for (long t = job->time - 1; t >= 0; t--) {
        long at = (row * job->time + t) * job->channels + first;
        const STORED *x = (const STORED *)job->x + at;
        STORED *y = (STORED *)job->y + at;
        double by = BY(t + 1);
        if (rest) OF(sum_of_shares)(rest, mean, by, sums + in_vectors, x + in_vectors, y + in_vectors, 0);
        for (long c = in_vectors - LANES; c >= 0; c -= LANES)
            OF(sum_of_shares)(LANES, mean, by, sums + c, x + c, y + c, job->streamed);
    }
}

WIDEST static void OF(prefix_adjoint)(const void *given, long row, long first, long end) {
    const struct prefix *job = given;
    if (job->mean) OF(adjoint_by)(job, 1, row, first, end);
    else OF(adjoint_by)(job, 0, row, first, end);
}

void OF(prefix)(long rows, long time, long channels, int mean, int adjoint, long threads, const void *x, void *y) {
    int streamed = rows * time * channels * (long)sizeof(STORED) >= STREAMED;
    struct prefix job = {time, channels, mean, x, y, streamed};
    spread_rows(adjoint ? OF(prefix_adjoint) : OF(prefix_forward), &job, rows, channels, UNIT, threads);
}

#undef STORED
#undef STOREDS
#undef OF
#undef WIDENED
#undef ROUNDED
#undef BY
#undef MEAN
