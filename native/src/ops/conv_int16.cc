// SPDX-License-Identifier: Apache-2.0
// CONV_2D int16x8: 1x1 kernels read the image in place, others gather a block of pixels (im2col) per worker.
#include <algorithm>

#include "ops/conv_tasks.h"
#include "ops/gemm.h"
#include "ops/makers.h"
#include "ops/patches.h"

namespace litesmith {
namespace {

class Conv16 : public Op {
 public:
  Conv16(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels),
        params_(node.params<ConvParams>()),
        weights_(static_cast<const int8_t*>(node.input(1).data)),
        out_channels_(node.input(1).dims->data[0]),
        patches_(params_, node.input(1), node.input(0).dims->data[3]) {}

  bool Check(const NodeView& node, std::string* why) {
    std::vector<float> scales;
    const TfLiteTensor& in = node.input(0);
    const TfLiteTensor& out = node.output(0);
    // Without the option LiteRT reads any bias as int64.
    in_32_bits_ = params_.quantized_bias_type == kTfLiteInt32;
    if (node.input(2).type != (in_32_bits_ ? kTfLiteInt32 : kTfLiteInt64)) {
      *why = "a bias of another type than the options say";
      return false;
    }
    return WeightScales(node.input(1), 0, out_channels_, &scales, why) &&
           ConvMultipliers(in.params.scale, out.params.scale, scales, &multipliers_, why) &&
           ReadBias(&node.input(2), out_channels_, &bias_, why) &&
           ActivationRange(params_.activation, out.params.scale, &lo_, &hi_, why);
  }

  const char* kernel_name() const override { return kernels_.s16s8_gemm.name; }

  void Pack() override {
    const int per_group = out_channels_ / patches_.groups(), k = patches_.values();
    gemms_.resize(patches_.groups());
    for (int g = 0; g < patches_.groups(); ++g) {
      const int first = g * per_group;
      gemms_[g].Pack(kernels_, weights_ + static_cast<size_t>(first) * k, k, per_group, k);
      const std::vector<FixedMultiplier> multipliers(multipliers_.begin() + first, multipliers_.begin() + first + per_group);
      const std::vector<int64_t> bias(bias_.begin() + first, bias_.begin() + first + per_group);
      if (in_32_bits_) {  // groups are left to the reference kernel there, which rounds twice
        gemms_[g].SetRequant32(multipliers, bias, patches_.groups() > 1 ? Rounding32::kTwice : Rounding32::kOnce, lo_, hi_);
      } else {
        gemms_[g].SetRequant(multipliers, bias, lo_, hi_);
      }
    }
    Free(&multipliers_, &bias_);
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (!patches_.Infer(in[0], out_channels_, &(*out)[0])) return false;
    const int k = gemms_[0].k_padded();
    // In place: one pixel is one row, and no odd K whose last pair would reach into the next pixel.
    in_place_ = patches_.one_to_one() && gemms_[0].k() == k;
    block_ = in_place_ ? kPixelsPerBlock : GatheredBlock(k, gemms_[0].rows_per_tile());
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return in_place_ ? 0 : num_threads * WorkerBytes(); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    const ConvTasks tasks(patches_, /*images=*/1, block_, gemms_[0].num_panels(), gemms_[0].n(), args.pool->num_threads());
    args.pool->Run(tasks.count(), [&](int index, int worker) {
      const ConvTask task = tasks[index];
      const int16_t* rows[kPixelsPerBlock];
      if (in_place_) {
        patches_.FindUnder(in + task.group * patches_.group_in(), task.first, task.pixels, rows);
      } else {
        const int k = gemms_[0].k_padded();
        auto* gathered = reinterpret_cast<int16_t*>(args.scratch + worker * WorkerBytes());
        patches_.Gather(in, task.first, task.pixels, task.group, gathered, k);
        for (int i = 0; i < task.pixels; ++i) rows[i] = gathered + static_cast<size_t>(i) * k;
      }
      gemms_[task.group].Run(rows, task.pixels, task.panel_begin, task.panel_end,
                             out + static_cast<size_t>(task.first) * out_channels_ + task.group * gemms_[0].n(),
                             out_channels_);
    });
  }

 private:
  size_t WorkerBytes() const { return (static_cast<size_t>(block_) * gemms_[0].k_padded() * 2 + 127) / 64 * 64; }

  const KernelTable& kernels_;
  const ConvParams params_;
  const int8_t* weights_;
  int out_channels_;
  Patches patches_;
  std::vector<FixedMultiplier> multipliers_;
  std::vector<int64_t> bias_;
  bool in_32_bits_ = false;
  int32_t lo_ = 0, hi_ = 0;
  std::vector<PackedGemm> gemms_;
  bool in_place_ = false;
  int block_ = kPixelsPerBlock;
};

}  // namespace

std::unique_ptr<Op> MakeConv16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  if (!node.has_input(2)) {
    *why = "no bias";
    return nullptr;
  }
  if (!IsConvolution(node, why)) return nullptr;
  auto op = std::make_unique<Conv16>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
