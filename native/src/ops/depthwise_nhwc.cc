// SPDX-License-Identifier: Apache-2.0
// See depthwise_nhwc.h.
#include "ops/depthwise_nhwc.h"

#include <algorithm>

#include "ops/hybrid.h"
#include "ops/makers.h"
#include "ops/patches.h"
#include "ops/sparse_weights.h"

namespace litesmith {
namespace {

constexpr int kValuesPerTask = 16 * 1024;

}  // namespace

DepthwiseNhwc::DepthwiseNhwc(const NodeView& node, const KernelTable& kernels)
    : kernels_(kernels),
      stride_(node.params<DepthwiseConvParams>().stride_height),
      padding_(node.params<DepthwiseConvParams>().padding) {
  if (const ZeroPad* pad = FoldedPad<DepthwiseConvParams>(node)) pad_ = *pad;
}

bool DepthwiseNhwc::Check(const NodeView& node, std::string* why) {
  const auto& params = node.params<DepthwiseConvParams>();
  const Shape weights = ShapeOf(node.input(1)), in = ShapeOf(node.input(0));
  *why = "a kernel that is not 3x3 with stride 1 or 2 on a multiple of 8 channels";
  if (weights.size() != 4 || in.size() != 4 || weights[1] != 3 || weights[2] != 3 || weights[3] != in[3] ||
      in[3] % 8 != 0 || params.stride_height != params.stride_width || stride_ < 1 || stride_ > 2 ||
      params.dilation_height != 1 || params.dilation_width != 1 || pad_.top > 1 || pad_.left > 1) {
    return false;
  }
  channels_ = in[3];
  bias_.assign(channels_, 0.0f);
  if (node.has_input(2) && !ReadWidened(node.narrow(2), 0, &bias_, why)) return false;
  if (!ReadWidened(node.narrow(1), 3, &weights_, why)) return false;
  *why = "a fused activation that is not a clamp, or a bias of another size";
  return FloatActivation(params.activation, &lo_, &hi_) && bias_.size() == static_cast<size_t>(channels_);
}

bool DepthwiseNhwc::InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) {
  if (in[0].size() != 4 || in[0][3] != channels_) return false;
  in_ = in[0];
  y_ = WindowOf(padding_, pad_.top + in_[1] + pad_.bottom, 3, stride_, 1);
  x_ = WindowOf(padding_, pad_.left + in_[2] + pad_.right, 3, stride_, 1);
  y_.pad += pad_.top;
  x_.pad += pad_.left;
  zeros_.assign(static_cast<size_t>(in_[2]) * channels_, 0.0f);
  (*out)[0] = {in_[0], y_.out, x_.out, channels_};
  return true;
}

void DepthwiseNhwc::RunRow(const float* const* rows, float* out) const {
  Dw3x3Row v{{}, in_[2], channels_, stride_, x_.pad, weights_.data(), bias_.data(), lo_, hi_};
  for (int k = 0; k < 3; ++k) v.rows[k] = rows[k] == nullptr ? zeros_.data() : rows[k];
  kernels_.f32_dwconv3x3_row.run(v, 0, x_.out, out);
}

void DepthwiseNhwc::Run(const RunArgs& args) {
  const auto* in = static_cast<const float*>(args.inputs[0]);
  auto* out = static_cast<float*>(args.outputs[0]);
  const size_t row = static_cast<size_t>(in_[2]) * channels_, out_row = static_cast<size_t>(x_.out) * channels_;
  const int rows = in_[0] * y_.out;
  const int rows_per_task = std::max(1, kValuesPerTask / static_cast<int>(std::max<size_t>(out_row, 1)));
  args.pool->Run((rows + rows_per_task - 1) / rows_per_task, [&](int task, int) {
    for (int r = task * rows_per_task; r < std::min(rows, (task + 1) * rows_per_task); ++r) {
      const float* image = in + static_cast<size_t>(r / y_.out) * in_[1] * row;
      const float* three[3];
      for (int k = 0; k < 3; ++k) {
        const int iy = first_row(r % y_.out) + k;
        three[k] = iy < 0 || iy >= in_[1] ? nullptr : image + iy * row;
      }
      RunRow(three, out + r * out_row);
    }
  });
}

std::unique_ptr<Op> MakeDepthwiseNhwc(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (node.input(0).type != kTfLiteFloat32) return nullptr;
  auto op = std::make_unique<DepthwiseNhwc>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
