// SPDX-License-Identifier: Apache-2.0
// Dense convolutions that stand in sparse chains: depthwise, and the first convolution of few input channels.
//
// Bands of rows are copied into frames with the padding around them, and the rows and columns of strided inputs taken
// apart on the way: the kernels know neither borders nor strides, and a band stays in the first-level cache.
#include <algorithm>
#include <cstring>

#include "ops/makers.h"
#include "ops/planar_op.h"
#include "ops/quant.h"
#include "ops/sparse_weights.h"

namespace litesmith {

std::unique_ptr<Op> MakePlanarFirstConv(const NodeView& node, const KernelTable& kernels, std::string* why);

namespace {

constexpr int kMostFirstChannels = 4, kMostTaps = 49;
// Bands: in the first-level cache where each value is used once or twice; larger for the first convolution, which uses each
// often and pays for the rows that two bands share.
constexpr size_t kBandBytes = 16 * 1024, kFirstBandBytes = 48 * 1024;
constexpr int kSlack = 16;  // floats a kernel may touch past the last tap or output

// memcpy for rows of a few values, where the call would cost more than the copy.
inline void CopyRow(const float* from, int n, float* to) {
  int i = 0;
  for (; i + 8 <= n; i += 8) std::memcpy(to + i, from + i, 8 * sizeof(float));
  if (n & 4) std::memcpy(to + i, from + i, 4 * sizeof(float)), i += 4;
  if (n & 2) std::memcpy(to + i, from + i, 2 * sizeof(float)), i += 2;
  if (n & 1) to[i] = from[i];
}

// Kernel, stride and padding both operators accept: square, stride 1 or 2, no dilation.
struct Geometry {
  int kernel = 0, stride = 0;
  Padding padding = Padding::kSame;
  PlanarShape in;
  Window y, x;
  int band = 0;   // output rows at a time
  int width = 0;  // floats of a row in a frame

  bool Plan(const Shape& shape, size_t planes, size_t most_bytes = kBandBytes) {
    in = PlanarOf(shape);
    y = WindowOf(padding, in.height, kernel, stride, 1);
    x = WindowOf(padding, in.width, kernel, stride, 1);
    if (y.out <= 0 || x.out <= 0) return false;
    width = x.out + reach();
    band = 1;
    while (band < y.out && (FrameFloats(band + 1) * planes + (band + 1) * width) * sizeof(float) <= most_bytes) ++band;
    return true;
  }
  PlanarShape Out(int channels) const { return {in.batch, y.out, x.out, channels}; }
  int bands() const { return (y.out + band - 1) / band; }

  // A frame has stride * stride parts: rows r and columns c with the same r % stride and c % stride.
  int reach() const { return (kernel - 1) / stride; }
  int64_t PartFloats(int rows) const { return static_cast<int64_t>(rows + reach()) * width + kSlack; }
  int64_t FrameFloats(int rows) const { return PartFloats(rows) * stride * stride; }
  int64_t FrameFloats() const { return FrameFloats(band); }
  const float* Tap(const float* frame, int ky, int kx) const {
    return frame + (ky % stride * stride + kx % stride) * PartFloats(band) + static_cast<int64_t>(ky / stride) * width +
           kx / stride;
  }

  // The input rows under output rows [first, first + rows), of which some may be outside the image.
  int FirstRow(int first) const { return first * stride - y.pad; }
  int Rows(int rows) const { return (rows - 1) * stride + kernel; }
  bool Inside(int row) const { return row >= 0 && row < in.height; }

  void Fill(const KernelTable& kernels, const float* plane, int first, int rows, float* frame) const {
    for (int r = 0; r < Rows(rows); ++r) {
      const int iy = FirstRow(first) + r;
      FillRow(kernels, Inside(iy) ? plane + static_cast<int64_t>(iy) * in.width : nullptr, r, frame);
    }
  }

  // Row r of a frame, zeros without one. Rows are copied in whole vectors: what runs over the end of one is overwritten by
  // the zeros behind it and by the next.
  void FillRow(const KernelTable& kernels, const float* row, int r, float* frame) const {
    const int64_t part = PartFloats(band);
    float* to = stride == 1 ? frame + static_cast<int64_t>(r) * width
                            : frame + (r % 2) * 2 * part + static_cast<int64_t>(r / 2) * width;
    if (row == nullptr) {
      std::memset(to, 0, width * sizeof(float));
      if (stride == 2) std::memset(to + part, 0, width * sizeof(float));
    } else if (stride == 1) {
      const int n = std::min(in.width, width - x.pad);
      for (int i = 0; i < x.pad; ++i) to[i] = 0.0f;
      for (int i = 0; i < n; i += 8) std::memcpy(to + x.pad + i, row + i, 8 * sizeof(float));
      for (int i = x.pad + n; i < width; ++i) to[i] = 0.0f;
    } else {
      Split(kernels, row, to, to + part);
    }
  }

 private:
  // Column i of the image is column i + pad of the frame.
  void Split(const KernelTable& kernels, const float* row, float* even, float* odd) const {
    float* first = x.pad % 2 == 0 ? even + x.pad / 2 : odd + x.pad / 2;
    float* second = x.pad % 2 == 0 ? odd + x.pad / 2 : even + x.pad / 2 + 1;
    const int n = std::min(in.width, 2 * width - x.pad);
    for (float* to = even; to < even + (x.pad + 1) / 2; ++to) *to = 0.0f;
    for (float* to = odd; to < odd + x.pad / 2; ++to) *to = 0.0f;
    kernels.f32_split_row.run(row, n, first, second);
    for (float* to = first + (n + 1) / 2; to < (first < odd ? even : odd) + width; ++to) *to = 0.0f;
    for (float* to = second + n / 2; to < (second < odd ? even : odd) + width; ++to) *to = 0.0f;
  }
};

template <class Params>
bool ReadGeometry(const Params& params, const int* weight_dims, Geometry* g, std::string* why) {
  if (weight_dims[1] != weight_dims[2] || weight_dims[1] > 7 || params.stride_height != params.stride_width ||
      params.stride_height < 1 || params.stride_height > 2 || params.dilation_height != 1 ||
      params.dilation_width != 1) {
    *why = "a kernel that is not square up to 7x7 with stride 1 or 2";
    return false;
  }
  g->kernel = weight_dims[1];
  g->stride = params.stride_height;
  g->padding = params.padding;
  return true;
}

class PlanarDepthwise : public PlanarOp {
 public:
  PlanarDepthwise(const KernelTable& kernels, int channels) : kernels_(kernels), channels_(channels) {}

  bool Read(const NodeView& node, std::string* why) {
    const auto& params = node.params<DepthwiseConvParams>();
    std::vector<float> values;
    bias_.assign(channels_, 0.0f);
    if (!ReadGeometry(params, node.input(1).dims->data, &g_, why) || !ReadFloatConstant(node.weights(1), &values, why)) {
      return false;
    }
    if (!FloatActivation(params.activation, &lo_, &hi_) ||
        (node.has_input(2) && !ReadFloatConstant(node.input(2), &bias_, why))) {
      *why = "a fused activation that is not a clamp, or a bias that is not constant";
      return false;
    }
    const int taps = g_.kernel * g_.kernel;
    if (values.size() != static_cast<size_t>(taps) * channels_ || bias_.size() != static_cast<size_t>(channels_)) {
      *why = "weights or a bias of another size";
      return false;
    }
    weights_.resize(values.size());
    for (int c = 0; c < channels_; ++c) {
      for (int t = 0; t < taps; ++t) weights_[static_cast<size_t>(c) * taps + t] = values[static_cast<size_t>(t) * channels_ + c];
    }
    return Plan(ShapeOf(node.input(0)));
  }

  const char* kernel_name() const override {
    return whole_planes() ? kernels_.f32_dwconv3x3_plane.name : kernels_.f32_dwconv_plane.name;
  }
  void Estimate(double* here_us, double* stock_us) const override {
    const double macs = static_cast<double>(g_.in.batch) * g_.y.out * g_.x.out * channels_ * g_.kernel * g_.kernel;
    *here_us = macs * speed::kDepthwiseMacHere * 1e-3;
    *stock_us = macs * speed::kDepthwiseMacStock * 1e-3;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] != channels_ || !Plan(in[0])) return false;
    (*out)[0] = {in[0][0], g_.y.out, g_.x.out, channels_};
    return true;
  }

  // A kernel of 3x3 always has its middle tap inside the image: it needs no frames.
  FewChannels few_channels() const override { return g_.kernel == 3 ? FewChannels::kFromTheSame : FewChannels::kNo; }
  Rows InputRows(Rows rows) const override {
    return {std::max(0, rows.first * g_.stride - g_.y.pad),
            std::min(g_.in.height, (rows.last - 1) * g_.stride - g_.y.pad + 3)};
  }
  // As planes of their own: but for the last rows of a plane the kernel may not write behind them.
  void RunRows(const float* in, int64_t in_plane, int begin, int end, Rows rows, float* out) const override {
    const Rows from = InputRows(rows);
    const Dw3x3View view{from.last - from.first, g_.in.width, rows.last - rows.first, g_.x.out, g_.stride,
                         std::max(0, g_.y.pad - rows.first * g_.stride), g_.x.pad, zeros_.data() + 16};
    const int64_t out_plane = g_.Out(channels_).plane();
    const auto run = [&](int c, int count, int64_t room) {
      kernels_.f32_dwconv3x3_plane.run(in + (c - begin) * in_plane, in_plane, count, view,
                                       weights_.data() + static_cast<size_t>(c) * 9, bias_.data() + c, lo_, hi_,
                                       out + (c - begin) * out_plane + static_cast<int64_t>(rows.first) * g_.x.out, room);
    };
    if (rows.first == 0 && rows.last == g_.y.out) return run(begin, end - begin, out_plane);
    for (int c = begin; c < end; ++c) run(c, 1, static_cast<int64_t>(rows.last - rows.first) * g_.x.out);
  }

  // A frame and the rows made from it per worker.
  size_t ScratchBytes(int num_threads) const override { return num_threads * WorkerBytes(); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t in_plane = g_.in.plane(), out_plane = g_.Out(channels_).plane();
    if (whole_planes()) return RunBands(in, out, args.pool);
    const int total = g_.in.batch * channels_, group = GroupOf(out_plane);
    args.pool->Run((total + group - 1) / group, [&](int task, int worker) {
      auto* scratch = reinterpret_cast<float*>(args.scratch + worker * WorkerBytes());
      const int last = std::min(total, (task + 1) * group);
      for (int i = task * group; i < last; i += at_once_) {
        const int count = std::min(at_once_, last - i);
        for (int y = 0; y < g_.y.out; y += g_.band) {
          Band(in + i * in_plane, i, count, y, scratch, out + i * out_plane + static_cast<int64_t>(y) * g_.x.out);
        }
      }
    });
  }

 private:
  static constexpr size_t kPlanes = 1;
  static constexpr int kAtOnce = 8;

  // Planes of so many values in groups: a task of a few microseconds costs more to hand out than to run.
  static int GroupOf(int64_t values) {
    return static_cast<int>(std::max<int64_t>(kAtOnce, 8192 / std::max<int64_t>(values, 1)));
  }

  void RunBands(const float* in, float* out, ThreadPool* pool) const {
    const PlanarShape to = g_.Out(channels_);
    const RowBands bands(to, pool->num_threads());
    const int group = GroupOf(to.plane() / bands.count), groups = (channels_ + group - 1) / group;
    pool->Run(g_.in.batch * bands.count * groups, [&](int task, int) {
      const int begin = task % groups * group, band = task / groups % bands.count, image = task / groups / bands.count;
      const int64_t first = static_cast<int64_t>(image) * channels_ + begin;
      const Rows rows{bands.begin(band), bands.end(band)};
      RunRows(in + first * g_.in.plane() + static_cast<int64_t>(InputRows(rows).first) * g_.in.width, g_.in.plane(), begin,
              std::min(begin + group, channels_), rows, out + first * to.plane());
    });
  }

  // One band of several planes. All are filled before the first is used: a processor waits for small stores that a
  // large load finds still on their way to the cache.
  void Band(const float* in, int first, int count, int y, float* scratch, float* out) const {
    const int64_t in_plane = g_.in.plane(), out_plane = g_.Out(channels_).plane();
    const int rows = std::min(g_.band, g_.y.out - y), num_taps = g_.kernel * g_.kernel;
    float* const lines = scratch + at_once_ * g_.FrameFloats();
    for (int i = 0; i < count; ++i) g_.Fill(kernels_, in + i * in_plane, y, rows, scratch + i * g_.FrameFloats());
    const float* taps[kMostTaps];
    for (int t = 0; t < num_taps; ++t) taps[t] = g_.Tap(scratch, t / g_.kernel, t % g_.kernel);
    for (int i = 0; i < count; ++i) {
      const int c = (first + i) % channels_;
      // The rows of a frame are one long row: one call for all, which also computes what lies between them.
      kernels_.f32_dwconv_plane.run(taps, num_taps, weights_.data() + static_cast<size_t>(c) * num_taps, bias_[c], lo_,
                                    hi_, (rows - 1) * g_.width + g_.x.out, lines + i * LineFloats());
      for (int t = 0; t < num_taps; ++t) taps[t] += g_.FrameFloats();
    }
    for (int i = 0; i < count; ++i) {
      const float* line = lines + i * LineFloats();
      for (int r = 0; r < rows; ++r) CopyRow(line + r * g_.width, g_.x.out, out + i * out_plane + r * g_.x.out);
    }
  }

  bool whole_planes() const { return g_.kernel == 3; }

  bool Plan(const Shape& shape) {
    if (!g_.Plan(shape, kPlanes)) return false;
    const size_t each = (g_.FrameFloats() + LineFloats()) * sizeof(float);
    at_once_ = static_cast<int>(std::clamp<size_t>(kBandBytes / each, 1, kAtOnce));
    zeros_.assign(whole_planes() ? g_.in.width + 64 : 0, 0.0f);
    return true;
  }
  int64_t LineFloats() const { return static_cast<int64_t>(g_.band) * g_.width + kSlack; }
  size_t WorkerBytes() const {
    return static_cast<size_t>(at_once_ * (g_.FrameFloats() + LineFloats()) + 15) / 16 * 16 * sizeof(float);
  }

  const KernelTable& kernels_;
  const int channels_;
  int at_once_ = 1;
  std::vector<float> zeros_;
  Geometry g_;
  std::vector<float> weights_, bias_;
  float lo_ = 0, hi_ = 0;
};

class PlanarFirstConv : public PlanarOp {
 public:
  PlanarFirstConv(const KernelTable& kernels, int inputs, int outputs)
      : kernels_(kernels), inputs_(inputs), outputs_(outputs) {}

  bool Read(const NodeView& node, std::string* why) {
    const auto& params = node.params<ConvParams>();
    std::vector<float> values;
    bias_.assign(outputs_, 0.0f);
    if (!ReadGeometry(params, node.weights(1).dims->data, &g_, why) || !ReadFloatConstant(node.weights(1), &values, why)) {
      return false;
    }
    if (!FloatActivation(params.activation, &lo_, &hi_) ||
        (node.has_input(2) && !ReadFloatConstant(node.input(2), &bias_, why))) {
      *why = "a fused activation that is not a clamp, or a bias that is not constant";
      return false;
    }
    const int taps = g_.kernel * g_.kernel, padded = (outputs_ + 7) / 8 * 8;
    if (bias_.size() != static_cast<size_t>(outputs_)) {
      *why = "a bias of another size";
      return false;
    }
    weights_.assign(static_cast<size_t>(inputs_) * taps * padded, 0.0f);
    for (int o = 0; o < outputs_; ++o) {
      for (int t = 0; t < taps; ++t) {
        for (int c = 0; c < inputs_; ++c) {
          weights_[(static_cast<size_t>(c) * taps + t) * padded + o] =
              values[(static_cast<size_t>(o) * taps + t) * inputs_ + c];
        }
      }
    }
    bias_.resize(padded, 0.0f);
    return g_.Plan(ShapeOf(node.input(0)), inputs_, kFirstBandBytes);
  }

  const char* kernel_name() const override { return kernels_.f32_conv_plane.name; }
  void Estimate(double* here_us, double* stock_us) const override {
    const double macs =
        static_cast<double>(g_.in.batch) * g_.y.out * g_.x.out * outputs_ * inputs_ * g_.kernel * g_.kernel;
    *here_us = macs * speed::kFirstConvMacHere * 1e-3;
    *stock_us = macs * speed::kDenseMac * 1e-3;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] != inputs_ || !g_.Plan(in[0], inputs_, kFirstBandBytes)) return false;
    (*out)[0] = {in[0][0], g_.y.out, g_.x.out, outputs_};
    return true;
  }

  // Its input is an image with few channels: rows are taken apart here, so that the image need not be converted.
  Layout input_layout() const override { return Layout::kNhwc; }

  // The frames of all input channels, one row of them, and one row of all output channels per worker.
  size_t ScratchBytes(int num_threads) const override { return num_threads * WorkerBytes(); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t out_plane = g_.Out(outputs_).plane();
    const int square = g_.kernel * g_.kernel, num_taps = inputs_ * square;
    const bool whole_vectors = g_.x.out % 8 == 0;
    args.pool->Run(g_.in.batch * g_.bands(), [&](int task, int worker) {
      auto* frames = reinterpret_cast<float*>(args.scratch + worker * WorkerBytes());
      float* channels = frames + inputs_ * g_.FrameFloats();
      float* line = channels + inputs_ * RowFloats();
      const int b = task / g_.bands(), y = task % g_.bands() * g_.band, rows = std::min(g_.band, g_.y.out - y);
      const float* taps[kMostFirstChannels * kMostTaps];
      for (int c = 0; c < inputs_; ++c) {
        const float* frame = frames + c * g_.FrameFloats();
        for (int t = 0; t < square; ++t) taps[c * square + t] = g_.Tap(frame, t / g_.kernel, t % g_.kernel);
      }
      for (int r = 0; r < g_.Rows(rows); ++r) {
        const int iy = g_.FirstRow(y) + r;
        const bool inside = g_.Inside(iy);
        const int64_t row = (static_cast<int64_t>(b) * g_.in.height + iy) * g_.in.width * inputs_;
        if (inside) kernels_.f32_split_channels.run(in + row, g_.in.width, inputs_, channels, RowFloats());
        for (int c = 0; c < inputs_; ++c) {
          g_.FillRow(kernels_, inside ? channels + c * RowFloats() : nullptr, r, frames + c * g_.FrameFloats());
        }
      }
      for (int r = 0; r < rows; ++r) {
        float* to = out + static_cast<int64_t>(b) * outputs_ * out_plane + static_cast<int64_t>(y + r) * g_.x.out;
        kernels_.f32_conv_plane.run(taps, num_taps, weights_.data(), bias_.data(), outputs_, lo_, hi_, g_.x.out,
                                    whole_vectors ? to : line, whole_vectors ? out_plane : LineFloats());
        for (int o = 0; o < outputs_ && !whole_vectors; ++o) {
          CopyRow(line + o * LineFloats(), g_.x.out, to + o * out_plane);
        }
        for (int t = 0; t < num_taps; ++t) taps[t] += g_.width;
      }
    });
  }

 private:
  int64_t LineFloats() const { return (g_.x.out + 7) / 8 * 8 + kSlack; }
  int64_t RowFloats() const { return (g_.in.width + 15) / 16 * 16 + kSlack; }
  size_t WorkerBytes() const {
    const int64_t floats = inputs_ * (g_.FrameFloats() + RowFloats()) + outputs_ * LineFloats();
    return static_cast<size_t>(floats + 15) / 16 * 16 * sizeof(float);
  }

  const KernelTable& kernels_;
  const int inputs_, outputs_;
  Geometry g_;
  std::vector<float> weights_, bias_;
  float lo_ = 0, hi_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakePlanarDepthwise(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsFloat(node.input(0), why)) return nullptr;
  if (node.input(0).dims->size != 4 || node.input(1).dims->size != 4 ||
      node.input(1).dims->data[3] != node.input(0).dims->data[3]) {
    *why = "a depth multiplier";
    return nullptr;
  }
  auto op = std::make_unique<PlanarDepthwise>(kernels, node.input(0).dims->data[3]);
  return op->Read(node, why) ? std::move(op) : nullptr;
}

std::unique_ptr<Op> MakePlanarFirstConv(const NodeView& node, const KernelTable& kernels, std::string* why) {
  const int* dims = node.weights(1).dims->data;
  if (dims[3] > kMostFirstChannels || dims[3] != node.input(0).dims->data[3]) {
    *why = "a dense convolution of more than 4 input channels";
    return nullptr;
  }
  auto op = std::make_unique<PlanarFirstConv>(kernels, dims[3], dims[0]);
  return op->Read(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
