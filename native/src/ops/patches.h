// SPDX-License-Identifier: Apache-2.0
// A convolution as a matrix product: the input values under each output pixel, in the order of the weights.
#ifndef LITESMITH_OPS_PATCHES_H_
#define LITESMITH_OPS_PATCHES_H_

#include <algorithm>
#include <cstdint>

#include "core/node_view.h"
#include "ops/quant.h"

namespace litesmith {

class Patches {
 public:
  // Weights [out][height][width][channels of a group]; a PAD before the convolution, or null.
  Patches(const ConvParams& params, const TfLiteTensor& weights, int in_channels, const ZeroPad* pad = nullptr);

  int groups() const { return groups_; }
  int group_in() const { return group_in_; }
  int values() const { return kernel_h_ * kernel_w_ * group_in_; }  // under one pixel, of one group
  int pixels() const { return in_[0] * y_.out * x_.out; }
  int pieces() const { return has_rows_together() ? kernel_h_ : kernel_h_ * kernel_w_; }  // that lie together under a pixel
  // One input pixel under each output pixel, and no padding.
  bool one_to_one() const { return kernel_h_ == 1 && kernel_w_ == 1 && !is_padded() && y_.pad == 0 && x_.pad == 0; }

  bool is_padded() const { return pad_.source >= 0; }
  // A 1x1 kernel on all pixels and channels, whatever the shape of the image.
  bool is_pointwise() const {
    return kernel_h_ == 1 && kernel_w_ == 1 && !is_padded() && groups_ == 1 && params_.stride_height == 1 &&
           params_.stride_width == 1;
  }

  // False when the input is not one the weights fit.
  bool Infer(const Shape& in, int out_channels, Shape* out);

  bool has_rows_together() const { return groups_ == 1 && params_.dilation_width == 1; }
  // With zeros around it, an image has every row of a kernel together, and needs no gathering; not too many zeros.
  bool can_be_framed() const { return has_rows_together() && (kernel_h_ - 1) * params_.dilation_height <= 64; }
  int row_values() const { return kernel_w_ * group_in_; }
  struct Frame {
    int top, left, height, width;  // zeros before, and all rows and columns of the framed image
  };
  Frame FrameOfZeros() const;
  // Of the values from one row of the kernel to the next.
  int64_t RowStep(const Frame& frame) const {
    return static_cast<int64_t>(params_.dilation_height) * frame.width * in_[3];
  }
  // Where the values under output pixels [first, first + count) begin in framed images that follow each other.
  template <class T>
  void FindUnder(const Frame& frame, const T* framed, int first, int count, const T** rows) const {
    int x = first % x_.out, y = first / x_.out % y_.out, b = first / x_.out / y_.out;
    const int64_t step = static_cast<int64_t>(params_.stride_width) * in_[3];
    while (count > 0) {
      const int64_t line = static_cast<int64_t>(b) * frame.height + y * params_.stride_height;
      const T* at = framed + line * frame.width * in_[3] + x * step;
      const int here = std::min(count, x_.out - x);
      for (int i = 0; i < here; ++i, at += step) *rows++ = at;
      count -= here;
      x = 0;
      if (++y == y_.out) y = 0, ++b;
    }
  }
  // The same for images as they are, where pixels are one to one.
  template <class T>
  void FindUnder(const T* in, int first, int count, const T** rows) const {
    FindUnder(Frame{0, 0, in_[1], in_[2]}, in, first, count, rows);
  }

  // The values under output pixels [first, first + count), zeros outside the image; `stride` of them each, zeros behind
  // the last.
  void Gather(const int16_t* in, int first, int count, int group, int16_t* to, int stride) const;

 private:
  void CopyPatches(const int16_t* from, int count, int16_t* to, int stride) const;
  void GatherAt(const int16_t* image, int y0, int x0, int group, int16_t* to) const;

  ConvParams params_;
  ZeroPad pad_;
  int kernel_h_, kernel_w_, group_in_, groups_;
  Shape in_;
  Window y_, x_;
};

// The PAD before a node that has no padding of its own, or null: it can be done on the way.
template <class Params>
const ZeroPad* FoldedPad(const NodeView& node) {
  return node.params<Params>().padding == Padding::kValid ? node.pad() : nullptr;
}

// Whether these are the shapes of a convolution, grouped or not; if not, the reason.
bool IsConvolution(const NodeView& node, std::string* why);

}  // namespace litesmith

#endif  // LITESMITH_OPS_PATCHES_H_
