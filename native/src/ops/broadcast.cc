// SPDX-License-Identifier: Apache-2.0
// See broadcast.h.
#include "ops/broadcast.h"

#include <algorithm>

namespace litesmith {

bool Broadcast::Plan(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape wide_a(rank - a.size(), 1), wide_b(rank - b.size(), 1);
  wide_a.insert(wide_a.end(), a.begin(), a.end());
  wide_b.insert(wide_b.end(), b.begin(), b.end());
  elementwise = wide_a == wide_b;
  out.assign(rank, 1);
  size.clear();
  stride_a.clear();
  stride_b.clear();
  // From the innermost dimension out: fold a dimension into the previous one when both inputs do the same in both.
  int64_t step_a = 1, step_b = 1;
  bool last_a = false, last_b = false;
  for (size_t i = rank; i-- > 0;) {
    if (wide_a[i] != wide_b[i] && wide_a[i] != 1 && wide_b[i] != 1) return false;
    out[i] = std::max(wide_a[i], wide_b[i]);
    if (wide_a[i] == 0 || wide_b[i] == 0) out[i] = 0;
    if (out[i] == 1) continue;
    const bool moves_a = wide_a[i] != 1, moves_b = wide_b[i] != 1;
    if (!size.empty() && moves_a == last_a && moves_b == last_b) {
      size.back() *= out[i];
    } else {
      size.push_back(out[i]);
      stride_a.push_back(moves_a ? step_a : 0);
      stride_b.push_back(moves_b ? step_b : 0);
    }
    if (moves_a) step_a *= out[i];
    if (moves_b) step_b *= out[i];
    last_a = moves_a;
    last_b = moves_b;
  }
  std::reverse(size.begin(), size.end());
  std::reverse(stride_a.begin(), stride_a.end());
  std::reverse(stride_b.begin(), stride_b.end());
  return true;
}

int64_t Broadcast::num_runs() const {
  int64_t runs = 1;
  for (size_t i = 0; i + 1 < size.size(); ++i) runs *= size[i];
  return runs;
}

void Broadcast::Offsets(int64_t run, int64_t* a, int64_t* b) const {
  *a = *b = 0;
  for (size_t i = size.size() < 1 ? 0 : size.size() - 1; i-- > 0;) {
    const int64_t at = run % size[i];
    run /= size[i];
    *a += at * stride_a[i];
    *b += at * stride_b[i];
  }
}

}  // namespace litesmith
