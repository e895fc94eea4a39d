// SPDX-License-Identifier: Apache-2.0
// TRANSPOSE_CONV int16x8: output pixels of the same phase (position modulo stride) see the same subset of taps, so each
// phase is an ordinary convolution with its own packed weights.
#include <algorithm>
#include <cstring>

#include "ops/gemm.h"
#include "ops/makers.h"

namespace litesmith {
namespace {

constexpr int kPixelsPerBlock = 24;

class TransposeConv16 : public Op {
 public:
  TransposeConv16(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels), params_(node.params<TransposeConvParams>()) {
    const auto* shape = static_cast<const int32_t*>(node.input(0).data);
    out_height_ = shape[1];
    out_width_ = shape[2];
    const TfLiteTensor& weights = node.input(1);
    weights_ = static_cast<const int8_t*>(weights.data);
    out_channels_ = weights.dims->data[0];
    kernel_h_ = weights.dims->data[1];
    kernel_w_ = weights.dims->data[2];
    in_channels_ = weights.dims->data[3];
    // The padding is that of the convolution this one reverses.
    pad_y_ = WindowOf(params_.padding, out_height_, kernel_h_, params_.stride_height, 1).pad;
    pad_x_ = WindowOf(params_.padding, out_width_, kernel_w_, params_.stride_width, 1).pad;
  }

  bool Check(const NodeView& node, std::string* why) {
    std::vector<float> scales;
    const TfLiteTensor& in = node.input(2);
    const TfLiteTensor& out = node.output(0);
    const TfLiteTensor* bias = node.has_input(3) ? &node.input(3) : nullptr;
    // Without the option LiteRT reads any bias as int64.
    in_32_bits_ = params_.quantized_bias_type == kTfLiteInt32;
    if (bias != nullptr && bias->type != (in_32_bits_ ? kTfLiteInt32 : kTfLiteInt64)) {
      *why = "a bias of another type than the options say";
      return false;
    }
    return WeightScales(node.input(1), 0, out_channels_, &scales, why) &&
           ConvMultipliers(in.params.scale, out.params.scale, scales, &multipliers_, why) &&
           ReadBias(bias, out_channels_, &bias_, why) &&
           ActivationRange(params_.activation, out.params.scale, &lo_, &hi_, why);
  }

  const char* kernel_name() const override { return kernels_.s16s8_gemm.name; }
  std::vector<int> RuntimeInputs() const override { return {2}; }

  void Pack() override {
    phases_.clear();
    for (int py = 0; py < params_.stride_height; ++py) {
      for (int px = 0; px < params_.stride_width; ++px) {
        Phase phase;
        phase.y = py;
        phase.x = px;
        // Output y = input * stride - pad + ky: the taps of this phase are those congruent to y + pad.
        for (int ky = (py + pad_y_) % params_.stride_height; ky < kernel_h_; ky += params_.stride_height) {
          for (int kx = (px + pad_x_) % params_.stride_width; kx < kernel_w_; kx += params_.stride_width) {
            phase.taps.push_back({ky, kx});
          }
        }
        const int k = std::max<int>(1, static_cast<int>(phase.taps.size()) * in_channels_);
        std::vector<int8_t> rows(static_cast<size_t>(out_channels_) * k, 0);
        for (int o = 0; o < out_channels_; ++o) {
          for (size_t t = 0; t < phase.taps.size(); ++t) {
            const int8_t* from =
                weights_ + ((static_cast<size_t>(o) * kernel_h_ + phase.taps[t].y) * kernel_w_ + phase.taps[t].x) *
                               in_channels_;
            std::memcpy(rows.data() + static_cast<size_t>(o) * k + t * in_channels_, from, in_channels_);
          }
        }
        phase.gemm.Pack(kernels_, rows.data(), k, out_channels_, k);
        if (in_32_bits_) {
          phase.gemm.SetRequant32(multipliers_, bias_, Rounding32::kTwiceInBlocks, lo_, hi_);
        } else {
          phase.gemm.SetRequant(multipliers_, bias_, lo_, hi_);
        }
        phases_.push_back(std::move(phase));
      }
    }
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[2].size() != 4 || in[2][3] != in_channels_) return false;
    in_ = in[2];
    if (WindowOf(params_.padding, out_height_, kernel_h_, params_.stride_height, 1).out != in_[1] ||
        WindowOf(params_.padding, out_width_, kernel_w_, params_.stride_width, 1).out != in_[2]) {
      return false;
    }
    (*out)[0] = {in_[0], out_height_, out_width_, out_channels_};
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return num_threads * WorkerBytes(); }

  // One task: one phase of one output row.
  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[2]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    const int sx = params_.stride_width;
    args.pool->Run(in_[0] * out_height_ * sx, [&](int index, int worker) {
      const int px = index % sx, y = index / sx % out_height_, b = index / sx / out_height_;
      const Phase& phase = phases_[(y % params_.stride_height) * sx + px];
      auto* gathered = reinterpret_cast<int16_t*>(args.scratch + worker * WorkerBytes());
      const int count = px < out_width_ ? (out_width_ - px + sx - 1) / sx : 0;
      for (int first = 0; first < count; first += kPixelsPerBlock) {
        const int block = std::min(kPixelsPerBlock, count - first);
        const int16_t* rows[kPixelsPerBlock];
        for (int i = 0; i < block; ++i) {
          int16_t* to = gathered + static_cast<size_t>(i) * phase.gemm.k_padded();
          Gather(in, b, y, px + (first + i) * sx, phase, to);
          rows[i] = to;
        }
        const int64_t pixel = (static_cast<int64_t>(b) * out_height_ + y) * out_width_ + px + first * sx;
        phase.gemm.Run(rows, block, 0, phase.gemm.num_panels(), out + pixel * out_channels_,
                       static_cast<size_t>(out_channels_) * sx);
      }
    });
  }

 private:
  struct Tap {
    int y, x;
  };
  struct Phase {
    int y = 0, x = 0;
    std::vector<Tap> taps;
    PackedGemm gemm;
  };

  size_t WorkerBytes() const {
    int k = 0;
    for (const Phase& phase : phases_) k = std::max(k, phase.gemm.k_padded());
    return (static_cast<size_t>(k) * kPixelsPerBlock * 2 + 127) / 64 * 64;
  }

  void Gather(const int16_t* in, int b, int y, int x, const Phase& phase, int16_t* to) const {
    int16_t* const end = to + phase.gemm.k_padded();
    for (const Tap& tap : phase.taps) {
      const int iy = (y + pad_y_ - tap.y) / params_.stride_height, ix = (x + pad_x_ - tap.x) / params_.stride_width;
      const bool inside = y + pad_y_ >= tap.y && x + pad_x_ >= tap.x && iy < in_[1] && ix < in_[2];
      if (inside) {
        std::memcpy(to, in + ((static_cast<int64_t>(b) * in_[1] + iy) * in_[2] + ix) * in_channels_, in_channels_ * 2);
      } else {
        std::memset(to, 0, in_channels_ * 2);
      }
      to += in_channels_;
    }
    std::memset(to, 0, (end - to) * sizeof(int16_t));
  }

  const KernelTable& kernels_;
  const TransposeConvParams params_;
  const int8_t* weights_;
  int out_height_, out_width_, out_channels_, kernel_h_, kernel_w_, in_channels_, pad_y_, pad_x_;
  std::vector<FixedMultiplier> multipliers_;
  std::vector<int64_t> bias_;
  bool in_32_bits_ = false;
  int32_t lo_ = 0, hi_ = 0;
  std::vector<Phase> phases_;
  Shape in_;
};

}  // namespace

std::unique_ptr<Op> MakeTransposeConv16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (node.num_inputs() < 3 || !IsInt16Activation(node.input(2), why) || !IsInt16Activation(node.output(0), why)) {
    return nullptr;
  }
  const TfLiteTensor& shape = node.input(0);
  if (!IsConstant(shape) || shape.type != kTfLiteInt32 || NumElements(ShapeOf(shape)) != 4 ||
      node.input(1).dims->size != 4 || node.input(2).dims->size != 4) {
    *why = "an output shape that is not constant";
    return nullptr;
  }
  // LiteRT takes the batch from the constant shape, so a resized batch has no defined result.
  if (static_cast<const int32_t*>(shape.data)[0] != node.input(2).dims->data[0]) {
    *why = "an output shape for another batch";
    return nullptr;
  }
  auto op = std::make_unique<TransposeConv16>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
