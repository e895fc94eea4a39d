// SPDX-License-Identifier: Apache-2.0
// See hybrid_gemm.h.
#include "ops/hybrid_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace litesmith {
namespace {

constexpr double kMostSum = 2147483000.0;  // below 2^31, with room for the rounding of what it is divided by
constexpr int kLargest = 32767;
// Of K, about. The sums of so many products become floats; that takes a twentieth of the time of the products.
constexpr int kChunk = 48;
constexpr size_t kInFirstLevel = 12 * 1024;
constexpr float kSmallest = 1e-30f;  // values below count as zeros: their steps could not be inverted

}  // namespace

void HybridGemm::Pack(const KernelTable& kernels, const int8_t* weights, const float* scales, int n, int k) {
  kernels_ = &kernels;
  n_ = n;
  k_ = k;
  most_ = kLargest;
  weights_.emplace<PackedWeights<int8_t>>().Pack(kernels.s16s8_gemm, weights, k, n, k, static_cast<int>(kMostSum / kLargest));
  scales_.assign(scales, scales + n);
  scales_.resize(static_cast<size_t>(num_panels()) * kPanel, 0.0f);
}

void HybridGemm::PackRounded(const KernelTable& kernels, const float* weights, int n, int k) {
  kernels_ = &kernels;
  n_ = n;
  k_ = k;
  scales_.assign(static_cast<size_t>(num_panels()) * kPanel, 0.0f);
  // A sum is at most the largest of a row times the largest weight times this.
  std::vector<double> spread(n, 1.0);
  std::vector<float> largest(n);
  for (int c = 0; c < n; ++c) {
    const float* row = weights + static_cast<size_t>(c) * k;
    largest[c] = kernels.f32_max_abs.run(row, k);
    double sum = 0.0;
    for (int i = 0; i < k; ++i) sum += std::abs(row[i]);
    if (std::isfinite(largest[c]) && largest[c] >= kSmallest) spread[c] = sum / largest[c] + 1.0;  // and for the rounding
  }
  const double widest = *std::max_element(spread.begin(), spread.end());
  const double most_sum = kMostSum * std::max(1, (k + kChunk / 2) / kChunk);  // of all chunks
  most_ = static_cast<float>(std::min(static_cast<int>(std::sqrt(2 * most_sum / widest)), kLargest));
  std::vector<int16_t> rounded(static_cast<size_t>(n) * k, 0);
  for (int c = 0; c < n; ++c) {
    if (!std::isfinite(largest[c])) scales_[c] = std::numeric_limits<float>::quiet_NaN();  // and so are its outputs
    if (!std::isfinite(largest[c]) || largest[c] < kSmallest) continue;
    const double fitting = std::min(most_sum / most_ / spread[c], static_cast<double>(kLargest));
    const float most = static_cast<float>(static_cast<int>(fitting));
    const size_t row = static_cast<size_t>(c) * k;
    scales_[c] = largest[c] / most;
    kernels.f32_round_s16.run(weights + row, k, most / largest[c], rounded.data() + row);
  }
  weights_.emplace<PackedWeights<int16_t>>().Pack(kernels.s16s16_gemm, rounded.data(), k, n, k, static_cast<int>(kMostSum / most_));
}

void HybridGemm::SetFinish(const float* bias, float lo, float hi) {
  bias_.assign(bias, bias + n_);
  bias_.resize(scales_.size(), 0.0f);
  lo_ = lo;
  hi_ = hi;
}

float HybridGemm::StepOf(float most) const {
  if (!std::isfinite(most)) return std::numeric_limits<float>::quiet_NaN();
  return most < kSmallest ? 0.0f : most / most_;
}

void HybridGemm::RoundBy(float step, const float* in, int count, int padded, int16_t* out) const {
  const int rounded = step > 0.0f ? count : 0;
  if (rounded > 0) kernels_->f32_round_s16.run(in, count, 1.0f / step, out);
  std::memset(out + rounded, 0, sizeof(int16_t) * (padded - rounded));
}

float HybridGemm::Round(const float* in, int count, int padded, int16_t* out) const {
  const float step = StepOf(kernels_->f32_max_abs.run(in, count));
  RoundBy(step, in, count, padded, out);
  return step;
}

void HybridGemm::RunTogether(const float* in, int pixels, int16_t* rounded, float* out) const {
  for (int first = 0; first < pixels; first += kMostRows) {
    const int count = std::min(kMostRows, pixels - first);
    const int16_t* rows[kMostRows];
    float steps[kMostRows];
    std::fill_n(steps, count, Round(in + static_cast<size_t>(first) * k_, count * k_, count * k_, rounded));
    for (int i = 0; i < count; ++i) rows[i] = rounded + static_cast<size_t>(i) * k_;
    Run(rows, steps, count, 0, num_panels(), out + static_cast<size_t>(first) * n_, n_);
  }
}

void HybridGemm::Run(const int16_t* const* rows, const float* steps, int m, int panel_begin, int panel_end, float* out,
                     size_t out_stride) const {
  std::visit([&](const auto& w) { RunWith(w, rows, steps, m, panel_begin, panel_end, out, out_stride); }, weights_);
}

template <class Weight>
void HybridGemm::RunWith(const PackedWeights<Weight>& weights, const int16_t* const* rows, const float* steps, int m,
                         int panel_begin, int panel_end, float* out, size_t out_stride) const {
  alignas(64) int32_t acc[kMostRows * kMostPanels * kPanel];
  constexpr float kEndless = std::numeric_limits<float>::infinity();
  const int max_panels = weights.kernel().max_panels, chunks = weights.num_chunks();
  // Weights that stay in the first-level cache anyway: few rows at a time, so that outputs are written in their order.
  const size_t bytes = sizeof(Weight) * weights.k_padded() * (panel_end - panel_begin) * kPanel;
  const int block = bytes <= kInFirstLevel ? weights.kernel().mr : kMostRows;
  if (weights.has_to_float()) {
    const int together = bytes <= kInFirstLevel ? panel_end - panel_begin : max_panels;
    for (int first = 0; first < m; first += block) {
      for (int p = panel_begin; p < panel_end; p += together) {
        const int channel = p * kPanel, channels = std::min((p + together) * kPanel, n_) - channel;
        const FloatFinishView view{scales_.data() + channel, bias_.data() + channel, lo_, hi_};
        weights.MultiplyToFloat(rows + first, std::min(block, m - first), p, channels, steps + first, view,
                                out + first * out_stride + channel, out_stride);
      }
    }
    return;
  }
  for (int first = 0; first < m; first += block) {
    const int count = std::min(block, m - first);
    for (int p = panel_begin; p < panel_end; p += max_panels) {
      const int panels = std::min(max_panels, panel_end - p);
      const int stride = panels * kPanel, channel = p * kPanel, n = std::min(stride, n_ - channel);
      float* target = out + first * out_stride + channel;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const bool last = chunk + 1 == chunks;
        const FloatFinishView view{scales_.data() + channel, chunk == 0 ? bias_.data() + channel : nullptr,
                                   last ? lo_ : -kEndless, last ? hi_ : kEndless};
        weights.Multiply(chunk, rows + first, count, p, panels, acc);
        kernels_->s32_finish_f32.run(acc, stride, count, n, steps + first, view, target, out_stride);
      }
    }
  }
}

}  // namespace litesmith
