// SPDX-License-Identifier: Apache-2.0
// DEPTHWISE_CONV_2D 3x3 in float with channels beside each other; also a row at a time, for blocks of operators.
#ifndef LITESMITH_OPS_DEPTHWISE_NHWC_H_
#define LITESMITH_OPS_DEPTHWISE_NHWC_H_

#include <string>
#include <vector>

#include "core/op.h"
#include "ops/quant.h"

namespace litesmith {

class DepthwiseNhwc : public Op {
 public:
  DepthwiseNhwc(const NodeView& node, const KernelTable& kernels);
  bool Check(const NodeView& node, std::string* why);

  const char* kernel_name() const override { return kernels_.f32_dwconv3x3_row.name; }
  bool PadsItsInput() const override { return pad_.source >= 0; }
  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override;
  void Run(const RunArgs& args) override;

  int channels() const { return channels_; }
  int out_height() const { return y_.out; }
  int out_width() const { return x_.out; }
  // The input rows under output row `y` are [first, first + 3); some may lie outside the image.
  int first_row(int y) const { return y * stride_ - y_.pad; }
  // One row of outputs; rows outside the image are null.
  void RunRow(const float* const* rows, float* out) const;

 private:
  const KernelTable& kernels_;
  const int stride_;
  const Padding padding_;
  ZeroPad pad_{-1, 0, 0, 0, 0};
  int channels_ = 0;
  std::vector<float> weights_, bias_, zeros_;
  float lo_ = 0, hi_ = 0;
  Shape in_;
  Window y_, x_;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_DEPTHWISE_NHWC_H_
