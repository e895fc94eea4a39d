// SPDX-License-Identifier: Apache-2.0
// Quantization parameters of int16x8 operators: reading them from tensors, checking them, and the per-channel arrays
// the requantization kernels take.
#ifndef LITESMITH_OPS_QUANT_H_
#define LITESMITH_OPS_QUANT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/fixed_point.h"
#include "core/node_view.h"
#include "kernels/kernels.h"

namespace litesmith {

// int16, one positive scale, zero point 0. Otherwise false with the reason.
bool IsInt16Activation(const TfLiteTensor& tensor, std::string* why);

// The clamp a fused activation means for an int16 output of this scale. False for activations that are not a clamp.
bool ActivationRange(Activation activation, float scale, int32_t* lo, int32_t* hi, std::string* why);

// The scales and zero points of a tensor, or null.
const TfLiteAffineQuantization* Affine(const TfLiteTensor& tensor);

// Scales of int8 weights along dimension `channel_dim`: one for all or one per channel, zero points 0.
bool WeightScales(const TfLiteTensor& weights, int channel_dim, int channels, std::vector<float>* scales,
                  std::string* why);

// Reads a bias of int32 or int64, or zeros for none. False when a value is too large for the exact shortcut.
bool ReadBias(const TfLiteTensor* bias, int channels, std::vector<int64_t>* out, std::string* why);

// The largest magnitude that a product of int16 values with these weights can reach in each channel; weights[n][k].
std::vector<int64_t> LargestSums(const int8_t* weights, size_t row_stride, int n, int k);

// Gives the memory of vectors back; what they held has been packed.
template <class... T>
void Free(std::vector<T>*... vectors) {
  (std::vector<T>().swap(*vectors), ...);
}

// Owner of the arrays behind RequantView.
class Requant {
 public:
  // out[c] = clamp(MultiplyAcc64(acc + bias[c], multipliers[c])). All multipliers need shift < 15. No |acc| of channel c
  // is above reach[c].
  void Build(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias,
             const std::vector<int64_t>& reach, int32_t lo, int32_t hi);
  // The same with multipliers of 31 bits, for sums of which acc + bias[c] stays in 32.
  void Build32(const std::vector<FixedMultiplier>& multipliers, const std::vector<int64_t>& bias, int32_t lo, int32_t hi);
  RequantView View(int first_channel) const;  // first_channel is a multiple of kPanel

 private:
  // (acc * values[c] + bias[c] * values[c] + rounding) >> shifts[c]
  void Fill(const std::vector<int32_t>& values, const std::vector<int>& shifts, const std::vector<int64_t>& bias,
            int32_t lo, int32_t hi);

  std::vector<int32_t> multiplier_, center_;
  std::vector<uint64_t> offset_even_, offset_odd_, shift_even_, shift_odd_;
  std::vector<int32_t> narrow_bias_, narrow_round_, narrow_shift_;  // empty where 32 bits are not enough
  int32_t lo_ = 0, hi_ = 0;
};

// Multipliers for weights of `scales` between an input and an output scale; false when one is out of range.
bool ConvMultipliers(float input_scale, float output_scale, const std::vector<float>& scales,
                     std::vector<FixedMultiplier>* out, std::string* why);

// SAME / VALID arithmetic of one spatial dimension.
struct Window {
  int out = 0;
  int pad = 0;  // before
};
Window WindowOf(Padding padding, int in, int kernel, int stride, int dilation);

}  // namespace litesmith

#endif  // LITESMITH_OPS_QUANT_H_
