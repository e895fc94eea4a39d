// SPDX-License-Identifier: Apache-2.0
// FULLY_CONNECTED with float activations and int8 or 16-bit float weights, multiplied in integers.
#include <algorithm>

#include "ops/hybrid.h"
#include "ops/makers.h"

namespace litesmith {
namespace {

constexpr int kRowsPerBlock = 48;

class FullyConnectedHybrid : public Op {
 public:
  FullyConnectedHybrid(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels),
        params_(node.params<FullyConnectedParams>()),
        outputs_(node.input(1).dims->data[0]),
        depth_(node.input(1).dims->data[1]) {}

  bool Check(const NodeView& node, std::string* why) {
    *why = "weights in another order";
    return params_.weights_format == 0 && weights_.Find(node, outputs_, params_.activation, why);
  }

  const char* kernel_name() const override { return weights_.kernel_name(kernels_); }

  void Pack() override { weights_.Pack(kernels_, 0, outputs_, depth_, &gemm_); }

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

  size_t ScratchBytes(int) const override { return static_cast<size_t>(rows_) * gemm_.k_padded() * sizeof(int16_t); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    auto* rounded = reinterpret_cast<int16_t*>(args.scratch);
    const int stride = gemm_.k_padded();
    std::vector<float> steps(rows_);
    args.pool->Run((rows_ + kRowsPerBlock - 1) / kRowsPerBlock, [&](int block, int) {
      for (int r = block * kRowsPerBlock; r < std::min(rows_, (block + 1) * kRowsPerBlock); ++r) {
        steps[r] = gemm_.Round(in + static_cast<size_t>(r) * depth_, depth_, stride, rounded + static_cast<size_t>(r) * stride);
      }
    });
    const int blocks = (rows_ + kRowsPerBlock - 1) / kRowsPerBlock, panels = gemm_.num_panels();
    const int slices = args.pool->num_threads() == 1 ? 1 : std::clamp(4 * args.pool->num_threads() / std::max(blocks, 1), 1, panels);
    args.pool->Run(blocks * slices, [&](int index, int) {
      const int slice = index % slices, first = index / slices * kRowsPerBlock;
      const int count = std::min(kRowsPerBlock, rows_ - first);
      const int16_t* rows[kRowsPerBlock];
      for (int i = 0; i < count; ++i) rows[i] = rounded + static_cast<size_t>(first + i) * stride;
      gemm_.Run(rows, steps.data() + first, count, panels * slice / slices, panels * (slice + 1) / slices,
                out + static_cast<size_t>(first) * outputs_, outputs_);
    });
  }

  void Estimate(double* here_us, double* stock_us) const override {
    const double inputs = static_cast<double>(rows_) * depth_, outputs = static_cast<double>(rows_) * outputs_;
    weights_.Estimate(kernels_, {outputs * depth_, inputs, outputs}, here_us, stock_us);
  }

 private:
  const KernelTable& kernels_;
  const FullyConnectedParams params_;
  int outputs_, depth_, rows_ = 0;
  HybridWeights weights_;
  HybridGemm gemm_;
};

}  // namespace

std::unique_ptr<Op> MakeFullyConnectedHybrid(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (node.input(1).dims->size != 2 || node.input(1).dims->data[0] <= 0 || node.input(1).dims->data[1] <= 0 ||
      node.num_outputs() != 1) {
    *why = "weights that are not a matrix";
    return nullptr;
  }
  auto op = std::make_unique<FullyConnectedHybrid>(node, kernels);
  std::vector<Shape> out(1);
  if (!op->Check(node, why) || !op->InferShapes({ShapeOf(node.input(0))}, &out)) return nullptr;
  return op;
}

}  // namespace litesmith
