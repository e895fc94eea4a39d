// SPDX-License-Identifier: Apache-2.0
// FULLY_CONNECTED int16x8. The stock kernel requantizes this one in double, not with the 16-bit multiplier.
#include <algorithm>
#include <cstring>

#include "ops/gemm.h"
#include "ops/makers.h"

namespace litesmith {
namespace {

constexpr int kRowsPerBlock = 48;

class FullyConnected16 : public Op {
 public:
  FullyConnected16(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels), params_(node.params<FullyConnectedParams>()) {
    weights_ = static_cast<const int8_t*>(node.input(1).data);
    outputs_ = node.input(1).dims->data[0];
    depth_ = node.input(1).dims->data[1];
  }

  bool Check(const NodeView& node, std::string* why) {
    const TfLiteTensor& in = node.input(0);
    const TfLiteTensor& out = node.output(0);
    // Without an int64 bias the stock kernel takes another path, with int32 accumulators.
    if (!node.has_input(2) || node.input(2).type != kTfLiteInt64 || params_.quantized_bias_type == kTfLiteInt32) {
      *why = "no int64 bias";
      return false;
    }
    std::vector<float> scales;
    if (params_.weights_format != 0 || !WeightScales(node.input(1), 0, outputs_, &scales, why) ||
        !ReadBias(&node.input(2), outputs_, &bias_, why) ||
        !ActivationRange(params_.activation, out.params.scale, &lo_, &hi_, why)) {
      return false;
    }
    for (float scale : scales) {
      scales_.push_back(static_cast<double>(in.params.scale) * static_cast<double>(scale) /
                        static_cast<double>(out.params.scale));
    }
    return true;
  }

  const char* kernel_name() const override { return kernels_.s16s8_gemm.name; }

  void Pack() override {
    gemm_.Pack(kernels_, weights_, depth_, outputs_, depth_);
    gemm_.SetDoubleRequant(scales_, bias_, lo_, hi_);
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    const int64_t values = NumElements(in[0]);
    if (values % depth_ != 0) return false;
    rows_ = static_cast<int>(values / depth_);
    if (params_.keep_num_dims) {
      if (in[0].empty() || in[0].back() != depth_) return false;
      (*out)[0] = in[0];
      (*out)[0].back() = outputs_;
    } else {
      (*out)[0] = {rows_, outputs_};
    }
    return true;
  }

  size_t ScratchBytes(int) const override {
    return gemm_.k_padded() == depth_ ? 0 : static_cast<size_t>(rows_) * gemm_.k_padded() * 2;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    const int stride = gemm_.k_padded();
    if (stride != depth_) {
      auto* padded = reinterpret_cast<int16_t*>(args.scratch);
      for (int r = 0; r < rows_; ++r) {
        std::memcpy(padded + static_cast<size_t>(r) * stride, in + static_cast<size_t>(r) * depth_, depth_ * 2);
        std::memset(padded + static_cast<size_t>(r) * stride + depth_, 0, (stride - depth_) * 2);
      }
      in = padded;
    }
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    const int blocks = (rows_ + kRowsPerBlock - 1) / kRowsPerBlock, panels = gemm_.num_panels();
    const int slices = args.pool->num_threads() == 1 ? 1 : std::clamp(4 * args.pool->num_threads() / blocks, 1, panels);
    args.pool->Run(blocks * slices, [&](int index, int) {
      const int slice = index % slices, first = index / slices * kRowsPerBlock;
      const int count = std::min(kRowsPerBlock, rows_ - first);
      const int16_t* rows[kRowsPerBlock];
      for (int i = 0; i < count; ++i) rows[i] = in + static_cast<size_t>(first + i) * stride;
      gemm_.Run(rows, count, panels * slice / slices, panels * (slice + 1) / slices,
                out + static_cast<size_t>(first) * outputs_, outputs_);
    });
  }

 private:
  const KernelTable& kernels_;
  const FullyConnectedParams params_;
  const int8_t* weights_;
  int outputs_, depth_, rows_ = 0;
  std::vector<double> scales_;
  std::vector<int64_t> bias_;
  int32_t lo_ = 0, hi_ = 0;
  PackedGemm gemm_;
};

}  // namespace

std::unique_ptr<Op> MakeFullyConnected16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  if (node.input(1).dims->size != 2 || node.input(1).dims->data[1] <= 0 || node.num_outputs() != 1) {
    *why = "weights that are not a matrix";
    return nullptr;
  }
  auto op = std::make_unique<FullyConnected16>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
