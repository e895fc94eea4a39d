// SPDX-License-Identifier: Apache-2.0
// See quant.h.
#include "ops/quant.h"

#include <algorithm>
#include <cmath>

namespace litesmith {
namespace {

// 2^45 times a 15-bit multiplier stays below the 2^62 that Requant adds to keep numbers positive.
constexpr int64_t kLargestBias = int64_t{1} << 45;

bool ZeroPointsAreZero(const TfLiteAffineQuantization& affine) {
  if (affine.zero_point == nullptr) return true;
  for (int i = 0; i < affine.zero_point->size; ++i) {
    if (affine.zero_point->data[i] != 0) return false;
  }
  return true;
}

int RoundUpToPanel(int channels) { return (channels + kPanel - 1) / kPanel * kPanel; }

}  // namespace

const TfLiteAffineQuantization* Affine(const TfLiteTensor& tensor) {
  if (tensor.quantization.type != kTfLiteAffineQuantizationType) return nullptr;
  const auto* affine = static_cast<const TfLiteAffineQuantization*>(tensor.quantization.params);
  return affine != nullptr && affine->scale != nullptr ? affine : nullptr;
}

bool IsInt16Activation(const TfLiteTensor& tensor, std::string* why) {
  if (tensor.type != kTfLiteInt16) {
    *why = "not an int16 operator";
    return false;
  }
  const TfLiteAffineQuantization* affine = Affine(tensor);
  if (affine == nullptr || affine->scale->size != 1 || !(tensor.params.scale > 0) ||
      !std::isfinite(tensor.params.scale) || tensor.params.zero_point != 0) {
    *why = "an int16 tensor without one scale and zero point 0";
    return false;
  }
  return true;
}

bool ActivationRange(Activation activation, float scale, int32_t* lo, int32_t* hi, std::string* why) {
  const auto quantized = [scale](float x) {
    const float q = std::round(x / scale);
    return static_cast<int32_t>(std::max(-2147483648.0f, std::min(2147483520.0f, q)));
  };
  *lo = INT16_MIN;
  *hi = INT16_MAX;
  switch (activation) {
    case Activation::kNone: return true;
    case Activation::kRelu: *lo = std::max(*lo, quantized(0.0f)); return true;
    case Activation::kRelu6:
      *lo = std::max(*lo, quantized(0.0f));
      *hi = std::min(*hi, quantized(6.0f));
      return true;
    case Activation::kReluN1To1:
      *lo = std::max(*lo, quantized(-1.0f));
      *hi = std::min(*hi, quantized(1.0f));
      return true;
    default: *why = "a fused activation that is not a clamp"; return false;
  }
}

bool WeightScales(const TfLiteTensor& weights, int channel_dim, int channels, std::vector<float>* scales,
                  std::string* why) {
  const TfLiteAffineQuantization* affine = Affine(weights);
  if (weights.type != kTfLiteInt8 || !IsConstant(weights) || weights.sparsity != nullptr || affine == nullptr ||
      !ZeroPointsAreZero(*affine)) {
    *why = "weights that are not constant symmetric int8";
    return false;
  }
  const int count = affine->scale->size;
  if (count != 1 && (count != channels || affine->quantized_dimension != channel_dim)) {
    *why = "weight scales along an unexpected dimension";
    return false;
  }
  scales->resize(channels);
  for (int c = 0; c < channels; ++c) (*scales)[c] = affine->scale->data[count == 1 ? 0 : c];
  return true;
}

bool ReadBias(const TfLiteTensor* bias, int channels, std::vector<int64_t>* out, std::string* why) {
  out->assign(channels, 0);
  if (bias == nullptr) return true;
  const bool wide = bias->type == kTfLiteInt64;
  const Shape shape = ShapeOf(*bias);
  if ((!wide && bias->type != kTfLiteInt32) || !IsConstant(*bias) || NumElements(shape) != channels) {
    *why = "a bias that is not a constant int32 or int64 per channel";
    return false;
  }
  for (int c = 0; c < channels; ++c) {
    (*out)[c] = wide ? static_cast<const int64_t*>(bias->data)[c] : static_cast<const int32_t*>(bias->data)[c];
    if (std::abs((*out)[c]) > kLargestBias) {
      *why = "a bias beyond 2^45";
      return false;
    }
  }
  return true;
}

std::vector<int64_t> LargestSums(const int8_t* weights, size_t row_stride, int n, int k) {
  std::vector<int64_t> sums(n, 0);
  for (int c = 0; c < n; ++c) {
    for (int i = 0; i < k; ++i) sums[c] += 32768 * std::abs(static_cast<int>(weights[c * row_stride + i]));
  }
  return sums;
}

void Requant::Fill(const std::vector<int32_t>& values, const std::vector<int>& shifts, const std::vector<int64_t>& bias,
                   int32_t lo, int32_t hi) {
  const int padded = RoundUpToPanel(static_cast<int>(values.size()));
  multiplier_.assign(padded, 0);
  center_.assign(padded, 0);
  offset_even_.assign(padded / 2, 0);
  offset_odd_ = shift_even_ = shift_odd_ = offset_even_;
  lo_ = lo;
  hi_ = hi;
  for (size_t c = 0; c < values.size(); ++c) {
    const uint64_t shift = static_cast<uint64_t>(shifts[c]);
    const uint64_t offset = static_cast<uint64_t>(bias[c]) * static_cast<uint64_t>(values[c]) +
                            (uint64_t{1} << (shift - 1)) + (uint64_t{1} << 62);
    multiplier_[c] = values[c];
    center_[c] = static_cast<int32_t>(static_cast<uint32_t>((uint64_t{1} << 62) >> shift));
    (c % 2 ? offset_odd_ : offset_even_)[c / 2] = offset;
    (c % 2 ? shift_odd_ : shift_even_)[c / 2] = shift;
  }
  narrow_bias_.clear();
}

void Requant::Build32(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias, int32_t lo,
                      int32_t hi) {
  std::vector<int32_t> values;
  std::vector<int> shifts;
  for (const FixedMultiplier& m : multipliers) {
    values.push_back(m.value);
    shifts.push_back(31 - m.shift);
  }
  Fill(values, shifts, bias, lo, hi);
}

void Requant::Build(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias,
                    const std::vector<int64_t>& reach, int32_t lo, int32_t hi) {
  std::vector<int32_t> values;
  std::vector<int> shifts;
  for (const FixedMultiplier& m : multipliers) {
    values.push_back(ReducedMultiplier(m.value));
    shifts.push_back(15 - m.shift);
  }
  Fill(values, shifts, bias, lo, hi);
  const int padded = static_cast<int>(multiplier_.size());
  narrow_bias_.assign(padded, 0);
  narrow_round_.assign(padded, 0);
  narrow_shift_.assign(padded, 1);
  for (size_t c = 0; c < multipliers.size(); ++c) {
    if (multiplier_[c] == 0 && reach[c] <= INT32_MAX) continue;  // all zeros, whatever the bias
    const int shift = 15 - multipliers[c].shift;
    if (shift < 17 || reach[c] + std::abs(bias[c]) > INT32_MAX) {
      Free(&narrow_bias_, &narrow_round_, &narrow_shift_);
      return;
    }
    narrow_bias_[c] = static_cast<int32_t>(bias[c]);
    narrow_round_[c] = 1 << (shift - 17);
    narrow_shift_[c] = shift - 16;
  }
  Free(&center_, &offset_even_, &offset_odd_, &shift_even_, &shift_odd_);
}

RequantView Requant::View(int first_channel) const {
  RequantView all{multiplier_.data(), center_.data(), offset_even_.data(), offset_odd_.data(), shift_even_.data(),
                  shift_odd_.data(), lo_, hi_, {}};
  if (!narrow_bias_.empty()) all.narrow = {narrow_bias_.data(), narrow_round_.data(), narrow_shift_.data()};
  return FromChannel(all, first_channel);
}

bool ConvMultipliers(float input_scale, float output_scale, const std::vector<float>& scales,
                     std::vector<FixedMultiplier>* out, std::string* why) {
  out->clear();
  for (float scale : scales) {
    const double real = static_cast<double>(input_scale) * static_cast<double>(scale) / static_cast<double>(output_scale);
    const FixedMultiplier m = QuantizeMultiplier(real);
    if (!(real >= 0) || m.shift > 7) {  // LiteRT's own bound for 64-bit accumulators
      *why = "a scale ratio outside LiteRT's range";
      return false;
    }
    out->push_back(m);
  }
  return true;
}

Window WindowOf(Padding padding, int in, int kernel, int stride, int dilation) {
  const int extent = (kernel - 1) * dilation + 1;
  Window w;
  w.out = padding == Padding::kSame ? (in + stride - 1) / stride : (in + stride - extent) / stride;
  w.out = std::max(w.out, 0);
  const int total = (w.out - 1) * stride + extent - in;
  w.pad = padding == Padding::kSame && total > 0 ? total / 2 : 0;
  return w;
}

}  // namespace litesmith
