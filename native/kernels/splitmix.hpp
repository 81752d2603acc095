// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same words as verify/noise.py.
#pragma once
#include <cstdint>

namespace soothsay {

constexpr uint64_t SPLITMIX_STEP = 0x9E3779B97F4A7C15;

// Inlined always: it is compiled for several instruction sets.
[[gnu::always_inline]] inline uint64_t splitmix(uint64_t state) {
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9;
    state = (state ^ state >> 27) * 0x94D049BB133111EB;
    return state ^ state >> 31;
}

}  // namespace soothsay
