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

// How the planes of images are shared out among threads: large ones in bands of rows, one for each thread, unless there are
// as many images. All operators of a chain cut alike, and a worker begins with the same part of each operator's tasks
// (core/thread_pool.cc): what it reads it mostly wrote itself, where half of it would come from another core's cache.
struct RowBands {
  static constexpr int64_t kPixels = 384;  // of smaller bands, the work of beginning each costs more than that saves

  RowBands(const PlanarShape& image, int threads)
      : count(image.batch < threads && image.pixels() >= kPixels * threads && image.height >= 2 * threads ? threads : 1),
        height_(image.height) {}
  int begin(int band) const { return static_cast<int>(static_cast<int64_t>(height_) * band / count); }
  int end(int band) const { return begin(band + 1); }

  const int count;

 private:
  const int height_;
};

// Rank 4 is NHWC; any other rank is a batch of vectors of its last dimension.
PlanarShape PlanarOf(const Shape& shape);
int64_t PlanarElements(const Shape& shape);

// Copies a tensor between layouts; the same layout on both sides makes a plain copy.
std::unique_ptr<Op> MakeLayoutConversion(Layout from, Layout to, size_t element_bytes);

}  // namespace litesmith

#endif  // LITESMITH_OPS_PLANAR_H_
