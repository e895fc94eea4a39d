// SPDX-License-Identifier: Apache-2.0
// What the hybrid operators share: float in and out, weights of any kind, products of integers.
#ifndef LITESMITH_OPS_HYBRID_H_
#define LITESMITH_OPS_HYBRID_H_

#include <string>
#include <vector>

#include "core/op.h"
#include "ops/hybrid_gemm.h"

namespace litesmith {

// What the work of an operator is made of, for the estimate.
struct HybridWork {
  double macs = 0, stock_macs = 0, values_in = 0, values_out = 0;
  double values_gathered = 0, pieces_gathered = 0;  // under the pixels of kernels larger than 1x1; a piece is one copy
  double pieces_framed = 0;                         // the same where they lie side by side, for each panel of channels
};

// How a row of weights is cut; zeros are put behind each segment.
struct Segments {
  int count, length, padded;
};

// The weights of a hybrid operator and how its sums become outputs.
class HybridWeights {
 public:
  // Finds weights of int8 or of floats, with `outputs` rows, and a float bias or none. False with the reason.
  bool Find(const NodeView& node, int outputs, Activation activation, std::string* why);
  // Packs rows [first, first + n) of weights.
  void Pack(const KernelTable& kernels, int first, int n, const Segments& segments, HybridGemm* gemm) const;
  void Estimate(const KernelTable& kernels, const HybridWork& work, double* here_us, double* stock_us) const;
  const char* kernel_name(const KernelTable& kernels) const {
    return int8_ != nullptr ? kernels.s16s8_gemm.name : kernels.s16s16_gemm.name;
  }
  // Whether the n channels of these weights can read rows that come in segments, of a length that is padded for them.
  bool TakesRows(const KernelTable& kernels, int n) const {
    return int8_ != nullptr ? MakesFloats(kernels.s16s8_gemm, n) : MakesFloats(kernels.s16s16_gemm, n);
  }
  int Padded(const KernelTable& kernels, int segment) const {
    const int multiple = int8_ != nullptr ? kernels.s16s8_gemm.k_multiple : kernels.s16s16_gemm.k_multiple;
    return (segment + multiple - 1) / multiple * multiple;
  }

 private:
  const int8_t* int8_ = nullptr;
  const TfLiteTensor* floats_ = nullptr;
  std::vector<float> scales_, bias_;
  float lo_ = 0, hi_ = 0;
};

// A constant as floats: 32 or 16 bits wide, or int8 with scales along dimension `channel_dim`. False with the reason.
bool ReadWidened(const TfLiteTensor& tensor, int channel_dim, std::vector<float>* values, std::string* why);

}  // namespace litesmith

#endif  // LITESMITH_OPS_HYBRID_H_
