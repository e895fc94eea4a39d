// SPDX-License-Identifier: Apache-2.0
// Places the intermediate tensors of a partition in one block, so that tensors that never live together share bytes.
#ifndef LITESMITH_CORE_ARENA_H_
#define LITESMITH_CORE_ARENA_H_

#include <cstddef>
#include <vector>

namespace litesmith {

struct ArenaRequest {
  size_t bytes;
  int first_use;  // index of the first operator that touches it
  int last_use;   // index of the last
};

struct ArenaPlan {
  std::vector<size_t> offsets;
  size_t total_bytes = 0;
};

// Greedy by size: the largest tensor first, each at the lowest offset where it meets nobody alive at the same time.
// Blocks are 64-byte aligned and followed by 64 bytes of slack, because vector kernels may read past a row's end.
ArenaPlan PlanArena(const std::vector<ArenaRequest>& requests);

}  // namespace litesmith

#endif  // LITESMITH_CORE_ARENA_H_
