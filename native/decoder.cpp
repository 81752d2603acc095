#include "decoder.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

namespace soothsay {
namespace {

constexpr long PASS_ROWS = 64;  // rows computed together; a longer pass is cut into such pieces
constexpr long SERIAL_NUMBERS = 24576;  // up to here one thread does the work between products: cheaper than a meeting

struct Row {
    int feed;  // index in the pass
    int slot;
    long position;
    int32_t token;
    float* logits;  // or null
};

struct Run {  // consecutive rows of one slot, at most ATTENTION_ROWS
    int feed;
    long first, count, partitions;
};

// Activations in floats with their 8-bit copy.
class Activations {
  public:
    Activations(long rows, long inputs)
        : inputs_(padded(inputs)), values_(buffer<float>(rows * inputs_)), records_(buffer<uint8_t>(rows * (inputs_ / GROUP) * RECORD_BYTES)) {}
    float* row(long r) { return values_.get() + r * inputs_; }
    long width() const { return inputs_; }
    Rows rows(long count) const { return {inputs_, count, values_.get(), records_.get()}; }

  private:
    long inputs_;
    Buffer<float> values_;
    Buffer<uint8_t> records_;
};

class Floats {
  public:
    Floats(long rows, long width) : width_(padded(width)), values_(buffer<float>(rows * width_)) {}
    float* row(long r) { return values_.get() + r * width_; }
    long width() const { return width_; }

  private:
    long width_;
    Buffer<float> values_;
};

struct Task {
    long run, kv_head, partition;
};

struct Product {
    Tiles tiles;
    const Activations* input;
    float* out;
    size_t stride;
};

}  // namespace

struct Decoder::Scratch {
    Scratch(const Shape& s, int threads)
        : residual(PASS_ROWS, s.width), query(PASS_ROWS, s.heads * s.head_width), key(PASS_ROWS, s.kv_heads * s.head_width),
          value(PASS_ROWS, s.kv_heads * s.head_width), gate(PASS_ROWS, s.feed_forward_width), up(PASS_ROWS, s.feed_forward_width),
          update(PASS_ROWS, s.width), cosines(PASS_ROWS, s.rope_width / 2), sines(PASS_ROWS, s.rope_width / 2),
          normed(PASS_ROWS, s.width), attended(PASS_ROWS, s.heads * s.head_width), hidden(PASS_ROWS, s.feed_forward_width),
          final(PASS_ROWS, s.width) {
        for (int t = 0; t < threads; t++) attention.push_back(buffer<float>(scratch_floats(s.head_width, s.heads / s.kv_heads)));
    }
    Floats residual, query, key, value, gate, up, update, cosines, sines;
    Activations normed, attended, hidden, final;
    std::vector<Buffer<float>> attention;  // a thread's own
    std::vector<float> partials;
};

// One piece of a pass: at most PASS_ROWS rows. Every thread of the team executes run() together.
class Pass {
  public:
    Pass(Decoder& d, const std::vector<Row>& rows, long columns)
        : d_(d), k_(d.kernels_), s_(d.shape_), w_(*d.scratch_), team_(*d.team_), rows_(rows), columns_(columns) {
        for (long r = 0; r < count(); r++)
            if (rows_[r].logits != nullptr) wanted_.push_back(r);
        find_runs();
        find_pages();
    }

    void run(int thread) {
        begin();
        for (long l = 0; l < long(d_.layers_.size()); l++) {
            attention(l, thread);
            feed_forward(l);
        }
        if (!wanted_.empty()) logits();
    }

  private:
    long count() const { return long(rows_.size()); }
    long group_heads() const { return s_.heads / s_.kv_heads; }
    long partitions(long position) const { return position / PARTITION + 1; }

    void find_runs() {
        long floats = 0;
        for (long r = 0; r < count();) {
            long n = 1;
            while (r + n < count() && n < ATTENTION_ROWS && rows_[r + n].feed == rows_[r].feed) n++;
            const long most = partitions(rows_[r + n - 1].position);
            runs_.push_back({rows_[r].feed, r, n, most});
            for (long i = 0; i < n; i++, floats += s_.heads * most * partial_floats(s_.head_width)) {
                partial_at_.push_back(floats);
                run_of_.push_back(long(runs_.size()) - 1);
            }
            for (long h = 0; h < s_.kv_heads; h++)
                for (long p = 0; p < most; p++) tasks_.push_back({long(runs_.size()) - 1, h, p});
            r += n;
        }
        if (long(w_.partials.size()) < floats) w_.partials.resize(floats);
    }

    // The cache pages of every run, layer and head; blocks do not move during a pass.
    void find_pages() {
        for (const Run& run : runs_)
            for (long l = 0; l < long(d_.layers_.size()); l++)
                for (long h = 0; h < s_.kv_heads; h++) {
                    page_at_.push_back(pages_.size());
                    d_.cache_->pages(rows_[run.first].slot, l, h, pages_);
                }
    }

    const uint16_t* const* pages(long run, long layer, long head) const {
        return pages_.data() + page_at_[(run * long(d_.layers_.size()) + layer) * s_.kv_heads + head];
    }

    // All threads meet; then body(row) runs for each of `n` rows of about `width` numbers.
    template <class Body> void rows_after(long n, long width, Body&& body) {
        if (n * width <= SERIAL_NUMBERS) {
            team_.meet([&] { for (long r = 0; r < n; r++) body(r); });
            return;
        }
        team_.meet([] {});
        team_.share(n, 1, [&](long begin, long end) { for (long r = begin; r < end; r++) body(r); });
        team_.meet([] {});
    }

    // The products run as one list of tiles.
    template <size_t N> void products(const Product (&list)[N], long rows) {
        long tiles = 0;
        for (const Product& p : list) tiles += tile_count(p.tiles);
        const long share = tiles / (team_.size() * 8), grain = share < 2 ? 2 : share > 16 ? 16 : share / 2 * 2;
        team_.share(tiles, grain, [&](long begin, long end) {
            for (const Product& p : list) {
                const long n = tile_count(p.tiles);
                if (begin < n && end > 0)
                    k_.product(p.tiles, p.input->rows(rows), begin > 0 ? begin : 0, end < n ? end : n, p.out, p.stride);
                begin -= n, end -= n;
            }
        });
    }

    void add_bias(float* row, const Linear& linear, long width) {
        if (!linear.bias.empty()) k_.add(row, linear.bias.data(), width);
    }

    void normalise(long r, const Vector& weight, Activations& out, long out_row, long out_rows) {
        k_.rms_norm(w_.residual.row(r), weight.data(), s_.norm_epsilon, s_.width, w_.residual.width(), out.row(out_row));
        k_.quantise(out.rows(out_rows), out_row);
    }

    void begin() {
        rows_after(count(), s_.width, [&](long r) {
            const size_t row_bytes = file_row_bytes(d_.embedding_.kind, s_.width);
            dequantise_row(d_.embedding_.kind, d_.embedding_.rows + rows_[r].token * row_bytes, s_.width, w_.residual.row(r));
            for (long i = 0; i < s_.rope_width / 2; i++) {
                const double angle = double(rows_[r].position) * s_.rope_frequencies[i];
                w_.cosines.row(r)[i] = float(std::cos(angle));
                w_.sines.row(r)[i] = float(std::sin(angle));
            }
            normalise(r, d_.layers_[0].attention_norm, w_.normed, r, count());
        });
    }

    void prepare_heads(float* heads, long n, const Vector& norm, long r) {
        for (long h = 0; h < n; h++) {
            float* head = heads + h * s_.head_width;
            if (!norm.empty()) k_.rms_norm(head, norm.data(), s_.norm_epsilon, s_.head_width, s_.head_width, head);
            k_.rotate(head, w_.cosines.row(r), w_.sines.row(r), s_.rope_width, s_.rope_interleaved);
        }
    }

    void fill_cache(const Layer& layer, long l, long r) {
        add_bias(w_.query.row(r), layer.query, w_.query.width());
        add_bias(w_.key.row(r), layer.key, w_.key.width());
        add_bias(w_.value.row(r), layer.value, w_.value.width());
        prepare_heads(w_.query.row(r), s_.heads, layer.query_norm, r);
        prepare_heads(w_.key.row(r), s_.kv_heads, layer.key_norm, r);
        k_.scale(w_.query.row(r), 1.0f / std::sqrt(float(s_.head_width)), w_.query.width());
        const long block = rows_[r].position / BLOCK_TOKENS, offset = rows_[r].position % BLOCK_TOKENS;
        for (long h = 0; h < s_.kv_heads; h++) {
            uint16_t* page = d_.cache_->page(rows_[r].slot, block, l, h);
            k_.store_key(page + offset, w_.key.row(r) + h * s_.head_width, s_.head_width);
            k_.store_value(page + (BLOCK_TOKENS + offset) * s_.head_width, w_.value.row(r) + h * s_.head_width, s_.head_width);
        }
    }

    void attend(const Task& task, long l, int thread) {
        const Run& run = runs_[task.run];
        const long head_stride = run.partitions * partial_floats(s_.head_width), first_head = task.kv_head * group_heads();
        k_.attend({pages(task.run, l, task.kv_head), s_.head_width, group_heads(), run.count, rows_[run.first].position, task.partition,
                   w_.query.row(run.first) + first_head * s_.head_width, w_.query.width(),
                   w_.partials.data() + partial_at_[run.first] + first_head * head_stride + task.partition * partial_floats(s_.head_width),
                   s_.heads * head_stride, head_stride, w_.attention[thread].get()});
    }

    void combine(long r) {
        const float* partial = w_.partials.data() + partial_at_[r];
        for (long h = 0; h < s_.heads; h++, partial += runs_[run_of_[r]].partitions * partial_floats(s_.head_width))
            k_.combine(partial, partitions(rows_[r].position), s_.head_width, w_.attended.row(r) + h * s_.head_width);
        k_.quantise(w_.attended.rows(count()), r);
    }

    void attention(long l, int thread) {
        const Layer& layer = d_.layers_[l];
        products<3>({{layer.query.weight->tiles(), &w_.normed, w_.query.row(0), size_t(w_.query.width())},
                     {layer.key.weight->tiles(), &w_.normed, w_.key.row(0), size_t(w_.key.width())},
                     {layer.value.weight->tiles(), &w_.normed, w_.value.row(0), size_t(w_.value.width())}},
                    count());
        rows_after(count(), w_.query.width() + w_.key.width(), [&](long r) { fill_cache(layer, l, r); });
        team_.share(long(tasks_.size()), 1, [&](long begin, long end) {
            for (long t = begin; t < end; t++) attend(tasks_[t], l, thread);
        });
        rows_after(count(), w_.attended.width(), [&](long r) { combine(r); });
        products<1>({{layer.attention_output.weight->tiles(), &w_.attended, w_.update.row(0), size_t(w_.update.width())}}, count());
        rows_after(count(), s_.width, [&](long r) {
            add_update(r, layer.attention_output);
            normalise(r, layer.feed_forward_norm, w_.normed, r, count());
        });
    }

    void add_update(long r, const Linear& linear) {
        add_bias(w_.update.row(r), linear, w_.update.width());
        k_.add(w_.residual.row(r), w_.update.row(r), w_.residual.width());
    }

    void feed_forward(long l) {
        const Layer& layer = d_.layers_[l];
        products<2>({{layer.gate.weight->tiles(), &w_.normed, w_.gate.row(0), size_t(w_.gate.width())},
                     {layer.up.weight->tiles(), &w_.normed, w_.up.row(0), size_t(w_.up.width())}},
                    count());
        rows_after(count(), s_.feed_forward_width, [&](long r) {
            add_bias(w_.gate.row(r), layer.gate, w_.gate.width());
            add_bias(w_.up.row(r), layer.up, w_.up.width());
            k_.swiglu(w_.gate.row(r), w_.up.row(r), w_.hidden.row(r), w_.hidden.width());
            k_.quantise(w_.hidden.rows(count()), r);
        });
        products<1>({{layer.down.weight->tiles(), &w_.hidden, w_.update.row(0), size_t(w_.update.width())}}, count());
        const bool last = l + 1 == long(d_.layers_.size());
        rows_after(count(), s_.width, [&](long r) {
            add_update(r, layer.down);
            if (!last) normalise(r, d_.layers_[l + 1].attention_norm, w_.normed, r, count());
        });
    }

    // Wanted rows are consecutive in the result, so one product writes them all.
    void logits() {
        const long n = long(wanted_.size());
        rows_after(n, s_.width, [&](long i) { normalise(wanted_[i], d_.output_norm_, w_.final, i, n); });
        float* out = rows_[wanted_[0]].logits;
        Tiles tiles = d_.output_.weight->tiles();
        tiles.outputs = columns_;
        products<1>({{tiles, &w_.final, out, size_t(columns_)}}, n);
        team_.meet([] {});
    }

    Decoder& d_;
    const Kernels& k_;
    const Shape& s_;
    Decoder::Scratch& w_;
    Team& team_;
    const std::vector<Row>& rows_;
    const long columns_;  // of the logits
    std::vector<long> wanted_, partial_at_, run_of_;
    std::vector<Run> runs_;
    std::vector<Task> tasks_;
    std::vector<const uint16_t*> pages_;
    std::vector<size_t> page_at_;
};

Decoder::Decoder(std::shared_ptr<Team> team, const Kernels& kernels, Shape shape, Embedding embedding, std::vector<Layer> layers,
                 Vector output_norm, Linear output, std::shared_ptr<Cache> cache)
    : team_(std::move(team)), kernels_(kernels), shape_(std::move(shape)), embedding_(embedding), layers_(std::move(layers)),
      output_norm_(std::move(output_norm)), output_(std::move(output)),
      cache_(std::move(cache)), scratch_(std::make_unique<Scratch>(shape_, team_->size())) {
    if (!cache_) cache_ = std::make_shared<Cache>(long(layers_.size()), shape_.kv_heads, shape_.head_width, shape_.max_length);
    if (!cache_->holds(long(layers_.size()), shape_.kv_heads, shape_.head_width, shape_.max_length))
        throw std::invalid_argument("the other decoder's cache has another shape");
}

Decoder::~Decoder() = default;

int Decoder::open() { const std::lock_guard lock(cache_->mutex); return cache_->open(); }
int Decoder::fork(int slot) { const std::lock_guard lock(cache_->mutex); return cache_->fork(slot); }
long Decoder::length(int slot) { const std::lock_guard lock(cache_->mutex); return cache_->length(slot); }
void Decoder::truncate(int slot, long length) { const std::lock_guard lock(cache_->mutex); cache_->truncate(slot, length); }
void Decoder::close(int slot) { const std::lock_guard lock(cache_->mutex); cache_->close(slot); }
size_t Decoder::cache_bytes() { const std::lock_guard lock(cache_->mutex); return cache_->bytes(); }

void Decoder::check(const std::vector<Feed>& feeds) const {
    std::set<int> slots;
    for (const Feed& feed : feeds) {
        if (cache_->length(feed.slot) + long(feed.tokens.size()) > shape_.max_length) throw std::length_error("a slot would grow past the context length");
        if (!slots.insert(feed.slot).second) throw std::invalid_argument("a slot occurs in two feeds");
        if (feed.rows < 0 || feed.rows > long(feed.tokens.size())) throw std::invalid_argument("rows must be between 0 and the tokens fed");
        for (const int32_t token : feed.tokens)
            if (token < 0 || token >= shape_.vocab_size) throw std::out_of_range("token " + std::to_string(token) + " is not in the vocabulary");
    }
}

void Decoder::forward(const std::vector<Feed>& feeds, long columns, float* logits) {
    const std::lock_guard lock(cache_->mutex);
    check(feeds);
    std::vector<Row> rows;
    const auto pass = [&] {
        if (rows.empty()) return;
        Pass piece(*this, rows, columns);
        team_->run([&](int thread) { piece.run(thread); });
        rows.clear();
    };
    for (const Feed& feed : feeds) cache_->reserve(feed.slot, long(feed.tokens.size()));
    for (size_t f = 0; f < feeds.size(); f++) {
        const long start = cache_->length(feeds[f].slot), n = long(feeds[f].tokens.size());
        for (long i = 0; i < n; i++) {
            const bool wanted = i >= n - feeds[f].rows;
            rows.push_back({int(f), feeds[f].slot, start + i, feeds[f].tokens[i], wanted ? logits : nullptr});
            if (wanted) logits += columns;
            if (long(rows.size()) == PASS_ROWS) pass();
        }
    }
    pass();
    for (const Feed& feed : feeds) cache_->advance(feed.slot, long(feed.tokens.size()));
}

}  // namespace soothsay
