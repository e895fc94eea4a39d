// SPDX-License-Identifier: Apache-2.0
// See hybrid_block.h.
#include "ops/hybrid_block.h"

#include <algorithm>

#include "ops/depthwise_nhwc.h"
#include "ops/hybrid_gemm.h"
#include "ops/part_clock.h"

namespace litesmith {
namespace {

constexpr int kRing = 3;  // rows of the wide image that are kept: those under a kernel
constexpr int kTasksPerThread = 2;
// At least, because each task computes two rows of its neighbours again; fewer only where a thread would have nothing to do.
constexpr int kRowsPerTask = 14, kFewestRows = 4;

// The place of each operator among the parts of a block.
enum Part { kBefore, kDepthwise, kAfter };

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

class HybridBlock : public Op {
 public:
  HybridBlock(std::unique_ptr<Op> before, std::unique_ptr<DepthwiseNhwc> depthwise, std::unique_ptr<Op> after)
      : before_(std::move(before)), after_(std::move(after)), depthwise_(std::move(depthwise)) {}

  const char* kernel_name() const override { return "hybrid_block"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    std::vector<Shape> now = in;
    for (Op* op : {before_.get(), static_cast<Op*>(depthwise_.get()), after_.get()}) {
      if (op == nullptr) continue;
      if (!op->InferShapes(now, out)) return false;
      if (op == before_.get()) wide_ = (*out)[0];
      now = *out;
    }
    in_ = in[0];
    if (before_ == nullptr) wide_ = in_;
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return num_threads * WorkerBytes(); }

  void Run(const RunArgs& args) override {
    const int threads = args.pool->num_threads(), height = depthwise_->out_height();
    const int wanted = threads == 1 ? 1 : kTasksPerThread * threads / std::max(in_[0], 1);
    const int least = std::clamp(height / kFewestRows, 1, threads);
    const int parts = std::clamp(wanted, 1, std::max(height / kRowsPerTask, least));
    args.pool->Run(in_[0] * parts, [&](int task, int worker) {
      const int image = task / parts, part = task % parts;
      RunRows(image, height * part / parts, height * (part + 1) / parts, args, args.scratch + worker * WorkerBytes());
    });
  }

 private:
  size_t RoundedBytes() const {
    const int before = before_ == nullptr ? 0 : in_[3], after = after_ == nullptr ? 0 : wide_[3];
    return Aligned(sizeof(int16_t) * kMostRows * std::max(before, after));
  }
  size_t WideRow() const { return static_cast<size_t>(wide_[2]) * wide_[3]; }
  size_t NarrowRow() const { return static_cast<size_t>(depthwise_->out_width()) * wide_[3]; }
  size_t WorkerBytes() const {
    const size_t ring = before_ == nullptr ? 0 : kRing * Aligned(sizeof(float) * WideRow());
    const size_t between = after_ == nullptr ? 0 : Aligned(sizeof(float) * NarrowRow());
    return RoundedBytes() + ring + between + 64;
  }

  void RunRows(int image, int begin, int end, const RunArgs& args, uint8_t* scratch) const {
    const HybridGemm* before = before_ == nullptr ? nullptr : before_->Pointwise();
    const HybridGemm* after = after_ == nullptr ? nullptr : after_->Pointwise();
    const int in_height = in_[1], width = in_[2], out_width = depthwise_->out_width();
    auto* rounded = reinterpret_cast<int16_t*>(scratch);
    auto* ring = reinterpret_cast<float*>(scratch + RoundedBytes());
    const size_t ring_row = Aligned(sizeof(float) * WideRow()) / sizeof(float);
    float* between = ring + (before == nullptr ? 0 : kRing * ring_row);
    const size_t in_row = static_cast<size_t>(width) * in_[3];
    const auto* in = static_cast<const float*>(args.inputs[0]) + static_cast<size_t>(image) * in_height * in_row;
    const size_t out_row = static_cast<size_t>(out_width) * (after == nullptr ? wide_[3] : after->n());
    auto* out = static_cast<float*>(args.outputs[0]) + static_cast<size_t>(image) * depthwise_->out_height() * out_row;

    int ready = std::max(depthwise_->first_row(begin), 0);  // wide rows before this one are computed, or never needed
    for (int y = begin; y < end; ++y) {
      const int first = depthwise_->first_row(y);
      const float* rows[3];
      for (int k = 0; k < 3; ++k) {
        const int row = first + k;
        if (row < 0 || row >= in_height) {
          rows[k] = nullptr;
        } else if (before == nullptr) {
          rows[k] = in + row * in_row;
        } else {
          for (; ready <= row; ++ready) {
            const PartClock clock(args.part_ns, kBefore);
            before->RunTogether(in + ready * in_row, width, rounded, ring + ready % kRing * ring_row);
          }
          rows[k] = ring + row % kRing * ring_row;
        }
      }
      {
        const PartClock clock(args.part_ns, kDepthwise);
        depthwise_->RunRow(rows, after == nullptr ? out + y * out_row : between);
      }
      if (after != nullptr) {
        const PartClock clock(args.part_ns, kAfter);
        after->RunTogether(between, out_width, rounded, out + y * out_row);
      }
    }
  }

  std::unique_ptr<Op> before_, after_;
  std::unique_ptr<DepthwiseNhwc> depthwise_;
  Shape in_, wide_;
};

}  // namespace

std::unique_ptr<Op> MakeHybridBlock(std::unique_ptr<Op> before, std::unique_ptr<DepthwiseNhwc> depthwise,
                                    std::unique_ptr<Op> after) {
  return std::make_unique<HybridBlock>(std::move(before), std::move(depthwise), std::move(after));
}

}  // namespace litesmith
