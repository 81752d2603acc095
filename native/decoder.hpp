// A decoder's weights, and one whole pass over rows of many sequences.
#pragma once
#include <memory>
#include <vector>

#include "cache.hpp"
#include "matrix.hpp"
#include "threads.hpp"

namespace soothsay {

using Vector = std::vector<float>;  // padded to whole groups with zeros; empty where the decoder has none

struct Linear {
    std::shared_ptr<Matrix> weight;
    Vector bias;
};

struct Layer {
    Vector attention_norm;
    Linear query, key, value, attention_output;
    Vector query_norm, key_norm;  // of a head
    Vector feed_forward_norm;
    Linear gate, up, down;
};

struct Shape {
    long vocab_size, max_length, width, heads, kv_heads, head_width, feed_forward_width;
    float norm_epsilon;
    long rope_width;
    bool rope_interleaved;
    std::vector<double> rope_frequencies;
};

struct Embedding {  // stays in the file's own format: a pass reads a few rows of it
    Kind kind;
    const uint8_t* rows;
};

struct Feed {
    int slot;
    std::vector<int32_t> tokens;
    long rows;  // logits wanted for the last ones
};

class Decoder {
  public:
    // With another decoder's `cache` the slots are its own too: lighter weights of one model may go on from what the heavier
    // ones have read. Throws when the shapes differ.
    Decoder(std::shared_ptr<Team> team, const Kernels& kernels, Shape shape, Embedding embedding, std::vector<Layer> layers,
            Vector output_norm, Linear output, std::shared_ptr<Cache> cache = nullptr);
    ~Decoder();

    int open();
    int fork(int slot);
    long length(int slot);
    void truncate(int slot, long length);
    void close(int slot);
    size_t cache_bytes();
    const std::shared_ptr<Cache>& cache() const { return cache_; }

    // Appends the feeds' tokens; writes [sum of rows, columns] logits, of the tokens of lowest id. Nothing is appended when
    // it throws.
    void forward(const std::vector<Feed>& feeds, long columns, float* logits);

  private:
    friend class Pass;
    struct Scratch;

    void check(const std::vector<Feed>& feeds) const;

    const std::shared_ptr<Team> team_;
    const Kernels& kernels_;
    const Shape shape_;
    const Embedding embedding_;
    const std::vector<Layer> layers_;
    const Vector output_norm_;
    const Linear output_;
    std::shared_ptr<Cache> cache_;
    std::unique_ptr<Scratch> scratch_;
};

}  // namespace soothsay
