// What Python sees: a team of threads with its kernels, packed matrices, and a decoder.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>

#include "decoder.hpp"
#include "softmax.hpp"

namespace nb = nanobind;
using namespace soothsay;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using NumpyFloats = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using NumpyBytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<2>>;

struct Runtime {
    std::shared_ptr<Team> team;
    std::shared_ptr<Arena> arena;
    const Kernels* kernels;
};

bool supported(const std::string& isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == "avx512")
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (isa == "avxvnni") return avx2 && __builtin_cpu_supports("avxvnni");
    if (isa == "avx2") return avx2;
#endif
    return isa == "portable";
}

const Kernels& kernels_of(const std::string& isa) {
    if (!supported(isa)) throw std::invalid_argument("this machine has no " + isa);
#if defined(__x86_64__)
    if (isa == "avx512") return avx512_kernels();
    if (isa == "avxvnni") return avxvnni_kernels();
    if (isa == "avx2") return avx2_kernels();
#endif
    return portable_kernels();
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> found;
    for (const char* isa : {"avx512", "avxvnni", "avx2", "portable"})
        if (supported(isa)) found.emplace_back(isa);
    return found;
}

NumpyFloats numpy_floats(size_t rows, size_t columns) {
    auto* data = static_cast<float*>(allocate(rows * columns * sizeof(float)));
    return NumpyFloats(data, {rows, columns}, nb::capsule(data, [](void* p) noexcept { std::free(p); }));
}

std::shared_ptr<Matrix> pack(Runtime& runtime, int kind, long outputs, long inputs, const Bytes& rows) {
    if (outputs < 1 || inputs < 1 || rows.nbytes() != outputs * file_row_bytes(Kind(kind), inputs))
        throw std::invalid_argument("the bytes given are not those of the matrix");
    const nb::gil_scoped_release release;
    return std::make_shared<Matrix>(*runtime.team, *runtime.arena, Kind(kind), outputs, inputs, rows.data());
}

// The kernels' product alone, for tests and measurements.
NumpyFloats product(Runtime& runtime, const Matrix& matrix, const FloatRows& x) {
    const Tiles& tiles = matrix.tiles();
    const long rows = long(x.shape(0)), inputs = long(x.shape(1));
    if (padded(inputs) != tiles.inputs) throw std::invalid_argument("the rows do not have the matrix's inputs");
    auto values = buffer<float>(rows * tiles.inputs);
    for (long r = 0; r < rows; r++) std::copy_n(x.data() + r * inputs, inputs, values.get() + r * tiles.inputs);
    auto records = buffer<uint8_t>(rows * (tiles.inputs / GROUP) * RECORD_BYTES);
    const Rows a{tiles.inputs, rows, values.get(), records.get()};
    NumpyFloats out = numpy_floats(rows, tiles.outputs);
    const nb::gil_scoped_release release;
    runtime.team->run([&](int) {
        runtime.team->share(rows, 1, [&](long begin, long end) { for (long r = begin; r < end; r++) runtime.kernels->quantise(a, r); });
        runtime.team->meet([] {});
        runtime.team->share(tile_count(tiles), 8, [&](long begin, long end) {
            runtime.kernels->product(tiles, a, begin, end, out.data(), tiles.outputs);
        });
    });
    return out;
}

// What the machine can do, measured by the team that computes passes: the most that a pass may hope for.
class Probe {
  public:
    Probe(const Runtime& runtime, size_t bytes) : runtime_(runtime), pieces_(long((bytes + PIECE - 1) / PIECE)), data_(buffer<uint8_t>(pieces_ * PIECE)) {}

    // Bytes a second of one read of the whole buffer.
    double read_bandwidth() {
        return double(pieces_) * PIECE / seconds([&](long piece) { drain_ ^= uint32_t(runtime_.kernels->read(data_.get() + piece * PIECE, PIECE)); }, pieces_);
    }

    // Products a second of the instruction that products are made of, from registers.
    double peak_products() {
        std::atomic<long> products{0};
        const double elapsed = seconds([&](long) {
            int32_t sum;
            products += runtime_.kernels->dot_products(ROUNDS, &sum);
            drain_ ^= uint32_t(sum);
        }, SHARES);
        return double(products) / elapsed;
    }

  private:
    static constexpr size_t PIECE = size_t(1) << 20;
    static constexpr long ROUNDS = 10000, SHARES = 256;

    template <class Body> double seconds(Body&& body, long count) {
        const auto begun = std::chrono::steady_clock::now();
        runtime_.team->run([&](int) {
            runtime_.team->share(count, 1, [&](long begin, long end) { for (long i = begin; i < end; i++) body(i); });
        });
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    }

    const Runtime runtime_;
    const long pieces_;
    const Buffer<uint8_t> data_;
    std::atomic<uint32_t> drain_{0};
};

NumpyFloats dequantise(int kind, long outputs, long inputs, const Bytes& rows) {
    const size_t row_bytes = file_row_bytes(Kind(kind), inputs);
    if (rows.nbytes() != outputs * row_bytes) throw std::invalid_argument("the bytes given are not those of the matrix");
    NumpyFloats out = numpy_floats(outputs, inputs);
    for (long r = 0; r < outputs; r++) dequantise_row(Kind(kind), rows.data() + r * row_bytes, inputs, out.data() + r * inputs);
    return out;
}

// Rows of any kind as rows of kind Q4_1 or D3.
NumpyBytes requantise(Runtime& runtime, int kind, long outputs, long inputs, const Bytes& rows, int lighter) {
    if (Kind(lighter) != Kind::Q4_1 && Kind(lighter) != Kind::D3) throw std::invalid_argument("a tensor kind that is not for drafts");
    const size_t from = file_row_bytes(Kind(kind), inputs), to = file_row_bytes(Kind(lighter), inputs);
    if (rows.nbytes() != outputs * from) throw std::invalid_argument("the bytes given are not those of the matrix");
    auto* data = static_cast<uint8_t*>(allocate(outputs * to));
    NumpyBytes out(data, {size_t(outputs), to}, nb::capsule(data, [](void* p) noexcept { std::free(p); }));
    const nb::gil_scoped_release release;
    runtime.team->run([&](int) {
        std::vector<float> weights(inputs);
        runtime.team->share(outputs, 16, [&](long begin, long end) {
            for (long r = begin; r < end; r++) {
                dequantise_row(Kind(kind), rows.data() + r * from, inputs, weights.data());
                runtime.kernels->requantise(Kind(lighter), weights.data(), inputs, data + r * to);
            }
        });
    });
    return out;
}

Vector vector_of(const std::vector<float>& values) {
    Vector v(padded(long(values.size())), 0.0f);
    std::copy(values.begin(), values.end(), v.begin());
    return v;
}

struct BoundDecoder {
    Shape shape;
    Bytes embedding;  // keeps the file's mapping alive
    std::unique_ptr<Decoder> decoder;
};

NumpyFloats forward(BoundDecoder& bound, const std::vector<std::tuple<int, std::vector<int32_t>, long>>& feeds, long columns) {
    if (columns < 1 || columns > bound.shape.vocab_size) throw std::invalid_argument("columns must be between 1 and the vocabulary");
    std::vector<Feed> list;
    long rows = 0;
    for (const auto& [slot, tokens, wanted] : feeds) {
        list.push_back({slot, tokens, wanted});
        if (wanted < 0 || wanted > long(tokens.size())) throw std::invalid_argument("rows must be between 0 and the tokens fed");
        rows += wanted;
    }
    NumpyFloats logits = numpy_floats(rows, columns);
    const nb::gil_scoped_release release;
    bound.decoder->forward(list, columns, logits.data());
    return logits;
}

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Tokens = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Masses = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct BoundSoftmax {
    Row row;  // keeps it alive
    Softmax law;
};

Taken taken_of(const Tokens& tokens, const Masses& masses) {
    const Taken taken{tokens.data(), masses.data(), long(tokens.shape(0))};
    if (tokens.shape(0) != masses.shape(0)) throw std::invalid_argument("each token needs its mass");
    if (!std::is_sorted(taken.tokens, taken.tokens + taken.count) || (taken.count > 0 && taken.tokens[0] < 0))
        throw std::invalid_argument("tokens must be ascending, from 0 on");
    return taken;
}

template <class T> nb::ndarray<nb::numpy, T, nb::ndim<1>> numpy_vector(size_t size) {
    T* data = new T[size];
    return {data, {size}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); })};
}

auto above(const BoundSoftmax& s, double floor) {
    std::vector<Candidate> found;
    {
        const nb::gil_scoped_release release;
        found = s.law.above(floor);
    }
    auto tokens = numpy_vector<int64_t>(found.size());
    auto scores = numpy_vector<double>(found.size());
    for (size_t i = 0; i < found.size(); i++) tokens.data()[i] = found[i].token, scores.data()[i] = found[i].score;
    return std::pair(tokens, scores);
}

using Released = nb::call_guard<nb::gil_scoped_release>;  // all of these may wait for a pass to end

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const NoSuchSlot& e) {
            PyErr_SetString(PyExc_KeyError, e.what());
        }
    });
    m.def("instruction_sets", instruction_sets, "Those that this machine can run, best first.");

    nb::class_<Runtime>(m, "Runtime")
        .def("__init__", [](Runtime* self, int threads, const std::string& isa) {
            if (threads < 1 || threads > 1024) throw std::invalid_argument("threads must be between 1 and 1024");
            new (self) Runtime{std::make_shared<Team>(threads), std::make_shared<Arena>(), &kernels_of(isa)};
        }, nb::arg("threads"), nb::arg("isa"))
        .def_prop_ro("threads", [](const Runtime& r) { return r.team->size(); })
        .def_prop_ro("isa", [](const Runtime& r) { return r.kernels->name; })
        .def("pack", pack, nb::arg("kind"), nb::arg("outputs"), nb::arg("inputs"), nb::arg("rows"))
        .def("requantise", requantise, nb::arg("kind"), nb::arg("outputs"), nb::arg("inputs"), nb::arg("rows"), nb::arg("lighter"))
        .def("product", product, nb::arg("matrix"), nb::arg("x"));

    nb::class_<Probe>(m, "Probe")
        .def("__init__", [](Probe* self, const Runtime& runtime, size_t read_bytes) {
            if (read_bytes < 1) throw std::invalid_argument("a probe reads one byte at least");
            new (self) Probe(runtime, read_bytes);
        }, nb::arg("runtime"), nb::arg("read_bytes"))
        .def("read_bandwidth", &Probe::read_bandwidth, nb::call_guard<nb::gil_scoped_release>(), "Bytes a second of a plain read.")
        .def("peak_products", &Probe::peak_products, nb::call_guard<nb::gil_scoped_release>(), "Multiply-adds a second from registers.");

    m.def("dequantise", dequantise, nb::arg("kind"), nb::arg("outputs"), nb::arg("inputs"), nb::arg("rows"));

    nb::class_<BoundSoftmax>(m, "Softmax")
        .def("__init__", [](BoundSoftmax* self, Row logits, long best, double temperature, const std::string& isa) {
            if (best < 0 || best >= long(logits.shape(0)) || !(temperature > 0))
                throw std::invalid_argument("best must be a place in the row, and the temperature above 0");
            const Kernels& kernels = kernels_of(isa);
            const float* data = logits.data();
            const long size = long(logits.shape(0));
            new (self) BoundSoftmax{std::move(logits), Softmax(kernels, data, size, best, temperature)};
        }, nb::arg("logits"), nb::arg("best"), nb::arg("temperature"), nb::arg("isa"))
        .def_prop_ro("best", [](const BoundSoftmax& s) { return s.law.best(); })
        .def("score", [](const BoundSoftmax& s, long token) {
            if (token < 0 || token >= long(s.row.shape(0))) return -std::numeric_limits<double>::infinity();
            return s.law.score(token);
        }, nb::arg("token"))
        .def("mass", [](const BoundSoftmax& s) { return s.law.mass(); }, Released())
        .def("mass_near", [](const BoundSoftmax& s) { return s.law.mass_near(); }, Released())
        .def("above", above, nb::arg("floor"), "Ids and scores of the tokens whose finite score is at least floor.")
        .def("draw_gumbel", [](const BoundSoftmax& s, uint64_t state) { return s.law.draw_gumbel(state); }, nb::arg("state"), Released())
        .def("owed", [](const BoundSoftmax& s, double survival, const Tokens& tokens, const Masses& masses) {
            return s.law.owed(survival, taken_of(tokens, masses));
        }, nb::arg("survival"), nb::arg("tokens"), nb::arg("masses"), Released())
        .def("draw_owed", [](const BoundSoftmax& s, double survival, const Tokens& tokens, const Masses& masses, double unit) {
            return s.law.draw_owed(survival, taken_of(tokens, masses), unit);
        }, nb::arg("survival"), nb::arg("tokens"), nb::arg("masses"), nb::arg("unit"), Released());

    nb::class_<Matrix>(m, "Matrix").def_prop_ro("nbytes", &Matrix::bytes);

    nb::class_<Linear>(m, "Linear")
        .def("__init__", [](Linear* self, std::shared_ptr<Matrix> weight, const std::vector<float>& bias) {
            new (self) Linear{std::move(weight), vector_of(bias)};
        }, nb::arg("weight"), nb::arg("bias"));

    nb::class_<Layer>(m, "Layer")
        .def("__init__", [](Layer* self, const std::vector<float>& attention_norm, Linear query, Linear key, Linear value,
                            Linear attention_output, const std::vector<float>& query_norm, const std::vector<float>& key_norm,
                            const std::vector<float>& feed_forward_norm, Linear gate, Linear up, Linear down) {
            new (self) Layer{vector_of(attention_norm), std::move(query), std::move(key), std::move(value), std::move(attention_output),
                             vector_of(query_norm), vector_of(key_norm), vector_of(feed_forward_norm), std::move(gate), std::move(up),
                             std::move(down)};
        }, nb::kw_only(), nb::arg("attention_norm"), nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("attention_output"),
           nb::arg("query_norm"), nb::arg("key_norm"), nb::arg("feed_forward_norm"), nb::arg("gate"), nb::arg("up"), nb::arg("down"));

    nb::class_<BoundDecoder>(m, "Decoder")
        .def("__init__", [](BoundDecoder* self, Runtime& runtime, long vocab_size, long max_length, long width, long heads, long kv_heads,
                            long head_width, long feed_forward_width, float norm_epsilon, bool rope_interleaved,
                            const std::vector<double>& rope_frequencies, int embedding_kind, Bytes embedding, const std::vector<Layer>& layers,
                            const std::vector<float>& output_norm, const Linear& output, const BoundDecoder* beside) {
            if (embedding.nbytes() != vocab_size * file_row_bytes(Kind(embedding_kind), width))
                throw std::invalid_argument("the bytes given are not those of the embedding");
            if (head_width % TILE != 0 || heads % kv_heads != 0 || layers.empty())
                throw std::invalid_argument("a shape that the kernels cannot run");
            const Shape shape{vocab_size, max_length, width, heads, kv_heads, head_width, feed_forward_width, norm_epsilon,
                              2 * long(rope_frequencies.size()), rope_interleaved, rope_frequencies};
            auto decoder = std::make_unique<Decoder>(runtime.team, *runtime.kernels, shape, Embedding{Kind(embedding_kind), embedding.data()},
                                                     layers, vector_of(output_norm), output,
                                                     beside ? beside->decoder->cache() : nullptr);
            new (self) BoundDecoder{shape, std::move(embedding), std::move(decoder)};
        }, nb::arg("runtime"), nb::kw_only(), nb::arg("vocab_size"), nb::arg("max_length"), nb::arg("width"), nb::arg("heads"),
           nb::arg("kv_heads"), nb::arg("head_width"), nb::arg("feed_forward_width"), nb::arg("norm_epsilon"), nb::arg("rope_interleaved"),
           nb::arg("rope_frequencies"), nb::arg("embedding_kind"), nb::arg("embedding"), nb::arg("layers"), nb::arg("output_norm"),
           nb::arg("output"), nb::arg("beside").none() = nullptr)
        .def("open", [](BoundDecoder& d) { return d.decoder->open(); }, Released())
        .def("fork", [](BoundDecoder& d, int slot) { return d.decoder->fork(slot); }, nb::arg("slot"), Released())
        .def("length", [](BoundDecoder& d, int slot) { return d.decoder->length(slot); }, nb::arg("slot"), Released())
        .def("truncate", [](BoundDecoder& d, int slot, long length) { d.decoder->truncate(slot, length); }, nb::arg("slot"),
             nb::arg("length"), Released())
        .def("close", [](BoundDecoder& d, int slot) { d.decoder->close(slot); }, nb::arg("slot"), Released())
        .def_prop_ro("cache_bytes", [](BoundDecoder& d) { return d.decoder->cache_bytes(); }, Released())
        .def("forward", forward, nb::arg("feeds"), nb::arg("columns"),
             "Appends each (slot, tokens, rows) and gives float32 logits [sum of rows, columns], of the tokens of lowest id.");
}
