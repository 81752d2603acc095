// Four-bit groups for draft models: w is about scale * code + minimum, fitted by least squares.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

struct Line {
    float scale, minimum, error;
};

INLINE F codes_at(F x, float minimum, float inverse) {
    const F code = mul(sub(x, set(minimum)), set(inverse));
    return to_float(to_nearest(min(max(code, zero()), set(15.0f))));
}

// The line that fits the group best when each weight takes the code nearest on another line.
INLINE Line refit(const float* x, float minimum, float inverse) {
    F q1 = zero(), q2 = zero(), x1 = zero(), xq = zero();
    for (int i = 0; i < GROUP; i += W) {
        const F v = load(x + i), q = codes_at(v, minimum, inverse);
        q1 = add(q1, q), q2 = fma(q, q, q2), x1 = add(x1, v), xq = fma(v, q, xq);
    }
    const float n = float(GROUP), sq = reduce_add(q1), sqq = reduce_add(q2), sx = reduce_add(x1), sxq = reduce_add(xq);
    const float determinant = n * sqq - sq * sq;
    if (determinant <= 0.0f) return {0.0f, sx / n, 0.0f};
    return {(n * sxq - sq * sx) / determinant, (sqq * sx - sq * sxq) / determinant, 0.0f};
}

INLINE float error_of(const float* x, const Line& line) {
    const float inverse = line.scale > 0.0f ? 1.0f / line.scale : 0.0f;
    F squares = zero();
    for (int i = 0; i < GROUP; i += W) {
        const F v = load(x + i), miss = sub(v, fma(codes_at(v, line.minimum, inverse), set(line.scale), set(line.minimum)));
        squares = fma(miss, miss, squares);
    }
    return reduce_add(squares);
}

// Writes one Q4_1 block (scale, minimum, 16 bytes of codes) for 32 weights: the best of several ranges, each refitted.
inline void requantise(const float* x, uint8_t* block) {
    float least = x[0], most = x[0];
    for (int i = 1; i < GROUP; i++) least = x[i] < least ? x[i] : least, most = x[i] > most ? x[i] : most;
    const float range = most - least;
    Line best{range / 15.0f, least, 0.0f};
    best.error = error_of(x, best);
    for (int step = -2; range > 0.0f && step <= 10; step++) {
        Line line = refit(x, least, (15.0f + 0.25f * float(step) - 1.0f) / range);
        line.scale = half_to_float(float_to_half(line.scale));
        line.minimum = half_to_float(float_to_half(line.minimum));
        if (line.scale <= 0.0f) continue;
        line.error = error_of(x, line);
        if (line.error < best.error) best = line;
    }
    const uint16_t scale = float_to_half(best.scale), minimum = float_to_half(best.minimum);
    std::memcpy(block, &scale, 2);
    std::memcpy(block + 2, &minimum, 2);
    const float inverse = half_to_float(scale) > 0.0f ? 1.0f / half_to_float(scale) : 0.0f;
    float codes[GROUP];
    for (int i = 0; i < GROUP; i += W) store(codes + i, codes_at(load(x + i), half_to_float(minimum), inverse));
    for (int i = 0; i < 16; i++) block[4 + i] = uint8_t(int(codes[i]) | int(codes[16 + i]) << 4);
}

}  // namespace soothsay::SOOTHSAY_ISA
