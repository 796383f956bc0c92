/* The recurrence h_t = a_t h_{t-1} + b_t x_t for numbers of type REAL; OF(name) is a name of this type's own. */

static const REAL OF(one) = 1;

INLINE const REAL *OF(factors_at)(const struct factors *all, long row, long time, long channel, long size) {
    if (!all->at) return &OF(one);
    return (const REAL *)all->at + row * all->row + time * all->time + (all->wide ? channel : channel / size);
}

/* Factors of `size` channels: their own, or one for all. */
INLINE REALS OF(factors)(const REAL *at, int wide, long size) {
    return wide ? LOAD(REALS, at, size) : *at - (REALS){0};
}

/* `past` is h of the time before, and becomes that of this one. */
INLINE void OF(ahead)(
    long size, const REAL *a, int a_wide, const REAL *b, int b_wide, const REAL *x, REAL *past, REAL *h, int streamed) {
    FETCH(x, PAGE);
    if (a_wide) FETCH(a, PAGE);
    if (b_wide) FETCH(b, PAGE);
    REALS kept = OF(factors)(a, a_wide, size) * LOAD(REALS, past, size);
    REALS now = kept + OF(factors)(b, b_wide, size) * LOAD(REALS, x, size);
    STORE(past, now, size);
    STREAM(h, now, size, streamed);
}

/* One head at one time, or what of it lies in a block. */
INLINE void OF(run_ahead)(
    long count, const REAL *a, int a_wide, const REAL *b, int b_wide, const REAL *x, REAL *past, REAL *h, int streamed) {
    long c = 0;
    for (; c < WHOLE(count); c += LANES)
        OF(ahead)(LANES, a + a_wide * c, a_wide, b + b_wide * c, b_wide, x + c, past + c, h + c, streamed);
    if (c < count) OF(ahead)(count - c, a + a_wide * c, a_wide, b + b_wide * c, b_wide, x + c, past + c, h + c, 0);
}

WIDEST static void OF(forward)(const void *given, long row, long first, long end) {
    REAL past[BLOCK] = {0};
    const struct scan *job = given;
    for (long t = 0; t < job->time; t++)
        for (long from = first, to; from < end; from = to) {
            to = least(end, (from / job->size + 1) * job->size);
            long count = to - from, at = (row * job->time + t) * job->channels + from;
            const REAL *a = OF(factors_at)(&job->a, row, t, from, job->size);
            const REAL *b = OF(factors_at)(&job->b, row, t, from, job->size);
            const REAL *x = (const REAL *)job->x + at;
            REAL *h = (REAL *)job->out + at;
            REAL *last = past + (from - first);
            if (job->a.wide && job->b.wide) OF(run_ahead)(count, a, 1, b, 1, x, last, h, job->streamed);
            else if (job->a.wide) OF(run_ahead)(count, a, 1, b, 0, x, last, h, job->streamed);
            else if (job->b.wide) OF(run_ahead)(count, a, 0, b, 1, x, last, h, job->streamed);
            else OF(run_ahead)(count, a, 0, b, 0, x, last, h, job->streamed);
        }
}

/* The gradients of one step: `arrived` is that of h_t, from its own output and by a_{t+1} from h_{t+1}. */
struct OF(step) {
    const REAL *a, *b, *x, *before, *into;
    REAL *later, *to_x, *to_a, *to_b;
    int streamed;
};

INLINE void OF(back)(
    long size, struct OF(step) step, long c, int a_wide, int b_wide, int to_a, int to_b, REALS *over_a, REALS *over_b) {
    FETCH(step.into + c, -PAGE);
    if (a_wide) FETCH(step.a + c, -PAGE);
    if (b_wide) FETCH(step.b + c, -PAGE);
    if (to_a) FETCH(step.before + c, -PAGE);
    if (to_b) FETCH(step.x + c, -PAGE);
    REALS arrived = LOAD(REALS, step.into + c, size) + LOAD(REALS, step.later + c, size);
    STREAM(step.to_x + c, OF(factors)(step.b + b_wide * c, b_wide, size) * arrived, size, step.streamed);
    STORE(step.later + c, OF(factors)(step.a + a_wide * c, a_wide, size) * arrived, size);
    if (to_a) {
        REALS product = arrived * LOAD(REALS, step.before + c, size);
        if (a_wide) STREAM(step.to_a + c, product, size, step.streamed);
        else *over_a += product;
    }
    if (to_b) {
        REALS product = arrived * LOAD(REALS, step.x + c, size);
        if (b_wide) STREAM(step.to_b + c, product, size, step.streamed);
        else *over_b += product;
    }
}

INLINE REAL OF(total)(REALS parts) {
    REAL sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += parts[lane];
    return sum;
}

INLINE void OF(run_back)(long count, struct OF(step) step, int a_wide, int b_wide, int to_a, int to_b) {
    REALS over_a = {0}, over_b = {0};
    long c = WHOLE(count);
    if (c < count) OF(back)(count - c, step, c, a_wide, b_wide, to_a, to_b, &over_a, &over_b);
    for (c -= LANES; c >= 0; c -= LANES)
        OF(back)(LANES, step, c, a_wide, b_wide, to_a, to_b, &over_a, &over_b);
    if (to_a && !a_wide) *step.to_a += OF(total)(over_a);
    if (to_b && !b_wide) *step.to_b += OF(total)(over_b);
}

WIDEST static void OF(backward)(const void *given, long row, long first, long end) {
    static const REAL nothing[BLOCK];
    const struct scan *job = given;
    REAL later[BLOCK] = {0};
    long heads = job->channels / job->size;
    int a_wide = job->a.wide, b_wide = job->b.wide, to_a = job->to_a != 0, to_b = job->to_b != 0;
    for (long t = job->time - 1; t >= 0; t--)
        for (long to = end, from; to > first; to = from) {
            from = (to - 1) / job->size * job->size;
            if (from < first) from = first;
            long line = row * job->time + t, at = line * job->channels + from, head = line * heads + from / job->size;
            struct OF(step) step = {
                OF(factors_at)(&job->a, row, t, from, job->size),
                OF(factors_at)(&job->b, row, t, from, job->size),
                (const REAL *)job->x + at,
                t ? (const REAL *)job->h + at - job->channels : nothing,
                (const REAL *)job->into + at,
                later + (from - first),
                (REAL *)job->out + at,
                to_a ? (REAL *)job->to_a + (a_wide ? at : head) : 0,
                to_b ? (REAL *)job->to_b + (b_wide ? at : head) : 0,
                job->streamed,
            };
            /* what strategies ask for, each compiled by itself, and all else */
            if (a_wide && b_wide && to_a && to_b) OF(run_back)(to - from, step, 1, 1, 1, 1);
            else if (a_wide && !b_wide && to_a && !to_b) OF(run_back)(to - from, step, 1, 0, 1, 0);
            else if (!a_wide && !b_wide && to_a && to_b) OF(run_back)(to - from, step, 0, 0, 1, 1);
            else OF(run_back)(to - from, step, a_wide, b_wide, to_a, to_b);
        }
}

static int OF(streamed)(long rows, long time, long channels) {
    return rows * time * channels * (long)sizeof(REAL) >= STREAMED;
}

void OF(scan)(
    long rows, long time, long channels, long size, long threads, const void *a, long a_row, long a_time, int a_wide,
    const void *b, long b_row, long b_time, int b_wide, const void *x, void *h) {
    struct scan job = {time, channels, size, {a, a_row, a_time, a_wide}, {b, b_row, b_time, b_wide}, x, 0, 0, h, 0, 0,
                       OF(streamed)(rows, time, channels)};
    spread_rows(OF(forward), &job, rows, channels, UNIT, threads);
}

void OF(scan_backward)(
    long rows, long time, long channels, long size, long threads, const void *a, long a_row, long a_time, int a_wide,
    const void *b, long b_row, long b_time, int b_wide, const void *x, const void *h, const void *into, void *to_x,
    void *to_a, void *to_b) {
    struct scan job = {time, channels, size, {a, a_row, a_time, a_wide}, {b, b_row, b_time, b_wide}, x, h, into, to_x,
                       to_a, to_b, OF(streamed)(rows, time, channels)};
    int added = (to_a && !a_wide) || (to_b && !b_wide); /* over a head's channels, which then stay together */
    spread_rows(OF(backward), &job, rows, channels, added ? size : UNIT, threads);
}

#undef REAL
#undef REALS
#undef OF
