#include "matrix.hpp"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

namespace soothsay {

namespace {

constexpr size_t HUGE_PAGE = size_t(2) << 20, LINE = 64;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t SLAB = 0;  // each matrix apart, so that a read past its end is seen
#else
constexpr size_t SLAB = 32 * HUGE_PAGE;
#endif

}  // namespace

void* allocate(size_t bytes) {
    const size_t alignment = bytes >= 4 * HUGE_PAGE ? HUGE_PAGE : LINE;
    const size_t size = (bytes + alignment - 1) / alignment * alignment;
    void* p = std::aligned_alloc(alignment, size > 0 ? size : alignment);
    if (p == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (alignment == HUGE_PAGE) madvise(p, size, MADV_HUGEPAGE);
#endif
    return p;
}

std::shared_ptr<uint8_t[]> Arena::take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = (bytes + LINE - 1) / LINE * LINE;
    if (used_ + size > size_) {
        size_ = size > SLAB ? size : SLAB;
        slab_ = std::shared_ptr<uint8_t[]>(static_cast<uint8_t*>(allocate(size_)), FreeMemory());
        used_ = 0;
    }
    used_ += size;
    return {slab_, slab_.get() + used_ - size};
}

namespace {

float half(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const float magnitude = exponent == 0    ? std::ldexp(float(mantissa), -24)
                            : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                             : std::ldexp(float(mantissa + 1024), exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

uint16_t word(const uint8_t* p) {
    uint16_t w;
    std::memcpy(&w, p, 2);
    return w;
}

// How a kind of block lies in a file (sizes in bytes) and in a tile.
struct Format {
    Kind kind;
    int bits;        // of a code; 0: floats
    int file_bytes;  // of a block (or of a number)
    int groups;      // of 32 inputs in a block
    bool minimum;    // flat formats: a minimum follows the scale
    int zero;        // the code that means 0

    bool super() const { return groups > 1; }  // the groups' own scales are small numbers, times one of the block
};

constexpr Format FORMATS[] = {
    {Kind::F32, 0, 4, 0, false, 0},   {Kind::F16, 0, 2, 0, false, 0},   {Kind::BF16, 0, 2, 0, false, 0},
    {Kind::Q4_0, 4, 18, 1, false, 8}, {Kind::Q4_1, 4, 20, 1, true, 0},  {Kind::Q5_0, 5, 22, 1, false, 16},
    {Kind::Q5_1, 5, 24, 1, true, 0},  {Kind::Q8_0, 8, 34, 1, false, 128}, {Kind::Q4_K, 4, 144, 8, true, 0},
    {Kind::Q5_K, 5, 176, 8, true, 0}, {Kind::Q6_K, 6, 210, 8, false, 32},
    {Kind::D3, 3, 60, 4, true, 0},
};

const Format& format_of(Kind kind) {
    for (const Format& f : FORMATS)
        if (f.kind == kind) return f;
    throw std::invalid_argument("a tensor kind that cannot be packed");
}

size_t group_bytes(const Format& f) {
    if (f.bits == 0) return size_t(f.file_bytes) * GROUP * TILE;
    return f.bits * 64 + (f.minimum && !f.super() ? 64 : 32);
}

size_t tail_bytes(const Format& f) { return !f.super() ? 0 : f.minimum ? 64 : 32; }

// The scale and minimum of one group of a D3 block (4 groups, 8 bits each), or of a Q4_K or Q5_K block (8 groups, 6 bits).
void super_scale(Kind kind, const uint8_t* packed, int g, uint8_t& scale, uint8_t& minimum) {
    if (kind == Kind::D3) {
        scale = packed[g];
        minimum = packed[g + 4];
    } else if (g < 4) {
        scale = packed[g] & 63;
        minimum = packed[g + 4] & 63;
    } else {
        scale = uint8_t((packed[g + 4] & 15) | packed[g - 4] >> 6 << 4);
        minimum = uint8_t(packed[g + 4] >> 4 | packed[g] >> 6 << 4);
    }
}

// The 32 unsigned codes of group g of a block.
void codes_of(Kind kind, const uint8_t* block, int g, uint8_t* codes) {
    auto nibbles = [&](const uint8_t* quads, int offset) {
        for (int i = 0; i < 16; i++) codes[i] = quads[offset + i] & 15, codes[16 + i] = quads[offset + i] >> 4;
    };
    auto fifth_bits = [&](const uint8_t* bits) {
        for (int i = 0; i < 32; i++) codes[i] = uint8_t(codes[i] | (bits[i / 8] >> i % 8 & 1) << 4);
    };
    const int nibble_shift = g % 2 * 4;
    switch (kind) {
        case Kind::Q4_0: return nibbles(block, 2);
        case Kind::Q4_1: return nibbles(block, 4);
        case Kind::Q5_0: nibbles(block, 6); return fifth_bits(block + 2);
        case Kind::Q5_1: nibbles(block, 8); return fifth_bits(block + 4);
        case Kind::Q8_0:
            for (int i = 0; i < 32; i++) codes[i] = block[2 + i] ^ 0x80;
            return;
        case Kind::Q4_K:
            for (int i = 0; i < 32; i++) codes[i] = block[16 + g / 2 * 32 + i] >> nibble_shift & 15;
            return;
        case Kind::Q5_K:
            for (int i = 0; i < 32; i++)
                codes[i] = uint8_t((block[48 + g / 2 * 32 + i] >> nibble_shift & 15) | (block[16 + i] >> g & 1) << 4);
            return;
        case Kind::Q6_K: {  // two halves of 128 inputs; within one, groups 0 and 1 are low nibbles, 2 and 3 high ones
            const uint8_t* low = block + g / 4 * 64 + g % 2 * 32;
            const uint8_t* high = block + 128 + g / 4 * 32;
            for (int i = 0; i < 32; i++)
                codes[i] = uint8_t((low[i] >> g % 4 / 2 * 4 & 15) | (high[i] >> g % 4 * 2 & 3) << 4);
            return;
        }
        case Kind::D3:  // one after another, from the lowest bit of the first byte on
            for (int i = 0; i < 32; i++) {
                const uint8_t* eight = block + 12 + g * 12 + i / 8 * 3;
                codes[i] = (eight[0] | eight[1] << 8 | eight[2] << 16) >> i % 8 * 3 & 7;
            }
            return;
        default: return;
    }
}

void dequantise_block(const Format& f, const uint8_t* block, float* out) {
    uint8_t codes[GROUP];
    for (int g = 0; g < f.groups; g++, out += GROUP) {
        codes_of(f.kind, block, g, codes);
        if (f.kind == Kind::Q6_K) {
            const float scale = half(word(block + 208));
            for (int i = 0; i < GROUP; i++) out[i] = scale * float(int8_t(block[192 + 2 * g + i / 16])) * float(int(codes[i]) - f.zero);
        } else if (f.super()) {
            uint8_t scale, minimum;
            super_scale(f.kind, block + 4, g, scale, minimum);
            const float step = half(word(block)) * scale, least = half(word(block + 2)) * minimum;
            for (int i = 0; i < GROUP; i++) out[i] = step * codes[i] - least;
        } else {
            const float step = half(word(block)), least = f.minimum ? half(word(block + 2)) : 0.0f;
            for (int i = 0; i < GROUP; i++) out[i] = step * float(int(codes[i]) - f.zero) + least;
        }
    }
}

float number(Kind kind, const uint8_t* p) {
    if (kind == Kind::F16) return half(word(p));
    const uint32_t bits = uint32_t(word(p)) << 16;
    float f;
    std::memcpy(&f, kind == Kind::BF16 ? reinterpret_cast<const uint8_t*>(&bits) : p, 4);
    return f;
}

// Spreads 16 bytes over four planes, four bytes to the column's place in each.
void spread(const uint8_t* bytes, int column, uint8_t* planes) {
    for (int j = 0; j < 4; j++) std::memcpy(planes + j * 64 + column * 4, bytes + 4 * j, 4);
}

// The codes of 3 bits of the last quads are cut up: see product.hpp.
void pack_three_bits(const uint8_t* codes, int column, uint8_t* group) {
    for (int k = 0; k < 4; k++) {
        const int low = codes[12 + k], high = codes[28 + k];
        const int tops[] = {low & 3, high & 3, low >> 2 | high >> 2 << 1};
        for (int j = 0; j < 3; j++)
            group[j * 64 + column * 4 + k] = uint8_t(codes[4 * j + k] | codes[16 + 4 * j + k] << 3 | tops[j] << 6);
    }
}

void pack_codes(const Format& f, const uint8_t* codes, int column, uint8_t* group) {
    if (f.bits == 3) return pack_three_bits(codes, column, group);
    if (f.bits == 8) {
        spread(codes, column, group);
        spread(codes + 16, column, group + 256);
        return;
    }
    uint8_t nibbles[16], upper[16];
    for (int i = 0; i < 16; i++) nibbles[i] = uint8_t((codes[i] & 15) | codes[16 + i] << 4);
    for (int i = 0; i < 16; i++) upper[i] = uint8_t(codes[i] >> 4 | codes[16 + i] >> 4 << (f.bits == 5 ? 4 : 2));
    spread(nibbles, column, group);
    if (f.bits == 5)
        for (int k = 0; k < 4; k++)
            group[256 + column * 4 + k] = uint8_t(upper[k] | upper[4 + k] << 1 | upper[8 + k] << 2 | upper[12 + k] << 3);
    if (f.bits == 6)
        for (int pair = 0; pair < 2; pair++)
            for (int k = 0; k < 4; k++)
                group[256 + pair * 64 + column * 4 + k] = uint8_t(upper[8 * pair + k] | upper[8 * pair + 4 + k] << 4);
}

void pack_scales(const Format& f, const uint8_t* block, int g, int column, uint8_t* group, uint8_t* tail) {
    uint8_t* scales = group + f.bits * 64;
    if (f.kind == Kind::Q6_K) {
        scales[column] = block[192 + 2 * g];
        scales[16 + column] = block[192 + 2 * g + 1];
        if (g == 0) std::memcpy(tail + 2 * column, block + 208, 2);
    } else if (f.super()) {
        super_scale(f.kind, block + 4, g, scales[column], scales[16 + column]);
        if (g == 0) std::memcpy(tail + 2 * column, block, 2), std::memcpy(tail + 32 + 2 * column, block + 2, 2);
    } else {
        std::memcpy(scales + 2 * column, block, 2);
        if (f.minimum) std::memcpy(scales + 32 + 2 * column, block + 2, 2);
    }
}

void pack_column(const Format& f, const uint8_t* row, long inputs, int column, uint8_t* tile) {
    if (f.bits == 0) {
        for (long i = 0; i < inputs; i++) std::memcpy(tile + (i * TILE + column) * f.file_bytes, row + i * f.file_bytes, f.file_bytes);
        return;
    }
    uint8_t codes[GROUP];
    for (long b = 0; b < inputs / (GROUP * f.groups); b++, row += f.file_bytes) {
        uint8_t* tail = tile + f.groups * group_bytes(f);
        for (int g = 0; g < f.groups; g++, tile += group_bytes(f)) {
            codes_of(f.kind, row, g, codes);
            pack_codes(f, codes, column, tile);
            pack_scales(f, row, g, column, tile, tail);
        }
        tile = tail + tail_bytes(f);
    }
}

}  // namespace

size_t file_row_bytes(Kind kind, long inputs) {
    const Format& f = format_of(kind);
    if (f.bits == 0) return size_t(inputs) * f.file_bytes;
    if (inputs % (GROUP * f.groups) != 0) throw std::invalid_argument("a row that is not a whole number of blocks");
    return size_t(inputs / (GROUP * f.groups)) * f.file_bytes;
}

void dequantise_row(Kind kind, const uint8_t* row, long inputs, float* out) {
    const Format& f = format_of(kind);
    if (f.bits == 0)
        for (long i = 0; i < inputs; i++) out[i] = number(kind, row + i * f.file_bytes);
    else
        for (long i = 0; i < inputs; i += GROUP * f.groups, row += f.file_bytes) dequantise_block(f, row, out + i);
}

Matrix::Matrix(Team& team, Arena& arena, Kind kind, long outputs, long inputs, const uint8_t* rows) {
    const Format& f = format_of(kind);
    const size_t row_bytes = file_row_bytes(kind, inputs);
    const size_t tile_bytes = f.bits == 0 ? size_t(padded(inputs) * TILE) * f.file_bytes
                                          : inputs / (GROUP * f.groups) * (f.groups * group_bytes(f) + tail_bytes(f));
    tiles_ = {kind, padded(inputs), outputs, tile_bytes, nullptr};
    data_ = arena.take(bytes());
    tiles_.data = data_.get();
    team.run([&](int) {
        team.share(outputs, TILE, [&](long begin, long end) {
            uint8_t* tile = data_.get() + begin / TILE * tile_bytes;
            std::memset(tile, 0, tile_bytes);
            for (long c = begin; c < end; c++) pack_column(f, rows + c * row_bytes, inputs, int(c - begin), tile);
        });
    });
}

}  // namespace soothsay
