// SPDX-License-Identifier: Apache-2.0
// The small operators of sparse chains, in planes: ADD, MUL, activations, MEAN, PAD, pools, and reshapes of vectors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "ops/makers.h"
#include "ops/planar_op.h"
#include "ops/quant.h"
#include "ops/sparse_weights.h"

namespace litesmith {
namespace {

class PlaneWise : public PlanarOp {
 public:
  void Estimate(double* here_us, double* stock_us) const override {
    *here_us = *stock_us = values_ * speed::kElementwise * 1e-3;
  }

 protected:
  // Calls visit(first, count) for runs of values that make up all planes, and what rounds them up. A task takes as many
  // channels as make it worth handing out.
  template <class Visit>
  static void ForEachRun(const PlanarShape& shape, ThreadPool* pool, const Visit& visit) {
    constexpr int64_t kValuesPerTask = 8192;
    const int64_t plane = shape.plane();
    const RowBands bands(shape, pool->num_threads());
    const int group = static_cast<int>(std::clamp<int64_t>(kValuesPerTask * bands.count / plane, 1, shape.channels));
    const int groups = (shape.channels + group - 1) / group;
    pool->Run(shape.batch * bands.count * groups, [&](int task, int) {
      const int channel = task % groups * group, band = task / groups % bands.count, image = task / groups / bands.count;
      const int count = std::min(group, shape.channels - channel);
      const int64_t first = (static_cast<int64_t>(image) * shape.channels + channel) * plane;
      if (bands.count == 1) return visit(first, count * plane);
      const int64_t begin = static_cast<int64_t>(bands.begin(band)) * shape.width;
      const int64_t end = band + 1 == bands.count ? plane : static_cast<int64_t>(bands.end(band)) * shape.width;
      for (int c = 0; c < count; ++c) visit(first + c * plane + begin, end - begin);
    });
  }

  double values_ = 0;
};

enum class UnaryKind { kRelu, kRelu6, kHardSwish, kLogistic };

class PlanarUnary : public PlaneWise {
 public:
  PlanarUnary(UnaryKind kind, double values) : kind_(kind) { values_ = values; }
  const char* kernel_name() const override { return "f32_planar_activation"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    (*out)[0] = in[0];
    shape_ = PlanarOf(in[0]);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    ForEachRun(shape_, args.pool, [&](int64_t first, int64_t count) {
      const int64_t last = first + count;
      switch (kind_) {
        case UnaryKind::kRelu:
          for (int64_t i = first; i < last; ++i) out[i] = std::max(in[i], 0.0f);
          break;
        case UnaryKind::kRelu6:
          for (int64_t i = first; i < last; ++i) out[i] = std::min(std::max(in[i], 0.0f), 6.0f);
          break;
        case UnaryKind::kHardSwish:
          for (int64_t i = first; i < last; ++i) out[i] = in[i] * std::min(std::max(in[i] + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
          break;
        case UnaryKind::kLogistic:
          for (int64_t i = first; i < last; ++i) out[i] = 1.0f / (1.0f + std::exp(-in[i]));
          break;
      }
    });
  }

 private:
  const UnaryKind kind_;
  PlanarShape shape_;
};

// Two tensors of the same shape, or one of them with a single value per channel.
class PlanarBinary : public PlaneWise {
 public:
  PlanarBinary(bool multiply, float lo, float hi, double values) : multiply_(multiply), lo_(lo), hi_(hi) {
    values_ = values;
  }
  const char* kernel_name() const override { return multiply_ ? "f32_planar_mul" : "f32_planar_add"; }
  std::vector<int> RuntimeInputs() const override { return {0, 1}; }

  static bool Fits(const Shape& a, const Shape& b) {
    if (a == b) return true;
    if (a.size() != 4 || b.size() != 4 || a[0] != b[0] || a[3] != b[3]) return false;
    return PlanarOf(a).pixels() == 1 || PlanarOf(b).pixels() == 1;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (!Fits(in[0], in[1])) return false;
    a_ = PlanarOf(in[0]);
    b_ = PlanarOf(in[1]);
    (*out)[0] = a_.pixels() >= b_.pixels() ? in[0] : in[1];
    return true;
  }

  void Run(const RunArgs& args) override {
    const PlanarShape& big = a_.pixels() >= b_.pixels() ? a_ : b_;
    const auto* a = static_cast<const float*>(args.inputs[0]);
    const auto* b = static_cast<const float*>(args.inputs[1]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t plane = big.plane();
    if (a_.pixels() == b_.pixels()) {
      ForEachRun(big, args.pool,
                 [&](int64_t first, int64_t count) { Values(a + first, b + first, 1, count, out + first); });
      return;
    }
    const bool swap = a_.pixels() < b_.pixels();
    args.pool->Run(big.batch * big.channels, [&](int p, int) {
      Values((swap ? b : a) + p * plane, (swap ? a : b) + p, 0, plane, out + p * plane);
    });
  }

 private:
  void Values(const float* a, const float* b, int b_step, int64_t n, float* out) const {
    if (multiply_) {
      for (int64_t i = 0; i < n; ++i) out[i] = std::min(std::max(a[i] * b[i * b_step], lo_), hi_);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = std::min(std::max(a[i] + b[i * b_step], lo_), hi_);
    }
  }

  const bool multiply_;
  const float lo_, hi_;
  PlanarShape a_, b_;
};

class PlanarMean : public PlaneWise {
 public:
  PlanarMean(bool keep_dims, double values) : keep_dims_(keep_dims) { values_ = values; }
  const char* kernel_name() const override { return "f32_planar_mean"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    shape_ = PlanarOf(in[0]);
    (*out)[0] = keep_dims_ ? Shape{in[0][0], 1, 1, in[0][3]} : Shape{in[0][0], in[0][3]};
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    constexpr int kPlanesPerTask = 256;
    const int planes = shape_.batch * shape_.channels;
    args.pool->Run((planes + kPlanesPerTask - 1) / kPlanesPerTask, [&](int task, int) {
      const int last = std::min(planes, (task + 1) * kPlanesPerTask);
      for (int p = task * kPlanesPerTask; p < last; ++p) out[p] = Mean(in + p * shape_.plane());
    });
  }

 private:
  float Mean(const float* plane) const {
    constexpr int kSums = 8;  // one would wait for itself
    float sums[kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= shape_.pixels(); i += kSums) {
      for (int j = 0; j < kSums; ++j) sums[j] += plane[i + j];
    }
    for (; i < shape_.pixels(); ++i) sums[0] += plane[i];
    return std::accumulate(sums, sums + kSums, 0.0f) / static_cast<float>(shape_.pixels());
  }

  const bool keep_dims_;
  PlanarShape shape_;
};

class PlanarPad : public PlaneWise {
 public:
  PlanarPad(const int32_t* pads, double values) : top_(pads[2]), bottom_(pads[3]), left_(pads[4]), right_(pads[5]) {
    values_ = values;
  }
  const char* kernel_name() const override { return "f32_planar_pad"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    in_ = PlanarOf(in[0]);
    const int64_t height = int64_t{in[0][1]} + top_ + bottom_, width = int64_t{in[0][2]} + left_ + right_;
    if (std::max(height, width) > INT32_MAX) return false;
    (*out)[0] = {in[0][0], static_cast<int>(height), static_cast<int>(width), in[0][3]};
    out_ = PlanarOf((*out)[0]);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    args.pool->Run(in_.batch * in_.channels, [&](int p, int) {
      float* to = out + p * out_.plane();
      const float* from = in + p * in_.plane();
      std::memset(to, 0, out_.plane() * sizeof(float));
      for (int y = 0; y < in_.height; ++y) {
        std::memcpy(to + static_cast<int64_t>(y + top_) * out_.width + left_, from + static_cast<int64_t>(y) * in_.width,
                    in_.width * sizeof(float));
      }
    });
  }

 private:
  const int top_, bottom_, left_, right_;
  PlanarShape in_, out_;
};

class PlanarPool : public PlaneWise {
 public:
  PlanarPool(const PoolParams& params, bool average, float lo, float hi, double values)
      : params_(params), average_(average), lo_(lo), hi_(hi) {
    values_ = values * params.filter_height * params.filter_width;
  }
  const char* kernel_name() const override { return average_ ? "f32_planar_average_pool" : "f32_planar_max_pool"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    in_ = PlanarOf(in[0]);
    y_ = WindowOf(params_.padding, in_.height, params_.filter_height, params_.stride_height, 1);
    x_ = WindowOf(params_.padding, in_.width, params_.filter_width, params_.stride_width, 1);
    (*out)[0] = {in[0][0], y_.out, x_.out, in[0][3]};
    out_ = PlanarOf((*out)[0]);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    args.pool->Run(in_.batch * in_.channels, [&](int p, int) {
      const float* plane = in + p * in_.plane();
      float* to = out + p * out_.plane();
      for (int y = 0; y < y_.out; ++y) {
        for (int x = 0; x < x_.out; ++x) to[static_cast<int64_t>(y) * x_.out + x] = Value(plane, y, x);
      }
    });
  }

 private:
  float Value(const float* plane, int y, int x) const {
    const int y0 = y * params_.stride_height - y_.pad, x0 = x * params_.stride_width - x_.pad;
    const int y1 = std::min(y0 + params_.filter_height, in_.height), x1 = std::min(x0 + params_.filter_width, in_.width);
    float sum = 0.0f, max = -INFINITY;
    int count = 0;
    for (int iy = std::max(y0, 0); iy < y1; ++iy) {
      for (int ix = std::max(x0, 0); ix < x1; ++ix, ++count) {
        const float value = plane[static_cast<int64_t>(iy) * in_.width + ix];
        sum += value;
        max = std::max(max, value);
      }
    }
    return std::min(std::max(average_ ? sum / static_cast<float>(count) : max, lo_), hi_);
  }

  const PoolParams params_;
  const bool average_;
  const float lo_, hi_;
  PlanarShape in_, out_;
  Window y_, x_;
};

// Vectors keep their memory under another rank.
class PlanarReshape : public PlaneWise {
 public:
  explicit PlanarReshape(Shape per_image) : per_image_(std::move(per_image)) {}
  const char* kernel_name() const override { return "f32_copy"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    const PlanarShape shape = PlanarOf(in[0]);
    if (shape.pixels() != 1) return false;
    bytes_ = NumElements(in[0]) * sizeof(float);
    (*out)[0] = per_image_;
    (*out)[0][0] = shape.batch;
    return NumElements((*out)[0]) == NumElements(in[0]);
  }
  void Run(const RunArgs& args) override { std::memcpy(args.outputs[0], args.inputs[0], bytes_); }

 private:
  const Shape per_image_;
  size_t bytes_ = 0;
};

double Values(const TfLiteTensor& tensor) { return static_cast<double>(NumElements(ShapeOf(tensor))); }

std::unique_ptr<Op> MakeUnary(const NodeView& node, UnaryKind kind, std::string* why) {
  if (!IsFloat(node.input(0), why)) return nullptr;
  return std::make_unique<PlanarUnary>(kind, Values(node.input(0)));
}

std::unique_ptr<Op> MakeBinary(const NodeView& node, bool multiply, std::string* why) {
  float lo, hi;
  if (!IsFloat(node.input(0), why) || !IsFloat(node.input(1), why)) return nullptr;
  const Activation activation = multiply ? node.params<MulParams>().activation : node.params<AddParams>().activation;
  if (!PlanarBinary::Fits(ShapeOf(node.input(0)), ShapeOf(node.input(1))) || !FloatActivation(activation, &lo, &hi) ||
      IsConstant(node.input(0)) || IsConstant(node.input(1))) {
    *why = "a constant operand, or shapes that are neither equal nor one value per channel";
    return nullptr;
  }
  return std::make_unique<PlanarBinary>(multiply, lo, hi, Values(node.output(0)));
}

std::unique_ptr<Op> MakePool(const NodeView& node, bool average, std::string* why) {
  float lo, hi;
  if (!IsFloat(node.input(0), why) || node.input(0).dims->size != 4) return nullptr;
  const PoolParams& params = node.params<PoolParams>();
  if (!FloatActivation(params.activation, &lo, &hi)) {
    *why = "a fused activation that is not a clamp";
    return nullptr;
  }
  return std::make_unique<PlanarPool>(params, average, lo, hi, Values(node.output(0)));
}

}  // namespace

std::unique_ptr<Op> MakePlanarAdd(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeBinary(node, /*multiply=*/false, why);
}

std::unique_ptr<Op> MakePlanarMul(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeBinary(node, /*multiply=*/true, why);
}

std::unique_ptr<Op> MakePlanarRelu(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeUnary(node, UnaryKind::kRelu, why);
}

std::unique_ptr<Op> MakePlanarRelu6(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeUnary(node, UnaryKind::kRelu6, why);
}

std::unique_ptr<Op> MakePlanarHardSwish(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeUnary(node, UnaryKind::kHardSwish, why);
}

std::unique_ptr<Op> MakePlanarLogistic(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeUnary(node, UnaryKind::kLogistic, why);
}

std::unique_ptr<Op> MakePlanarAveragePool(const NodeView& node, const KernelTable&, std::string* why) {
  return MakePool(node, /*average=*/true, why);
}

std::unique_ptr<Op> MakePlanarMaxPool(const NodeView& node, const KernelTable&, std::string* why) {
  return MakePool(node, /*average=*/false, why);
}

bool IsMeanOfImages(const NodeView& node, std::string* why) {
  if (!IsFloat(node.input(0), why)) return false;
  const TfLiteTensor& axis = node.input(1);
  std::vector<int> axes;
  if (IsConstant(axis) && axis.type == kTfLiteInt32) {
    const auto* data = static_cast<const int32_t*>(axis.data);
    for (int64_t i = 0; i < NumElements(ShapeOf(axis)); ++i) axes.push_back(data[i] < 0 ? data[i] + 4 : data[i]);
  }
  std::sort(axes.begin(), axes.end());
  *why = "a mean over other axes than height and width";
  return node.input(0).dims->size == 4 && axes == std::vector<int>{1, 2};
}

std::unique_ptr<Op> MakePlanarMean(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsMeanOfImages(node, why)) return nullptr;
  return std::make_unique<PlanarMean>(node.params<ReducerParams>().keep_dims, Values(node.input(0)));
}

std::unique_ptr<Op> MakePlanarPad(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsFloat(node.input(0), why)) return nullptr;
  const TfLiteTensor& pads = node.input(1);
  const auto* data = static_cast<const int32_t*>(pads.data);
  if (!IsConstant(pads) || pads.type != kTfLiteInt32 || NumElements(ShapeOf(pads)) != 8 || data[0] || data[1] ||
      data[6] || data[7] || *std::min_element(data, data + 8) < 0) {
    *why = "paddings of other dimensions than height and width";
    return nullptr;
  }
  return std::make_unique<PlanarPad>(data, Values(node.output(0)));
}

std::unique_ptr<Op> MakePlanarReshape(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsFloat(node.input(0), why)) return nullptr;
  const Shape in = ShapeOf(node.input(0)), out = ShapeOf(node.output(0));
  const bool constant = node.code() == kSqueeze || !node.has_input(1) || IsConstant(node.input(1));
  const bool vectors = !out.empty() && !in.empty() && PlanarOf(in).pixels() == 1 && PlanarOf(out).pixels() == 1;
  if (!constant || !vectors || out[0] != PlanarOf(in).batch || PlanarOf(out).batch != out[0] ||
      PlanarOf(in).channels != PlanarOf(out).channels) {
    *why = "a reshape of more than one vector per image";
    return nullptr;
  }
  return std::make_unique<PlanarReshape>(out);
}

}  // namespace litesmith
