// SPDX-License-Identifier: Apache-2.0
// LOGISTIC, TANH and SOFTMAX on int16: LiteRT defines them by interpolated tables, rebuilt here from their formulas.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

constexpr int64_t kValuesPerTask = 8 * 1024;

bool IsPowerOfTwo(float scale, int* log2) {
  const float exact = std::log(scale) * (1.0f / std::log(2.0f));
  *log2 = static_cast<int>(std::round(exact));
  return std::abs(exact - std::round(exact)) < 1e-3f;
}

// sigmoid(i / 24) in 0.16 fixed point. LiteRT's table is rounded to nearest except at these indices, where it is one
// higher (found by comparison with tflite/kernels/internal/common.h).
const uint16_t* SigmoidTable() {
  static const uint16_t* table = [] {
    constexpr uint8_t kOneHigher[] = {4,  8,  12, 14, 15, 16, 17, 19, 20, 21,  22,  25,  27,  28, 29,
                                      30, 31, 33, 34, 35, 37, 39, 40, 41, 43,  44,  45,  46,  49, 50,
                                      54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255};
    auto* t = new uint16_t[256];
    for (int i = 0; i < 256; ++i) t[i] = static_cast<uint16_t>(std::lround(65536.0 / (1.0 + std::exp(-i / 24.0))));
    for (uint8_t i : kOneHigher) ++t[i];
    return t;
  }();
  return table;
}

// Both functions share the table: tanh(x) = 2 sigmoid(2x) - 1, so tanh indexes it twice as densely.
class SigmoidOrTanh16 : public Op {
 public:
  SigmoidOrTanh16(bool tanh, int32_t multiplier, int shift) : tanh_(tanh), multiplier_(multiplier), shift_(shift) {}
  const char* kernel_name() const override { return tanh_ ? "s16_tanh_table" : "s16_logistic_table"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    (*out)[0] = in[0];
    values_ = NumElements(in[0]);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    args.pool->Run(static_cast<int>((values_ + kValuesPerTask - 1) / kValuesPerTask), [&](int task, int) {
      const int64_t end = std::min(values_, (task + 1) * kValuesPerTask);
      for (int64_t i = task * kValuesPerTask; i < end; ++i) out[i] = tanh_ ? Tanh(in[i]) : Sigmoid(in[i]);
    });
  }

 private:
  int32_t Scaled(int16_t x) const {
    const int32_t round = shift_ > 0 ? 1 << (shift_ - 1) : 0;
    return (x * multiplier_ + round) >> shift_;
  }

  int16_t Sigmoid(int16_t x) const {
    const int32_t scaled = Scaled(x);
    const uint32_t magnitude = static_cast<uint32_t>(std::abs(scaled));
    const uint32_t index = magnitude >> 9;
    uint32_t result = 0x7FFFu << 10;
    if (index < 255) {
      const uint32_t low = SigmoidTable()[index], high = SigmoidTable()[index + 1];
      result = (low << 9) + (magnitude & 0x1FF) * (high - low);
    }
    result = scaled >= 0 ? result + (1 << 9) : (1u << 25) - result + (1 << 9) - 1;
    return static_cast<int16_t>(result >> 10);
  }

  int16_t Tanh(int16_t x) const {
    const int32_t scaled = Scaled(x);
    const uint32_t magnitude = static_cast<uint32_t>(std::abs(scaled));
    const uint32_t index = magnitude >> 8;
    int32_t result = 0xFFFF << 8;
    if (index < 255) {
      const uint32_t low = SigmoidTable()[index], high = SigmoidTable()[index + 1];
      result = static_cast<int32_t>((low << 8) + (magnitude & 0xFF) * (high - low));
    }
    result = scaled >= 0 ? result - (1 << 23) + (1 << 7) : -result + (1 << 23) + (1 << 7) - 1;
    return static_cast<int16_t>(result >> 8);
  }

  const bool tanh_;
  const int32_t multiplier_;
  const int shift_;
  int64_t values_ = 0;
};

std::unique_ptr<Op> MakeTableOp(const NodeView& node, bool tanh, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  int log2 = 0;
  const float in_scale = node.input(0).params.scale;
  if (node.output(0).params.scale != 1.0f / 32768) {
    *why = "an output scale other than 1/32768";
    return nullptr;
  }
  const bool pot = IsPowerOfTwo(in_scale, &log2);
  if (pot && (12 + log2 == 0 || (tanh && 12 + log2 == 1))) {
    *why = "a power-of-two input scale, which has a kernel of its own";
    return nullptr;
  }
  double multiplier = in_scale * 4096.0 * 3.0;
  if (multiplier > 65535.0) {
    *why = "an input scale outside LiteRT's range";
    return nullptr;
  }
  int shift = 0;
  while (multiplier <= 32767.0 / 2.0 && shift <= 30) {
    ++shift;
    multiplier *= 2.0;
  }
  if (static_cast<int32_t>(multiplier) == 0 || shift > 30) {
    *why = "an input scale outside LiteRT's range";
    return nullptr;
  }
  return std::make_unique<SigmoidOrTanh16>(tanh, static_cast<int32_t>(multiplier), shift);
}

constexpr int kSteps = 512;

// 513 samples of f over the int16 range of the input; each is moved by half of the error that linear interpolation
// makes in the middle of its step. Scale and zero point map int16 to the argument of f.
template <class F>
std::vector<int16_t> InterpolationTable(double in_scale, int32_t in_zero, double out_scale, F f) {
  const double in_min = in_scale * (INT16_MIN - in_zero), in_max = in_scale * (INT16_MAX - in_zero);
  const double step = (in_max - in_min) / kSteps, half_step = step / 2;
  const double inverse = 65536.0 / (out_scale * INT16_MAX - out_scale * INT16_MIN);
  const auto to_int16 = [](double x) { return static_cast<int16_t>(std::min(std::max(x, -32768.0), 32767.0)); };
  std::vector<int16_t> table(kSteps + 1);
  for (int i = 0; i < kSteps; ++i) {
    const double here = f(in_min + i * step), next = f(in_min + (i + 1) * step);
    const double middle = f(in_min + i * step + half_step);
    const double sample = std::round(here * inverse);
    const double interpolated = std::round((next * inverse + std::round(here * inverse)) / 2);
    const double correction = std::round((interpolated - std::round(middle * inverse)) / 2);
    table[i] = to_int16(sample - correction);
  }
  table[kSteps] = to_int16(std::round(f(in_max) * inverse));
  return table;
}

int16_t Interpolate(int16_t x, const int16_t* table) {
  const int index = 256 + (x >> 7);
  const int16_t slope = static_cast<int16_t>(table[index + 1] - table[index]);
  return static_cast<int16_t>(table[index] + ((slope * (x & 0x7F) + 64) >> 7));
}

class Softmax16 : public Op {
 public:
  explicit Softmax16(FixedMultiplier input) : input_(input) {}
  const char* kernel_name() const override { return "s16_softmax_table"; }

  void Pack() override {
    exp_ = InterpolationTable(10.0 / 65535, INT16_MAX, 2.0 / 65535, [](double x) { return std::exp(x); });
    reciprocal_ = InterpolationTable(1.0 / 65535, INT16_MIN, 2.0 / 65535, [](double x) { return 1.0 / (1.0 + x); });
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].empty()) return false;
    (*out)[0] = in[0];
    depth_ = in[0].back();
    rows_ = depth_ == 0 ? 0 : static_cast<int>(NumElements(in[0]) / depth_);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    const int per_task = std::max<int>(1, static_cast<int>(kValuesPerTask / std::max(depth_, 1)));
    args.pool->Run((rows_ + per_task - 1) / per_task, [&](int task, int) {
      for (int r = task * per_task; r < std::min(rows_, (task + 1) * per_task); ++r) {
        Row(in + static_cast<int64_t>(r) * depth_, out + static_cast<int64_t>(r) * depth_);
      }
    });
  }

 private:
  void Row(const int16_t* in, int16_t* out) const {
    const int32_t max = *std::max_element(in, in + depth_);
    int32_t sum = 0;  // Q16.15
    for (int c = 0; c < depth_; ++c) {
      const int32_t scaled = MultiplyAcc32(in[c] - max, input_);
      const int32_t centred = static_cast<int32_t>(static_cast<uint32_t>(scaled) + 32767u);
      out[c] = Interpolate(static_cast<int16_t>(ClampInt(centred, INT16_MIN, INT16_MAX)), exp_.data());
      sum += out[c];
    }
    const int headroom_plus_one = __builtin_clz(static_cast<uint32_t>(sum));
    const int32_t shifted =
        static_cast<int32_t>(((static_cast<int64_t>(sum) << (headroom_plus_one - 1)) + (1 << 13)) >> 14);
    const int32_t centred = ClampInt(shifted - ((1 << 15) + (1 << 16)), INT16_MIN, INT16_MAX);
    const int64_t reciprocal = Interpolate(static_cast<int16_t>(centred), reciprocal_.data());
    const int right = 31 - headroom_plus_one;
    for (int c = 0; c < depth_; ++c) {
      const int64_t value = (out[c] * reciprocal + (int64_t{1} << (right - 1))) >> right;
      out[c] = static_cast<int16_t>(ClampInt(static_cast<int32_t>(value), 0, INT16_MAX));
    }
  }

  const FixedMultiplier input_;
  std::vector<int16_t> exp_, reciprocal_;
  int depth_ = 0, rows_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeLogistic16(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeTableOp(node, /*tanh=*/false, why);
}

std::unique_ptr<Op> MakeTanh16(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeTableOp(node, /*tanh=*/true, why);
}

std::unique_ptr<Op> MakeSoftmax16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const float beta = node.params<SoftmaxParams>().beta;
  const FixedMultiplier m = QuantizeMultiplier(node.input(0).params.scale * beta / (10.0 / 65535.0));
  // Shifting a difference of up to 65535 further left would overflow the stock kernel's int32.
  if (!(beta > 0) || m.shift > 14) {
    *why = "an input scale or beta outside LiteRT's range";
    return nullptr;
  }
  return std::make_unique<Softmax16>(m);
}

}  // namespace litesmith
