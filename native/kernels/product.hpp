// Packed matrix products: every tile is unpacked once and used for all rows of the pass.
//
// A group of 32 inputs by 16 columns is stored as bit planes. One 64-byte plane of nibbles holds, for each column, four
// consecutive inputs in the low nibbles and the four 16 further on in the high ones; four planes make the group. The
// fifth and sixth bits lie in planes of their own. 8-bit codes take eight planes, in input order. 3-bit codes take three,
// each with two codes a byte; the last eight inputs' codes are made of the two bits that are left at the top of each.
//
// Each (row, column) is accumulated group after group in one order, whatever the number of rows or tiles at hand: that
// is what makes logits independent of the batch. Do not split the sum over inputs.
#pragma once
#include "../simd.hpp"
#include "kernels.hpp"

namespace soothsay::SOOTHSAY_ISA {

constexpr long PREFETCH = 6144, LINE = 64;  // bytes ahead of the group being read
constexpr int BAND = W == 16 ? 8 : 4;       // most rows at a time: what the registers hold

INLINE void prefetch(const uint8_t* at, long bytes) {
    for (long line = 0; line < bytes; line += LINE) __builtin_prefetch(at + PREFETCH + line);
}

// One group of inputs of a band of M rows in 8 bits: codes[m][i] * scales[m] is about the value. Kernels read nothing else
// of a band, from one end to the other.
template <int M> struct Record {
    int8_t codes[M][GROUP];
    float scales[M];
    float sums[M];  // scale times the sum of the codes
    int32_t minus_sums[M];
    int32_t minus_halves[M][2];
};
static_assert(sizeof(Record<BAND>) == BAND * RECORD_BYTES);

template <int M> INLINE Record<M>* records_of(const Rows& a, long first) {
    return (Record<M>*)(a.records + first * (a.inputs / GROUP) * RECORD_BYTES);
}

template <int M> void quantise_in_band(const Rows& rows, long first, long m) {
    const float* values = rows.values + (first + m) * rows.inputs;
    Record<M>* record = records_of<M>(rows, first);
    for (long g = 0; g < rows.inputs / GROUP; g++, record++, values += GROUP) {
        F most = zero(), broken = zero();  // NaN where a value is no number: `max` forgets it, and the codes cannot say it
        for (int i = 0; i < GROUP; i += W) {
            const F value = load(values + i);
            most = max(most, abs(value));
            broken = fma(value, zero(), broken);
        }
        const float scale = (reduce_max(most) + reduce_add(broken)) / 127.0f;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        int32_t half[2] = {0, 0};
        for (int i = 0; i < GROUP; i += W) {
            const F exact = mul(load(values + i), set(inverse));
            const I code = to_nearest(min(max(exact, set(-127.0f)), set(127.0f)));
            store_bytes(record->codes[m] + i, code);
            half[i / (GROUP / 2)] -= reduce_add(code);
        }
        record->minus_halves[m][0] = half[0];
        record->minus_halves[m][1] = half[1];
        record->minus_sums[m] = half[0] + half[1];
        record->scales[m] = scale;
        record->sums[m] = -scale * float(half[0] + half[1]);
    }
}

inline void quantise(const Rows& rows, long r) {
    static constexpr void (*run[])(const Rows&, long, long) = {
        quantise_in_band<1>, quantise_in_band<2>, quantise_in_band<3>, quantise_in_band<4>,
        quantise_in_band<5>, quantise_in_band<6>, quantise_in_band<7>, quantise_in_band<8>};
    const long first = r / BAND * BAND;
    run[(rows.count - first < BAND ? rows.count - first : BAND) - 1](rows, first, r - first);
}

// The codes of inputs 4j..4j+3 (`low`) and 16+4j..16+4j+3 (`high`) of a group.
template <int BITS, int J, class B> INLINE void unpack(const uint8_t* group, B& low, B& high) {
    if constexpr (BITS == 8) {
        low = load_planes(group + J * 64);
        high = load_planes(group + 256 + J * 64);
        return;
    } else if constexpr (BITS == 3 && J < 3) {
        const B codes = load_planes(group + J * 64);
        low = mask_bytes(codes, 7);
        high = mask_bytes(shift_right<3>(codes), 7);
    } else if constexpr (BITS == 3) {
        const B third_bits = load_planes(group + 128);
        low = merge_bytes(mask_bytes(shift_right<6>(load_planes(group)), 3), shift_right<4>(third_bits), 4);
        high = merge_bytes(mask_bytes(shift_right<6>(load_planes(group + 64)), 3), shift_right<5>(third_bits), 4);
    } else {
        const B nibbles = load_planes(group + J * 64);
        low = mask_bytes(nibbles, 15);
        high = mask_bytes(shift_right<4>(nibbles), 15);
        if constexpr (BITS == 5) {
            const B bits = load_planes(group + 256);
            low = merge_bytes(low, shift_left<4 - J>(bits), 0x10);
            high = merge_bytes(high, shift_right<J>(bits), 0x10);
        } else if constexpr (BITS == 6) {
            const B bits = load_planes(group + 256 + J / 2 * 64);
            if constexpr (J % 2 == 0) {
                low = merge_bytes(low, shift_left<4>(bits), 0x30);
                high = merge_bytes(high, shift_left<2>(bits), 0x30);
            } else {
                low = merge_bytes(low, bits, 0x30);
                high = merge_bytes(high, shift_right<2>(bits), 0x30);
            }
        }
    }
}

// How a format lays out its scales. ZERO: the codes' zero point is 2^ZERO; -1 for none, when a minimum is added instead.
template <int BITS_, int ZERO_, bool MINIMUM_> struct Flat {  // one half-float scale, maybe a minimum, a group
    static constexpr int BITS = BITS_, ZERO = ZERO_, GROUPS = 1;
    static constexpr bool MINIMUM = MINIMUM_, HALVES = false;
    static constexpr long PLANES = BITS * 64, GROUP_BYTES = PLANES + 32 + 32 * MINIMUM, TAIL = 0;
    struct Block { INLINE void read(const uint8_t*, long) {} };
    INLINE static F scale(const Block&, const uint8_t* group, long strip) {
        return load_half((const uint16_t*)(group + PLANES) + strip * W);
    }
    INLINE static F minimum(const Block&, const uint8_t* group, long strip) {
        return load_half((const uint16_t*)(group + PLANES + 32) + strip * W);
    }
};

template <int BITS_, int GROUPS_> struct Super {  // groups with 8-bit scales and minima, times two half-floats
    static constexpr int BITS = BITS_, ZERO = -1, GROUPS = GROUPS_;
    static constexpr bool MINIMUM = true, HALVES = false;
    static constexpr long PLANES = BITS * 64, GROUP_BYTES = PLANES + 32, TAIL = 64;
    struct Block {
        F scale, minimum;
        INLINE void read(const uint8_t* tail, long strip) {
            scale = load_half((const uint16_t*)tail + strip * W);
            minimum = sub(zero(), load_half((const uint16_t*)(tail + 32) + strip * W));
        }
    };
    INLINE static F scale(const Block& block, const uint8_t* group, long strip) {
        return mul(block.scale, load_unsigned_bytes(group + PLANES + strip * W));
    }
    INLINE static F minimum(const Block& block, const uint8_t* group, long strip) {
        return mul(block.minimum, load_unsigned_bytes(group + PLANES + 16 + strip * W));
    }
};

struct Super6 {  // 8 groups of two halves with signed 8-bit scales, times one half-float
    static constexpr int BITS = 6, ZERO = 5, GROUPS = 8;
    static constexpr bool MINIMUM = false, HALVES = true;
    static constexpr long PLANES = BITS * 64, GROUP_BYTES = PLANES + 32, TAIL = 32;
    struct Block {
        F scale;
        INLINE void read(const uint8_t* tail, long strip) { scale = load_half((const uint16_t*)tail + strip * W); }
    };
    INLINE static F scale(const Block& block, const uint8_t* group, long strip) {
        return mul(block.scale, load_signed_bytes(group + PLANES + strip * W));
    }
    INLINE static F second_scale(const Block& block, const uint8_t* group, long strip) {
        return mul(block.scale, load_signed_bytes(group + PLANES + 16 + strip * W));
    }
};

INLINE void store_columns(float* out, F value, long columns) {
    if (columns >= W) return store(out, value);
    float lane[W];
    store(lane, value);
    for (long c = 0; c < columns; c++) out[c] = lane[c];
}

// M rows by one tile, W of its columns (a strip) at a time.
template <class Format, int M> struct Quantised {
    static constexpr int HALVES = Format::HALVES ? 2 : 1;
    using Sum = GroupSum<Format::BITS, Format::ZERO>;

    template <int J> INLINE static void planes(const uint8_t* group, const Record<M>& a, Sum (&sums)[M][HALVES]) {
        decltype(load_planes(group)) low, high;
        unpack<Format::BITS, J>(group, low, high);
        for (int m = 0; m < M; m++) {
            const int8_t* codes = a.codes[m] + 4 * J;
            if constexpr (Format::HALVES) {
                sums[m][0].template add<J, 4>(low, codes);
                sums[m][1].template add<J, 4>(high, codes + 16);
            } else {
                sums[m][0].template add<2 * J, 8>(low, codes);
                sums[m][0].template add<2 * J + 1, 8>(high, codes + 16);
            }
        }
    }

    INLINE static void group(const uint8_t* group, const typename Format::Block& block, const Record<M>& a, long strip, F (&total)[M]) {
        prefetch(group, Format::GROUP_BYTES);
        Sum sums[M][HALVES];
        for (int m = 0; m < M; m++)
            for (int h = 0; h < HALVES; h++) sums[m][h].start(Format::HALVES ? a.minus_halves[m][h] : a.minus_sums[m]);
        const uint8_t* at_strip = group + strip * 4 * W;
        planes<0>(at_strip, a, sums);
        planes<1>(at_strip, a, sums);
        planes<2>(at_strip, a, sums);
        planes<3>(at_strip, a, sums);
        const F scale = Format::scale(block, group, strip);
        F other;
        if constexpr (Format::MINIMUM) other = Format::minimum(block, group, strip);
        if constexpr (Format::HALVES) other = Format::second_scale(block, group, strip);
        for (int m = 0; m < M; m++) {
            F product = mul(sums[m][0].value(), scale);
            if constexpr (Format::HALVES) product = fma(sums[m][1].value(), other, product);
            total[m] = fma(product, set(a.scales[m]), total[m]);
            if constexpr (Format::MINIMUM) total[m] = fma(other, set(a.sums[m]), total[m]);
        }
    }

    INLINE static void strip(const Tiles& t, const Rows& a, long first, long tile, long strip, F (&total)[M]) {
        const long blocks = t.inputs / (GROUP * Format::GROUPS);
        const uint8_t* at = t.data + size_t(tile) * t.tile_bytes;
        const Record<M>* record = records_of<M>(a, first);
        for (long b = 0; b < blocks; b++) {
            typename Format::Block block;
            block.read(at + Format::GROUPS * Format::GROUP_BYTES, strip);
#pragma GCC unroll 1  // else all prefetches of a block come at once, and one row of D3 takes a third longer
            for (long g = 0; g < Format::GROUPS; g++, at += Format::GROUP_BYTES) group(at, block, *record++, strip, total);
            at += Format::TAIL;
        }
    }
};

struct Float32 {
    static constexpr long BYTES = 4;
    INLINE static F read(const uint8_t* p, long lane) { return load((const float*)p + lane); }
};
struct Float16 {
    static constexpr long BYTES = 2;
    INLINE static F read(const uint8_t* p, long lane) { return load_half((const uint16_t*)p + lane); }
};
struct BFloat16 {
    static constexpr long BYTES = 2;
    INLINE static F read(const uint8_t* p, long lane) { return load_bfloat((const uint16_t*)p + lane); }
};

// Matrices kept in floats: input after input, 16 columns side by side, times the activations as they are.
template <class Element, int M> struct Dense {
    INLINE static void strip(const Tiles& t, const Rows& a, long first, long tile, long strip, F (&total)[M]) {
        const uint8_t* at = t.data + size_t(tile) * t.tile_bytes;
        const float* x = a.values + first * a.inputs;
        for (long i = 0; i < t.inputs; i++) {
            prefetch(at + i * TILE * Element::BYTES, TILE * Element::BYTES);
            const F weight = Element::read(at + i * TILE * Element::BYTES, strip * W);
            for (int m = 0; m < M; m++) total[m] = fma(weight, set(x[m * a.inputs + i]), total[m]);
        }
    }
};

template <template <class, int> class Body, class Format, int M>
void rows_by_tile(const Tiles& t, const Rows& a, long first, long tile, float* out, size_t stride) {
    for (long strip = 0; strip < TILE / W; strip++) {
        F total[M];
        for (int m = 0; m < M; m++) total[m] = zero();
        Body<Format, M>::strip(t, a, first, tile, strip, total);
        const long column = tile * TILE + strip * W;
        for (int m = 0; m < M; m++) store_columns(out + (first + m) * stride + column, total[m], t.outputs - column);
    }
}

template <template <class, int> class Body, class Format>
void product_of(const Tiles& t, const Rows& a, long begin, long end, float* out, size_t stride) {
    using Run = void (*)(const Tiles&, const Rows&, long, long, float*, size_t);
    static constexpr Run run[] = {rows_by_tile<Body, Format, 1>, rows_by_tile<Body, Format, 2>, rows_by_tile<Body, Format, 3>,
                                  rows_by_tile<Body, Format, 4>, rows_by_tile<Body, Format, 5>, rows_by_tile<Body, Format, 6>,
                                  rows_by_tile<Body, Format, 7>, rows_by_tile<Body, Format, 8>};
    for (long tile = begin; tile < end; tile++)
        for (long first = 0; first < a.count; first += BAND)
            run[(a.count - first < BAND ? a.count - first : BAND) - 1](t, a, first, tile, out, stride);
}

inline void product(const Tiles& t, const Rows& a, long begin, long end, float* out, size_t stride) {
    switch (t.kind) {
        case Kind::F32: return product_of<Dense, Float32>(t, a, begin, end, out, stride);
        case Kind::F16: return product_of<Dense, Float16>(t, a, begin, end, out, stride);
        case Kind::BF16: return product_of<Dense, BFloat16>(t, a, begin, end, out, stride);
        case Kind::Q4_0: return product_of<Quantised, Flat<4, 3, false>>(t, a, begin, end, out, stride);
        case Kind::Q4_1: return product_of<Quantised, Flat<4, -1, true>>(t, a, begin, end, out, stride);
        case Kind::Q5_0: return product_of<Quantised, Flat<5, 4, false>>(t, a, begin, end, out, stride);
        case Kind::Q5_1: return product_of<Quantised, Flat<5, -1, true>>(t, a, begin, end, out, stride);
        case Kind::Q8_0: return product_of<Quantised, Flat<8, 7, false>>(t, a, begin, end, out, stride);
        case Kind::Q4_K: return product_of<Quantised, Super<4, 8>>(t, a, begin, end, out, stride);
        case Kind::Q5_K: return product_of<Quantised, Super<5, 8>>(t, a, begin, end, out, stride);
        case Kind::Q6_K: return product_of<Quantised, Super6>(t, a, begin, end, out, stride);
        case Kind::D3: return product_of<Quantised, Super<3, 4>>(t, a, begin, end, out, stride);
    }
}

}  // namespace soothsay::SOOTHSAY_ISA
