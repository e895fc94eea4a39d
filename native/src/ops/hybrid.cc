// SPDX-License-Identifier: Apache-2.0
// See hybrid.h.
#include "ops/hybrid.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu.h"
#include "ops/quant.h"
#include "ops/sparse_weights.h"

namespace litesmith {
namespace {

// Nanoseconds of one core; only ratios matter. Those of AVX2 are measured on a Zen 3 of 3.4 GHz, those of AVX-512 on a Zen 4
// of 3.6 GHz. With 8-bit dot products the stock engine is as fast with int8 weights, and where we have no kernel it is left
// alone.
struct Speeds {
  double mac_int8, mac_float, stock_mac_int8, stock_mac_float;
};
constexpr double kValueIn = 0.09, kValueOut = 0.08, kValueGathered = 0.05, kStockValueOut = 0.10;
constexpr double kPieceGathered = 15;  // a few pixels of a row: what a first layer with three channels is made of
constexpr double kPieceFramed = 2;     // to begin the sums of a piece anew

Speeds SpeedsOf(const KernelTable& kernels) {
  if (std::strcmp(kernels.tier, "avx512vnni") == 0) return {0.0095, 0.0095, 0.008, 0.018};
  if (std::strcmp(kernels.tier, "avx2") == 0) return {0.0140, 0.0158, CpuHasAvxVnni() ? 0.008 : 0.026, 0.024};
  return {1, 1, 0.01, 0.01};
}

template <class T>
std::vector<T> Spread(const T* weights, int rows, const Segments& segments) {
  std::vector<T> spread(static_cast<size_t>(rows) * segments.count * segments.padded, T{0});
  for (int64_t i = 0; i < static_cast<int64_t>(rows) * segments.count; ++i) {
    std::copy_n(weights + i * segments.length, segments.length, spread.data() + i * segments.padded);
  }
  return spread;
}

}  // namespace

bool HybridWeights::Find(const NodeView& node, int outputs, Activation activation, std::string* why) {
  if (node.input(0).type != kTfLiteFloat32 || node.output(0).type != kTfLiteFloat32) {
    *why = "not a float32 operator";
    return false;
  }
  const TfLiteTensor& weights = node.narrow(1);
  if (weights.type == kTfLiteInt8) {
    if (!WeightScales(weights, 0, outputs, &scales_, why)) return false;
    int8_ = static_cast<const int8_t*>(weights.data);
  } else if ((weights.type == kTfLiteFloat16 || weights.type == kTfLiteFloat32) && IsConstant(weights) &&
             weights.sparsity == nullptr) {
    floats_ = &weights;
  } else {
    *why = "weights that are neither int8 nor plain floats";
    return false;
  }
  bias_.assign(outputs, 0.0f);
  if (node.has_input(2) && !ReadFloatConstant(node.narrow(2), &bias_, why)) return false;
  if (bias_.size() != static_cast<size_t>(outputs)) {
    *why = "a bias of another size";
    return false;
  }
  if (!FloatActivation(activation, &lo_, &hi_)) {
    *why = "a fused activation that is not a clamp";
    return false;
  }
  return true;
}

bool ReadWidened(const TfLiteTensor& tensor, int channel_dim, std::vector<float>* values, std::string* why) {
  if (tensor.type != kTfLiteInt8) return ReadFloatConstant(tensor, values, why);
  const Shape shape = ShapeOf(tensor);
  std::vector<float> scales;
  if (channel_dim >= static_cast<int>(shape.size())) return false;
  if (!WeightScales(tensor, channel_dim, shape[channel_dim], &scales, why)) return false;
  int64_t behind = 1;  // values with the same index along the dimension that lie together
  for (size_t d = channel_dim + 1; d < shape.size(); ++d) behind *= shape[d];
  values->resize(NumElements(shape));
  const auto* stored = static_cast<const int8_t*>(tensor.data);
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = stored[i] * scales[i / behind % shape[channel_dim]];
  return true;
}

void HybridWeights::Estimate(const KernelTable& kernels, const HybridWork& work, double* here_us,
                             double* stock_us) const {
  const Speeds speeds = SpeedsOf(kernels);
  const bool is_int8 = int8_ != nullptr;
  const double here = work.macs * (is_int8 ? speeds.mac_int8 : speeds.mac_float) + work.values_in * kValueIn +
                      work.values_out * kValueOut + work.values_gathered * kValueGathered +
                      work.pieces_gathered * kPieceGathered + work.pieces_framed * kPieceFramed;
  const double stock = work.stock_macs * (is_int8 ? speeds.stock_mac_int8 : speeds.stock_mac_float) + work.values_out * kStockValueOut;
  *here_us = here * 1e-3;
  *stock_us = stock * 1e-3;
}

void HybridWeights::Pack(const KernelTable& kernels, int first, int n, const Segments& segments, HybridGemm* gemm) const {
  const int k = segments.count * segments.padded;
  const size_t offset = static_cast<size_t>(first) * segments.count * segments.length;
  if (int8_ != nullptr) {
    gemm->Pack(kernels, Spread(int8_ + offset, n, segments).data(), scales_.data() + first, n, k);
  } else {
    std::vector<float> values;
    std::string why;  // Find has read their type; a plain constant always has its values
    ReadFloatConstant(*floats_, &values, &why);
    gemm->PackRounded(kernels, Spread(values.data() + offset, n, segments).data(), n, k);
  }
  gemm->SetFinish(bias_.data() + first, lo_, hi_);
}

}  // namespace litesmith
