// From a file's own blocks to packed tiles, and back to floats for single rows.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "kernels/kernels.hpp"
#include "threads.hpp"

namespace soothsay {

constexpr long tile_count(const Tiles& tiles) { return (tiles.outputs + TILE - 1) / TILE; }
constexpr long padded(long n) { return (n + GROUP - 1) / GROUP * GROUP; }

struct FreeMemory { void operator()(void* p) const { std::free(p); } };
template <class T> using Buffer = std::unique_ptr<T[], FreeMemory>;

// Aligned to a cache line, on huge pages when large; freed with std::free. Throws std::bad_alloc.
void* allocate(size_t bytes);

// Zeroed.
template <class T> Buffer<T> buffer(size_t count) {
    Buffer<T> out(static_cast<T*>(allocate(count * sizeof(T))));
    std::memset(out.get(), 0, count * sizeof(T));
    return out;
}

// Memory for packed matrices, on huge pages whatever a matrix's own size: products read all of it in each pass, and with
// small pages they wait for address translation as long as for memory.
class Arena {
  public:
    std::shared_ptr<uint8_t[]> take(size_t bytes);

  private:
    std::mutex mutex_;
    std::shared_ptr<uint8_t[]> slab_;
    size_t used_ = 0, size_ = 0;
};

size_t file_row_bytes(Kind kind, long inputs);

// One row of a file's tensor as floats.
void dequantise_row(Kind kind, const uint8_t* row, long inputs, float* out);

class Matrix {
  public:
    // `rows` holds outputs x inputs in the file's own format, row after row.
    Matrix(Team& team, Arena& arena, Kind kind, long outputs, long inputs, const uint8_t* rows);

    const Tiles& tiles() const { return tiles_; }
    size_t bytes() const { return tile_count(tiles_) * tiles_.tile_bytes; }

  private:
    Tiles tiles_;
    std::shared_ptr<uint8_t[]> data_;
};

}  // namespace soothsay
