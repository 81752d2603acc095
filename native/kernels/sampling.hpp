// What drawing a token needs of a group of 64 logits.
//
// Plain loops, which the compiler turns into vectors: every lane does the same arithmetic in float64, products and
// sums are never contracted, and sums have one fixed order, so that all instruction sets give the same bits.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"
#include "splitmix.hpp"

namespace soothsay::SOOTHSAY_ISA {

constexpr double LOG2_E = 0x1.71547652b82fep0;
constexpr double LN_2 = 0x1.62e42fefa39efp-1;
constexpr double LN_2_HIGH = 0x1.62e42fee00000p-1, LN_2_LOW = 0x1.a39ef35793c76p-33;  // the first times 2^10 is exact

inline float most_of(const float* logits) {
    F most = load(logits);
    for (int i = W; i < SAMPLING_GROUP; i += W) most = max(most, load(logits + i));
    return reduce_max(most);
}

// e^x for x <= 0 to about one unit in the last place, and 0 below -708. The polynomial is 1 + r + r^2 q(r) with q
// interpolated at the Chebyshev nodes of [-ln 2 / 2, ln 2 / 2].
INLINE double exp_negative(double x) {
    const double clamped = x > -708.0 ? x : -708.0;
    const double shifted = clamped * LOG2_E + 0x1.8p52;  // its low bits are the nearest integer
    const double n = shifted - 0x1.8p52;
    const double r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    double q = 0x1.af38a9b0ec855p-26;
    q = q * r + 0x1.289185613a3d6p-22;
    q = q * r + 0x1.71de0dae63bb3p-19;
    q = q * r + 0x1.a019b90d2ae7ap-16;
    q = q * r + 0x1.a01a01a7c41d5p-13;
    q = q * r + 0x1.6c16c1788bd90p-10;
    q = q * r + 0x1.11111111109b3p-7;
    q = q * r + 0x1.5555555553d63p-5;
    q = q * r + 0x1.5555555555556p-3;
    q = q * r + 0.5;
    const double power = q * r * r + r + 1.0;
    const uint64_t bits = __builtin_bit_cast(uint64_t, power) + (__builtin_bit_cast(uint64_t, shifted) << 52);
    return x > -708.0 ? __builtin_bit_cast(double, bits) : 0.0;
}

inline double weigh(const float* logits, double best, double inverse, double* weights) {
    for (int i = 0; i < SAMPLING_GROUP; i++) weights[i] = exp_negative((double(logits[i]) - best) * inverse);
    double lanes[8];
    for (int l = 0; l < 8; l++) lanes[l] = weights[l];
    for (int i = 8; i < SAMPLING_GROUP; i += 8)
        for (int l = 0; l < 8; l++) lanes[l] += weights[i + l];
    for (int half = 4; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

inline float weigh_near(const float* logits, float best, float inverse) {
    F sum = zero();
    for (int i = 0; i < SAMPLING_GROUP; i += W) sum = add(sum, exp(mul(sub(load(logits + i), set(best)), set(inverse))));
    return reduce_add(sum);
}

// With u a token's uniform number, its noise -log(-log u) is at most -log(1 - u), and log2 of a float is at least its
// bits read as an integer, scaled: log2(1 + m) >= m.
inline bool may_beat(double to_beat, const float* logits, double best, double inverse, uint64_t state, double* bounds) {
    constexpr double SLACK = 1e-6;  // many times what rounding can take from a bound that is near to anything
    int32_t found = 0;
    for (int i = 0; i < SAMPLING_GROUP; i++) {
        const uint64_t word = splitmix(state + uint64_t(i) * SPLITMIX_STEP);
        const float rest = float(int32_t(~word >> 33));  // (1 - u) 2^31, rounded down
        const double noise = (158.0 - 0x1p-23 * double(__builtin_bit_cast(int32_t, rest))) * LN_2;
        bounds[i] = (double(logits[i]) - best) * inverse + noise + SLACK;
        found |= !(bounds[i] < to_beat);
    }
    return found;
}

}  // namespace soothsay::SOOTHSAY_ISA
