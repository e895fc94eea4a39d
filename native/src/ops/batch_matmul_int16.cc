// SPDX-License-Identifier: Apache-2.0
// BATCH_MATMUL of two int16 tensors: both sides change at run time, so products are exact in int64 from the start.
#include <algorithm>
#include <cstring>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

class BatchMatMul16 : public Op {
 public:
  BatchMatMul16(const BatchMatMulParams& params, FixedMultiplier m) : params_(params), multiplier_(m) {}
  const char* kernel_name() const override { return "s16s16_batch_matmul"; }
  std::vector<int> RuntimeInputs() const override { return {0, 1}; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() < 2 || in[1].size() < 2) return false;
    const size_t rank = std::max(in[0].size(), in[1].size());
    lhs_ = Widened(in[0], rank);
    rhs_ = Widened(in[1], rank);
    rows_ = lhs_[rank - (params_.adj_x ? 1 : 2)];
    depth_ = lhs_[rank - (params_.adj_x ? 2 : 1)];
    cols_ = rhs_[rank - (params_.adj_y ? 2 : 1)];
    if (rhs_[rank - (params_.adj_y ? 1 : 2)] != depth_) return false;
    out_.assign(rank, 1);
    for (size_t i = 0; i + 2 < rank; ++i) {
      if (lhs_[i] != rhs_[i] && lhs_[i] != 1 && rhs_[i] != 1) return false;
      out_[i] = lhs_[i] == 1 ? rhs_[i] : lhs_[i];
    }
    out_[rank - 2] = rows_;
    out_[rank - 1] = cols_;
    (*out)[0] = out_;
    batches_ = 1;
    for (size_t i = 0; i + 2 < rank; ++i) batches_ *= out_[i];
    return true;
  }

  // Both matrices with the summed dimension last: what is already so is read in place.
  size_t ScratchBytes(int) const override { return LeftBytes() + RightBytes(); }

  void Run(const RunArgs& args) override {
    const auto* lhs = static_cast<const int16_t*>(args.inputs[0]);
    const auto* rhs = static_cast<const int16_t*>(args.inputs[1]);
    if (params_.adj_x) lhs = Flip(lhs, Matrices(lhs_), depth_, rows_, reinterpret_cast<int16_t*>(args.scratch));
    if (!params_.adj_y) {
      rhs = Flip(rhs, Matrices(rhs_), depth_, cols_, reinterpret_cast<int16_t*>(args.scratch + LeftBytes()));
    }
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    args.pool->Run(batches_ * rows_, [&](int index, int) {
      const int batch = index / rows_, row = index % rows_;
      const int16_t* a = lhs + (Matrix(batch, lhs_) * rows_ + row) * depth_;
      const int16_t* b = rhs + Matrix(batch, rhs_) * cols_ * depth_;
      int16_t* to = out + static_cast<int64_t>(index) * cols_;
      for (int c = 0; c < cols_; ++c, b += depth_) {
        int64_t sum = 0;
        for (int k = 0; k < depth_; ++k) sum += int32_t{a[k]} * b[k];
        to[c] = static_cast<int16_t>(ClampInt(MultiplyAcc64(sum, multiplier_), INT16_MIN, INT16_MAX));
      }
    });
  }

 private:
  static Shape Widened(const Shape& shape, size_t rank) {
    Shape wide(rank - shape.size(), 1);
    wide.insert(wide.end(), shape.begin(), shape.end());
    return wide;
  }
  static int64_t Matrices(const Shape& shape) {
    int64_t n = 1;
    for (size_t i = 0; i + 2 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  size_t LeftBytes() const { return params_.adj_x ? (NumElements(lhs_) * 2 + 63) / 64 * 64 : 0; }
  size_t RightBytes() const { return params_.adj_y ? 0 : (NumElements(rhs_) * 2 + 63) / 64 * 64; }

  // [matrices][height][width] -> [matrices][width][height]
  static const int16_t* Flip(const int16_t* from, int64_t matrices, int height, int width, int16_t* to) {
    for (int64_t m = 0; m < matrices; ++m) {
      const int64_t base = m * height * width;
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) to[base + static_cast<int64_t>(x) * height + y] = from[base + static_cast<int64_t>(y) * width + x];
      }
    }
    return to;
  }

  // Which matrix of a possibly broadcast operand belongs to output batch `batch`.
  int64_t Matrix(int batch, const Shape& operand) const {
    int64_t index = 0, step = 1;
    for (size_t i = out_.size() - 2; i-- > 0;) {
      const int at = batch % out_[i];
      batch /= out_[i];
      index += operand[i] == 1 ? 0 : at * step;
      step *= operand[i];
    }
    return index;
  }

  const BatchMatMulParams params_;
  const FixedMultiplier multiplier_;
  Shape lhs_, rhs_, out_;
  int rows_ = 0, cols_ = 0, depth_ = 0, batches_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeBatchMatMul16(const NodeView& node, const KernelTable&, std::string* why) {
  for (int i = 0; i < 2; ++i) {
    if (!IsInt16Activation(node.input(i), why)) return nullptr;
  }
  if (!IsInt16Activation(node.output(0), why)) return nullptr;
  if (node.input(0).dims->size > 5 || node.input(1).dims->size > 5) {
    *why = "a rank above 5";
    return nullptr;
  }
  const float product = node.input(0).params.scale * node.input(1).params.scale;  // in float, as LiteRT does
  const FixedMultiplier m =
      QuantizeMultiplier(static_cast<double>(product) / static_cast<double>(node.output(0).params.scale));
  if (m.shift > 7) {
    *why = "a scale ratio outside LiteRT's range";
    return nullptr;
  }
  return std::make_unique<BatchMatMul16>(node.params<BatchMatMulParams>(), m);
}

}  // namespace litesmith
