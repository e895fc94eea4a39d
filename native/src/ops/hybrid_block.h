// SPDX-License-Identifier: Apache-2.0
// Pointwise, depthwise, pointwise: row by row, so that what lies between them stays in the second-level cache.
//
// A block of MobileNet V2 widens an image sixfold and narrows it again. Written out, the wide images of the first blocks
// (5 MB) would cost more time than the arithmetic.
#ifndef LITESMITH_OPS_HYBRID_BLOCK_H_
#define LITESMITH_OPS_HYBRID_BLOCK_H_

#include <memory>

#include "ops/depthwise_nhwc.h"

namespace litesmith {

// Takes the operators over; `before` or `after` may be null, but not both, and the ones given have Pointwise().
std::unique_ptr<Op> MakeHybridBlock(std::unique_ptr<Op> before, std::unique_ptr<DepthwiseNhwc> depthwise,
                                    std::unique_ptr<Op> after);

}  // namespace litesmith

#endif  // LITESMITH_OPS_HYBRID_BLOCK_H_
