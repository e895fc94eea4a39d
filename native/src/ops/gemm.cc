// SPDX-License-Identifier: Apache-2.0
// See gemm.h.
#include "ops/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace litesmith {
namespace {

// 32768 * 65535 < 2^31: the largest sum of |weight| that no partial sum can overflow.
constexpr int kSafeWeightSum = 65535;
constexpr int kMostRows = 60;   // rows requantized together; a multiple of every tier's tile height
constexpr int kMostPanels = 2;  // of any tier

}  // namespace

void PackedGemm::Pack(const KernelTable& kernels, const int8_t* weights, size_t row_stride, int n, int k) {
  kernels_ = &kernels;
  kernel_ = &kernels.s16s8_gemm;
  n_ = n;
  k_ = k;
  const int step = kernel_->k_multiple;
  k_padded_ = (k + step - 1) / step * step;

  chunks_.clear();
  std::vector<int> sums(n, 0);
  int begin = 0;
  for (int at = 0; at < k; at += step) {
    const int end = std::min(at + step, k);
    std::vector<int> grown = sums;
    for (int c = 0; c < n; ++c) {
      for (int i = at; i < end; ++i) grown[c] += std::abs(static_cast<int>(weights[c * row_stride + i]));
    }
    if (*std::max_element(grown.begin(), grown.end()) > kSafeWeightSum) {
      chunks_.push_back({begin, at, 0, 0});
      for (int c = 0; c < n; ++c) grown[c] -= sums[c];
      begin = at;
    }
    sums.swap(grown);
  }
  chunks_.push_back({begin, k, 0, 0});

  size_t bytes = 0;
  for (Chunk& chunk : chunks_) {
    const int length = (chunk.k_end - chunk.k_begin + step - 1) / step * step;
    chunk.panel_stride = static_cast<size_t>(length) * kPanel + kernel_->panel_header_bytes;
    chunk.offset = bytes;
    bytes += chunk.panel_stride * num_panels();
  }
  packed_.assign(bytes, 0);
  for (const Chunk& chunk : chunks_) {
    for (int p = 0; p < num_panels(); ++p) {
      kernel_->pack(weights + p * kPanel * row_stride + chunk.k_begin, row_stride, std::min(kPanel, n - p * kPanel),
                    chunk.k_end - chunk.k_begin, packed_.data() + chunk.offset + p * chunk.panel_stride);
    }
  }
}

void PackedGemm::SetRequant(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias,
                            int32_t lo, int32_t hi) {
  requant_.Build(multipliers, bias, lo, hi);
  in_double_ = false;
}

void PackedGemm::SetDoubleRequant(const std::vector<double>& scales, const std::vector<int64_t>& bias, int32_t lo,
                                  int32_t hi) {
  in_double_ = true;
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

// Panels outer, rows inner: one panel of weights stays in the first-level cache while all rows pass, and all rows are
// requantized together, so that their channel's constants are loaded once.
void PackedGemm::Run(const int16_t* const* rows, int m, int panel_begin, int panel_end, int16_t* out,
                     size_t out_stride) const {
  alignas(64) int32_t acc[kMostRows * kMostPanels * kPanel];
  for (int first = 0; first < m; first += kMostRows) {
    const int count = std::min(kMostRows, m - first);
    for (int p = panel_begin; p < panel_end; p += kernel_->max_panels) {
      const int panels = std::min(kernel_->max_panels, panel_end - p);
      const int stride = panels * kPanel, channel = p * kPanel;
      const int n = std::min(stride, n_ - channel);
      int16_t* target = out + static_cast<size_t>(first) * out_stride + channel;
      if (chunks_.size() > 1) {
        RunChunks(rows + first, count, p, panels, acc, target, out_stride);
        continue;
      }
      for (int i = 0; i < count; i += kernel_->mr) {
        kernel_->run(rows + first + i, std::min(kernel_->mr, count - i), k_padded_,
                     packed_.data() + p * chunks_[0].panel_stride, chunks_[0].panel_stride, panels, acc + i * stride);
      }
      Finish32(acc, stride, count, channel, n, target, out_stride);
    }
  }
}

void PackedGemm::RunChunks(const int16_t* const* rows, int m, int panel, int panels, int32_t* acc, int16_t* out,
                           size_t out_stride) const {
  const int stride = panels * kPanel, channel = panel * kPanel;
  alignas(64) int64_t wide[kMostRows * kMostPanels * kPanel];
  const int16_t* shifted[kMostRows];
  std::fill(wide, wide + m * stride, 0);
  for (const Chunk& chunk : chunks_) {
    const int step = kernel_->k_multiple;
    const int length = (chunk.k_end - chunk.k_begin + step - 1) / step * step;
    for (int i = 0; i < m; ++i) shifted[i] = rows[i] + chunk.k_begin;
    for (int i = 0; i < m; i += kernel_->mr) {
      kernel_->run(shifted + i, std::min(kernel_->mr, m - i), length,
                   packed_.data() + chunk.offset + panel * chunk.panel_stride, chunk.panel_stride, panels,
                   acc + i * stride);
    }
    for (int j = 0; j < m * stride; ++j) wide[j] += acc[j];
  }
  Finish64(wide, stride, m, channel, std::min(stride, n_ - channel), out, out_stride);
}

}  // namespace litesmith
