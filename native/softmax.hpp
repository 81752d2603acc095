// The law of one row of logits before any cut, softmax((logits - best) / temperature), and draws from it.
//
// Nothing of the vocabulary's size is written: the row itself is read again, group by group.
#pragma once
#include <mutex>
#include <vector>

#include "kernels/kernels.hpp"

namespace soothsay {

struct Candidate {
    long token;
    double score;  // (logit - best) / temperature
};

// Probabilities to take away from a law, at ascending tokens.
struct Taken {
    const int64_t* tokens;
    const double* masses;
    long count;
};

class Softmax {
  public:
    // `best` is the token of the highest logit; the row, free of NaN and plus infinity, must outlive this object.
    Softmax(const Kernels& kernels, const float* logits, long size, long best, double temperature);

    long best() const { return best_; }
    double score(long token) const { return (double(logits_[token]) - most_) / temperature_; }

    // The sum of e^score.
    double mass() const;

    // The same to about six digits, in a third of the time.
    double mass_near() const;

    // The tokens with a finite score of at least `floor`, ascending.
    std::vector<Candidate> above(double floor) const;

    // The token with the highest score plus Gumbel noise, the lowest on ties. Token x has the noise of the word that
    // SplitMix64 gives at `state` plus x steps.
    long draw_gumbel(uint64_t state) const;

    // The sum of max(survival p - taken, 0).
    double owed(double survival, const Taken& taken) const;

    // The token in whose cell of max(survival p - taken, 0), cumulated and scaled to 1, `unit` lies; -1 if all is 0.
    long draw_owed(double survival, const Taken& taken, double unit) const;

  private:
    using Weights = double[SAMPLING_GROUP];

    const float* group(long g) const { return g < whole_groups_ ? logits_ + g * SAMPLING_GROUP : tail_; }
    double score_of(float logit) const { return (double(logit) - most_) / temperature_; }
    double weigh(long g, Weights& weights) const;
    const std::vector<double>& sums() const;
    double owe(long g, double share, const Taken& taken, long& next, Weights& owed) const;
    std::vector<double> owed_by_group(double survival, const Taken& taken) const;
    double noisy(long token, uint64_t state) const;

    const Kernels& kernels_;
    const float* logits_;
    long size_, best_, whole_groups_;
    double most_, temperature_;
    double inverse_;  // of the temperature, and finite: for weights and bounds, which need not be right to the last bit
    float tail_[SAMPLING_GROUP];     // what is left after the last whole group, then minus infinity
    std::vector<float> group_most_;  // the highest logit of each group
    mutable std::once_flag weighed_;
    mutable std::vector<double> sums_;  // of e^score, group by group: computed when first needed
    mutable double mass_ = 0;
};

}  // namespace soothsay
