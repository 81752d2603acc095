#include "threads.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace soothsay {
namespace {

constexpr int SPINS = 4000;  // some ten microseconds: longer than a phase's imbalance, shorter than a sleep costs

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// The floating-point environment is part of a result's bits: round to nearest, no flush to zero.
class DefaultRounding {
  public:
#if defined(__x86_64__)
    DefaultRounding() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~DefaultRounding() { _mm_setcsr(before_); }

  private:
    unsigned before_;
#endif
};

}  // namespace

void Signal::raise() {
    value_.fetch_add(1, std::memory_order_release);
    value_.notify_all();
}

void Signal::wait_past(uint32_t seen) const {
    for (int i = 0; i < SPINS; i++) {
        if (value() != seen) return;
        pause_briefly();
    }
    while (value() == seen) value_.wait(seen, std::memory_order_acquire);
}

thread_local int Team::member_ = 0;

Team::Team(int threads) : size_(threads), taken_(threads) {
    try {
        for (int t = 1; t < size_; t++) threads_.emplace_back([this, t] { work(t); });
    } catch (...) {  // the system has no more threads to give
        end();
        throw;
    }
}

Team::~Team() { end(); }

void Team::end() {
    ending_ = true;
    started_.raise();
    for (auto& thread : threads_) thread.join();
}

void Team::work(int thread) {
    member_ = thread;
    const DefaultRounding rounding;
    for (uint32_t seen = 0;; seen++) {
        started_.wait_past(seen);
        if (ending_) return;
        (*job_)(thread);
        meet([] {});
    }
}

void Team::run(const std::function<void(int)>& job) {
    const std::lock_guard lock(running_);
    const DefaultRounding rounding;
    job_ = &job;
    started_.raise();
    job(0);
    meet([] {});
}

}  // namespace soothsay
