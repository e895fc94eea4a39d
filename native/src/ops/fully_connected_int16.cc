// SPDX-License-Identifier: Apache-2.0
// FULLY_CONNECTED int16x8. Beside a bias of 64 bits the stock kernel requantizes this one in double, not with the 16-bit
// multiplier; beside one of 32 bits, or none, as ruy does.
#include <algorithm>
#include <cstring>

#include "ops/fully_connected_rows.h"
#include "ops/gemm.h"
#include "ops/makers.h"

namespace litesmith {
namespace {

class FullyConnected16 : public Op {
 public:
  FullyConnected16(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels),
        params_(node.params<FullyConnectedParams>()),
        weights_(static_cast<const int8_t*>(node.input(1).data)),
        rows_(node) {}

  bool Check(const NodeView& node, std::string* why) {
    const TfLiteTensor& in = node.input(0);
    const TfLiteTensor& out = node.output(0);
    const TfLiteTensor* bias = node.has_input(2) ? &node.input(2) : nullptr;
    const TfLiteType said = params_.quantized_bias_type;
    const bool says = said == kTfLiteInt32 || said == kTfLiteInt64;
    if (bias != nullptr && says && bias->type != said) {
      *why = "a bias of another type than the options say";
      return false;
    }
    in_32_bits_ = said != kTfLiteInt64 && (bias == nullptr || bias->type != kTfLiteInt64);
    std::vector<float> scales;
    if (params_.weights_format != 0 || !WeightScales(node.input(1), 0, rows_.outputs(), &scales, why) ||
        !ReadBias(bias, rows_.outputs(), &bias_, why) ||
        !ActivationRange(params_.activation, out.params.scale, &lo_, &hi_, why)) {
      return false;
    }
    if (in_32_bits_) {
      if (Affine(node.input(1))->scale->size > 1) {
        return ConvMultipliers(in.params.scale, out.params.scale, scales, &multipliers_, why);
      }
      const float product = in.params.scale * scales[0];  // in float, as LiteRT has it
      return ConvMultipliers(1.0f, out.params.scale, std::vector<float>(scales.size(), product), &multipliers_, why);
    }
    for (float scale : scales) {
      scales_.push_back(static_cast<double>(in.params.scale) * static_cast<double>(scale) /
                        static_cast<double>(out.params.scale));
    }
    return true;
  }

  const char* kernel_name() const override { return kernels_.s16s8_gemm.name; }

  void Pack() override {
    gemm_.Pack(kernels_, weights_, rows_.depth(), rows_.outputs(), rows_.depth());
    if (in_32_bits_) {
      gemm_.SetRequant32(multipliers_, bias_, Rounding32::kOnce, lo_, hi_);
    } else {
      gemm_.SetDoubleRequant(scales_, bias_, lo_, hi_);
    }
    Free(&multipliers_, &scales_, &bias_);
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    return rows_.Infer(in[0], &(*out)[0]);
  }

  size_t ScratchBytes(int) const override {
    return gemm_.k_padded() == rows_.depth() ? 0 : static_cast<size_t>(rows_.count()) * gemm_.k_padded() * 2;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    const size_t depth = rows_.depth(), stride = gemm_.k_padded(), outputs = rows_.outputs();
    if (stride != depth) {
      auto* padded = reinterpret_cast<int16_t*>(args.scratch);
      for (int r = 0; r < rows_.count(); ++r) {
        std::memcpy(padded + r * stride, in + r * depth, depth * 2);
        std::memset(padded + r * stride + depth, 0, (stride - depth) * 2);
      }
      in = padded;
    }
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    rows_.Each(args.pool, gemm_.num_panels(), [&](int first, int count, int panel_begin, int panel_end) {
      const int16_t* rows[FullyConnectedRows::kBlock];
      for (int i = 0; i < count; ++i) rows[i] = in + (first + i) * stride;
      gemm_.Run(rows, count, panel_begin, panel_end, out + first * outputs, outputs);
    });
  }

 private:
  const KernelTable& kernels_;
  const FullyConnectedParams params_;
  const int8_t* weights_;
  FullyConnectedRows rows_;
  bool in_32_bits_ = false;
  std::vector<FixedMultiplier> multipliers_;
  std::vector<double> scales_;
  std::vector<int64_t> bias_;
  int32_t lo_ = 0, hi_ = 0;
  PackedGemm gemm_;
};

}  // namespace

std::unique_ptr<Op> MakeFullyConnected16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  if (!HasMatrix(node, why)) return nullptr;
  auto op = std::make_unique<FullyConnected16>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
