// Attention over a paged cache of half-floats.
//
// Keys are read W positions at a time, values one position at a time; each block is widened to floats once and shared by
// all heads and rows of the task. A row at position t reduces over positions 0..t in one fixed order, partition by
// partition (boundaries are absolute), so its result does not depend on the rows it is computed with. Entries past t are
// never multiplied: a stale value there cannot leak.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

// Scores of up to N queries against W keys widened in `keys`: one chain of multiply-adds a query, over the width in order.
template <int N> INLINE void scores(const float* const* queries, const float* keys, long width, float* const* out) {
    F total[N];
    for (int n = 0; n < N; n++) total[n] = zero();
    for (long d = 0; d < width; d++) {
        const F key = load(keys + d * W);
        for (int n = 0; n < N; n++) total[n] = fma(key, set(queries[n][d]), total[n]);
    }
    for (int n = 0; n < N; n++) store(out[n], total[n]);
}

INLINE void scores_of_rows(const Attention& a, const float* keys, long first_row, long offset, float* all) {
    constexpr int N = 4;
    const float* queries[N];
    float* out[N];
    const long count = (a.rows - first_row) * a.heads;
    for (long i = 0; i < count; i += N) {
        for (int n = 0; n < N; n++) {
            const long j = i + n < count ? i + n : count - 1;  // the last one again: cheaper than a shorter loop
            const long r = first_row + j / a.heads, h = j % a.heads;
            queries[n] = a.queries + r * a.query_stride + h * a.width;
            out[n] = all + (r * a.heads + h) * PARTITION + offset;
        }
        scores<N>(queries, keys, a.width, out);
    }
}

// Widens W positions of keys. Meanwhile the block's values and the next block's keys are on their way from memory.
INLINE void widen_keys(const Attention& a, long position, long end, float* wide) {
    const uint16_t* block = a.blocks[position / BLOCK_TOKENS];
    const uint16_t* next = position + BLOCK_TOKENS < end ? a.blocks[position / BLOCK_TOKENS + 1] : block;
    const bool first = position % BLOCK_TOKENS == 0;
    for (long d = 0; d < a.width; d++) {
        if (first) {
            __builtin_prefetch(next + d * BLOCK_TOKENS);
            __builtin_prefetch(block + (a.width + d) * BLOCK_TOKENS);
        }
        store(wide + d * W, load_half(block + d * BLOCK_TOKENS + position % BLOCK_TOKENS));
    }
}

// Softmax numerators in place, over the first `count` scores; gives the maximum and the sum.
INLINE void exponentials(float* score, long count, float* maximum, float* sum) {
    const float lowest = -__builtin_inff();
    const long padded = (count + W - 1) / W * W;
    for (long i = count; i < padded; i++) score[i] = lowest;
    F most = set(lowest);
    for (long i = 0; i < padded; i += W) most = max(most, load(score + i));
    *maximum = reduce_max(most);
    F total = zero();
    for (long i = 0; i < padded; i += W) {
        const F e = exp(sub(load(score + i), set(*maximum)));
        store(score + i, e);
        total = add(total, e);
    }
    *sum = reduce_add(total);
}

// out += weights[i] * values[i] for `count` positions in order, N vectors of the width at a time.
template <int N> INLINE void weigh(const float* weights, const float* values, long count, long width, float* out) {
    F total[N];
    for (int n = 0; n < N; n++) total[n] = load(out + n * W);
    for (long i = 0; i < count; i++)
        for (int n = 0; n < N; n++) total[n] = fma(set(weights[i]), load(values + i * width + n * W), total[n]);
    for (int n = 0; n < N; n++) store(out + n * W, total[n]);
}

INLINE void weigh_values(const float* weights, const float* values, long count, long width, float* out) {
    long d = 0;
    for (; d + 4 * W <= width; d += 4 * W) weigh<4>(weights, values + d, count, width, out + d);
    for (; d < width; d += W) weigh<1>(weights, values + d, count, width, out + d);
}

inline void attend(const Attention& a) {
    const long begin = a.partition * PARTITION, last = a.first_position + a.rows - 1;
    const long end = last + 1 < begin + PARTITION ? last + 1 : begin + PARTITION;
    float* all = a.scratch;
    float* wide = a.scratch + ATTENTION_ROWS * a.heads * PARTITION;
    const long first_row = begin > a.first_position ? begin - a.first_position : 0;  // earlier rows see none of it

    for (long k = begin; k < end; k += W) {
        widen_keys(a, k, end, wide);
        scores_of_rows(a, wide, first_row, k - begin, all);
    }
    for (long r = first_row; r < a.rows; r++) {
        const long seen = a.first_position + r + 1 - begin, count = seen < PARTITION ? seen : PARTITION;
        for (long h = 0; h < a.heads; h++) {
            float* partial = a.partial + r * a.partial_stride + h * a.head_stride;
            for (long d = 0; d < a.width; d += W) store(partial + d, zero());
            exponentials(all + (r * a.heads + h) * PARTITION, count, partial + a.width, partial + a.width + 1);
        }
    }
    for (long v = begin; v < end; v += TILE) {
        const uint16_t* values = a.blocks[v / BLOCK_TOKENS] + a.width * BLOCK_TOKENS + v % BLOCK_TOKENS * a.width;
        for (long i = 0; i < TILE * a.width; i += W) store(wide + i, load_half(values + i));
        for (long r = first_row; r < a.rows; r++) {
            const long left = a.first_position + r + 1 - v, count = left < TILE ? left : TILE;
            for (long h = 0; h < a.heads && count > 0; h++)
                weigh_values(all + (r * a.heads + h) * PARTITION + v - begin, wide, count, a.width,
                             a.partial + r * a.partial_stride + h * a.head_stride);
        }
    }
}

inline void combine(const float* partials, long count, long width, float* out) {
    const long step = partial_floats(width);
    float most = partials[width];
    for (long p = 1; p < count; p++) most = partials[p * step + width] > most ? partials[p * step + width] : most;
    for (long d = 0; d < width; d += W) store(out + d, zero());
    float sum = 0.0f;
    for (long p = 0; p < count; p++) {
        float lane[W];
        store(lane, exp(set(partials[p * step + width] - most)));
        sum += lane[0] * partials[p * step + width + 1];
        for (long d = 0; d < width; d += W) store(out + d, fma(set(lane[0]), load(partials + p * step + d), load(out + d)));
    }
    for (long d = 0; d < width; d += W) store(out + d, div(load(out + d), set(sum)));
}

inline void store_key(uint16_t* column, const float* key, long width) {
    uint16_t half[W];
    for (long d = 0; d < width; d += W) {
        store_half(half, load(key + d));
        for (int l = 0; l < W; l++) column[(d + l) * BLOCK_TOKENS] = half[l];
    }
}

inline void store_value(uint16_t* row, const float* value, long width) {
    for (long d = 0; d < width; d += W) store_half(row + d, load(value + d));
}

}  // namespace soothsay::SOOTHSAY_ISA
