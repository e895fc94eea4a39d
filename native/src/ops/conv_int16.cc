// SPDX-License-Identifier: Apache-2.0
// CONV_2D int16x8: 1x1 kernels read the image in place, others gather a block of pixels (im2col) per worker.
#include <algorithm>
#include <cstring>

#include "ops/gemm.h"
#include "ops/makers.h"

namespace litesmith {
namespace {

constexpr int kPixelsPerBlock = 60;               // a multiple of every tile height; a 7x7 image is one block
constexpr size_t kGatherBytes = 192 * 1024;       // a gathered block should stay in the second-level cache
constexpr int64_t kMacsPerTask = 400 * 1000;      // about 20 us: below that a task costs more than it brings

class Conv16 : public Op {
 public:
  Conv16(const NodeView& node, const KernelTable& kernels) : kernels_(kernels), params_(node.params<ConvParams>()) {
    const TfLiteTensor& weights = node.input(1);
    weights_ = static_cast<const int8_t*>(weights.data);
    out_channels_ = weights.dims->data[0];
    kernel_h_ = weights.dims->data[1];
    kernel_w_ = weights.dims->data[2];
    group_in_ = weights.dims->data[3];
    groups_ = node.input(0).dims->data[3] / group_in_;
  }

  bool Check(const NodeView& node, std::string* why) {
    std::vector<float> scales;
    const TfLiteTensor& in = node.input(0);
    const TfLiteTensor& out = node.output(0);
    if (params_.quantized_bias_type == kTfLiteInt32 || node.input(2).type != kTfLiteInt64) {
      *why = "a bias that is not int64";
      return false;
    }
    return WeightScales(node.input(1), 0, out_channels_, &scales, why) &&
           ConvMultipliers(in.params.scale, out.params.scale, scales, &multipliers_, why) &&
           ReadBias(&node.input(2), out_channels_, &bias_, why) &&
           ActivationRange(params_.activation, out.params.scale, &lo_, &hi_, why);
  }

  const char* kernel_name() const override { return kernels_.s16s8_gemm.name; }

  void Pack() override {
    const int per_group = out_channels_ / groups_;
    const int k = kernel_h_ * kernel_w_ * group_in_;
    gemms_.resize(groups_);
    for (int g = 0; g < groups_; ++g) {
      const int first = g * per_group;
      gemms_[g].Pack(kernels_, weights_ + static_cast<size_t>(first) * k, k, per_group, k);
      gemms_[g].SetRequant({multipliers_.begin() + first, multipliers_.begin() + first + per_group},
                           {bias_.begin() + first, bias_.begin() + first + per_group}, lo_, hi_);
    }
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] != groups_ * group_in_) return false;
    in_ = in[0];
    y_ = WindowOf(params_.padding, in_[1], kernel_h_, params_.stride_height, params_.dilation_height);
    x_ = WindowOf(params_.padding, in_[2], kernel_w_, params_.stride_width, params_.dilation_width);
    (*out)[0] = {in_[0], y_.out, x_.out, out_channels_};
    const int k = gemms_[0].k_padded();
    // In place: one pixel is one row, no padding, and no odd K whose last pair would reach into the next pixel.
    in_place_ = kernel_h_ == 1 && kernel_w_ == 1 && y_.pad == 0 && x_.pad == 0 && gemms_[0].k() == k;
    const int mr = gemms_[0].rows_per_tile();
    block_ = kPixelsPerBlock;
    if (!in_place_) {
      const int fitting = static_cast<int>(kGatherBytes / (static_cast<size_t>(k) * 2)) / mr * mr;
      block_ = std::clamp(fitting, mr, kPixelsPerBlock);
    }
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return in_place_ ? 0 : num_threads * WorkerBytes(); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    const int pixels = in_[0] * y_.out * x_.out;
    const int blocks = (pixels + block_ - 1) / block_;
    const int panels = gemms_[0].num_panels();
    // With few pixels (7x7 images) blocks alone cannot feed all threads: cut the channels too.
    const int threads = args.pool->num_threads();
    const int64_t macs = static_cast<int64_t>(pixels) * gemms_[0].n() * gemms_[0].k() * groups_;
    int slices = 1;
    if (threads > 1 && blocks * groups_ < 4 * threads) {
      const int64_t most = std::max<int64_t>(1, macs / kMacsPerTask / (static_cast<int64_t>(blocks) * groups_));
      slices = static_cast<int>(std::min<int64_t>({most, panels, (4 * threads + blocks - 1) / blocks}));
    }
    const auto task = [&](int index, int worker) {
      const int slice = index % slices, group = index / slices % groups_, block = index / slices / groups_;
      const int first = block * block_, count = std::min(block_, pixels - first);
      const int16_t* rows[kPixelsPerBlock];
      if (in_place_) {
        for (int i = 0; i < count; ++i) rows[i] = PixelUnder(in, first + i) + group * group_in_;
      } else {
        auto* gathered = reinterpret_cast<int16_t*>(args.scratch + worker * WorkerBytes());
        for (int i = 0; i < count; ++i) {
          rows[i] = gathered + static_cast<size_t>(i) * gemms_[0].k_padded();
          Gather(in, first + i, group, gathered + static_cast<size_t>(i) * gemms_[0].k_padded());
        }
      }
      const int begin = panels * slice / slices, end = panels * (slice + 1) / slices;
      gemms_[group].Run(rows, count, begin, end,
                        out + static_cast<size_t>(first) * out_channels_ + group * gemms_[0].n(), out_channels_);
    };
    args.pool->Run(blocks * groups_ * slices, task);
  }

 private:
  size_t WorkerBytes() const { return (static_cast<size_t>(block_) * gemms_[0].k_padded() * 2 + 127) / 64 * 64; }

  const int16_t* PixelUnder(const int16_t* in, int pixel) const {
    const int x = pixel % x_.out, y = pixel / x_.out % y_.out, b = pixel / x_.out / y_.out;
    const int64_t row = static_cast<int64_t>(b) * in_[1] + y * params_.stride_height;
    return in + (row * in_[2] + x * params_.stride_width) * in_[3];
  }

  // The input values under output pixel `pixel`, in the order of the weights, zeros outside the image.
  void Gather(const int16_t* in, int pixel, int group, int16_t* to) const {
    const int x = pixel % x_.out, y = pixel / x_.out % y_.out, b = pixel / x_.out / y_.out;
    const int x0 = x * params_.stride_width - x_.pad, y0 = y * params_.stride_height - y_.pad;
    const int channels = in_[3];
    const bool row_at_once = groups_ == 1 && params_.dilation_width == 1;
    for (int ky = 0; ky < kernel_h_; ++ky) {
      const int iy = y0 + ky * params_.dilation_height;
      if (iy < 0 || iy >= in_[1]) {
        std::memset(to, 0, sizeof(int16_t) * kernel_w_ * group_in_);
        to += kernel_w_ * group_in_;
        continue;
      }
      const int16_t* line = in + (static_cast<int64_t>(b) * in_[1] + iy) * in_[2] * channels + group * group_in_;
      if (row_at_once) {
        const int before = std::clamp(-x0, 0, kernel_w_), after = std::clamp(x0 + kernel_w_ - in_[2], 0, kernel_w_ - before);
        const int inside = kernel_w_ - before - after;
        std::memset(to, 0, sizeof(int16_t) * before * channels);
        std::memcpy(to + before * channels, line + static_cast<int64_t>(x0 + before) * channels,
                    sizeof(int16_t) * inside * channels);
        std::memset(to + (before + inside) * channels, 0, sizeof(int16_t) * after * channels);
        to += kernel_w_ * channels;
        continue;
      }
      for (int kx = 0; kx < kernel_w_; ++kx, to += group_in_) {
        const int ix = x0 + kx * params_.dilation_width;
        if (ix < 0 || ix >= in_[2]) {
          std::memset(to, 0, sizeof(int16_t) * group_in_);
        } else {
          std::memcpy(to, line + static_cast<int64_t>(ix) * channels, sizeof(int16_t) * group_in_);
        }
      }
    }
    std::memset(to, 0, sizeof(int16_t) * (gemms_[0].k_padded() - gemms_[0].k()));
  }

  const KernelTable& kernels_;
  const ConvParams params_;
  const int8_t* weights_;
  int out_channels_, kernel_h_, kernel_w_, group_in_, groups_;
  std::vector<FixedMultiplier> multipliers_;
  std::vector<int64_t> bias_;
  int32_t lo_ = 0, hi_ = 0;
  std::vector<PackedGemm> gemms_;
  Shape in_;
  Window y_, x_;
  bool in_place_ = false;
  int block_ = kPixelsPerBlock;
};

}  // namespace

std::unique_ptr<Op> MakeConv16(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  if (node.num_inputs() < 3 || !node.has_input(2) || node.input(0).dims->size != 4 || node.input(1).dims->size != 4 ||
      node.input(1).dims->data[3] <= 0 || node.input(0).dims->data[3] % node.input(1).dims->data[3] != 0) {
    *why = "shapes that are not a convolution with bias";
    return nullptr;
  }
  const int groups = node.input(0).dims->data[3] / node.input(1).dims->data[3];
  if (groups < 1 || node.input(1).dims->data[0] % groups != 0) {
    *why = "channels that do not divide into groups";
    return nullptr;
  }
  auto op = std::make_unique<Conv16>(node, kernels);
  return op->Check(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
