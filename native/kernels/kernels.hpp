// The kernels that a pass is made of, as one table of functions for each instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

namespace soothsay {

constexpr int TILE = 16;          // output columns of a packed tile
constexpr int GROUP = 32;         // inputs that share an activation scale; boundaries are absolute input indices
constexpr int BLOCK_TOKENS = 32;  // tokens of a cache block
constexpr int PARTITION = 256;    // keys that attention reduces together; boundaries are absolute positions
constexpr int SAMPLING_GROUP = 64;  // logits that sampling reduces together; boundaries are absolute token ids

// GGUF's numbers for the tensor types that can be packed, and one type of our own, for drafts; it is in no file of others.
enum class Kind : int {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30, D3 = 1003
};

// Rows of activations: as they are, and in 8 bits as the kernels read them (see product.hpp).
struct Rows {
    long inputs;          // padded: a multiple of GROUP
    long count;
    const float* values;  // [count, inputs]
    uint8_t* records;     // RECORD_BYTES for each row and group
};

constexpr long RECORD_BYTES = GROUP + 5 * 4;

// A packed matrix: column tiles one after the other, each a run of groups (or of 256-input blocks) over the inputs.
struct Tiles {
    Kind kind;
    long inputs;  // padded: a multiple of GROUP
    long outputs;
    size_t tile_bytes;
    const uint8_t* data;
};

// Queries of consecutive rows of one sequence, for the heads that share one key/value head, against one partition.
struct Attention {
    const uint16_t* const* blocks;  // [blocks of the sequence]: this layer's and head's keys [width, 32], then values [32, width]
    long width;                     // of a head
    long heads;                     // queries a row, adjacent in memory
    long rows;
    long first_position;            // of row 0; row r stands at first_position + r
    long partition;
    const float* queries;           // row r at queries + r * query_stride: [heads, width], already scaled
    long query_stride;
    float* partial;                 // result of row r, head h: see partial_of
    long partial_stride;            // floats from one row to the next
    long head_stride;               // floats from one head to the next
    float* scratch;                 // of this thread: scratch_floats(width, heads)
};

constexpr int ATTENTION_ROWS = 8;  // most rows of one Attention
constexpr long partial_floats(long width) { return width + 16; }  // weighted values, then maximum, then sum
constexpr size_t scratch_floats(long width, long heads) {
    return size_t(ATTENTION_ROWS) * heads * (PARTITION + 2 * width);
}

struct Kernels {
    const char* name;
    // Fills the records of row r from its values.
    void (*quantise)(const Rows& rows, long r);
    // out[r * stride + c] for all rows and the columns of tiles [begin, end).
    void (*product)(const Tiles& tiles, const Rows& rows, long begin, long end, float* out, size_t stride);
    // y = x * weight / rms(x); n is padded to whole groups with zeros, `width` is the true length.
    void (*rms_norm)(const float* x, const float* weight, float epsilon, long width, long padded, float* y);
    void (*add)(float* x, const float* y, long padded);
    // y = gate * sigmoid(gate) * up
    void (*swiglu)(const float* gate, const float* up, float* y, long padded);
    void (*rotate)(float* head, const float* cosines, const float* sines, long width, bool interleaved);
    void (*scale)(float* x, float factor, long padded);
    void (*store_key)(uint16_t* column, const float* key, long width);
    void (*store_value)(uint16_t* row, const float* value, long width);
    void (*attend)(const Attention& task);
    // Merges `count` partials, in order, into out[width].
    void (*combine)(const float* partials, long count, long width, float* out);
    // Writes the blocks, of kind Q4_1 or D3, nearest to a row of weights.
    void (*requantise)(Kind kind, const float* weights, long inputs, uint8_t* row);
    // Of one sampling group of logits: the highest.
    float (*most_of)(const float* logits);
    // weights = e^((logit - best) * inverse), and their sum.
    double (*weigh)(const float* logits, double best, double inverse, double* weights);
    // That sum in float32, to about six digits.
    float (*weigh_near)(const float* logits, float best, float inverse);
    // bounds: what (logit - best) * inverse plus Gumbel noise cannot exceed, with the noise of the words that SplitMix64
    // gives from `state` on. Tells whether one of them is at least `to_beat`.
    bool (*may_beat)(double to_beat, const float* logits, double best, double inverse, uint64_t state, double* bounds);
    // Only reads, and only multiplies: what the machine can do. See probe.hpp.
    uint64_t (*read)(const uint8_t* data, size_t bytes);
    long (*dot_products)(long rounds, int32_t* sum);
};

const Kernels& avx512_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx2_kernels();
const Kernels& portable_kernels();

}  // namespace soothsay
