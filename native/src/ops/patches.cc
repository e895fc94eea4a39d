// SPDX-License-Identifier: Apache-2.0
// See patches.h.
#include "ops/patches.h"

#include <algorithm>
#include <cstring>

namespace litesmith {
namespace {

// At least eight values, eight at a time, the last eight as they come: a call of memcpy costs more than these rows.
inline void CopyRow(const int16_t* from, int n, int16_t* to) {
  constexpr int kStep = 8;
  for (int i = 0; i + kStep < n; i += kStep) std::memcpy(to + i, from + i, kStep * sizeof(int16_t));
  std::memcpy(to + n - kStep, from + n - kStep, kStep * sizeof(int16_t));
}

}  // namespace

Patches::Patches(const ConvParams& params, const TfLiteTensor& weights, int in_channels, const ZeroPad* pad)
    : params_(params),
      pad_(pad != nullptr ? *pad : ZeroPad{-1, 0, 0, 0, 0}),
      kernel_h_(weights.dims->data[1]),
      kernel_w_(weights.dims->data[2]),
      group_in_(weights.dims->data[3]),
      groups_(in_channels / weights.dims->data[3]) {}

bool Patches::Infer(const Shape& in, int out_channels, Shape* out) {
  if (in.size() != 4 || in[3] != groups_ * group_in_) return false;
  in_ = in;
  y_ = WindowOf(params_.padding, pad_.top + in[1] + pad_.bottom, kernel_h_, params_.stride_height, params_.dilation_height);
  x_ = WindowOf(params_.padding, pad_.left + in[2] + pad_.right, kernel_w_, params_.stride_width, params_.dilation_width);
  y_.pad += pad_.top;
  x_.pad += pad_.left;
  *out = {in[0], y_.out, x_.out, out_channels};
  return true;
}

Patches::Frame Patches::FrameOfZeros() const {
  const auto extent = [](const Window& window, int in, int kernel, int stride, int dilation) {
    return std::max(window.pad + in, (window.out - 1) * stride + (kernel - 1) * dilation + 1);
  };
  return {y_.pad, x_.pad, extent(y_, in_[1], kernel_h_, params_.stride_height, params_.dilation_height),
          extent(x_, in_[2], kernel_w_, params_.stride_width, params_.dilation_width)};
}

void Patches::Gather(const int16_t* in, int first, int count, int group, int16_t* to, int stride) const {
  int x = first % x_.out, y = first / x_.out % y_.out, b = first / x_.out / y_.out;
  const int64_t image = static_cast<int64_t>(in_[1]) * in_[2] * in_[3], line = static_cast<int64_t>(in_[2]) * in_[3];
  const bool by_rows = has_rows_together() && row_values() >= 8;
  while (count > 0) {
    const int x0 = x * params_.stride_width - x_.pad, y0 = y * params_.stride_height - y_.pad;
    const bool inside = x0 >= 0 && x0 + kernel_w_ <= in_[2] && y0 >= 0 &&
                        y0 + (kernel_h_ - 1) * params_.dilation_height < in_[1];
    int here = 1;  // pixels from this one on that lie inside as well
    if (inside && by_rows) {
      here = std::min({count, x_.out - x, (in_[2] - kernel_w_ - x0) / params_.stride_width + 1});
      CopyPatches(in + b * image + y0 * line + static_cast<int64_t>(x0) * in_[3], here, to, stride);
    } else {
      GatherAt(in + b * image, y0, x0, group, to);
      std::fill(to + values(), to + stride, int16_t{0});
    }
    count -= here;
    to += static_cast<int64_t>(here) * stride;
    x += here;
    if (x < x_.out) continue;
    x = 0;
    if (++y == y_.out) y = 0, ++b;
  }
}

// Of pixels beside each other; everything in locals, as each store may change what a pointer leads to.
void Patches::CopyPatches(const int16_t* from, int count, int16_t* to, int stride) const {
  const int64_t row_step = static_cast<int64_t>(params_.dilation_height) * in_[2] * in_[3];
  const int64_t step = static_cast<int64_t>(params_.stride_width) * in_[3];
  const int rows = kernel_h_, n = row_values(), all = values();
  for (; count > 0; --count, from += step, to += stride) {
    const int16_t* row = from;
    int16_t* put = to;
    for (int ky = 0; ky < rows; ++ky, row += row_step, put += n) CopyRow(row, n, put);
    for (int i = all; i < stride; ++i) to[i] = 0;
  }
}

void Patches::GatherAt(const int16_t* image, int y0, int x0, int group, int16_t* to) const {
  const int channels = in_[3];
  for (int ky = 0; ky < kernel_h_; ++ky) {
    const int iy = y0 + ky * params_.dilation_height;
    if (iy < 0 || iy >= in_[1]) {
      std::memset(to, 0, sizeof(int16_t) * kernel_w_ * group_in_);
      to += kernel_w_ * group_in_;
      continue;
    }
    const int16_t* line = image + static_cast<int64_t>(iy) * in_[2] * channels + group * group_in_;
    if (has_rows_together()) {
      const int before = std::clamp(-x0, 0, kernel_w_);
      const int after = std::clamp(x0 + kernel_w_ - in_[2], 0, kernel_w_ - before);
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
}

bool IsConvolution(const NodeView& node, std::string* why) {
  const TfLiteTensor& in = node.input(0);
  const TfLiteTensor& weights = node.input(1);
  *why = "shapes that are not a convolution";
  if (in.dims->size != 4 || weights.dims->size != 4 || weights.dims->data[0] <= 0 || weights.dims->data[3] <= 0 ||
      in.dims->data[3] % weights.dims->data[3] != 0) {
    return false;
  }
  const int groups = in.dims->data[3] / weights.dims->data[3];
  *why = "channels that do not divide into groups";
  return groups >= 1 && weights.dims->data[0] % groups == 0;
}

}  // namespace litesmith
