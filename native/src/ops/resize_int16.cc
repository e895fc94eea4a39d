// SPDX-License-Identifier: Apache-2.0
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR on int16. LiteRT interpolates int16 with 10 fractional bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

struct Sample {
  int low, high;     // neighbours
  int32_t fraction;  // of 1024, from `low`; may be negative before the first half pixel
};

// Where output coordinate `at` falls in an input of size `in`.
Sample BilinearSample(int at, int in, int out, const ResizeParams& params) {
  int32_t scale = (1024 * in + out / 2) / out;
  if (params.align_corners && out > 1) scale = (1024 * (in - 1) + (out - 1) / 2) / (out - 1);
  const int32_t position = params.half_pixel_centers ? at * scale + scale / 2 - 512 : at * scale;
  const int low = std::max(position / 1024, 0), high = std::min((position + 1023) / 1024, in - 1);
  return {low, high, position - 1024 * low};
}

int NearestSample(int at, int in, int out, const ResizeParams& params) {
  const float scale = params.align_corners && out > 1 ? (in - 1) / static_cast<float>(out - 1)
                                                      : in / static_cast<float>(out);
  const float position = (at + (params.half_pixel_centers ? 0.5f : 0.0f)) * scale;
  const int nearest =
      std::min(static_cast<int>(params.align_corners ? std::round(position) : std::floor(position)), in - 1);
  return params.half_pixel_centers ? std::max(0, nearest) : nearest;
}

class Resize16 : public Op {
 public:
  Resize16(const ResizeParams& params, int height, int width, bool bilinear)
      : params_(params), height_(height), width_(width), bilinear_(bilinear) {}
  const char* kernel_name() const override { return bilinear_ ? "s16_resize_bilinear" : "s16_resize_nearest"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4) return false;
    in_ = in[0];
    (*out)[0] = {in_[0], height_, width_, in_[3]};
    return true;
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const int16_t*>(args.inputs[0]);
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    args.pool->Run(in_[0] * height_, [&](int row, int) {
      const int16_t* image = in + static_cast<int64_t>(row / height_) * in_[1] * in_[2] * in_[3];
      int16_t* line = out + static_cast<int64_t>(row) * width_ * in_[3];
      bilinear_ ? Bilinear(image, row % height_, line) : Nearest(image, row % height_, line);
    });
  }

 private:
  void Nearest(const int16_t* image, int y, int16_t* out) const {
    const int16_t* line = image + static_cast<int64_t>(NearestSample(y, in_[1], height_, params_)) * in_[2] * in_[3];
    for (int x = 0; x < width_; ++x, out += in_[3]) {
      std::memcpy(out, line + static_cast<int64_t>(NearestSample(x, in_[2], width_, params_)) * in_[3],
                  in_[3] * sizeof(int16_t));
    }
  }

  void Bilinear(const int16_t* image, int y, int16_t* out) const {
    const Sample sy = BilinearSample(y, in_[1], height_, params_);
    const int16_t* top = image + static_cast<int64_t>(sy.low) * in_[2] * in_[3];
    const int16_t* bottom = image + static_cast<int64_t>(sy.high) * in_[2] * in_[3];
    for (int x = 0; x < width_; ++x, out += in_[3]) {
      const Sample sx = BilinearSample(x, in_[2], width_, params_);
      const int64_t w00 = int64_t{1024 - sy.fraction} * (1024 - sx.fraction);
      const int64_t w10 = int64_t{sy.fraction} * (1024 - sx.fraction);
      const int64_t w01 = int64_t{1024 - sy.fraction} * sx.fraction, w11 = int64_t{sy.fraction} * sx.fraction;
      const int64_t left = static_cast<int64_t>(sx.low) * in_[3], right = static_cast<int64_t>(sx.high) * in_[3];
      for (int c = 0; c < in_[3]; ++c) {
        const int64_t sum = top[left + c] * w00 + bottom[left + c] * w10 + top[right + c] * w01 + bottom[right + c] * w11;
        out[c] = static_cast<int16_t>((sum + (sum > 0 ? 1 << 19 : -(1 << 19))) / (1 << 20));
      }
    }
  }

  const ResizeParams params_;
  const int height_, width_;
  const bool bilinear_;
  Shape in_;
};

std::unique_ptr<Op> MakeResize(const NodeView& node, bool bilinear, std::string* why) {
  if (!IsInt16Activation(node.input(0), why) || !IsInt16Activation(node.output(0), why)) return nullptr;
  const TfLiteTensor& size = node.input(1);
  if (!IsConstant(size) || size.type != kTfLiteInt32 || NumElements(ShapeOf(size)) != 2 ||
      node.input(0).dims->size != 4) {
    *why = "an output size that is not constant";
    return nullptr;
  }
  const auto* hw = static_cast<const int32_t*>(size.data);
  if (hw[0] <= 0 || hw[1] <= 0) {
    *why = "an empty output";
    return nullptr;
  }
  return std::make_unique<Resize16>(node.params<ResizeParams>(), hw[0], hw[1], bilinear);
}

}  // namespace

std::unique_ptr<Op> MakeResizeBilinear16(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeResize(node, /*bilinear=*/true, why);
}

std::unique_ptr<Op> MakeResizeNearest16(const NodeView& node, const KernelTable&, std::string* why) {
  return MakeResize(node, /*bilinear=*/false, why);
}

}  // namespace litesmith
