// The few vector operations that the kernels are written in, for each instruction set.
//
// A kernel file is compiled once per instruction set, each time inside its own namespace SOOTHSAY_ISA, so that no
// function built for a newer machine can be linked in place of one for an older. For the same reason the kernels call
// nothing from the standard library.
//
// F holds W floats, I holds W 32-bit integers (or 4 W bytes). Every operation acts lane by lane.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(SOOTHSAY_AVX512) || defined(SOOTHSAY_AVX2)
#include <immintrin.h>
#endif

#ifndef INLINE  // the sanitizers' build has its own: it would grow too large
#define INLINE inline __attribute__((always_inline))
#endif

namespace soothsay::SOOTHSAY_ISA {

INLINE float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16, magnitude = h & 0x7fff;
    uint32_t bits;
    if (magnitude >= 0x7c00) {
        bits = 0x7f800000 | (magnitude & 0x3ff) << 13;
    } else if (magnitude >= 0x400) {
        bits = (magnitude << 13) + 0x38000000;
    } else {
        const float subnormal = float(magnitude) * 0x1p-24f;
        std::memcpy(&bits, &subnormal, 4);
    }
    bits |= sign;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}

// Round to nearest, ties to even; overflow gives infinity.
INLINE uint16_t float_to_half(float f) {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
    if (magnitude >= 0x38800000) return uint16_t(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13);
    float shifted;  // adding 0.5 leaves the rounded subnormal in the low bits of the mantissa
    std::memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    uint32_t rounded;
    std::memcpy(&rounded, &shifted, 4);
    return uint16_t(sign | (rounded - 0x3f000000));
}

#if defined(SOOTHSAY_AVX512)

constexpr int W = 16;
using F = __m512;
using I = __m512i;

INLINE F zero() { return _mm512_setzero_ps(); }
INLINE F set(float x) { return _mm512_set1_ps(x); }
INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
INLINE F load_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
INLINE F load_bfloat(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
INLINE void store_half(uint16_t* p, F x) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE F load_unsigned_bytes(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
INLINE F load_signed_bytes(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
INLINE F abs(F a) { return _mm512_abs_ps(a); }
INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
INLINE F select_less(F a, F b, F yes, F no) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes); }
INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
INLINE I to_nearest(F a) { return _mm512_cvtps_epi32(a); }
INLINE F times_power_of_two(F a, I n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(n, 23)));
}
INLINE void store_bytes(int8_t* p, I a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(a)); }
INLINE int32_t reduce_add(I a) { return _mm512_reduce_add_epi32(a); }
INLINE float reduce_max(F a) { return _mm512_reduce_max_ps(a); }
INLINE __m256 add_halves(F a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }
INLINE I load_planes(const uint8_t* p) { return _mm512_loadu_si512(p); }
template <int N> INLINE I shift_right(I a) { return _mm512_srli_epi16(a, N); }
template <int N> INLINE I shift_left(I a) { return _mm512_slli_epi16(a, N); }
INLINE I mask_bytes(I a, int mask) { return _mm512_and_si512(a, _mm512_set1_epi8(char(mask))); }
INLINE I merge_bytes(I a, I b, int mask) {  // a | (b & mask)
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(char(mask)), 0xF8);
}

INLINE I no_integers() { return _mm512_setzero_si512(); }
INLINE I integers(int32_t x) { return _mm512_set1_epi32(x); }
INLINE I add_products(I sum, I codes, I bytes) { return _mm512_dpbusd_epi32(sum, codes, bytes); }

#elif defined(SOOTHSAY_AVX2)

constexpr int W = 8;
using F = __m256;
using I = __m256i;

INLINE F zero() { return _mm256_setzero_ps(); }
INLINE F set(float x) { return _mm256_set1_ps(x); }
INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x); }
INLINE F load_half(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
INLINE F load_bfloat(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
INLINE void store_half(uint16_t* p, F x) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE F load_unsigned_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
INLINE F load_signed_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
INLINE F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE F select_less(F a, F b, F yes, F no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
INLINE I to_nearest(F a) { return _mm256_cvtps_epi32(a); }
INLINE F times_power_of_two(F a, I n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(n, 23)));
}
INLINE void store_bytes(int8_t* p, I a) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i*)p, _mm_packs_epi16(words, words));
}
INLINE int32_t reduce_add(I a) {
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}
INLINE float reduce_max(F a) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
INLINE __m256 add_halves(F a) { return a; }
INLINE I load_planes(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
template <int N> INLINE I shift_right(I a) { return _mm256_srli_epi16(a, N); }
template <int N> INLINE I shift_left(I a) { return _mm256_slli_epi16(a, N); }
INLINE I mask_bytes(I a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi8(char(mask))); }
INLINE I merge_bytes(I a, I b, int mask) { return _mm256_or_si256(a, mask_bytes(b, mask)); }

#if defined(SOOTHSAY_AVXVNNI)
INLINE I no_integers() { return _mm256_setzero_si256(); }
INLINE I integers(int32_t x) { return _mm256_set1_epi32(x); }
INLINE I add_products(I sum, I codes, I bytes) { return _mm256_dpbusd_avx_epi32(sum, codes, bytes); }
#else

// Without a four-way dot product, pairs of products are summed in 16 bits. RUN of them fit before they must be widened:
// 2 * 127 * (2^BITS - 1) * RUN < 2^15. Codes of 8 bits do not fit at all, so their sign moves to the activations.
template <int BITS, int ZERO> struct GroupSum {
    static constexpr int RUN = BITS <= 4 ? 8 : BITS == 5 ? 4 : BITS == 6 ? 2 : 1;
    I pairs, sum;
    INLINE void start(int32_t minus_sum) {
        sum = ZERO < 0 || BITS == 8 ? _mm256_setzero_si256()
                                    : _mm256_set1_epi32(ZERO < 0 ? 0 : minus_sum * (1 << (ZERO & 31)));
    }
    template <int PLANE, int PLANES> INLINE void add(I codes, const int8_t* four) {
        int32_t quad;
        std::memcpy(&quad, four, 4);
        I bytes = _mm256_set1_epi32(quad);
        if constexpr (BITS == 8) {
            const I centred = _mm256_xor_si256(codes, _mm256_set1_epi8(char(0x80)));
            bytes = _mm256_sign_epi8(bytes, centred);
            codes = _mm256_abs_epi8(centred);
        }
        const I products = _mm256_maddubs_epi16(codes, bytes);
        pairs = PLANE % RUN == 0 ? products : _mm256_add_epi16(pairs, products);
        if constexpr (PLANE % RUN == RUN - 1 || PLANE == PLANES - 1)
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    INLINE F value() const { return to_float(sum); }
};
#endif

#else

constexpr int W = 8;
struct F { float lane[W]; };
struct I {
    int32_t lane[W];
};
struct Bytes {
    uint8_t lane[4 * W];
};

#define LANES for (int l = 0; l < W; l++)
INLINE F set(float x) { F r; LANES r.lane[l] = x; return r; }
INLINE F zero() { return set(0.0f); }
INLINE F load(const float* p) { F r; std::memcpy(&r, p, sizeof r); return r; }
INLINE void store(float* p, F x) { std::memcpy(p, &x, sizeof x); }
INLINE F load_half(const uint16_t* p) { F r; LANES r.lane[l] = half_to_float(p[l]); return r; }
INLINE F load_bfloat(const uint16_t* p) {
    F r;
    LANES { const uint32_t bits = uint32_t(p[l]) << 16; std::memcpy(&r.lane[l], &bits, 4); }
    return r;
}
INLINE void store_half(uint16_t* p, F x) { LANES p[l] = float_to_half(x.lane[l]); }
INLINE F load_unsigned_bytes(const uint8_t* p) { F r; LANES r.lane[l] = float(p[l]); return r; }
INLINE F load_signed_bytes(const uint8_t* p) { F r; LANES r.lane[l] = float(int8_t(p[l])); return r; }
INLINE F add(F a, F b) { LANES a.lane[l] += b.lane[l]; return a; }
INLINE F sub(F a, F b) { LANES a.lane[l] -= b.lane[l]; return a; }
INLINE F mul(F a, F b) { LANES a.lane[l] *= b.lane[l]; return a; }
INLINE F div(F a, F b) { LANES a.lane[l] /= b.lane[l]; return a; }
INLINE F max(F a, F b) { LANES a.lane[l] = a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l]; return a; }
INLINE F min(F a, F b) { LANES a.lane[l] = a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l]; return a; }
INLINE F abs(F a) { LANES a.lane[l] = __builtin_fabsf(a.lane[l]); return a; }
INLINE F fma(F a, F b, F c) { LANES c.lane[l] += a.lane[l] * b.lane[l]; return c; }  // rounded twice: no FMA here
INLINE F fnma(F a, F b, F c) { LANES c.lane[l] -= a.lane[l] * b.lane[l]; return c; }
INLINE F select_less(F a, F b, F yes, F no) { LANES no.lane[l] = a.lane[l] < b.lane[l] ? yes.lane[l] : no.lane[l]; return no; }
INLINE F to_float(I a) { F r; LANES r.lane[l] = float(a.lane[l]); return r; }
// Adding 1.5 * 2^23 rounds to an integer in the low bits of the mantissa; exact for |a| < 2^22.
INLINE I to_nearest(F a) {
    I r;
    LANES {
        const float shifted = a.lane[l] + 12582912.0f;
        std::memcpy(&r.lane[l], &shifted, 4);
        r.lane[l] -= 0x4b400000;
    }
    return r;
}
INLINE F times_power_of_two(F a, I n) {
    LANES {
        uint32_t bits;
        std::memcpy(&bits, &a.lane[l], 4);
        bits += uint32_t(n.lane[l]) << 23;
        std::memcpy(&a.lane[l], &bits, 4);
    }
    return a;
}
INLINE void store_bytes(int8_t* p, I a) { LANES p[l] = int8_t(a.lane[l]); }
INLINE int32_t reduce_add(I a) { int32_t sum = 0; LANES sum += a.lane[l]; return sum; }
INLINE float reduce_max(F a) { float most = a.lane[0]; LANES most = a.lane[l] > most ? a.lane[l] : most; return most; }
INLINE Bytes load_planes(const uint8_t* p) { Bytes r; std::memcpy(&r, p, sizeof r); return r; }
#undef LANES
#define BYTES for (int l = 0; l < 4 * W; l++)
template <int N> INLINE Bytes shift_right(Bytes a) { BYTES a.lane[l] = uint8_t(a.lane[l] >> N); return a; }
template <int N> INLINE Bytes shift_left(Bytes a) { BYTES a.lane[l] = uint8_t(a.lane[l] << N); return a; }
INLINE Bytes mask_bytes(Bytes a, int mask) { BYTES a.lane[l] = uint8_t(a.lane[l] & mask); return a; }
INLINE Bytes merge_bytes(Bytes a, Bytes b, int mask) { BYTES a.lane[l] = uint8_t(a.lane[l] | (b.lane[l] & mask)); return a; }
#undef BYTES

template <int BITS, int ZERO> struct GroupSum {
    I sum;
    INLINE void start(int32_t minus_sum) {
        for (int l = 0; l < W; l++) sum.lane[l] = ZERO < 0 ? 0 : minus_sum * (1 << (ZERO & 31));
    }
    template <int PLANE, int PLANES> INLINE void add(Bytes codes, const int8_t* four) {
        for (int l = 0; l < W; l++)
            for (int i = 0; i < 4; i++) sum.lane[l] += int32_t(codes.lane[4 * l + i]) * four[i];
    }
    INLINE F value() const { return to_float(sum); }
};

#endif

#if defined(SOOTHSAY_AVX512) || defined(SOOTHSAY_AVXVNNI)
// The integer sum of one group: unsigned codes of BITS bits times signed bytes, `planes` of four inputs a lane.
// It starts from `minus_sum` (the activations' own sum, negated) shifted left by ZERO: the codes' zero point.
template <int BITS, int ZERO> struct GroupSum {
    I sum;
    INLINE void start(int32_t minus_sum) { sum = ZERO < 0 ? no_integers() : integers(ZERO < 0 ? 0 : minus_sum * (1 << (ZERO & 31))); }
    template <int PLANE, int PLANES> INLINE void add(I codes, const int8_t* four) {
        int32_t quad;
        std::memcpy(&quad, four, 4);
        sum = add_products(sum, codes, integers(quad));
    }
    INLINE F value() const { return to_float(sum); }
};
#endif

// In one fixed order: the upper half of the lanes onto the lower, until one is left.
INLINE float reduce_add(F a) {
#if defined(SOOTHSAY_AVX512) || defined(SOOTHSAY_AVX2)
    const __m256 eight = add_halves(a);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
#else
    for (int half = W / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) a.lane[l] += a.lane[l + half];
    return a.lane[0];
#endif
}

// e^x to about 2 units in the last place; 0 below -87, clamped above 88. Cephes' polynomial on [-ln 2 / 2, ln 2 / 2].
INLINE F exp(F x) {
    const F least = set(-87.0f);
    const F clamped = min(set(88.0f), max(least, x));  // in this order NaN stays NaN
    const I n = to_nearest(mul(clamped, set(1.44269504088896341f)));
    F r = fnma(to_float(n), set(0.693359375f), clamped);
    r = fnma(to_float(n), set(-2.12194440e-4f), r);
    F p = set(1.9875691500e-4f);
    p = fma(p, r, set(1.3981999507e-3f));
    p = fma(p, r, set(8.3334519073e-3f));
    p = fma(p, r, set(4.1665795894e-2f));
    p = fma(p, r, set(1.6666665459e-1f));
    p = fma(p, r, set(5.0000001201e-1f));
    p = add(fma(mul(r, r), p, r), set(1.0f));
    return select_less(x, least, zero(), times_power_of_two(p, n));
}

}  // namespace soothsay::SOOTHSAY_ISA
