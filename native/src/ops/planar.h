// SPDX-License-Identifier: Apache-2.0
// The planar layout of sparse chains: [batch][channel][plane]. A plane is height * width floats, rounded up so that
// vector kernels may run over its end; a plane of one value is not rounded, which makes it the NHWC layout.
#ifndef LITESMITH_OPS_PLANAR_H_
#define LITESMITH_OPS_PLANAR_H_

#include <memory>

#include "core/op.h"

namespace litesmith {

struct PlanarShape {
  int batch = 1, height = 1, width = 1, channels = 1;
  int64_t pixels() const { return static_cast<int64_t>(height) * width; }
  int64_t plane() const { return pixels() == 1 ? 1 : (pixels() + 15) / 16 * 16; }
  int64_t elements() const { return static_cast<int64_t>(batch) * channels * plane(); }
};

// Rank 4 is NHWC; any other rank is a batch of vectors of its last dimension.
PlanarShape PlanarOf(const Shape& shape);
int64_t PlanarElements(const Shape& shape);

// Copies a tensor between layouts; the same layout on both sides makes a plain copy.
std::unique_ptr<Op> MakeLayoutConversion(Layout from, Layout to, size_t element_bytes);

}  // namespace litesmith

#endif  // LITESMITH_OPS_PLANAR_H_
