// A team of threads that runs one job together. Work is taken from shared counters, because on a shared machine a static
// split waits for the slowest core. Waiting threads spin briefly, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace soothsay {

// A value that threads wait on: a short spin, then the kernel's futex (through std::atomic).
class Signal {
  public:
    uint32_t value() const { return value_.load(std::memory_order_acquire); }
    void raise();
    void wait_past(uint32_t seen) const;

  private:
    std::atomic<uint32_t> value_{0};
};

class Team {
  public:
    explicit Team(int threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Runs job(thread) on every thread, the calling one included as number 0, and returns when all have ended. Jobs wait
    // for each other: a team serves the target and the draft model, packing and passes, from any thread.
    void run(const std::function<void(int)>& job);

    // Inside a job: waits for all threads; the last to arrive first runs `then`.
    template <class Then> void meet(Then&& then) {
        const uint32_t seen = passed_.value();
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size_) return passed_.wait_past(seen);
        then();
        next_.store(0, std::memory_order_relaxed);
        arrived_.store(0, std::memory_order_relaxed);
        passed_.raise();
    }

    // Inside a job: body(begin, end) over [0, count) in pieces of `grain`, shared among the threads. A `meet` must follow.
    template <class Body> void share(long count, long grain, Body&& body) {
        for (;;) {
            const long begin = next_.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= count) return;
            body(begin, begin + grain < count ? begin + grain : count);
        }
    }

  private:
    void work(int thread);
    void end();

    const int size_;
    std::mutex running_;
    const std::function<void(int)>* job_ = nullptr;
    std::atomic<bool> ending_{false};
    alignas(64) std::atomic<long> next_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) Signal passed_;
    alignas(64) Signal started_;
    std::vector<std::thread> threads_;
};

}  // namespace soothsay
