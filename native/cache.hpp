// The paged key/value cache: blocks of 32 tokens, shared by reference count between sequences with a common prefix.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "matrix.hpp"

namespace soothsay {

struct NoSuchSlot : std::out_of_range {
    using std::out_of_range::out_of_range;
};

class Cache {
  public:
    Cache(long layers, long kv_heads, long head_width, long max_length);
    bool holds(long layers, long kv_heads, long head_width, long max_length) const;

    std::mutex mutex;  // held by whoever calls: one pass at a time, and slots are not touched during one

    int open();
    int fork(int slot);
    void truncate(int slot, long length);
    void close(int slot);
    long length(int slot) const { return at(slot).length; }

    // Makes room for `count` more tokens: afterwards no block that they fall into is shared. Throws when too long.
    void reserve(int slot, long count);
    void advance(int slot, long count) { at(slot).length += count; }

    // This layer's keys [width, 32] and then values [32, width] of one head, in each block of the slot.
    void pages(int slot, long layer, long kv_head, std::vector<const uint16_t*>& out) const;
    uint16_t* page(int slot, long block, long layer, long kv_head);

    size_t bytes() const;

  private:
    using Block = std::shared_ptr<uint16_t[]>;
    struct Slot {
        std::vector<Block> blocks;
        long length = 0;
    };
    const Slot& at(int slot) const;
    Slot& at(int slot);
    Block fresh() const;
    size_t page_size() const { return size_t(head_width_) * BLOCK_TOKENS * 2; }
    size_t page_offset(long layer, long kv_head) const { return (layer * kv_heads_ + kv_head) * page_size(); }
    size_t block_size() const { return layers_ * kv_heads_ * page_size(); }

    const long layers_, kv_heads_, head_width_, max_length_;
    int next_ = 0;
    std::unordered_map<int, Slot> slots_;
};

}  // namespace soothsay
