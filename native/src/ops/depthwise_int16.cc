// SPDX-License-Identifier: Apache-2.0
// DEPTHWISE_CONV_2D int16x8, any kernel, stride and dilation: input pointers for each run of output pixels, blocks of
// channels outermost so that their weights and constants stay close.
#include <algorithm>
#include <cstring>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

constexpr int kMostTaps = 400;  // 400 * 128 stays below the int32-safe sum of weights

class DepthwiseConv16 : public Op {
 public:
  DepthwiseConv16(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels), params_(node.params<DepthwiseConvParams>()) {
    const TfLiteTensor& weights = node.input(1);
    weights_ = static_cast<const int8_t*>(weights.data);
    kernel_h_ = weights.dims->data[1];
    kernel_w_ = weights.dims->data[2];
    channels_ = weights.dims->data[3];
    multiplier_ = channels_ / node.input(0).dims->data[3];
    taps_ = (kernel_h_ * kernel_w_ + 1) / 2 * 2;
  }

  bool Check(const NodeView& node, std::string* why) {
    std::vector<float> scales;
    const TfLiteTensor& in = node.input(0);
    const TfLiteTensor& out = node.output(0);
    const TfLiteTensor* bias = node.has_input(2) ? &node.input(2) : nullptr;
    if (bias != nullptr && bias->type != kTfLiteInt64) {
      *why = "a bias that is not int64";
      return false;
    }
    if (kernel_h_ * kernel_w_ > kMostTaps) {
      *why = "a kernel of more than 400 taps";
      return false;
    }
    return WeightScales(node.input(1), 3, channels_, &scales, why) &&
           ConvMultipliers(in.params.scale, out.params.scale, scales, &multipliers_, why) &&
           ReadBias(bias, channels_, &bias_, why) &&
           ActivationRange(params_.activation, out.params.scale, &lo_, &hi_, why);
  }

  const char* kernel_name() const override { return kernels_.s16s8_dwconv.name; }
  bool ReadsPastInput() const override { return channels_ % kPanel != 0; }

  void Pack() override {
    const int blocks = (channels_ + kPanel - 1) / kPanel;
    packed_.assign(static_cast<size_t>(blocks) * taps_ * kPanel, 0);
    for (int c = 0; c < channels_; ++c) {
      for (int t = 0; t < kernel_h_ * kernel_w_; ++t) {
        packed_[static_cast<size_t>(c / kPanel) * taps_ * kPanel + (t / 2) * 2 * kPanel + DwWeightIndex(c % kPanel) +
                t % 2] = weights_[static_cast<size_t>(t) * channels_ + c];
      }
    }
    std::vector<int64_t> reach(channels_, 0);
    for (int t = 0; t < kernel_h_ * kernel_w_; ++t) {
      for (int c = 0; c < channels_; ++c) {
        reach[c] += 32768 * std::abs(static_cast<int>(weights_[static_cast<size_t>(t) * channels_ + c]));
      }
    }
    requant_.Build(multipliers_, bias_, reach, lo_, hi_);
    Free(&multipliers_, &bias_);
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] * multiplier_ != channels_) return false;
    in_ = in[0];
    y_ = WindowOf(params_.padding, in_[1], kernel_h_, params_.stride_height, params_.dilation_height);
    x_ = WindowOf(params_.padding, in_[2], kernel_w_, params_.stride_width, params_.dilation_width);
    (*out)[0] = {in_[0], y_.out, x_.out, channels_};
    const int stride = params_.stride_width, last = in_[2] - 1 - (kernel_w_ - 1) * params_.dilation_width + x_.pad;
    inside_begin_ = std::min(x_.out, (x_.pad + stride - 1) / stride);
    inside_end_ = std::clamp(last < 0 ? 0 : last / stride + 1, inside_begin_, x_.out);
    return true;
  }

  // Zeros for taps outside the image, runs of pixels and their pointers per worker, and the repeated input if there is a
  // multiplier.
  size_t ScratchBytes(int num_threads) const override {
    return ZeroBytes() + num_threads * WorkerBytes() + (multiplier_ > 1 ? NumElements(in_) * multiplier_ * 2 + 64 : 0);
  }

  void Run(const RunArgs& args) override {
    auto* zeros = reinterpret_cast<int16_t*>(args.scratch);
    std::memset(zeros, 0, ZeroBytes());
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    if (multiplier_ > 1) {
      auto* repeated = reinterpret_cast<int16_t*>(args.scratch + ZeroBytes() + args.pool->num_threads() * WorkerBytes());
      const int64_t values = NumElements(in_);
      for (int64_t i = 0; i < values; ++i) {
        for (int m = 0; m < multiplier_; ++m) repeated[i * multiplier_ + m] = in[i];
      }
      in = repeated;
    }
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    // Images of few rows cannot feed all threads with rows alone: cut the channels too.
    const int rows = in_[0] * y_.out, threads = args.pool->num_threads(), blocks = (channels_ + kPanel - 1) / kPanel;
    const int slices = threads > 1 && rows < 8 * threads ? std::min(blocks, (8 * threads + rows - 1) / rows) : 1;
    args.pool->Run(rows * slices, [&](int task, int worker) {
      const int row = task / slices, slice = task % slices;
      auto* runs = reinterpret_cast<DwRun*>(args.scratch + ZeroBytes() + worker * WorkerBytes());
      auto** taps = reinterpret_cast<const int16_t**>(runs + MostRuns());
      const int num_runs = FindRuns(in, row, zeros, runs, taps);
      int16_t* line = out + static_cast<int64_t>(row) * x_.out * channels_;
      const int begin = blocks * slice / slices * kPanel, end = std::min(channels_, blocks * (slice + 1) / slices * kPanel);
      kernels_.s16s8_dwconv.run(taps, taps_, runs, num_runs, begin, end - begin,
                                packed_.data() + static_cast<size_t>(begin) * taps_, requant_.View(begin), line + begin,
                                channels_);
    });
  }

 private:
  int64_t RowValues() const { return static_cast<int64_t>(in_[2]) * channels_; }
  // A row of them: runs go along it as along a row of the image.
  size_t ZeroBytes() const { return (static_cast<size_t>(RowValues()) * 2 + 2 * kPanel + 127) / 64 * 64; }
  size_t MostRuns() const { return static_cast<size_t>(x_.out - inside_end_ + inside_begin_ + 1); }
  size_t WorkerBytes() const { return (MostRuns() * (sizeof(DwRun) + taps_ * sizeof(void*)) + 63) / 64 * 64; }

  // The pixels all of whose taps lie between the sides of the image are one run, every other one is its own.
  int FindRuns(const int16_t* in, int row, const int16_t* zeros, DwRun* runs, const int16_t** taps) const {
    int count = 0;
    const ptrdiff_t step = static_cast<ptrdiff_t>(params_.stride_width) * channels_;
    for (int x = 0; x < x_.out; ++count, taps += taps_) {
      const int pixels = x == inside_begin_ && x < inside_end_ ? inside_end_ - x : 1;
      runs[count] = {pixels, step};
      FindTaps(in, row, x, zeros, taps);
      x += pixels;
    }
    return count;
  }

  void FindTaps(const int16_t* in, int row, int x, const int16_t* zeros, const int16_t** taps) const {
    const int b = row / y_.out, y0 = row % y_.out * params_.stride_height - y_.pad, x0 = x * params_.stride_width - x_.pad;
    const int16_t** tap = taps;
    for (int ky = 0; ky < kernel_h_; ++ky) {
      const int iy = y0 + ky * params_.dilation_height;
      const bool row_inside = iy >= 0 && iy < in_[1];
      const int16_t* line = row_inside ? in + (static_cast<int64_t>(b) * in_[1] + iy) * RowValues() : zeros;
      for (int kx = 0; kx < kernel_w_; ++kx) {
        const int ix = x0 + kx * params_.dilation_width;
        *tap++ = ix >= 0 && ix < in_[2] ? line + static_cast<int64_t>(ix) * channels_ : zeros;
      }
    }
    if (tap < taps + taps_) *tap = taps[0];  // its weights are zeros
  }

  const KernelTable& kernels_;
  const DepthwiseConvParams params_;
  const int8_t* weights_;
  int kernel_h_, kernel_w_, channels_, multiplier_, taps_;
  std::vector<FixedMultiplier> multipliers_;
  std::vector<int64_t> bias_;
  int32_t lo_ = 0, hi_ = 0;
  std::vector<int16_t> packed_;
  Requant requant_;
  Shape in_;
  Window y_, x_;
  int inside_begin_ = 0, inside_end_ = 0;  // pixels of a row whose taps are all between the sides of the image
};

}  // namespace

std::unique_ptr<Op> MakeDepthwiseConv16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const TfLiteTensor& in = node.input(0);
  const TfLiteTensor& weights = node.input(1);
  if (in.dims->size != 4 || weights.dims->size != 4 || weights.dims->data[0] != 1 || in.dims->data[3] <= 0 ||
      weights.dims->data[3] % in.dims->data[3] != 0) {
    *why = "shapes that are not a depthwise convolution";
    return nullptr;
  }
  auto op = std::make_unique<DepthwiseConv16>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
