// SPDX-License-Identifier: Apache-2.0
// MAX_POOL_2D, AVERAGE_POOL_2D and MEAN on int16.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

class Pool16 : public Op {
 public:
  Pool16(const PoolParams& params, bool average) : params_(params), average_(average) {}
  bool Check(const NodeView& node, std::string* why) {
    return ActivationRange(params_.activation, node.output(0).params.scale, &lo_, &hi_, why);
  }
  const char* kernel_name() const override { return average_ ? "s16_average_pool" : "s16_max_pool"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    in_ = in[0];
    y_ = WindowOf(params_.padding, in_[1], params_.filter_height, params_.stride_height, 1);
    x_ = WindowOf(params_.padding, in_[2], params_.filter_width, params_.stride_width, 1);
    (*out)[0] = {in_[0], y_.out, x_.out, in_[3]};
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return num_threads * SumBytes(); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    args.pool->Run(in_[0] * y_.out, [&](int row, int worker) {
      auto* sums = reinterpret_cast<int32_t*>(args.scratch + worker * SumBytes());
      const int b = row / y_.out, y = row % y_.out;
      const int y0 = y * params_.stride_height - y_.pad;
      const int y_begin = std::max(y0, 0), y_end = std::min(y0 + params_.filter_height, in_[1]);
      for (int x = 0; x < x_.out; ++x) {
        const int x0 = x * params_.stride_width - x_.pad;
        const int x_begin = std::max(x0, 0), x_end = std::min(x0 + params_.filter_width, in_[2]);
        int16_t* target = out + (static_cast<int64_t>(row) * x_.out + x) * in_[3];
        const int16_t* image = in + static_cast<int64_t>(b) * in_[1] * in_[2] * in_[3];
        if (average_) {
          Average(image, y_begin, y_end, x_begin, x_end, sums, target);
        } else {
          Max(image, y_begin, y_end, x_begin, x_end, target);
        }
      }
    });
  }

 private:
  size_t SumBytes() const { return (static_cast<size_t>(in_[3]) * 4 + 63) / 64 * 64; }

  void Max(const int16_t* image, int y_begin, int y_end, int x_begin, int x_end, int16_t* out) const {
    const int channels = in_[3];
    std::fill_n(out, channels, std::numeric_limits<int16_t>::min());
    for (int y = y_begin; y < y_end; ++y) {
      for (int x = x_begin; x < x_end; ++x) {
        const int16_t* pixel = image + (static_cast<int64_t>(y) * in_[2] + x) * channels;
        for (int c = 0; c < channels; ++c) out[c] = std::max(out[c], pixel[c]);
      }
    }
    for (int c = 0; c < channels; ++c) out[c] = static_cast<int16_t>(ClampInt(out[c], lo_, hi_));
  }

  void Average(const int16_t* image, int y_begin, int y_end, int x_begin, int x_end, int32_t* sums,
               int16_t* out) const {
    const int channels = in_[3];
    const int count = std::max(y_end - y_begin, 0) * std::max(x_end - x_begin, 0);
    std::memset(sums, 0, sizeof(int32_t) * channels);
    for (int y = y_begin; y < y_end; ++y) {
      for (int x = x_begin; x < x_end; ++x) {
        const int16_t* pixel = image + (static_cast<int64_t>(y) * in_[2] + x) * channels;
        for (int c = 0; c < channels; ++c) sums[c] += pixel[c];
      }
    }
    for (int c = 0; c < channels; ++c) {
      const int32_t rounded = sums[c] > 0 ? (sums[c] + count / 2) / count : (sums[c] - count / 2) / count;
      out[c] = static_cast<int16_t>(ClampInt(rounded, lo_, hi_));
    }
  }

  const PoolParams params_;
  const bool average_;
  int32_t lo_ = 0, hi_ = 0;
  Shape in_;
  Window y_, x_;
};

std::unique_ptr<Op> MakePool(const NodeView& node, bool average, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const PoolParams& params = node.params<PoolParams>();
  if (params.stride_height <= 0 || params.stride_width <= 0 || params.filter_height <= 0 || params.filter_width <= 0 ||
      static_cast<int64_t>(params.filter_height) * params.filter_width > 65535) {
    *why = "a window outside the exact range";
    return nullptr;
  }
  auto op = std::make_unique<Pool16>(params, average);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

// MEAN sums in int32 and folds 1/N into the multiplier.
class Mean16 : public Op {
 public:
  Mean16(std::vector<int> axes, bool keep_dims, FixedMultiplier m)
      : axes_(std::move(axes)), keep_dims_(keep_dims), multiplier_(m) {}
  const char* kernel_name() const override { return "s16_mean"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    in_ = in[0];
    const int rank = static_cast<int>(in_.size());
    reduced_.assign(rank, false);
    for (int axis : axes_) {
      if (axis < -rank || axis >= rank) return false;
      reduced_[axis < 0 ? axis + rank : axis] = true;
    }
    Shape shape;
    count_ = 1;
    outputs_ = 1;
    for (int i = 0; i < rank; ++i) {
      if (reduced_[i]) {
        count_ *= in_[i];
        if (keep_dims_) shape.push_back(1);
      } else {
        outputs_ *= in_[i];
        shape.push_back(in_[i]);
      }
    }
    (*out)[0] = shape;
    return rank > 0;
  }

  size_t ScratchBytes(int) const override { return static_cast<size_t>(outputs_) * 4; }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    if (count_ == 0) {
      std::memset(out, 0, static_cast<size_t>(outputs_) * sizeof(*out));
      return;
    }
    auto* sums = reinterpret_cast<uint32_t*>(args.scratch);
    std::memset(sums, 0, static_cast<size_t>(outputs_) * 4);
    Sum(in, sums);
    int shift = 63 - __builtin_clzll(static_cast<uint64_t>(count_));
    shift = std::min({shift, 32, 31 + multiplier_.shift});
    const FixedMultiplier m{static_cast<int32_t>((int64_t{multiplier_.value} << shift) / count_),
                            multiplier_.shift - shift};
    for (int64_t i = 0; i < outputs_; ++i) {
      out[i] = static_cast<int16_t>(ClampInt(MultiplyAcc32(static_cast<int32_t>(sums[i]), m), INT16_MIN, INT16_MAX));
    }
  }

 private:
  // Walks the input once, row by row of its last dimension. Sums wrap, as those of the stock kernel do.
  void Sum(const int16_t* in, uint32_t* sums) const {
    const int rank = static_cast<int>(in_.size());
    const int row = in_[rank - 1];
    const int64_t rows = NumElements(in_) / row;
    std::vector<int64_t> out_stride(rank, 0);
    int64_t stride = 1;
    for (int i = rank; i-- > 0;) {
      if (reduced_[i]) continue;
      out_stride[i] = stride;
      stride *= in_[i];
    }
    std::vector<int> at(rank, 0);
    for (int64_t r = 0; r < rows; ++r, in += row) {
      int64_t target = 0;
      for (int i = 0; i + 1 < rank; ++i) target += at[i] * out_stride[i];
      if (reduced_[rank - 1]) {
        uint32_t sum = 0;
        for (int i = 0; i < row; ++i) sum += static_cast<uint32_t>(int32_t{in[i]});
        sums[target] += sum;
      } else {
        uint32_t* to = sums + target;
        for (int i = 0; i < row; ++i) to[i] += static_cast<uint32_t>(int32_t{in[i]});
      }
      for (int i = rank - 1; i-- > 0;) {
        if (++at[i] < in_[i]) break;
        at[i] = 0;
      }
    }
  }

  const std::vector<int> axes_;
  const bool keep_dims_;
  const FixedMultiplier multiplier_;
  Shape in_;
  std::vector<bool> reduced_;
  int64_t count_ = 1, outputs_ = 1;
};

}  // namespace

std::unique_ptr<Op> MakeMaxPool16(const NodeView& node, const KernelTable&, std::string* why) {
  return MakePool(node, /*average=*/false, why);
}

std::unique_ptr<Op> MakeAveragePool16(const NodeView& node, const KernelTable&, std::string* why) {
  return MakePool(node, /*average=*/true, why);
}

std::unique_ptr<Op> MakeMean16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const TfLiteTensor& axis = node.input(1);
  const FixedMultiplier m = QuantizeMultiplier(static_cast<double>(node.input(0).params.scale) /
                                               static_cast<double>(node.output(0).params.scale));
  if (!IsConstant(axis) || axis.type != kTfLiteInt32 || m.shift > 30) {
    *why = "axes that are not constant, or a scale ratio outside LiteRT's range";
    return nullptr;
  }
  const auto* values = static_cast<const int32_t*>(axis.data);
  return std::make_unique<Mean16>(std::vector<int>(values, values + NumElements(ShapeOf(axis))),
                                  node.params<ReducerParams>().keep_dims, m);
}

}  // namespace litesmith
