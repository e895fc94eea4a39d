// SPDX-License-Identifier: Apache-2.0
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of sparse chains, in planes.
#include <algorithm>
#include <cmath>

#include "ops/makers.h"
#include "ops/planar_op.h"

namespace litesmith {
namespace {

constexpr double kBilinearValues = 4.0;  // an interpolated value costs about as much as four copied ones

class PlanarResize : public PlanarOp {
 public:
  PlanarResize(const ResizeParams& params, int height, int width, bool bilinear, double values)
      : params_(params), height_(height), width_(width), bilinear_(bilinear), values_(values) {}

  const char* kernel_name() const override { return bilinear_ ? "f32_planar_resize_bilinear" : "f32_planar_resize_nearest"; }
  void Estimate(double* here_us, double* stock_us) const override {
    *here_us = *stock_us = values_ * (bilinear_ ? kBilinearValues : 1.0) * speed::kElementwise * 1e-3;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    in_ = PlanarOf(in[0]);
    (*out)[0] = {in[0][0], height_, width_, in[0][3]};
    out_ = PlanarOf((*out)[0]);
    y_.resize(height_);
    x_.resize(width_);
    for (int y = 0; y < height_; ++y) y_[y] = At(y, in_.height, height_);
    for (int x = 0; x < width_; ++x) x_[x] = At(x, in_.width, width_);
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    args.pool->Run(in_.batch * in_.channels, [&](int p, int) {
      const float* plane = in + p * in_.plane();
      float* to = out + p * out_.plane();
      for (const Sample& y : y_) {
        const float* top = plane + static_cast<int64_t>(y.low) * in_.width;
        const float* bottom = plane + static_cast<int64_t>(y.high) * in_.width;
        for (const Sample& x : x_) {
          const float upper = top[x.low] + (top[x.high] - top[x.low]) * x.fraction;
          const float lower = bottom[x.low] + (bottom[x.high] - bottom[x.low]) * x.fraction;
          *to++ = upper + (lower - upper) * y.fraction;
        }
      }
    });
  }

 private:
  struct Sample {
    int low, high;
    float fraction;  // from low to high
  };

  Sample At(int at, int in, int out) const {
    const float scale = params_.align_corners && out > 1 ? (in - 1) / static_cast<float>(out - 1)
                                                         : in / static_cast<float>(out);
    if (bilinear_) {
      const float position = params_.half_pixel_centers ? (at + 0.5f) * scale - 0.5f : at * scale;
      const int low = std::max(static_cast<int>(std::floor(position)), 0);
      const int high = std::min(static_cast<int>(std::ceil(position)), in - 1);
      return {std::min(low, in - 1), std::max(high, 0), std::max(position - low, 0.0f)};
    }
    const float position = (at + (params_.half_pixel_centers ? 0.5f : 0.0f)) * scale;
    const int nearest = static_cast<int>(params_.align_corners ? std::round(position) : std::floor(position));
    const int clamped = std::min(std::max(nearest, 0), in - 1);
    return {clamped, clamped, 0.0f};
  }

  const ResizeParams params_;
  const int height_, width_;
  const bool bilinear_;
  const double values_;
  PlanarShape in_, out_;
  std::vector<Sample> y_, x_;
};

std::unique_ptr<Op> MakeResize(const NodeView& node, bool bilinear, std::string* why) {
  if (!IsFloat(node.input(0), why)) return nullptr;
  const TfLiteTensor& size = node.input(1);
  const auto* hw = static_cast<const int32_t*>(size.data);
  if (!IsConstant(size) || size.type != kTfLiteInt32 || NumElements(ShapeOf(size)) != 2 ||
      node.input(0).dims->size != 4 || hw[0] <= 0 || hw[1] <= 0) {
    *why = "an output size that is not constant";
    return nullptr;
  }
  const double values = static_cast<double>(NumElements(ShapeOf(node.output(0))));
  return std::make_unique<PlanarResize>(node.params<ResizeParams>(), hw[0], hw[1], bilinear, values);
}

}  // namespace

std::unique_ptr<Op> MakePlanarResizeBilinear(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeResize(node, /*bilinear=*/true, why);
}

std::unique_ptr<Op> MakePlanarResizeNearest(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeResize(node, /*bilinear=*/false, why);
}

}  // namespace litesmith
