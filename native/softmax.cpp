#include "softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/splitmix.hpp"

namespace soothsay {
namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double MOST_NOISE = 36.8;  // -log(-log u) for the highest u, 1 - 2^-53, is 36.74

}  // namespace

Softmax::Softmax(const Kernels& kernels, const float* logits, long size, long best, double temperature)
    : kernels_(kernels), logits_(logits), size_(size), best_(best), whole_groups_(size / SAMPLING_GROUP), most_(logits[best]),
      temperature_(temperature), inverse_(std::min(1.0 / temperature, std::numeric_limits<double>::max())) {
    const auto end = std::copy(logits + whole_groups_ * SAMPLING_GROUP, logits + size, tail_);
    std::fill(end, std::end(tail_), -std::numeric_limits<float>::infinity());
    group_most_.resize((size + SAMPLING_GROUP - 1) / SAMPLING_GROUP);
    for (long g = 0; g < long(group_most_.size()); g++) group_most_[g] = kernels_.most_of(group(g));
}

double Softmax::weigh(long g, Weights& weights) const { return kernels_.weigh(group(g), most_, inverse_, weights); }

const std::vector<double>& Softmax::sums() const {
    std::call_once(weighed_, [this] {
        Weights weights;
        sums_.resize(group_most_.size());
        for (long g = 0; g < long(sums_.size()); g++) sums_[g] = weigh(g, weights);
        mass_ = std::accumulate(sums_.begin(), sums_.end(), 0.0);
    });
    return sums_;
}

double Softmax::mass() const {
    sums();
    return mass_;
}

double Softmax::mass_near() const {
    const float best = float(most_), inverse = float(std::min<double>(inverse_, std::numeric_limits<float>::max()));
    double mass = 0;
    for (long g = 0; g < long(group_most_.size()); g++) mass += kernels_.weigh_near(group(g), best, inverse);
    return mass;
}

std::vector<Candidate> Softmax::above(double floor) const {
    std::vector<Candidate> found;
    for (long g = 0; g < long(group_most_.size()); g++) {
        if (score_of(group_most_[g]) < floor) continue;
        for (long token = g * SAMPLING_GROUP; token < std::min(size_, (g + 1) * SAMPLING_GROUP); token++)
            if (const double s = score(token); s >= floor && s > -INFINITE) found.push_back({token, s});
    }
    return found;
}

double Softmax::noisy(long token, uint64_t state) const {
    const double unit = (double(splitmix(state + uint64_t(token) * SPLITMIX_STEP) >> 12) + 0.5) * 0x1p-52;
    return score(token) - std::log(-std::log(unit));
}

// Logarithms only for the few tokens whose bound reaches the highest sum so far.
long Softmax::draw_gumbel(uint64_t state) const {
    long drawn = best_;
    double highest = noisy(best_, state);
    double bounds[SAMPLING_GROUP];
    for (long g = 0; g < long(group_most_.size()); g++) {
        const long first = g * SAMPLING_GROUP, count = std::min<long>(SAMPLING_GROUP, size_ - first);
        if (score_of(group_most_[g]) + MOST_NOISE < highest) continue;
        if (!kernels_.may_beat(highest, group(g), most_, inverse_, state + uint64_t(first) * SPLITMIX_STEP, bounds)) continue;
        for (long i = 0; i < count; i++) {
            if (bounds[i] < highest) continue;
            const double sum = noisy(first + i, state);
            if (sum > highest || (sum == highest && first + i < drawn)) drawn = first + i, highest = sum;
        }
    }
    return drawn;
}

// Group g of max(share e^score - taken, 0) and its sum. `next` is the first of the taken that is not before the group.
double Softmax::owe(long g, double share, const Taken& taken, long& next, Weights& owed) const {
    weigh(g, owed);
    for (double& mass : owed) mass *= share;
    const long first = g * SAMPLING_GROUP;
    for (; next < taken.count && taken.tokens[next] < first + SAMPLING_GROUP; next++) {
        double& mass = owed[taken.tokens[next] - first];
        mass = std::max(mass - taken.masses[next], 0.0);
    }
    return std::accumulate(std::begin(owed), std::end(owed), 0.0);
}

// Only groups with something taken are weighed again, so that what lies outside does not cancel.
std::vector<double> Softmax::owed_by_group(double survival, const Taken& taken) const {
    std::vector<double> masses = sums();
    const double share = survival / mass_;
    for (double& mass : masses) mass *= share;
    Weights owed;
    for (long next = 0; next < taken.count && taken.tokens[next] < size_;) {
        const long g = taken.tokens[next] / SAMPLING_GROUP;
        masses[g] = owe(g, share, taken, next, owed);
    }
    return masses;
}

double Softmax::owed(double survival, const Taken& taken) const {
    const std::vector<double> masses = owed_by_group(survival, taken);
    return std::accumulate(masses.begin(), masses.end(), 0.0);
}

namespace {

// The first place whose cell reaches beyond `level`, or the last that is not empty; what lies before it is taken off `level`.
long cell_of(const double* masses, long count, double& level) {
    long last = -1;
    double before = 0, start = 0;
    for (long i = 0; i < count; i++) {
        if (masses[i] <= 0) continue;
        last = i, start = before, before += masses[i];
        if (before > level) break;
    }
    level -= start;
    return last;
}

}  // namespace

long Softmax::draw_owed(double survival, const Taken& taken, double unit) const {
    const std::vector<double> masses = owed_by_group(survival, taken);
    double level = unit * std::accumulate(masses.begin(), masses.end(), 0.0);
    const long g = cell_of(masses.data(), long(masses.size()), level);
    if (g < 0) return -1;
    long next = std::lower_bound(taken.tokens, taken.tokens + taken.count, g * SAMPLING_GROUP) - taken.tokens;
    Weights owed;
    owe(g, survival / mass_, taken, next, owed);
    const long place = cell_of(owed, SAMPLING_GROUP, level);
    return place < 0 ? -1 : g * SAMPLING_GROUP + place;  // below 0: each share of a sum near 0 can round to 0
}

}  // namespace soothsay
