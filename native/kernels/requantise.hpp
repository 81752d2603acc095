// Light blocks for draft models. In each group w is about scale * code + minimum, fitted by least squares.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

struct Line {
    float scale, minimum, error;
    INLINE float inverse() const { return scale > 0.0f ? 1.0f / scale : 0.0f; }
};

// Codes from 0 to TOP.
template <int TOP> INLINE F codes_at(F x, float minimum, float inverse) {
    const F code = mul(sub(x, set(minimum)), set(inverse));
    return to_float(to_nearest(min(max(code, zero()), set(float(TOP)))));
}

// The line that fits the group best when each weight takes the code nearest on another line.
template <int TOP> INLINE Line refit(const float* x, float minimum, float inverse) {
    F q1 = zero(), q2 = zero(), x1 = zero(), xq = zero();
    for (int i = 0; i < GROUP; i += W) {
        const F v = load(x + i), q = codes_at<TOP>(v, minimum, inverse);
        q1 = add(q1, q), q2 = fma(q, q, q2), x1 = add(x1, v), xq = fma(v, q, xq);
    }
    const float n = float(GROUP), sq = reduce_add(q1), sqq = reduce_add(q2), sx = reduce_add(x1), sxq = reduce_add(xq);
    const float determinant = n * sqq - sq * sq;
    if (determinant <= 0.0f) return {0.0f, sx / n, 0.0f};
    return {(n * sxq - sq * sx) / determinant, (sqq * sx - sq * sxq) / determinant, 0.0f};
}

template <int TOP> INLINE float error_of(const float* x, const Line& line) {
    F squares = zero();
    for (int i = 0; i < GROUP; i += W) {
        const F v = load(x + i), code = codes_at<TOP>(v, line.minimum, line.inverse());
        const F miss = sub(v, fma(code, set(line.scale), set(line.minimum)));
        squares = fma(miss, miss, squares);
    }
    return reduce_add(squares);
}

INLINE float least_of(const float* x) {
    float least = x[0];
    for (int i = 1; i < GROUP; i++) least = x[i] < least ? x[i] : least;
    return least;
}

// The best of several ranges that begin at `least`, each refitted.
template <int TOP> INLINE Line search(const float* x, float least) {
    float most = x[0];
    for (int i = 1; i < GROUP; i++) most = x[i] > most ? x[i] : most;
    const float range = most - least;
    Line best{range / float(TOP), least, 0.0f};
    best.error = error_of<TOP>(x, best);
    for (int step = -2; range > 0.0f && step <= 10; step++) {
        Line line = refit<TOP>(x, least, (float(TOP) + 0.25f * float(step) - 1.0f) / range);
        line.scale = half_to_float(float_to_half(line.scale));
        line.minimum = half_to_float(float_to_half(line.minimum));
        if (line.scale <= 0.0f) continue;
        line.error = error_of<TOP>(x, line);
        if (line.error < best.error) best = line;
    }
    return best;
}

template <int TOP> INLINE void encode(const float* x, const Line& line, float* codes) {
    for (int i = 0; i < GROUP; i += W) store(codes + i, codes_at<TOP>(load(x + i), line.minimum, line.inverse()));
}

// Scale, minimum, 16 bytes of codes.
inline void write_q4_1(const float* x, uint8_t* block) {
    const Line best = search<15>(x, least_of(x));
    const uint16_t scale = float_to_half(best.scale), minimum = float_to_half(best.minimum);
    std::memcpy(block, &scale, 2);
    std::memcpy(block + 2, &minimum, 2);
    float codes[GROUP];
    encode<15>(x, {half_to_float(scale), half_to_float(minimum), 0.0f}, codes);
    for (int i = 0; i < 16; i++) block[4 + i] = uint8_t(int(codes[i]) | int(codes[16 + i]) << 4);
}

// Writes the values as bytes times a half-float, which it gives; a negative value becomes 0.
INLINE float write_bytes(const float (&values)[4], uint8_t* half, uint8_t* bytes) {
    float most = 0.0f;
    for (const float value : values) most = value > most ? value : most;
    const uint16_t unit = float_to_half(most / 255.0f);
    std::memcpy(half, &unit, 2);
    const float step = half_to_float(unit), inverse = step > 0.0f ? 1.0f / step : 0.0f;
    for (int i = 0; i < 4; i++) {
        const float byte = values[i] * inverse;
        bytes[i] = uint8_t(byte < 255.0f ? byte > 0.0f ? byte + 0.5f : 0.0f : 255.0f);
    }
    return step;
}

// Two half-floats, 4 scales that the first multiplies, 4 minima that the second does, 48 bytes of codes. A minimum is taken
// away, so a group begins at 0 or below.
inline void write_d3(const float* x, uint8_t* block) {
    float scales[4], minima[4];
    for (int g = 0; g < 4; g++) {
        const float least = least_of(x + g * GROUP);
        const Line best = search<7>(x + g * GROUP, least < 0.0f ? least : 0.0f);
        scales[g] = best.scale, minima[g] = -best.minimum;
    }
    const float scale = write_bytes(scales, block, block + 4), minimum = write_bytes(minima, block + 2, block + 8);
    for (int g = 0; g < 4; g++) {
        float codes[GROUP];
        encode<7>(x + g * GROUP, {scale * block[4 + g], -minimum * block[8 + g], 0.0f}, codes);
        for (int i = 0; i < GROUP; i += 8) {
            uint32_t eight = 0;
            for (int k = 0; k < 8; k++) eight |= uint32_t(codes[i + k]) << 3 * k;
            std::memcpy(block + 12 + g * 12 + i / 8 * 3, &eight, 3);
        }
    }
}

inline void requantise(Kind kind, const float* weights, long inputs, uint8_t* row) {
    if (kind == Kind::D3)
        for (long i = 0; i < inputs; i += 4 * GROUP, row += 60) write_d3(weights + i, row);
    else
        for (long i = 0; i < inputs; i += GROUP, row += 20) write_q4_1(weights + i, row);
}

}  // namespace soothsay::SOOTHSAY_ISA
