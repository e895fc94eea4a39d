// SPDX-License-Identifier: Apache-2.0
// How the work of a convolution is cut into tasks: blocks of pixels, groups, and slices of channels.
#ifndef LITESMITH_OPS_CONV_TASKS_H_
#define LITESMITH_OPS_CONV_TASKS_H_

#include <algorithm>
#include <cstdint>

#include "ops/patches.h"

namespace litesmith {

constexpr int kPixelsPerBlock = 60;           // a multiple of every tile height; a 7x7 image is one block
constexpr size_t kGatherBytes = 192 * 1024;   // a gathered block should stay in the second-level cache
constexpr int64_t kMacsPerTask = 400 * 1000;  // about 20 us: below that a task costs more than it brings

// The pixels of a block whose rows of k values are gathered.
inline int GatheredBlock(int k, int rows_per_tile) {
  const int fitting = static_cast<int>(kGatherBytes / (static_cast<size_t>(k) * 2)) / rows_per_tile * rows_per_tile;
  return std::clamp(fitting, rows_per_tile, kPixelsPerBlock);
}

struct ConvTask {
  int image, first, pixels, group, panel_begin, panel_end;
};

class ConvTasks {
 public:
  // Blocks of up to `block` pixels that do not cross the border between two of `images` images.
  ConvTasks(const Patches& patches, int images, int block, int panels, int channels, int threads)
      : pixels_(patches.pixels() / std::max(images, 1)),
        blocks_((pixels_ + block - 1) / block),
        block_(block),
        panels_(panels),
        groups_(patches.groups()) {
    const int blocks = images * blocks_;
    // With few pixels (7x7 images) blocks alone cannot feed all threads: cut the channels too.
    if (threads > 1 && blocks > 0 && blocks * groups_ < 4 * threads) {
      const int64_t macs = static_cast<int64_t>(patches.pixels()) * channels * patches.values() * groups_;
      const int64_t most = std::max<int64_t>(1, macs / kMacsPerTask / (static_cast<int64_t>(blocks) * groups_));
      slices_ = static_cast<int>(std::min<int64_t>({most, panels, (4 * threads + blocks - 1) / blocks}));
    }
    count_ = blocks * groups_ * slices_;
  }

  int count() const { return count_; }
  int blocks() const { return count_ / slices_; }  // of pixels and groups
  int slices() const { return slices_; }           // of channels, of each block

  ConvTask operator[](int index) const {
    const int slice = index % slices_, group = index / slices_ % groups_, block = index / slices_ / groups_;
    const int image = block / blocks_, first = block % blocks_ * block_;
    return {image, image * pixels_ + first, std::min(block_, pixels_ - first), group, panels_ * slice / slices_,
            panels_ * (slice + 1) / slices_};
  }

 private:
  int pixels_, blocks_;  // of an image
  int block_, panels_, groups_, slices_ = 1, count_;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_CONV_TASKS_H_
