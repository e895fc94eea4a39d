// SPDX-License-Identifier: Apache-2.0
// Matrix product of float rows with integer weights: each row is rounded to int16 by its own step, multiplied exactly,
// and scaled back.
//
// int8 weights are taken as they are, so that all that is lost is the rounding of a row to 16 bits. Float weights are
// rounded too, by the largest of each channel: rows and weights to as many bits, up to 16 each, as keep the largest sum
// of about 48 of their products in an int32; sums of more are taken in floats. Rows get a bit more than weights: their
// steps are those of a whole block of pixels.
#ifndef LITESMITH_OPS_HYBRID_GEMM_H_
#define LITESMITH_OPS_HYBRID_GEMM_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "kernels/registry.h"
#include "ops/packed_weights.h"

namespace litesmith {

class HybridGemm {
 public:
  // weights[n][k], row-major.
  void Pack(const KernelTable& kernels, const int8_t* weights, const float* scales, int n, int k);
  void PackRounded(const KernelTable& kernels, const float* weights, int n, int k);
  void SetFinish(const float* bias, float lo, float hi);  // a bias of n values

  // Rows that come in segments, see PackedWeights.
  void SetRows(int segment, ptrdiff_t gap) {
    std::visit([=](auto& w) { w.SetRows(segment, gap); }, weights_);
  }

  int n() const { return n_; }
  int k_padded() const { return std::visit([](const auto& w) { return w.k_padded(); }, weights_); }
  int num_panels() const { return (n_ + kPanel - 1) / kPanel; }
  int rows_per_tile() const { return std::visit([](const auto& w) { return w.kernel().mr; }, weights_); }
  const char* kernel_name() const { return std::visit([](const auto& w) { return w.kernel().name; }, weights_); }

  // Rounds `count` floats, zeros behind them up to `padded`, and returns their step. Values that are not finite make the
  // step, and so all that is computed with it, not a number.
  float Round(const float* in, int count, int padded, int16_t* out) const;
  float StepOf(float most) const;                                           // for values up to `most`
  void RoundBy(float step, const float* in, int count, int padded, int16_t* out) const;

  // `pixels` rows of k floats that lie together, k even, to as many of n: rounded, multiplied and scaled by blocks.
  // `rounded` has room for kMostRows of them.
  void RunTogether(const float* in, int pixels, int16_t* rounded, float* out) const;

  // out[i * out_stride + c] for i < m <= kMostRows and the channels of panels [panel_begin, panel_end).
  void Run(const int16_t* const* rows, const float* steps, int m, int panel_begin, int panel_end, float* out,
           size_t out_stride) const;

 private:
  template <class Weight>
  void RunWith(const PackedWeights<Weight>& weights, const int16_t* const* rows, const float* steps, int m,
               int panel_begin, int panel_end, float* out, size_t out_stride) const;

  const KernelTable* kernels_ = nullptr;
  int n_ = 0, k_ = 0;
  float most_ = 0;  // the largest magnitude of a rounded value
  std::variant<PackedWeights<int8_t>, PackedWeights<int16_t>> weights_;
  std::vector<float> scales_, bias_;
  float lo_ = 0, hi_ = 0;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_HYBRID_GEMM_H_
