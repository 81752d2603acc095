// What the machine itself can do, for measurements: how fast memory is read, and how many products are made a second.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

using Words = uint64_t __attribute__((vector_size(64), may_alias));  // a cache line, in as many registers as it takes

// Reads `bytes`, a multiple of 512, and gives a sum of them, so that no load is left out.
inline uint64_t read(const uint8_t* data, size_t bytes) {
    const auto* lines = reinterpret_cast<const Words*>(data);
    Words sums[4] = {};
    for (size_t i = 0; i < bytes / sizeof(Words); i += 8) {
        for (int l = 0; l < 8; l++) __builtin_prefetch(lines + i + 32 + l);
        for (int l = 0; l < 8; l++) sums[l % 4] ^= lines[i + l];
    }
    const Words sum = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
    uint64_t word = 0;
    for (int l = 0; l < 8; l++) word ^= sum[l];
    return word;
}

// INDEPENDENT chains of products: more than the latency of one calls for, and registers for all of them.
#if defined(SOOTHSAY_AVX512) || defined(SOOTHSAY_AVXVNNI)

using Operand = I;
constexpr int INDEPENDENT = 12;
constexpr long PRODUCTS = 4 * W;
INLINE Operand operand(int byte) { return integers(byte * 0x01010101); }

#elif defined(SOOTHSAY_AVX2)

using Operand = __m256i;
constexpr int INDEPENDENT = 6;
constexpr long PRODUCTS = 32;
INLINE Operand operand(int byte) { return _mm256_set1_epi8(char(byte)); }
INLINE Operand add_products(Operand sum, Operand a, Operand b) {
    asm volatile("" : "+x"(a));  // as if it were another operand each time, or the products would be made only once
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
}

#else

using Operand = uint32_t __attribute__((vector_size(16)));
constexpr int INDEPENDENT = 6;
constexpr long PRODUCTS = 4;
INLINE Operand operand(int byte) { return Operand{} + uint32_t(byte); }
INLINE Operand add_products(Operand sum, Operand a, Operand b) { return sum * a + b; }

#endif

// Makes `rounds` rounds of independent products from registers, and gives how many those were; `sum` is written so that
// none is left out. Each chain starts elsewhere, or one would do for all.
inline long dot_products(long rounds, int32_t* sum) {
    const Operand a = operand(int(rounds & 127) | 1), b = operand(int(rounds & 63) | 3);
    Operand sums[INDEPENDENT];
    for (int c = 0; c < INDEPENDENT; c++) sums[c] = operand(c);
    for (long r = 0; r < rounds; r++)
        for (Operand& s : sums) s = add_products(s, a, b);
    std::memcpy(sum, sums, sizeof(int32_t));
    for (const Operand& s : sums) {
        int32_t words[sizeof(Operand) / sizeof(int32_t)];
        std::memcpy(words, &s, sizeof s);
        for (const int32_t word : words) *sum ^= word;
    }
    return rounds * INDEPENDENT * PRODUCTS;
}

}  // namespace soothsay::SOOTHSAY_ISA
