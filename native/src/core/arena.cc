// SPDX-License-Identifier: Apache-2.0
// See arena.h.
#include "core/arena.h"

#include <algorithm>
#include <numeric>

namespace litesmith {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSlack = 64;

size_t BlockBytes(size_t bytes) { return (bytes + kSlack + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

ArenaPlan PlanArena(const std::vector<ArenaRequest>& requests) {
  ArenaPlan plan;
  plan.offsets.assign(requests.size(), 0);
  std::vector<int> by_size(requests.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](int a, int b) { return requests[a].bytes > requests[b].bytes; });

  std::vector<int> placed;  // sorted by offset
  for (int id : by_size) {
    const ArenaRequest& want = requests[id];
    const size_t bytes = BlockBytes(want.bytes);
    size_t offset = 0;
    for (int other : placed) {
      const ArenaRequest& there = requests[other];
      const bool together = want.first_use <= there.last_use && there.first_use <= want.last_use;
      if (!together) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + BlockBytes(there.bytes));
    }
    plan.offsets[id] = offset;
    plan.total_bytes = std::max(plan.total_bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](int a, int b) { return plan.offsets[a] < plan.offsets[b]; }),
                  id);
  }
  return plan;
}

}  // namespace litesmith
