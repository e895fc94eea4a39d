// SPDX-License-Identifier: Apache-2.0
// A convolution as a matrix product: the input values under each output pixel, in the order of the weights.
#ifndef LITESMITH_OPS_PATCHES_H_
#define LITESMITH_OPS_PATCHES_H_

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

  // The input pixel under output pixel `pixel` where they are one to one.
  template <class T>
  const T* Under(const T* in, int pixel) const {
    const int x = pixel % x_.out, y = pixel / x_.out % y_.out, b = pixel / x_.out / y_.out;
    const int64_t row = static_cast<int64_t>(b) * in_[1] + y * params_.stride_height;
    return in + (row * in_[2] + x * params_.stride_width) * in_[3];
  }

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
  void FindUnder(const Frame& frame, const int16_t* framed, int first, int count, const int16_t** rows) const;

  // The values under output pixels [first, first + count), zeros outside the image; `stride` of them each, zeros behind
  // the last.
  void Gather(const int16_t* in, int first, int count, int group, int16_t* to, int stride) const;

 private:
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
