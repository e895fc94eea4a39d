// SPDX-License-Identifier: Apache-2.0
// The time of one part of an operator that is made of several (RunArgs::part_ns), while profiling.
#ifndef LITESMITH_OPS_PART_CLOCK_H_
#define LITESMITH_OPS_PART_CLOCK_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace litesmith {

class PartClock {
 public:
  PartClock(std::atomic<int64_t>* part_ns, int part) : total_(part_ns == nullptr ? nullptr : part_ns + part) {
    if (total_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~PartClock() {
    if (total_ == nullptr) return;
    const auto spent = std::chrono::steady_clock::now() - start_;
    *total_ += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  }

 private:
  std::atomic<int64_t>* total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_PART_CLOCK_H_
