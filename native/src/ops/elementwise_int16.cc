// SPDX-License-Identifier: Apache-2.0
// ADD, SUB, MUL and PRELU on int16, with broadcasting.
#include <algorithm>
#include <cmath>

#include "ops/broadcast.h"
#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

constexpr int64_t kValuesPerTask = 16 * 1024;  // a multiple of 16: the stock ADD depends on positions modulo 16

// LiteRT's test for a power-of-two scale, which selects kernels this library leaves alone.
bool IsPowerOfTwo(float scale) {
  const float log2 = std::log(scale) * (1.0f / std::log(2.0f));
  return std::abs(log2 - std::round(log2)) < 1e-3f;
}

// A binary operator: subclasses compute runs of contiguous values.
class Binary16 : public Op {
 public:
  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (!plan_.Plan(in[0], in[1])) return false;
    (*out)[0] = plan_.out;
    return true;
  }
  std::vector<int> RuntimeInputs() const override { return {0, 1}; }
  size_t ScratchBytes(int num_threads) const override {
    return plan_.elementwise ? 0 : static_cast<size_t>(num_threads) * 2 * RepeatBytes();
  }

  void Run(const RunArgs& args) override {
    const auto* a = static_cast<const int16_t*>(args.inputs[0]);
    const auto* b = static_cast<const uint8_t*>(args.inputs[1]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    if (plan_.elementwise) {
      const int64_t total = NumElements(plan_.out);
      args.pool->Run(static_cast<int>((total + kValuesPerTask - 1) / kValuesPerTask), [&](int task, int) {
        const int64_t first = task * kValuesPerTask;
        const int count = static_cast<int>(std::min(kValuesPerTask, total - first));
        Elementwise(a + first, b + first * b_bytes(), count, out + first);
      });
      return;
    }
    // A task is some runs, or a piece of one: with a number on one side all values are a single run.
    const int64_t length = plan_.run_length(), runs = plan_.num_runs(), most = PieceLength();
    if (length == 0) return;
    const int64_t pieces = (length + most - 1) / most, items = runs * pieces;
    const int64_t items_per_task = std::max<int64_t>(1, kValuesPerTask / most);
    args.pool->Run(static_cast<int>((items + items_per_task - 1) / items_per_task), [&](int task, int worker) {
      uint8_t* repeat_a = args.scratch + worker * 2 * RepeatBytes();
      uint8_t* repeat_b = repeat_a + RepeatBytes();
      for (int64_t item = task * items_per_task; item < std::min(items, (task + 1) * items_per_task); ++item) {
        const int64_t run = item / pieces, first = item % pieces * most, count = std::min(most, length - first);
        int64_t at_a, at_b;
        plan_.Offsets(run, &at_a, &at_b);
        const int16_t* run_a = a + at_a + (plan_.a_repeats() ? 0 : first);
        const uint8_t* run_b = b + (at_b + (plan_.b_repeats() ? 0 : first)) * b_bytes();
        if (plan_.a_repeats()) {
          std::fill_n(reinterpret_cast<int16_t*>(repeat_a), count, *run_a);
          run_a = reinterpret_cast<int16_t*>(repeat_a);
        }
        if (plan_.b_repeats()) {
          if (b_bytes() == 1) {
            std::fill_n(repeat_b, count, *run_b);
          } else {
            std::fill_n(reinterpret_cast<int16_t*>(repeat_b), count, *reinterpret_cast<const int16_t*>(run_b));
          }
          run_b = repeat_b;
        }
        BroadcastRun(run_a, run_b, static_cast<int>(count), out + run * length + first);
      }
    });
  }

 protected:
  virtual int b_bytes() const { return 2; }
  virtual void Elementwise(const int16_t* a, const void* b, int n, int16_t* out) = 0;
  virtual void BroadcastRun(const int16_t* a, const void* b, int n, int16_t* out) { Elementwise(a, b, n, out); }

 private:
  int64_t PieceLength() const { return std::min(plan_.run_length(), kValuesPerTask / 4); }
  size_t RepeatBytes() const { return (static_cast<size_t>(PieceLength()) * 2 + 63) / 64 * 64; }
  Broadcast plan_;
};

class AddSub16 : public Binary16 {
 public:
  AddSub16(const KernelTable& kernels, bool subtract) : kernels_(kernels), subtract_(subtract) {}

  bool Check(const NodeView& node, std::string* why) {
    const float a = node.input(0).params.scale, b = node.input(1).params.scale, out = node.output(0).params.scale;
    const AddParams params = node.has_params() ? node.params<AddParams>() : AddParams{Activation::kNone, false};
    if (params.pot_scale_int16 && IsPowerOfTwo(a) && IsPowerOfTwo(b) && IsPowerOfTwo(out)) {
      *why = "scales that are all powers of two, which has a kernel of its own";
      return false;
    }
    const double twice_max = 2 * std::max(a, b);
    const FixedMultiplier ma = QuantizeMultiplier(a / twice_max), mb = QuantizeMultiplier(b / twice_max);
    const double real_out = twice_max / ((1 << 15) * out);
    const FixedMultiplier mo = QuantizeMultiplier(real_out);
    if (ma.shift > 0 || mb.shift > 0 || mo.shift > 0 || real_out >= 1.0 || real_out <= 0.0) {
      *why = "an output scale outside LiteRT's range";
      return false;
    }
    view_ = {ma.value, mb.value, mo.value, ma.shift, mb.shift, mo.shift, 0, 0};
    return ActivationRange(params.activation, out, &view_.lo, &view_.hi, why);
  }

  const char* kernel_name() const override {
    return subtract_ ? kernels_.s16_sub.name : kernels_.s16_add_blocks.name;
  }

 protected:
  // The wheel's ADD computes whole blocks of 16 values with one rounding less than the remaining ones.
  void Elementwise(const int16_t* a, const void* b, int n, int16_t* out) override {
    const auto* b16 = static_cast<const int16_t*>(b);
    if (subtract_) return kernels_.s16_sub.run(a, b16, n, view_, out);
    const int blocks = n / 16 * 16;
    kernels_.s16_add_blocks.run(a, b16, blocks, view_, out);
    kernels_.s16_add.run(a + blocks, b16 + blocks, n - blocks, view_, out + blocks);
  }
  void BroadcastRun(const int16_t* a, const void* b, int n, int16_t* out) override {
    const auto& kernel = subtract_ ? kernels_.s16_sub : kernels_.s16_add;
    kernel.run(a, static_cast<const int16_t*>(b), n, view_, out);
  }

 private:
  const KernelTable& kernels_;
  const bool subtract_;
  AddView view_{};
};

class Mul16 : public Binary16 {
 public:
  explicit Mul16(const KernelTable& kernels) : kernels_(kernels) {}

  bool Check(const NodeView& node, std::string* why) {
    if (IsConstant(node.input(0)) && IsConstant(node.input(1))) {
      *why = "two constants, which LiteRT folds";
      return false;
    }
    const float out = node.output(0).params.scale;
    const float real = node.input(0).params.scale * node.input(1).params.scale / out;  // in float, as LiteRT does
    const FixedMultiplier m = QuantizeMultiplier(real);
    if (m.shift > 30) {
      *why = "a scale ratio outside LiteRT's range";
      return false;
    }
    view_ = {m.value, m.shift, 0, 0};
    return ActivationRange(node.params<MulParams>().activation, out, &view_.lo, &view_.hi, why);
  }

  const char* kernel_name() const override { return kernels_.s16_mul.name; }

 protected:
  void Elementwise(const int16_t* a, const void* b, int n, int16_t* out) override {
    kernels_.s16_mul.run(a, static_cast<const int16_t*>(b), n, view_, out);
  }

 private:
  const KernelTable& kernels_;
  ScaleView view_{};
};

// alpha is an int8 tensor with a zero point of its own.
class Prelu16 : public Binary16 {
 public:
  bool Check(const NodeView& node, std::string* why) {
    const TfLiteTensor& alpha = node.input(1);
    if (alpha.type != kTfLiteInt8 || !IsConstant(alpha)) {
      *why = "an alpha that is not constant int8";
      return false;
    }
    const float in = node.input(0).params.scale, out = node.output(0).params.scale;
    const float positive = in / out, negative = in * alpha.params.scale / out;
    positive_ = QuantizeMultiplier(positive);
    negative_ = QuantizeMultiplier(negative);
    zero_point_ = alpha.params.zero_point;
    if (positive_.shift > 30 || negative_.shift > 30) {
      *why = "a scale ratio outside LiteRT's range";
      return false;
    }
    return true;
  }
  const char* kernel_name() const override { return "s16_prelu"; }

 protected:
  int b_bytes() const override { return 1; }
  void Elementwise(const int16_t* a, const void* b, int n, int16_t* out) override {
    const auto* alpha = static_cast<const int8_t*>(b);
    for (int i = 0; i < n; ++i) {
      const int32_t value = a[i] >= 0 ? MultiplyAcc32(a[i], positive_)
                                      : MultiplyAcc32(a[i] * (alpha[i] - zero_point_), negative_);
      out[i] = static_cast<int16_t>(ClampInt(value, INT16_MIN, INT16_MAX));
    }
  }

 private:
  FixedMultiplier positive_{}, negative_{};
  int32_t zero_point_ = 0;
};

bool AllInt16(const NodeView& node, int inputs, std::string* why) {
  for (int i = 0; i < inputs; ++i) {
    if (!IsInt16Activation(node.input(i), why)) return false;
  }
  return IsInt16Activation(node.output(0), why);
}

}  // namespace

std::unique_ptr<Op> MakeAdd16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!AllInt16(node, 2, why)) return nullptr;
  auto op = std::make_unique<AddSub16>(kernels, /*subtract=*/false);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

std::unique_ptr<Op> MakeSub16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!AllInt16(node, 2, why)) return nullptr;
  auto op = std::make_unique<AddSub16>(kernels, /*subtract=*/true);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

std::unique_ptr<Op> MakeMul16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!AllInt16(node, 2, why)) return nullptr;
  auto op = std::make_unique<Mul16>(kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

std::unique_ptr<Op> MakePrelu16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!AllInt16(node, 1, why)) return nullptr;
  auto op = std::make_unique<Prelu16>();
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
