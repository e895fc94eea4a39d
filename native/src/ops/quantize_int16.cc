// SPDX-License-Identifier: Apache-2.0
// QUANTIZE float32 -> int16 and int16 -> int16, DEQUANTIZE int16 -> float32, and the RELU family, which is a rescale.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

constexpr int64_t kValuesPerTask = 16 * 1024;

// An operator whose output has the shape of its input and whose values are independent.
class Unary : public Op {
 public:
  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    (*out)[0] = in[0];
    values_ = NumElements(in[0]);
    return true;
  }
  void Run(const RunArgs& args) override {
    args.pool->Run(static_cast<int>((values_ + kValuesPerTask - 1) / kValuesPerTask), [&](int task, int) {
      const int64_t first = task * kValuesPerTask;
      Values(args, first, static_cast<int>(std::min(kValuesPerTask, values_ - first)));
    });
  }

 protected:
  virtual void Values(const RunArgs& args, int64_t first, int count) = 0;
  int64_t values_ = 0;
};

class QuantizeFloat : public Unary {
 public:
  QuantizeFloat(const KernelTable& kernels, float scale) : kernels_(kernels), scale_(scale) {}
  const char* kernel_name() const override { return kernels_.f32_quantize_s16.name; }

 protected:
  // The wheel multiplies by the reciprocal in blocks of 8 and divides in double for the values left over.
  void Values(const RunArgs& args, int64_t first, int count) override {
    const float* in = static_cast<const float*>(args.inputs[0]) + first;
    int16_t* out = static_cast<int16_t*>(args.outputs[0]) + first;
    const int blocks = count / 8 * 8;
    kernels_.f32_quantize_s16.run(in, blocks, scale_, out);
    for (int i = blocks; i < count; ++i) {
      const int32_t value = DoubleToInt32LikeStock(std::round(in[i] / static_cast<double>(scale_)));
      out[i] = static_cast<int16_t>(ClampInt(value, INT16_MIN, INT16_MAX));
    }
  }

 private:
  const KernelTable& kernels_;
  const float scale_;
};

class DequantizeInt16 : public Unary {
 public:
  DequantizeInt16(const KernelTable& kernels, float scale) : kernels_(kernels), scale_(scale) {}
  const char* kernel_name() const override { return kernels_.s16_dequantize_f32.name; }

 protected:
  void Values(const RunArgs& args, int64_t first, int count) override {
    kernels_.s16_dequantize_f32.run(static_cast<const int16_t*>(args.inputs[0]) + first, count, scale_,
                                    static_cast<float*>(args.outputs[0]) + first);
  }

 private:
  const KernelTable& kernels_;
  const float scale_;
};

class Rescale16 : public Unary {
 public:
  Rescale16(const KernelTable& kernels, FixedMultiplier m, int32_t lo, int32_t hi)
      : kernels_(kernels), view_{m.value, m.shift, lo, hi} {}
  const char* kernel_name() const override { return kernels_.s16_scale.name; }

 protected:
  void Values(const RunArgs& args, int64_t first, int count) override {
    kernels_.s16_scale.run(static_cast<const int16_t*>(args.inputs[0]) + first, count, view_,
                           static_cast<int16_t*>(args.outputs[0]) + first);
  }

 private:
  const KernelTable& kernels_;
  const ScaleView view_;
};

class LeakyRelu16 : public Unary {
 public:
  LeakyRelu16(FixedMultiplier identity, FixedMultiplier alpha) : identity_(identity), alpha_(alpha) {}
  const char* kernel_name() const override { return "s16_leaky_relu"; }

 protected:
  void Values(const RunArgs& args, int64_t first, int count) override {
    const int16_t* in = static_cast<const int16_t*>(args.inputs[0]) + first;
    int16_t* out = static_cast<int16_t*>(args.outputs[0]) + first;
    for (int i = 0; i < count; ++i) {
      const int32_t value = MultiplyAcc32(in[i], in[i] >= 0 ? identity_ : alpha_);
      out[i] = static_cast<int16_t>(ClampInt(value, INT16_MIN, INT16_MAX));
    }
  }

 private:
  const FixedMultiplier identity_, alpha_;
};

std::unique_ptr<Op> MakeRelu(const NodeView& node, const KernelTable& kernels, float low, float high,
                             std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const float scale = node.output(0).params.scale;
  const float ratio = node.input(0).params.scale / scale;  // in float, as LiteRT does
  const FixedMultiplier m = QuantizeMultiplier(ratio);
  if (m.shift > 15) {
    *why = "a scale ratio outside the exact range";
    return nullptr;
  }
  const int32_t lo = std::max<int32_t>(INT16_MIN, static_cast<int32_t>(std::round(low / scale)));
  const int32_t hi = high == std::numeric_limits<float>::infinity()
                         ? INT16_MAX
                         : static_cast<int32_t>(std::min(32767.0f, std::round(high / scale)));
  return std::make_unique<Rescale16>(kernels, m, lo, hi);
}

}  // namespace

std::unique_ptr<Op> MakeQuantize16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.output(0), why)) return nullptr;
  const TfLiteTensor& in = node.input(0);
  if (in.type == kTfLiteFloat32) return std::make_unique<QuantizeFloat>(kernels, node.output(0).params.scale);
  if (!IsInt16Activation(in, why)) return nullptr;
  const FixedMultiplier m =
      QuantizeMultiplier(static_cast<double>(in.params.scale) / static_cast<double>(node.output(0).params.scale));
  if (m.shift > 15) {
    *why = "a scale ratio outside the exact range";
    return nullptr;
  }
  return std::make_unique<Rescale16>(kernels, m, INT16_MIN, INT16_MAX);
}

std::unique_ptr<Op> MakeDequantize16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.input(0), why)) return nullptr;
  if (node.output(0).type != kTfLiteFloat32 || IsConstant(node.input(0))) {
    *why = "a constant, or an output that is not float";
    return nullptr;
  }
  return std::make_unique<DequantizeInt16>(kernels, node.input(0).params.scale);
}

std::unique_ptr<Op> MakeRelu16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  return MakeRelu(node, kernels, 0.0f, std::numeric_limits<float>::infinity(), why);
}

std::unique_ptr<Op> MakeRelu616(const NodeView& node, const KernelTable& kernels, std::string* why) {
  return MakeRelu(node, kernels, 0.0f, 6.0f, why);
}

std::unique_ptr<Op> MakeLeakyRelu16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const float in = node.input(0).params.scale, out = node.output(0).params.scale;
  const float alpha = node.params<LeakyReluParams>().alpha;
  const float steep = in * alpha / out, identity = in / out;
  const FixedMultiplier m_alpha = QuantizeMultiplier(steep), m_identity = QuantizeMultiplier(identity);
  if (!(alpha >= 0) || m_alpha.shift > 15 || m_identity.shift > 15) {
    *why = "a negative alpha or a scale ratio outside the exact range";
    return nullptr;
  }
  return std::make_unique<LeakyRelu16>(m_identity, m_alpha);
}

}  // namespace litesmith
