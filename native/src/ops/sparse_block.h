// SPDX-License-Identifier: Apache-2.0
// A product with 4x1 blocks of weights and the depthwise convolution behind it: a few channels at a time, so that what lies between
// them stays in the second-level cache.
//
// The images between them are the largest of a MobileNet (3 to 5 MB): written out, the first ones cost more time than the
// arithmetic. A few output channels of a pruned product need only a few of its inputs.
#ifndef LITESMITH_OPS_SPARSE_BLOCK_H_
#define LITESMITH_OPS_SPARSE_BLOCK_H_

#include <memory>

#include "ops/planar_op.h"

namespace litesmith {

// Takes the operators over: one that makes channels from all of its input, and one from the same.
std::unique_ptr<Op> MakeSparseBlock(std::unique_ptr<PlanarOp> product, std::unique_ptr<PlanarOp> depthwise);

}  // namespace litesmith

#endif  // LITESMITH_OPS_SPARSE_BLOCK_H_
