// A team of threads that runs one job together. Each takes pieces of its own part of the work, one after the other, so
// that what it fetches ahead is its own; when its part is done it helps the others, because on a shared machine a static
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
        for (Taken& taken : taken_) taken.pieces.store(0, std::memory_order_relaxed);
        arrived_.store(0, std::memory_order_relaxed);
        passed_.raise();
    }

    // Inside a job: body(begin, end) over [0, count) in pieces of `grain`, shared among the threads. A `meet` must follow.
    template <class Body> void share(long count, long grain, Body&& body) {
        const long pieces = (count + grain - 1) / grain;
        for (int helped = 0; helped < size_; helped++) {
            const int part = (member_ + helped) % size_;
            const long first = pieces * part / size_, own = pieces * (part + 1) / size_ - first;
            for (long taken; (taken = taken_[part].pieces.fetch_add(1, std::memory_order_relaxed)) < own;) {
                const long begin = (first + taken) * grain;
                body(begin, begin + grain < count ? begin + grain : count);
            }
        }
    }

  private:
    void work(int thread);
    void end();

    const int size_;
    std::mutex running_;
    const std::function<void(int)>* job_ = nullptr;
    std::atomic<bool> ending_{false};
    struct alignas(64) Taken {
        std::atomic<long> pieces{0};
    };
    static thread_local int member_;  // which thread of its team this one is
    std::vector<Taken> taken_;        // of each thread's part
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) Signal passed_;
    alignas(64) Signal started_;
    std::vector<std::thread> threads_;
};

}  // namespace soothsay
