// SPDX-License-Identifier: Apache-2.0
// See gemm.h.
#include "ops/gemm.h"

#include <algorithm>
#include <cmath>

namespace litesmith {
namespace {

// 32768 * 65535 < 2^31: the largest sum of |weight| that no partial sum can overflow.
constexpr int kSafeWeightSum = 65535;

constexpr int kRowsTogether = 12;  // a multiple of every tile height

}  // namespace

void PackedGemm::Pack(const KernelTable& kernels, const int8_t* weights, size_t row_stride, int n, int k) {
  kernels_ = &kernels;
  reach_ = LargestSums(weights, row_stride, n, k);
  weights_.Pack(kernels.s16s8_gemm, weights, row_stride, n, k, kSafeWeightSum);
}

void PackedGemm::SetRequant(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias,
                            int32_t lo, int32_t hi) {
  requant_.Build(multipliers, bias, reach_, lo, hi);
  Free(&reach_);
  in_double_ = in_32_bits_ = false;
}

void PackedGemm::SetRequant32(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias,
                              Rounding32 rounding, int32_t lo, int32_t hi) {
  in_double_ = false;
  rounding_ = rounding;
  multipliers_ = multipliers;
  bias32_.assign(bias.begin(), bias.end());
  bias32_.resize(static_cast<size_t>(num_panels()) * kPanel, 0);
  lo_ = lo;
  hi_ = hi;
  in_32_bits_ = rounding != Rounding32::kOnce || weights_.num_chunks() > 1;
  for (size_t c = 0; c < bias.size(); ++c) in_32_bits_ |= reach_[c] + std::abs(bias[c]) > INT32_MAX;
  requant_.Build32(multipliers, in_32_bits_ ? std::vector<int64_t>(bias.size(), 0) : bias, lo, hi);
  Free(&reach_);
}

void PackedGemm::SetDoubleRequant(const std::vector<double>& scales, const std::vector<int64_t>& bias, int32_t lo,
                                  int32_t hi) {
  in_double_ = true;
  Free(&reach_);
  const size_t padded = static_cast<size_t>(num_panels()) * kPanel;
  scales_ = scales;
  scales_.resize(padded, 0.0);
  bias_.assign(bias.begin(), bias.end());
  bias_.resize(padded, 0.0);
  lo_ = lo;
  hi_ = hi;
}

void PackedGemm::Finish32(const int32_t* acc, int stride, int m, int channel, int n, int16_t* out,
                          size_t out_stride) const {
  if (in_double_) {
    const DoubleRequantView view{bias_.data() + channel, scales_.data() + channel, lo_, hi_};
    kernels_->requant_double_s16.run(acc, stride, m, n, view, out, out_stride);
  } else {
    kernels_->requant_s32_s16.run(acc, stride, m, n, requant_.View(channel), out, out_stride);
  }
}

void PackedGemm::Finish64(const int64_t* acc, int stride, int m, int channel, int n, int16_t* out,
                          size_t out_stride) const {
  if (!in_double_) {
    kernels_->requant_s64_s16.run(acc, stride, m, n, requant_.View(channel), out, out_stride);
    return;
  }
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < n; ++c) {
      const double sum = static_cast<double>(acc[i * stride + c]) + bias_[channel + c];
      const int32_t value = DoubleToInt32LikeStock(std::round(sum * scales_[channel + c]));
      out[i * out_stride + c] = static_cast<int16_t>(ClampInt(value, lo_, hi_));
    }
  }
}

// Panels outer, rows inner: the panels stay in the first-level cache while all rows pass. Rows are requantized a few tiles
// at a time, while their sums are in that cache too.
void PackedGemm::Run(const int16_t* const* rows, int m, int panel_begin, int panel_end, int16_t* out,
                     size_t out_stride) const {
  alignas(64) int32_t acc[kRowsTogether * kMostPanels * kPanel];
  const int max_panels = weights_.kernel().max_panels;
  for (int p = panel_begin; p < panel_end; p += max_panels) {
    const int panels = std::min(max_panels, panel_end - p);
    const int stride = panels * kPanel, channel = p * kPanel;
    for (int first = 0; first < m; first += kRowsTogether) {
      const int count = std::min(kRowsTogether, m - first);
      int16_t* target = out + static_cast<size_t>(first) * out_stride + channel;
      if (in_32_bits_) {
        RunIn32Bits(rows + first, count, p, panels, acc, target, out_stride);
        continue;
      }
      if (weights_.num_chunks() > 1) {
        RunChunks(rows + first, count, p, panels, acc, target, out_stride);
        continue;
      }
      weights_.Multiply(0, rows + first, count, p, panels, acc);
      Finish32(acc, stride, count, channel, std::min(stride, n() - channel), target, out_stride);
    }
  }
}

// Addition modulo 2^32 gives the same sum in any order.
void PackedGemm::RunIn32Bits(const int16_t* const* rows, int m, int panel, int panels, int32_t* acc, int16_t* out,
                             size_t out_stride) const {
  const int stride = panels * kPanel, channel = panel * kPanel, count = std::min(stride, n() - channel);
  const auto add = [](int32_t a, int32_t b) { return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); };
  weights_.Multiply(0, rows, m, panel, panels, acc);
  if (weights_.num_chunks() > 1) {
    alignas(64) int32_t more[kRowsTogether * kMostPanels * kPanel];
    for (int chunk = 1; chunk < weights_.num_chunks(); ++chunk) {
      weights_.Multiply(chunk, rows, m, panel, panels, more);
      for (int j = 0; j < m * stride; ++j) acc[j] = add(acc[j], more[j]);
    }
  }
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < stride; ++c) acc[i * stride + c] = add(acc[i * stride + c], bias32_[channel + c]);
  }
  if (rounding_ == Rounding32::kOnce) {
    kernels_->requant_s32_s16.run(acc, stride, m, count, requant_.View(channel), out, out_stride);
    return;
  }
  const int blocks = rounding_ == Rounding32::kTwiceInBlocks ? n() / 8 * 8 : 0;
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < count; ++c) {
      const int32_t sum = acc[i * stride + c];
      const FixedMultiplier factor = multipliers_[channel + c];
      const int32_t value = channel + c < blocks ? MultiplyAcc32HalfUp(sum, factor) : MultiplyAcc32(sum, factor);
      out[i * out_stride + c] = static_cast<int16_t>(ClampInt(value, lo_, hi_));
    }
  }
}

void PackedGemm::RunChunks(const int16_t* const* rows, int m, int panel, int panels, int32_t* acc, int16_t* out,
                           size_t out_stride) const {
  const int stride = panels * kPanel, channel = panel * kPanel;
  alignas(64) int64_t wide[kRowsTogether * kMostPanels * kPanel];
  std::fill(wide, wide + m * stride, 0);
  for (int chunk = 0; chunk < weights_.num_chunks(); ++chunk) {
    weights_.Multiply(chunk, rows, m, panel, panels, acc);
    for (int j = 0; j < m * stride; ++j) wide[j] += acc[j];
  }
  Finish64(wide, stride, m, channel, std::min(stride, n() - channel), out, out_stride);
}

}  // namespace litesmith
