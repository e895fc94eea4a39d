// SPDX-License-Identifier: Apache-2.0
// See sparse_block.h.
#include "ops/sparse_block.h"

#include <algorithm>

#include "ops/part_clock.h"

namespace litesmith {
namespace {

constexpr int64_t kBetweenBytes = 256 * 1024;  // of the planes between the two, for each thread
constexpr int kStep = 4;                       // channels of a block of sparse rows
constexpr int kGuard = 16;                     // floats around planes that kernels may read

// The places of the operators among the parts of a block.
enum Part { kProduct, kDepthwise };

class SparseBlock : public PlanarOp {
 public:
  SparseBlock(std::unique_ptr<PlanarOp> product, std::unique_ptr<PlanarOp> depthwise)
      : product_(std::move(product)), depthwise_(std::move(depthwise)) {}

  const char* kernel_name() const override { return "sparse_block"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    std::vector<Shape> between(1);
    if (!product_->InferShapes(in, &between) || !depthwise_->InferShapes(between, out)) return false;
    in_ = PlanarOf(in[0]);
    between_ = PlanarOf(between[0]);
    out_ = PlanarOf((*out)[0]);
    const int64_t fitting = kBetweenBytes / (between_.plane() * static_cast<int64_t>(sizeof(float))) / kStep * kStep;
    together_ = static_cast<int>(std::clamp<int64_t>(fitting, kStep, 64));
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return num_threads * WorkerFloats() * sizeof(float); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int channels = between_.channels, groups = (channels + together_ - 1) / together_;
    const RowBands bands(out_, args.pool->num_threads());
    args.pool->Run(between_.batch * bands.count * groups, [&](int task, int worker) {
      const int band = task / groups % bands.count;
      const int64_t image = task / groups / bands.count;
      const int begin = task % groups * together_, end = std::min(begin + together_, channels);
      const PlanarOp::Rows rows{bands.begin(band), bands.end(band)}, read = depthwise_->InputRows(rows);
      const int64_t start = static_cast<int64_t>(read.first) * between_.width, last = static_cast<int64_t>(read.last) * between_.width;
      const int64_t first = start / 16 * 16, plane = last - first == 1 ? 1 : (last - first + 15) / 16 * 16;
      float* between = reinterpret_cast<float*>(args.scratch) + worker * WorkerFloats() + kGuard;
      {
        const PartClock clock(args.part_ns, kProduct);
        product_->RunPixels(in + image * in_.channels * in_.plane(), begin, end, first, last, between, plane);
      }
      const PartClock clock(args.part_ns, kDepthwise);
      depthwise_->RunRows(between + (start - first), plane, begin, end, rows, out + (image * channels + begin) * out_.plane());
    });
  }

 private:
  // A band of rows may begin some pixels before its first row.
  int64_t WorkerFloats() const { return (together_ * (between_.plane() + 15) + 2 * kGuard + 15) / 16 * 16; }

  std::unique_ptr<PlanarOp> product_, depthwise_;
  PlanarShape in_, between_, out_;
  int together_ = kStep;
};

}  // namespace

std::unique_ptr<Op> MakeSparseBlock(std::unique_ptr<PlanarOp> product, std::unique_ptr<PlanarOp> depthwise) {
  return std::make_unique<SparseBlock>(std::move(product), std::move(depthwise));
}

}  // namespace litesmith
