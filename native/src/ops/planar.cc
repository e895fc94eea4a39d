// SPDX-License-Identifier: Apache-2.0
// See planar.h.
#include "ops/planar.h"

#include <algorithm>
#include <cstring>

namespace litesmith {
namespace {

constexpr int64_t kPixelsPerTask = 64;  // of all channels: the interleaved side stays in the first-level cache

class Conversion : public Op {
 public:
  Conversion(Layout from, Layout to, size_t element_bytes) : from_(from), to_(to), element_bytes_(element_bytes) {}

  const char* kernel_name() const override {
    if (from_ == to_) return "copy";
    return to_ == Layout::kPlanar ? "f32_nhwc_to_planar" : "f32_planar_to_nhwc";
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    (*out)[0] = in[0];
    shape_ = PlanarOf(in[0]);
    values_ = NumElements(in[0]);
    return true;
  }

  void Run(const RunArgs& args) override {
    if (from_ == to_ || shape_.pixels() == 1) {
      std::memcpy(args.outputs[0], args.inputs[0], values_ * element_bytes_);
      return;
    }
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t pixels = shape_.pixels(), plane = shape_.plane();
    const int channels = shape_.channels;
    const int64_t blocks = (pixels + kPixelsPerTask - 1) / kPixelsPerTask;
    args.pool->Run(static_cast<int>(shape_.batch * blocks), [&](int task, int) {
      const int64_t image = task / blocks, first = task % blocks * kPixelsPerTask, last = std::min(pixels, first + kPixelsPerTask);
      const int64_t nhwc = image * pixels * channels, planar = image * channels * plane;
      if (to_ == Layout::kPlanar) {
        if (channels == 3) {  // an image, the usual one: a stride the compiler knows
          const float* from = in + nhwc;
          float *red = out + planar, *green = red + plane, *blue = green + plane;
          for (int64_t i = first; i < last; ++i) {
            red[i] = from[i * 3];
            green[i] = from[i * 3 + 1];
            blue[i] = from[i * 3 + 2];
          }
          return;
        }
        for (int c = 0; c < channels; ++c) {
          for (int64_t i = first; i < last; ++i) out[planar + c * plane + i] = in[nhwc + i * channels + c];
        }
      } else {
        for (int c = 0; c < channels; ++c) {
          for (int64_t i = first; i < last; ++i) out[nhwc + i * channels + c] = in[planar + c * plane + i];
        }
      }
    });
  }

 private:
  const Layout from_, to_;
  const size_t element_bytes_;
  PlanarShape shape_;
  int64_t values_ = 0;
};

}  // namespace

PlanarShape PlanarOf(const Shape& shape) {
  if (shape.size() == 4) return {shape[0], shape[1], shape[2], shape[3]};
  PlanarShape out;
  out.channels = shape.empty() ? 1 : shape.back();
  for (size_t i = 0; i + 1 < shape.size(); ++i) out.batch *= shape[i];
  return out;
}

int64_t PlanarElements(const Shape& shape) { return PlanarOf(shape).elements(); }

std::unique_ptr<Op> MakeLayoutConversion(Layout from, Layout to, size_t element_bytes) {
  return std::make_unique<Conversion>(from, to, element_bytes);
}

}  // namespace litesmith
