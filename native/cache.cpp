#include "cache.hpp"

#include <cstring>
#include <set>
#include <string>
#include <utility>

namespace soothsay {

Cache::Cache(long layers, long kv_heads, long head_width, long max_length)
    : layers_(layers), kv_heads_(kv_heads), head_width_(head_width), max_length_(max_length) {}

bool Cache::holds(long layers, long kv_heads, long head_width, long max_length) const {
    return layers == layers_ && kv_heads == kv_heads_ && head_width == head_width_ && max_length == max_length_;
}

Cache::Slot& Cache::at(int slot) { return const_cast<Slot&>(std::as_const(*this).at(slot)); }

const Cache::Slot& Cache::at(int slot) const {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) throw NoSuchSlot("slot " + std::to_string(slot) + " is not open");
    return found->second;
}

Cache::Block Cache::fresh() const { return Block(buffer<uint16_t>(block_size()).release(), FreeMemory()); }

int Cache::open() {
    slots_.emplace(next_, Slot{});
    return next_++;
}

int Cache::fork(int slot) {
    const Slot& from = at(slot);
    const long blocks = (from.length + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    Slot copy{{from.blocks.begin(), from.blocks.begin() + blocks}, from.length};
    slots_.emplace(next_, std::move(copy));
    return next_++;
}

void Cache::truncate(int slot, long length) {
    Slot& s = at(slot);
    if (length < 0 || length > s.length)
        throw std::invalid_argument("cannot keep " + std::to_string(length) + " tokens of " + std::to_string(s.length));
    s.length = length;  // the blocks stay: they are overwritten when the slot grows again
}

void Cache::close(int slot) {
    at(slot);
    slots_.erase(slot);
}

void Cache::reserve(int slot, long count) {
    Slot& s = at(slot);
    if (s.length + count > max_length_) throw std::length_error("a slot would grow past the context length");
    if (count == 0) return;
    const size_t first = s.length / BLOCK_TOKENS, last = (s.length + count - 1) / BLOCK_TOKENS;
    for (size_t b = first; b <= last; b++) {
        if (b == s.blocks.size()) {
            s.blocks.push_back(fresh());
        } else if (s.blocks[b].use_count() > 1) {
            Block own = fresh();
            std::memcpy(own.get(), s.blocks[b].get(), block_size() * sizeof(uint16_t));
            s.blocks[b] = std::move(own);
        }
    }
}

void Cache::pages(int slot, long layer, long kv_head, std::vector<const uint16_t*>& out) const {
    for (const Block& block : at(slot).blocks) out.push_back(block.get() + page_offset(layer, kv_head));
}

uint16_t* Cache::page(int slot, long block, long layer, long kv_head) {
    return at(slot).blocks[block].get() + page_offset(layer, kv_head);
}

size_t Cache::bytes() const {
    std::set<const uint16_t*> blocks;
    for (const auto& [id, slot] : slots_)
        for (const Block& block : slot.blocks) blocks.insert(block.get());
    return blocks.size() * block_size() * sizeof(uint16_t);
}

}  // namespace soothsay
