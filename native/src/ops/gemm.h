// SPDX-License-Identifier: Apache-2.0
// Matrix product of int16 rows with packed int8 weights, exact for any K, requantized to int16. Where K needs more than
// one chunk they add up in int64. Beside a bias of 32 bits LiteRT adds in 32 bits, and what leaves them comes back at the
// other end: so it does here.
#ifndef LITESMITH_OPS_GEMM_H_
#define LITESMITH_OPS_GEMM_H_

#include <cstdint>
#include <vector>

#include "kernels/registry.h"
#include "ops/packed_weights.h"
#include "ops/quant.h"

namespace litesmith {

// How LiteRT brings sums of 32 bits to the scale of the output.
enum class Rounding32 {
  kOnce,          // ruy: (x * multiplier + half) >> shift
  kTwice,         // the reference kernels: after the product and after the shift, halves away from zero
  kTwiceInBlocks  // whole blocks of 8 channels with the second half upwards, as NEON does it; the rest as kTwice
};

class PackedGemm {
 public:
  // weights[n][k], row-major with `row_stride`.
  void Pack(const KernelTable& kernels, const int8_t* weights, size_t row_stride, int n, int k);
  void SetRequant(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias, int32_t lo,
                  int32_t hi);
  // For a bias of 32 bits, or none.
  void SetRequant32(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias,
                    Rounding32 rounding, int32_t lo, int32_t hi);
  // FULLY_CONNECTED's requantization in double. |bias| must be below 2^52.
  void SetDoubleRequant(const std::vector<double>& scales, const std::vector<int64_t>& bias, int32_t lo, int32_t hi);

  int n() const { return weights_.n(); }
  int k() const { return weights_.k(); }
  int k_padded() const { return weights_.k_padded(); }
  int num_panels() const { return weights_.num_panels(); }
  int rows_per_tile() const { return weights_.kernel().mr; }

  // out[i * out_stride + c] for i < m and the channels of panels [panel_begin, panel_end).
  void Run(const int16_t* const* rows, int m, int panel_begin, int panel_end, int16_t* out, size_t out_stride) const;

 private:
  void RunChunks(const int16_t* const* rows, int m, int panel, int panels, int32_t* acc, int16_t* out,
                 size_t out_stride) const;
  void RunIn32Bits(const int16_t* const* rows, int m, int panel, int panels, int32_t* acc, int16_t* out,
                   size_t out_stride) const;
  void Finish32(const int32_t* acc, int stride, int m, int channel, int n, int16_t* out, size_t out_stride) const;
  void Finish64(const int64_t* acc, int stride, int m, int channel, int n, int16_t* out, size_t out_stride) const;

  const KernelTable* kernels_ = nullptr;
  PackedWeights<int8_t> weights_;
  std::vector<int64_t> reach_;  // of each channel's sums, until the requantization is set
  Requant requant_;
  bool in_double_ = false;
  std::vector<double> scales_, bias_;
  bool in_32_bits_ = false;  // sums may leave 32 bits, or are rounded twice
  Rounding32 rounding_ = Rounding32::kOnce;
  std::vector<FixedMultiplier> multipliers_;
  std::vector<int32_t> bias32_;
  int32_t lo_ = 0, hi_ = 0;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_GEMM_H_
