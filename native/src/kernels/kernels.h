// SPDX-License-Identifier: Apache-2.0
// What every instruction-set tier must provide: the signatures of the kernels, one struct per table slot.
//
// Plain C types only: this header is compiled with different target flags, so it may hold nothing with linkage.
// A kernel's name says type, operator, tile and ISA, e.g. s16s8_gemm_6x16__avx2.
#ifndef LITESMITH_KERNELS_KERNELS_H_
#define LITESMITH_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace litesmith {

// Output channels per packed weight panel; all per-channel arrays are padded to a multiple of it.
constexpr int kPanel = 16;

// Requantization of 64-bit exact sums, per output channel: out = clamp(low32((acc * multiplier + offset) >> shift)).
// `offset` holds bias * multiplier + rounding + 2^62, so that the arithmetic shift of a possibly negative number
// becomes a logical one, which AVX2 has; `center` = low32(2^62 >> shift) takes it out again.
// 64-bit values are stored as even channels and odd channels apart, the way 32x32->64 bit multiplies deliver them.
//
// `narrow` has the same in 32 bits, for int32 sums: with x = acc + bias and the halves of x,
// (high * multiplier + (low * multiplier >> 16) + round) >> shift. It is equal to the above where x fits 32 bits and the
// above shifts by 17 at least; otherwise its pointers are null. Multipliers have 15 bits. Where it is there, the arrays of
// the above are not: they would be a tenth of a MobileNet.
struct RequantView {
  const int32_t* multiplier;
  const int32_t* center;
  const uint64_t* offset_even;
  const uint64_t* offset_odd;
  const uint64_t* shift_even;
  const uint64_t* shift_odd;
  int32_t lo, hi;
  struct {
    const int32_t* bias;
    const int32_t* round;
    const int32_t* shift;
  } narrow;
};

// The view of the channels from c on, a multiple of kPanel.
static inline RequantView FromChannel(const RequantView& q, int c) {
  RequantView r = q;
  r.multiplier += c;
  if (q.narrow.bias != nullptr) {
    r.narrow.bias += c;
    r.narrow.round += c;
    r.narrow.shift += c;
    return r;
  }
  r.center += c;
  r.offset_even += c / 2;
  r.offset_odd += c / 2;
  r.shift_even += c / 2;
  r.shift_odd += c / 2;
  return r;
}

// FULLY_CONNECTED requantizes in double: out = clamp(round((acc + bias) * scale)).
struct DoubleRequantView {
  const double* bias;
  const double* scale;
  int32_t lo, hi;
};

// Two int16 tensors to one with two rescalings and a final one (ADD, SUB).
struct AddView {
  int32_t multiplier_a, multiplier_b, multiplier_out;
  int shift_a, shift_b, shift_out;  // LiteRT's convention: positive is left, all <= 0 here
  int32_t lo, hi;
};

// x -> clamp(x * multiplier), 32-bit two-step rounding.
struct ScaleView {
  int32_t multiplier;
  int shift;
  int32_t lo, hi;
};

// acc[i * panels * kPanel + c] = sum over k of rows[i][k] * weight[k][c], i < m <= mr. K is a multiple of k_multiple
// and the caller guarantees that no partial sum leaves int32. Strides of panels are in weights.
template <class Weight>
using GemmRunFn = void(const int16_t* const* rows, int m, int k, const Weight* panels, size_t panel_stride,
                       int num_panels, int32_t* acc);
// Packs one panel: weights[c][k] for c < n <= kPanel, zero elsewhere; k is padded up to k_multiple.
template <class Weight>
using GemmPackFn = void(const Weight* weights, size_t row_stride, int n, int k, Weight* panel);
// Exact sums to float, per row and channel: out = clamp(acc * (step[row] * scale[channel]) + bias[channel]). Without a
// bias they are added to what is in the output.
struct FloatFinishView {
  const float* scale;
  const float* bias;
  float lo, hi;
};
// A piece of K, from the end of the one before: value k of row i is rows[i][k + shift]. Behind the last piece of a chunk
// sums become floats, before they could leave int32.
struct KPiece {
  int end;
  bool ends_chunk;
  ptrdiff_t shift;
};
// The product and its finish in one, for a few rows (m <= the GEMM kernel's mr) and n channels, a multiple of 8. An
// optional kernel: null where a tier has none.
template <class Weight>
using GemmToFloatFn = void(const int16_t* const* rows, int m, const KPiece* pieces, int num_pieces, const Weight* panels,
                           size_t panel_stride, const float* steps, const FloatFinishView& q, int n, float* out,
                           size_t out_stride);
template <class Weight>
struct GemmKernel {
  const char* name;
  int mr;          // rows per call
  int max_panels;  // panels per call
  int k_multiple;
  int panel_header;  // weights besides k * kPanel
  GemmPackFn<Weight>* pack;
  GemmRunFn<Weight>* run;
  GemmToFloatFn<Weight>* to_float;
};

using FloatFinishFn = void(const int32_t* acc, int acc_stride, int m, int n, const float* steps,
                           const FloatFinishView& q, float* out, size_t out_stride);
// The largest magnitude of n floats; not a number if any of them is none.
using MaxAbsFn = float(const float* in, int n);
// out[i] = in[i] * factor, rounded to the nearest integer, halves to even; the caller knows that it fits.
using RoundS16Fn = void(const float* in, int n, float factor, int16_t* out);

using RequantS32Fn = void(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                          size_t out_stride);
using RequantS64Fn = void(const int64_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                          size_t out_stride);
using RequantDoubleFn = void(const int32_t* acc, int acc_stride, int m, int n, const DoubleRequantView& q, int16_t* out,
                             size_t out_stride);
// Where the weight pair of channel c stands among the 2 * kPanel values of a tap pair: the order in which 256-bit
// unpack instructions deliver channels (0-3, 8-11, then 4-7, 12-15).
static inline int DwWeightIndex(int c) { return ((c >> 2) & 1) * kPanel + ((c >> 3) * 4 + (c & 3)) * 2; }

// Pixels beside each other: the input under tap t of pixel i of run r is at taps[r * num_taps + t] + i * step.
struct DwRun {
  int pixels;
  ptrdiff_t step;
};
// n channels, from `channel` on, of some runs of pixels. Taps point at channel 0; their number is even; weights are
// [n / kPanel, rounded up][num_taps / 2][2 * kPanel], see DwWeightIndex. Reads whole blocks of kPanel channels whatever n is.
using DwConvFn = void(const int16_t* const* taps, int num_taps, const DwRun* runs, int num_runs, int channel, int n,
                      const int16_t* weights, const RequantView& q, int16_t* out, size_t out_stride);
using AddS16Fn = void(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out);
using MulS16Fn = void(const int16_t* a, const int16_t* b, int n, const ScaleView& p, int16_t* out);
using ScaleS16Fn = void(const int16_t* in, int n, const ScaleView& p, int16_t* out);
using QuantizeFn = void(const float* in, int n, float scale, int16_t* out);
using DequantizeFn = void(const int16_t* in, int n, float scale, float* out);

// Sparse rows in compressed form. Output channel r owns entries [start[r], start[r + 1]); each entry is an input
// channel and its weight(s): 1 weight for unstructured rows, 4 for a group of 4 output channels ("4x1" blocks).
// Without a bias, unstructured rows are added to what is in the output: a part of the input channels at a time.
struct SparseView {
  const int32_t* start;
  const int32_t* column;
  const float* value;
  const float* bias;
  int rows;  // output channels (unstructured) or groups of 4
  float lo, hi;
};
// out[r * out_stride + x] for x < width; width <= the kernel's tile; in[c * in_stride + x]. Reads and writes whole
// vectors: both planes are padded.
using SpmmFn = void(const float* in, size_t in_stride, int width, const SparseView& w, int row_begin, int row_end,
                    float* out, size_t out_stride);
struct SpmmKernel {
  const char* name;
  int max_width;  // floats per call
  SpmmFn* run;
};

// Convolutions in planes: taps[t] points at the input under tap t of output 0, and the input under output x is
// taps[t][x], whatever the stride: the caller has taken the rows and columns of strided inputs apart. Reads and writes
// whole vectors.
using DwPlaneFn = void(const float* const* taps, int num_taps, const float* weights, float bias, float lo, float hi,
                       int width, float* out);
// The same for whole planes of a 3x3 kernel with stride 1 or 2, padding included; the middle tap is never in the padding
// at the sides. Nine weights and a bias a plane. Reads up to 64 bytes around an input plane; writes no more than
// out_stride values of an output plane.
struct Dw3x3View {
  int in_height, in_width, out_height, out_width;
  int stride, pad_y, pad_x;  // pads of at most 1
  const float* zeros;        // in_width + 32 of them, 16 of which before the pointer
};
using Dw3x3PlaneFn = void(const float* in, size_t in_stride, int planes, const Dw3x3View& v, const float* weights,
                          const float* bias, float lo, float hi, float* out, size_t out_stride);
// One row of outputs of a 3x3 kernel on an image with channels beside each other, stride 1 or 2: rows[0..2] are the input
// rows under it (zeros outside the image), columns outside of [0, width) count as zeros. Weights [9][channels], channels a
// multiple of 8.
struct Dw3x3Row {
  const float* rows[3];
  int width, channels, stride, pad;
  const float* weights;
  const float* bias;
  float lo, hi;
};
using Dw3x3RowFn = void(const Dw3x3Row& v, int out_begin, int out_end, float* out);
// out[i] = clamp(a[i] + b[i])
using AddF32Fn = void(const float* a, const float* b, int n, float lo, float hi, float* out);
// even[i] = row[2 * i], odd[i] = row[2 * i + 1] for all of n values; reads and writes whole vectors.
using SplitRowFn = void(const float* row, int n, float* even, float* odd);
// out[c * out_stride + i] = in[i * channels + c] for all of n pixels.
using SplitChannelsFn = void(const float* in, int n, int channels, float* out, size_t out_stride);
// Several output channels from the same taps, those of all input channels; weights [num_taps][outputs padded to 8].
using ConvPlaneFn = void(const float* const* taps, int num_taps, const float* weights, const float* bias, int outputs,
                         float lo, float hi, int width, float* out, size_t out_stride);

}  // namespace litesmith

#endif  // LITESMITH_KERNELS_KERNELS_H_
