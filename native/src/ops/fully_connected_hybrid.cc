// SPDX-License-Identifier: Apache-2.0
// FULLY_CONNECTED with float activations, multiplied by weights of any kind in integers; each row has its step.
#include <algorithm>

#include "ops/fully_connected_rows.h"
#include "ops/hybrid.h"
#include "ops/makers.h"

namespace litesmith {
namespace {

class FullyConnectedHybrid : public Op {
 public:
  FullyConnectedHybrid(const NodeView& node, const KernelTable& kernels) : kernels_(kernels), rows_(node) {}

  bool Check(const NodeView& node, std::string* why) {
    const auto& params = node.params<FullyConnectedParams>();
    *why = "weights in another order";
    return params.weights_format == 0 && weights_.Find(node, rows_.outputs(), params.activation, why);
  }

  const char* kernel_name() const override { return weights_.kernel_name(kernels_); }

  void Pack() override { weights_.Pack(kernels_, 0, rows_.outputs(), {1, rows_.depth(), rows_.depth()}, &gemm_); }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    return rows_.Infer(in[0], &(*out)[0]);
  }

  size_t ScratchBytes(int) const override {
    return static_cast<size_t>(rows_.count()) * gemm_.k_padded() * sizeof(int16_t);
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    auto* rounded = reinterpret_cast<int16_t*>(args.scratch);
    const size_t depth = rows_.depth(), stride = gemm_.k_padded(), outputs = rows_.outputs();
    std::vector<float> steps(rows_.count());
    args.pool->Run(rows_.blocks(), [&](int block, int) {
      const int first = block * FullyConnectedRows::kBlock;
      for (int r = first; r < std::min(rows_.count(), first + FullyConnectedRows::kBlock); ++r) {
        steps[r] = gemm_.Round(in + r * depth, rows_.depth(), gemm_.k_padded(), rounded + r * stride);
      }
    });
    rows_.Each(args.pool, gemm_.num_panels(), [&](int first, int count, int panel_begin, int panel_end) {
      const int16_t* rows[FullyConnectedRows::kBlock];
      for (int i = 0; i < count; ++i) rows[i] = rounded + (first + i) * stride;
      gemm_.Run(rows, steps.data() + first, count, panel_begin, panel_end, out + first * outputs, outputs);
    });
  }

  void Estimate(double* here_us, double* stock_us) const override {
    const double count = rows_.count(), inputs = count * rows_.depth(), outputs = count * rows_.outputs();
    HybridWork work;
    work.macs = work.stock_macs = outputs * rows_.depth();
    work.values_in = inputs;
    work.values_out = outputs;
    weights_.Estimate(kernels_, work, here_us, stock_us);
  }

 private:
  const KernelTable& kernels_;
  FullyConnectedRows rows_;
  HybridWeights weights_;
  HybridGemm gemm_;
};

}  // namespace

std::unique_ptr<Op> MakeFullyConnectedHybrid(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!HasMatrix(node, why)) return nullptr;
  auto op = std::make_unique<FullyConnectedHybrid>(node, kernels);
  std::vector<Shape> out(1);
  return op->Check(node, why) && op->InferShapes({ShapeOf(node.input(0))}, &out) ? std::move(op) : nullptr;
}

}  // namespace litesmith
