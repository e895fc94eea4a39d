// SPDX-License-Identifier: Apache-2.0
// Decides which groups of connected float operators are worth taking: pruning pays only when the whole chain stays in
// the planar layout and the zeros outweigh what XNNPACK's dense kernels are better at.
#ifndef LITESMITH_CORE_SPARSE_CHAINS_H_
#define LITESMITH_CORE_SPARSE_CHAINS_H_

#include <memory>
#include <string>
#include <vector>

#include "core/op.h"

namespace litesmith {

struct SparseCandidate {
  NodeView node;
  std::unique_ptr<Op> op;
};

struct SparseVerdict {
  int node;
  bool taken;
  std::string note;  // empty: keep the kernel's name
};

std::vector<SparseVerdict> ChooseSparseChains(const std::vector<SparseCandidate>& candidates);

}  // namespace litesmith

#endif  // LITESMITH_CORE_SPARSE_CHAINS_H_
