// Attention over a paged cache of half-floats.
//
// A block's keys and values are widened as they are read, each for several heads and rows of the task. A row at position t
// reduces over positions 0..t in one fixed order, partition by partition (boundaries are absolute), so its result does not
// depend on the rows it is computed with. What lies past t is never part of a sum: a stale value there cannot leak.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

// One task's queries, the first row's heads first, and what they have found so far, each dense.
struct Queries {
    long count, width;
    float* values;  // [count, width]
    float* scores;  // [count, PARTITION]: of keys, then their softmax numerators
    float* sums;    // [count, width]: of weighted values
};

// Queries at a time, times vectors of keys or of values: what the registers hold.
constexpr int QUERIES = W == 16 ? 12 : 6, VECTORS = 2;

// Calls run<n>(first).
template <int MOST, class Run> INLINE void in_piece(long first, long n, Run&& run) {
    if (n == MOST) return run.template operator()<MOST>(first);
    if constexpr (MOST > 1) in_piece<MOST - 1>(first, n, run);
}

// The same for the fewest pieces of at most MOST, all about as large.
template <int MOST, class Run> INLINE void in_pieces(long begin, long end, Run&& run) {
    const long count = end - begin, pieces = (count + MOST - 1) / MOST;
    for (long p = 0; p < pieces; p++) {
        const long first = begin + count * p / pieces;
        in_piece<MOST>(first, begin + count * (p + 1) / pieces - first, run);
    }
}

// Scores of N queries against a block of keys: one chain of multiply-adds each, over the width in order. Meanwhile the
// block's values and the next block's keys are on their way from memory.
template <int N> INLINE void score(const Queries& q, long first, const uint16_t* block, const uint16_t* next, float* out) {
    const float* queries = q.values + first * q.width;
    for (long k = 0; k < BLOCK_TOKENS; k += VECTORS * W) {
        F total[N][VECTORS];
        for (int n = 0; n < N; n++)
            for (int v = 0; v < VECTORS; v++) total[n][v] = zero();
        for (long d = 0; d < q.width; d++) {
            F key[VECTORS];
            for (int v = 0; v < VECTORS; v++) key[v] = load_half(block + d * BLOCK_TOKENS + k + v * W);
            __builtin_prefetch(next + d * BLOCK_TOKENS);
            __builtin_prefetch(block + (q.width + d) * BLOCK_TOKENS);
            for (int n = 0; n < N; n++)
                for (int v = 0; v < VECTORS; v++) total[n][v] = fma(key[v], set(queries[n * q.width + d]), total[n][v]);
        }
        for (int n = 0; n < N; n++)
            for (int v = 0; v < VECTORS; v++) store(out + (first + n) * PARTITION + k + v * W, total[n][v]);
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

// Adds the weighted values of positions [from, to) of the partition, in order, to the sums of N queries: V vectors from d on.
template <int N, int V> INLINE void weigh(const Attention& a, const Queries& q, long first, long from, long to, long d) {
    const float* weights = q.scores + first * PARTITION;
    float* sums = q.sums + first * q.width + d;
    F total[N][V];
    for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++) total[n][v] = load(sums + n * q.width + v * W);
    for (long i = from; i < to;) {
        const uint16_t* block = a.blocks[a.partition * (PARTITION / BLOCK_TOKENS) + i / BLOCK_TOKENS];
        const uint16_t* values = block + (BLOCK_TOKENS + i % BLOCK_TOKENS) * q.width + d;
        const long end = (i / BLOCK_TOKENS + 1) * BLOCK_TOKENS;
        for (; i < end && i < to; i++, values += q.width) {
            F value[V];
            for (int v = 0; v < V; v++) value[v] = load_half(values + v * W);
            for (int n = 0; n < N; n++)
                for (int v = 0; v < V; v++) total[n][v] = fma(set(weights[n * PARTITION + i]), value[v], total[n][v]);
        }
    }
    for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++) store(sums + n * q.width + v * W, total[n][v]);
}

INLINE void weigh_values(const Attention& a, const Queries& q, long begin, long end, long from, long to) {
    in_pieces<QUERIES>(begin, end, [&]<int N>(long first) {
        long d = 0;
        for (; d + VECTORS * W <= q.width; d += VECTORS * W) weigh<N, VECTORS>(a, q, first, from, to, d);
        for (; d < q.width; d += W) weigh<N, 1>(a, q, first, from, to, d);
    });
}

inline Queries queries_of(const Attention& a, long first_row) {
    Queries q{(a.rows - first_row) * a.heads, a.width, a.scratch, nullptr, nullptr};
    q.scores = q.values + ATTENTION_ROWS * a.heads * a.width;
    q.sums = q.scores + ATTENTION_ROWS * a.heads * PARTITION;
    for (long r = 0; r < a.rows - first_row; r++)
        std::memcpy(q.values + r * a.heads * a.width, a.queries + (first_row + r) * a.query_stride, a.heads * a.width * sizeof(float));
    for (long i = 0; i < q.count * a.width; i += W) store(q.sums + i, zero());
    return q;
}

inline void attend(const Attention& a) {
    const long begin = a.partition * PARTITION, last = a.first_position + a.rows - 1;
    const long first_row = begin > a.first_position ? begin - a.first_position : 0;  // earlier rows see none of it
    const Queries q = queries_of(a, first_row);
    const auto seen = [&](long r) { return a.first_position + r + 1 - begin < PARTITION ? a.first_position + r + 1 - begin : PARTITION; };

    for (long b = begin / BLOCK_TOKENS; b * BLOCK_TOKENS < begin + seen(a.rows - 1); b++) {
        const uint16_t* next = (b + 1) * BLOCK_TOKENS <= last ? a.blocks[b + 1] : a.blocks[b];
        in_pieces<QUERIES>(0, q.count, [&]<int N>(long first) { score<N>(q, first, a.blocks[b], next, q.scores + b * BLOCK_TOKENS - begin); });
    }
    for (long r = first_row, n = 0; r < a.rows; r++)
        for (long h = 0; h < a.heads; h++, n++) {
            float* found = a.partial + r * a.partial_stride + h * a.head_stride + a.width;
            exponentials(q.scores + n * PARTITION, seen(r), found, found + 1);
        }
    weigh_values(a, q, 0, q.count, 0, seen(first_row));
    for (long r = first_row + 1; r < a.rows; r++)
        weigh_values(a, q, (r - first_row) * a.heads, (r - first_row + 1) * a.heads, seen(first_row), seen(r));
    for (long r = first_row, n = 0; r < a.rows; r++)
        for (long h = 0; h < a.heads; h++, n++)
            std::memcpy(a.partial + r * a.partial_stride + h * a.head_stride, q.sums + n * a.width, a.width * sizeof(float));
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
