// What happens to single rows between the products. Every function's result depends on its own row only.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

inline void rms_norm(const float* x, const float* weight, float epsilon, long width, long padded, float* y) {
    F squares = zero();
    for (long i = 0; i < padded; i += W) squares = fma(load(x + i), load(x + i), squares);
    const float mean = reduce_add(squares) / float(width);
    const F factor = set(1.0f / __builtin_sqrtf(mean + epsilon));
    for (long i = 0; i < padded; i += W) store(y + i, mul(mul(load(x + i), factor), load(weight + i)));
}

inline void add_row(float* x, const float* y, long padded) {
    for (long i = 0; i < padded; i += W) store(x + i, add(load(x + i), load(y + i)));
}

inline void scale_row(float* x, float factor, long padded) {
    for (long i = 0; i < padded; i += W) store(x + i, mul(load(x + i), set(factor)));
}

inline void swiglu(const float* gate, const float* up, float* y, long padded) {
    for (long i = 0; i < padded; i += W) {
        const F g = load(gate + i);
        const F sigmoid = div(set(1.0f), add(set(1.0f), exp(sub(zero(), g))));
        store(y + i, mul(mul(g, sigmoid), load(up + i)));
    }
}

// Rotates pairs by the angles of a position (Su et al., arXiv 2104.09864); `width` is that of the rotated part.
inline void rotate(float* head, const float* cosines, const float* sines, long width, bool interleaved) {
    const long half = width / 2, step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
    for (long i = 0; i < half; i++) {
        float* a = head + i * step;
        const float x = a[0], y = a[other];
        a[0] = x * cosines[i] - y * sines[i];
        a[other] = x * sines[i] + y * cosines[i];
    }
}

}  // namespace soothsay::SOOTHSAY_ISA
