// SPDX-License-Identifier: Apache-2.0
// Dense convolutions that stand in sparse chains: depthwise, and the first convolution of few input channels.
//
// Planes are copied into frames with the padding around them, so that the row kernels need no special case at borders.
#include <algorithm>
#include <cstring>

#include "ops/makers.h"
#include "ops/planar_op.h"
#include "ops/quant.h"
#include "ops/sparse_weights.h"

namespace litesmith {

std::unique_ptr<Op> MakePlanarFirstConv(const NodeView& node, const KernelTable& kernels, std::string* why);

namespace {

constexpr int kMostFirstChannels = 4;
constexpr int kReadSlack = 32;  // floats a row kernel may read past the last tap

// memcpy for rows of a few values, where the call would cost more than the copy.
inline void CopyRow(const float* from, int n, float* to) {
  int i = 0;
  for (; i + 8 <= n; i += 8) std::memcpy(to + i, from + i, 8 * sizeof(float));
  for (; i < n; ++i) to[i] = from[i];
}

// A plane with zeros around it.
struct Frame {
  int height = 0, width = 0, pad_y = 0, pad_x = 0;
  int64_t stride() const { return width; }
  int64_t floats() const { return static_cast<int64_t>(height) * width + kReadSlack; }

  static Frame For(const PlanarShape& in, const Window& y, const Window& x, int kernel, int stride) {
    Frame f;
    f.pad_y = y.pad;
    f.pad_x = x.pad;
    f.height = std::max((y.out - 1) * stride + kernel, y.pad + in.height);
    f.width = std::max((x.out - 1) * stride + kernel, x.pad + in.width);
    return f;
  }
  // The border must already be zero; only the inside is written.
  void Fill(const float* plane, const PlanarShape& in, float* to) const {
    for (int y = 0; y < in.height; ++y) {
      CopyRow(plane + static_cast<int64_t>(y) * in.width, in.width, to + (y + pad_y) * stride() + pad_x);
    }
  }
};

// Kernel, stride and padding both operators accept: square, stride 1 or 2, no dilation.
struct Geometry {
  int kernel = 0, stride = 0;
  Padding padding = Padding::kSame;
  PlanarShape in;
  Window y, x;
  Frame frame;

  bool Plan(const Shape& shape) {
    in = PlanarOf(shape);
    y = WindowOf(padding, in.height, kernel, stride, 1);
    x = WindowOf(padding, in.width, kernel, stride, 1);
    frame = Frame::For(in, y, x, kernel, stride);
    return y.out > 0 && x.out > 0;
  }
  PlanarShape Out(int channels) const { return {in.batch, y.out, x.out, channels}; }
  int row_floats() const { return (x.out + 7) / 8 * 8; }
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
    weights_.resize(values.size());
    for (int c = 0; c < channels_; ++c) {
      for (int t = 0; t < taps; ++t) weights_[static_cast<size_t>(c) * taps + t] = values[static_cast<size_t>(t) * channels_ + c];
    }
    return g_.Plan(ShapeOf(node.input(0)));
  }

  const char* kernel_name() const override { return kernels_.f32_dwconv_row.name; }
  void Estimate(double* here_us, double* stock_us) const override {
    const double macs = static_cast<double>(g_.in.batch) * g_.y.out * g_.x.out * channels_ * g_.kernel * g_.kernel;
    *here_us = macs * speed::kDepthwiseMacHere * 1e-3;
    *stock_us = macs * speed::kDepthwiseMacStock * 1e-3;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] != channels_ || !g_.Plan(in[0])) return false;
    (*out)[0] = {in[0][0], g_.y.out, g_.x.out, channels_};
    return true;
  }

  // A frame and its output line per worker.
  size_t ScratchBytes(int num_threads) const override { return num_threads * WorkerBytes(); }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t in_plane = g_.in.plane(), out_plane = g_.Out(channels_).plane();
    std::memset(args.scratch, 0, args.pool->num_threads() * WorkerBytes());
    const auto channel = [&](int index, int worker) {
      auto* frame = reinterpret_cast<float*>(args.scratch + worker * WorkerBytes());
      g_.frame.Fill(in + index * in_plane, g_.in, frame);
      const int c = index % channels_;
      const float* weights = weights_.data() + static_cast<size_t>(c) * g_.kernel * g_.kernel;
      float* plane = out + index * out_plane;
      // The kernel runs over frame positions into a buffer of its own: whole vectors never meet a neighbour's plane.
      // With stride 1 the rows of the frame are one long row, which saves a call and a load of the weights per row.
      float* line = frame + FrameFloats();
      const int rows_at_once = g_.stride == 1 ? g_.y.out : 1;
      const int line_step = g_.stride == 1 ? static_cast<int>(g_.frame.stride()) : g_.x.out;
      const int width = (rows_at_once - 1) * line_step + g_.x.out;
      const float* rows[7];
      for (int y = 0; y < g_.y.out; y += rows_at_once) {
        for (int k = 0; k < g_.kernel; ++k) rows[k] = frame + (y * g_.stride + k) * g_.frame.stride();
        kernels_.f32_dwconv_row.run(rows, g_.kernel, g_.kernel, g_.stride, weights, bias_[c], lo_, hi_, width, line);
        for (int r = 0; r < rows_at_once; ++r) {
          CopyRow(line + static_cast<int64_t>(r) * line_step, g_.x.out, plane + static_cast<int64_t>(y + r) * g_.x.out);
        }
      }
    };
    // Small planes in groups: a task of a few microseconds costs more to hand out than to run.
    const int total = g_.in.batch * channels_;
    const int group = static_cast<int>(std::max<int64_t>(1, 8192 / std::max<int64_t>(out_plane, 1)));
    args.pool->Run((total + group - 1) / group, [&](int task, int worker) {
      for (int i = task * group; i < std::min(total, (task + 1) * group); ++i) channel(i, worker);
    });
  }

 private:
  int64_t FrameFloats() const { return (g_.frame.floats() + 15) / 16 * 16; }
  int64_t LineFloats() const { return g_.stride == 1 ? g_.frame.floats() : g_.row_floats(); }
  size_t WorkerBytes() const { return (FrameFloats() + LineFloats() + 31) / 16 * 16 * sizeof(float); }

  const KernelTable& kernels_;
  const int channels_;
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
    weights_.assign(static_cast<size_t>(inputs_) * taps * padded, 0.0f);
    for (int o = 0; o < outputs_; ++o) {
      for (int t = 0; t < taps; ++t) {
        for (int c = 0; c < inputs_; ++c) {
          weights_[(static_cast<size_t>(c) * taps + t) * padded + o] =
              values[(static_cast<size_t>(o) * taps + t) * inputs_ + c];
        }
      }
    }
    return g_.Plan(ShapeOf(node.input(0)));
  }

  const char* kernel_name() const override { return kernels_.f32_conv_row.name; }
  void Estimate(double* here_us, double* stock_us) const override {
    const double macs =
        static_cast<double>(g_.in.batch) * g_.y.out * g_.x.out * outputs_ * inputs_ * g_.kernel * g_.kernel;
    *here_us = macs * speed::kFirstConvMacHere * 1e-3;
    *stock_us = macs * speed::kDenseMac * 1e-3;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] != inputs_ || !g_.Plan(in[0])) return false;
    (*out)[0] = {in[0][0], g_.y.out, g_.x.out, outputs_};
    return true;
  }

  // The frames of all input channels, and one block of output rows per worker.
  size_t ScratchBytes(int num_threads) const override {
    return FrameBytes() * inputs_ + static_cast<size_t>(num_threads) * RowBytes();
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t out_plane = g_.Out(outputs_).plane();
    std::memset(args.scratch, 0, FrameBytes() * inputs_);
    for (int b = 0; b < g_.in.batch; ++b) {
      for (int c = 0; c < inputs_; ++c) {
        g_.frame.Fill(in + (static_cast<int64_t>(b) * inputs_ + c) * g_.in.plane(), g_.in,
                      reinterpret_cast<float*>(args.scratch + c * FrameBytes()));
      }
      args.pool->Run(g_.y.out, [&](int y, int worker) {
        const float* rows[kMostFirstChannels * 7];
        for (int c = 0; c < inputs_; ++c) {
          const auto* frame = reinterpret_cast<const float*>(args.scratch + c * FrameBytes());
          for (int k = 0; k < g_.kernel; ++k) rows[c * g_.kernel + k] = frame + (y * g_.stride + k) * g_.frame.stride();
        }
        auto* block = reinterpret_cast<float*>(args.scratch + FrameBytes() * inputs_ + worker * RowBytes());
        kernels_.f32_conv_row.run(rows, inputs_, g_.kernel, g_.kernel, g_.stride, weights_.data(), bias_.data(),
                                  outputs_, lo_, hi_, g_.x.out, block, g_.row_floats());
        for (int o = 0; o < outputs_; ++o) {
          std::memcpy(out + (static_cast<int64_t>(b) * outputs_ + o) * out_plane + static_cast<int64_t>(y) * g_.x.out,
                      block + static_cast<int64_t>(o) * g_.row_floats(), g_.x.out * sizeof(float));
        }
      });
    }
  }

 private:
  size_t FrameBytes() const { return (g_.frame.floats() + 15) / 16 * 16 * sizeof(float); }
  size_t RowBytes() const { return static_cast<size_t>(outputs_) * g_.row_floats() * sizeof(float) + 64; }

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
