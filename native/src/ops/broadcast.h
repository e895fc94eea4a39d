// SPDX-License-Identifier: Apache-2.0
// Two-input broadcasting reduced to runs: the trailing dimensions are folded so that the innermost run of each input is
// either contiguous or one repeated value.
#ifndef LITESMITH_OPS_BROADCAST_H_
#define LITESMITH_OPS_BROADCAST_H_

#include <cstdint>
#include <vector>

#include "core/node_view.h"

namespace litesmith {

struct Broadcast {
  Shape out;
  bool elementwise = false;  // the same shape up to leading ones
  // Folded dimensions, outermost first; stride 0 where the input repeats.
  std::vector<int64_t> size, stride_a, stride_b;

  // False when the shapes do not go together.
  bool Plan(const Shape& a, const Shape& b);
  int64_t num_runs() const;
  int64_t run_length() const { return size.empty() ? 1 : size.back(); }
  bool a_repeats() const { return !size.empty() && stride_a.back() == 0; }
  bool b_repeats() const { return !size.empty() && stride_b.back() == 0; }
  void Offsets(int64_t run, int64_t* a, int64_t* b) const;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_BROADCAST_H_
