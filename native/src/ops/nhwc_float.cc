// SPDX-License-Identifier: Apache-2.0
// Float operators with channels beside each other, taken for the sake of hybrid operators around them.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/makers.h"
#include "ops/planar_op.h"
#include "ops/sparse_weights.h"

namespace litesmith {
namespace {

constexpr int kValuesPerTask = 16 * 1024;

class AddNhwc : public Op {
 public:
  AddNhwc(const KernelTable& kernels, float lo, float hi) : kernels_(kernels), lo_(lo), hi_(hi) {}
  const char* kernel_name() const override { return kernels_.f32_add.name; }
  std::vector<int> RuntimeInputs() const override { return {0, 1}; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0] != in[1]) return false;
    (*out)[0] = in[0];
    values_ = NumElements(in[0]);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* a = static_cast<const float*>(args.inputs[0]);
    const auto* b = static_cast<const float*>(args.inputs[1]);
    auto* out = static_cast<float*>(args.outputs[0]);
    args.pool->Run(static_cast<int>((values_ + kValuesPerTask - 1) / kValuesPerTask), [&](int task, int) {
      const int64_t first = static_cast<int64_t>(task) * kValuesPerTask;
      const int count = static_cast<int>(std::min<int64_t>(kValuesPerTask, values_ - first));
      kernels_.f32_add.run(a + first, b + first, count, lo_, hi_, out + first);
    });
  }

 private:
  const KernelTable& kernels_;
  const float lo_, hi_;
  int64_t values_ = 0;
};

class MeanNhwc : public Op {
 public:
  MeanNhwc(const KernelTable& kernels, bool keep_dims) : kernels_(kernels), keep_dims_(keep_dims) {}
  const char* kernel_name() const override { return kernels_.f32_add.name; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    in_ = in[0];
    (*out)[0] = keep_dims_ ? Shape{in_[0], 1, 1, in_[3]} : Shape{in_[0], in_[3]};
    return true;
  }

  void Run(const RunArgs& args) override {
    const int pixels = in_[1] * in_[2], channels = in_[3];
    constexpr float kEndless = std::numeric_limits<float>::infinity();
    args.pool->Run(in_[0], [&](int image, int) {
      const float* from = static_cast<const float*>(args.inputs[0]) + static_cast<size_t>(image) * pixels * channels;
      float* sum = static_cast<float*>(args.outputs[0]) + static_cast<size_t>(image) * channels;
      std::fill_n(sum, channels, 0.0f);
      for (int p = 0; p < pixels; ++p) {
        kernels_.f32_add.run(sum, from + static_cast<size_t>(p) * channels, channels, -kEndless, kEndless, sum);
      }
      for (int c = 0; c < channels; ++c) sum[c] /= static_cast<float>(pixels);
    });
  }

 private:
  const KernelTable& kernels_;
  const bool keep_dims_;
  Shape in_;
};

}  // namespace

std::unique_ptr<Op> MakeAddNhwc(const NodeView& node, const KernelTable& kernels, std::string* why) {
  float lo, hi;
  const bool same = ShapeOf(node.input(0)) == ShapeOf(node.input(1));
  const bool constant = IsConstant(node.input(0)) || IsConstant(node.input(1));
  *why = "an addition of unlike shapes or of a constant";
  if (!same || constant || node.input(0).type != kTfLiteFloat32 || node.input(1).type != kTfLiteFloat32 ||
      !FloatActivation(node.params<AddParams>().activation, &lo, &hi)) {
    return nullptr;
  }
  return std::make_unique<AddNhwc>(kernels, lo, hi);
}

std::unique_ptr<Op> MakeMeanNhwc(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsMeanOfImages(node, why)) return nullptr;
  return std::make_unique<MeanNhwc>(kernels, node.params<ReducerParams>().keep_dims);
}

}  // namespace litesmith
