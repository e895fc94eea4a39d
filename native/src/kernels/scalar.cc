// SPDX-License-Identifier: Apache-2.0
// The scalar reference of every kernel: what the others must equal. Written for clarity, not speed.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/fixed_point.h"
#include "kernels/registry.h"

namespace litesmith {
namespace {

// Panel layout shared with the x86 tiers: [k / 2][kPanel][2], a pair of consecutive k beside each other.
template <class Weight>
void gemm_pack_pairs(const Weight* weights, size_t row_stride, int n, int k, Weight* panel) {
  std::fill_n(panel, (k + 1) / 2 * 2 * kPanel, Weight{0});
  for (int c = 0; c < n; ++c) {
    for (int i = 0; i < k; ++i) panel[(i / 2) * 2 * kPanel + c * 2 + i % 2] = weights[c * row_stride + i];
  }
}

template <class Weight>
void gemm_1x16__scalar(const int16_t* const* rows, int m, int k, const Weight* panels, size_t panel_stride,
                       int num_panels, int32_t* acc) {
  for (int i = 0; i < m; ++i) {
    for (int p = 0; p < num_panels; ++p) {
      for (int c = 0; c < kPanel; ++c) {
        int32_t sum = 0;
        for (int j = 0; j < k; ++j) {
          sum += rows[i][j] * panels[p * panel_stride + (j / 2) * 2 * kPanel + c * 2 + j % 2];
        }
        acc[(i * num_panels + p) * kPanel + c] = sum;
      }
    }
  }
}

int16_t RequantWide(uint64_t acc, int c, const RequantView& q) {
  const uint64_t offset = c % 2 ? q.offset_odd[c / 2] : q.offset_even[c / 2];
  const uint64_t shift = c % 2 ? q.shift_odd[c / 2] : q.shift_even[c / 2];
  const uint64_t scaled = (acc * static_cast<uint64_t>(int64_t{q.multiplier[c]}) + offset) >> shift;
  const int32_t value = static_cast<int32_t>(static_cast<uint32_t>(scaled) - static_cast<uint32_t>(q.center[c]));
  return static_cast<int16_t>(ClampInt(value, q.lo, q.hi));
}

int16_t RequantOne(int32_t acc, int c, const RequantView& q) {
  if (q.narrow.bias == nullptr) return RequantWide(static_cast<uint64_t>(int64_t{acc}), c, q);
  const int32_t x = acc + q.narrow.bias[c], high = x >> 16, low = x & 0xFFFF;
  const int32_t value = (high * q.multiplier[c] + ((low * q.multiplier[c]) >> 16) + q.narrow.round[c]) >> q.narrow.shift[c];
  return static_cast<int16_t>(ClampInt(value, q.lo, q.hi));
}

void requant_s32_s16__scalar(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                             size_t out_stride) {
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < n; ++c) {
      out[i * out_stride + c] = RequantOne(acc[i * acc_stride + c], c, q);
    }
  }
}

void requant_s64_s16__scalar(const int64_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                             size_t out_stride) {
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < n; ++c) {
      out[i * out_stride + c] = RequantWide(static_cast<uint64_t>(acc[i * acc_stride + c]), c, q);
    }
  }
}

void requant_double_s16__scalar(const int32_t* acc, int acc_stride, int m, int n, const DoubleRequantView& q,
                                int16_t* out, size_t out_stride) {
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < n; ++c) {
      const double value = (static_cast<double>(acc[i * acc_stride + c]) + q.bias[c]) * q.scale[c];
      out[i * out_stride + c] = static_cast<int16_t>(ClampInt(DoubleToInt32LikeStock(std::round(value)), q.lo, q.hi));
    }
  }
}

void s16s8_dwconv_1x1__scalar(const int16_t* const* taps, int num_taps, const DwRun* runs, int num_runs, int channel,
                              int n, const int16_t* weights, const RequantView& q, int16_t* out, size_t out_stride) {
  for (const DwRun* run = runs; run < runs + num_runs; ++run, taps += num_taps) {
    for (int p = 0; p < run->pixels; ++p, out += out_stride) {
      for (int c = 0; c < n; ++c) {
        const int16_t* block = weights + c / kPanel * num_taps * kPanel;
        int32_t sum = 0;
        for (int t = 0; t < num_taps; ++t) {
          const int16_t weight = block[(t / 2) * 2 * kPanel + DwWeightIndex(c % kPanel) + t % 2];
          sum += taps[t][p * run->step + channel + c] * weight;
        }
        out[c] = RequantOne(sum, c, q);
      }
    }
  }
}

// The vector code of the wheel: input shift and the headroom of 15 bits as one shift, then one rounding.
int16_t AddInBlock(int16_t a, int16_t b, const AddView& p) {
  const auto scaled = [](int16_t x, int32_t multiplier, int shift) {
    const int total = 15 + shift;
    const int32_t shifted = total >= 0 ? ShiftLeftWrapping(x, total) : x >> std::min(31, -total);
    return SaturatingRoundingDoublingHighMul(shifted, multiplier);
  };
  const int32_t sum = scaled(a, p.multiplier_a, p.shift_a) + scaled(b, p.multiplier_b, p.shift_b);
  const int32_t out = RoundingDivideByPot(SaturatingRoundingDoublingHighMul(sum, p.multiplier_out), -p.shift_out);
  return static_cast<int16_t>(ClampInt(out, p.lo, p.hi));
}

void s16_add_blocks__scalar(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = AddInBlock(a[i], b[i], p);
}

template <int kSign>
void AddOrSub(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  for (int i = 0; i < n; ++i) {
    const int32_t left = MultiplyAcc32(ShiftLeftWrapping(a[i], 15), {p.multiplier_a, p.shift_a});
    const int32_t right = MultiplyAcc32(ShiftLeftWrapping(b[i], 15), {p.multiplier_b, p.shift_b});
    const int32_t value = MultiplyAcc32(left + kSign * right, {p.multiplier_out, p.shift_out});
    out[i] = static_cast<int16_t>(ClampInt(value, p.lo, p.hi));
  }
}

void s16_add__scalar(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  AddOrSub<1>(a, b, n, p, out);
}

void s16_sub__scalar(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  AddOrSub<-1>(a, b, n, p, out);
}

void s16_mul__scalar(const int16_t* a, const int16_t* b, int n, const ScaleView& p, int16_t* out) {
  for (int i = 0; i < n; ++i) {
    out[i] = static_cast<int16_t>(ClampInt(MultiplyAcc32(int32_t{a[i]} * b[i], {p.multiplier, p.shift}), p.lo, p.hi));
  }
}

void s16_scale__scalar(const int16_t* in, int n, const ScaleView& p, int16_t* out) {
  for (int i = 0; i < n; ++i) {
    out[i] = static_cast<int16_t>(ClampInt(MultiplyAcc32(in[i], {p.multiplier, p.shift}), p.lo, p.hi));
  }
}

// Multiplies by the reciprocal and rounds halves to even, as the vector code of the wheel does.
void f32_quantize_s16__scalar(const float* in, int n, float scale, int16_t* out) {
  const float inverse = static_cast<float>(1.0 / static_cast<double>(scale));
  for (int i = 0; i < n; ++i) {
    const float scaled = in[i] * inverse;
    if (!(scaled < 2147483648.0f && scaled >= -2147483648.0f)) {
#if defined(__aarch64__)
      out[i] = std::isnan(scaled) ? 0 : (scaled > 0 ? INT16_MAX : INT16_MIN);
#else
      out[i] = INT16_MIN;  // what cvtps2dq makes of it
#endif
      continue;
    }
    out[i] = static_cast<int16_t>(ClampInt(static_cast<int32_t>(std::nearbyint(scaled)), INT16_MIN, INT16_MAX));
  }
}

void s16_dequantize_f32__scalar(const int16_t* in, int n, float scale, float* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

float ClampF(float x, float lo, float hi) { return std::min(std::max(x, lo), hi); }

void f32_spmm_1x8__scalar(const float* in, size_t in_stride, int width, const SparseView& w, int row_begin,
                          int row_end, float* out, size_t out_stride) {
  for (int r = row_begin; r < row_end; ++r) {
    for (int x = 0; x < width; ++x) {
      float sum = w.bias != nullptr ? w.bias[r] : out[r * out_stride + x];
      for (int i = w.start[r]; i < w.start[r + 1]; ++i) sum += w.value[i] * in[w.column[i] * in_stride + x];
      out[r * out_stride + x] = ClampF(sum, w.lo, w.hi);
    }
  }
}

void s32_finish_f32__scalar(const int32_t* acc, int acc_stride, int m, int n, const float* steps,
                            const FloatFinishView& q, float* out, size_t out_stride) {
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < n; ++c) {
      float& value = out[i * out_stride + c];
      const float base = q.bias != nullptr ? q.bias[c] : value;
      value = static_cast<float>(acc[i * acc_stride + c]) * (q.scale[c] * steps[i]) + base;
      if (!std::isnan(value)) value = ClampF(value, q.lo, q.hi);
    }
  }
}

float f32_max_abs__scalar(const float* in, int n) {
  float most = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::isnan(in[i])) return in[i];
    most = std::max(most, std::abs(in[i]));
  }
  return most;
}

void f32_round_s16__scalar(const float* in, int n, float factor, int16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<int16_t>(std::nearbyint(in[i] * factor));
}

void f32_spmm_4x8__scalar(const float* in, size_t in_stride, int width, const SparseView& w, int row_begin,
                          int row_end, float* out, size_t out_stride) {
  for (int r = row_begin; r < row_end; ++r) {
    for (int lane = 0; lane < 4; ++lane) {
      for (int x = 0; x < width; ++x) {
        float sum = w.bias[r * 4 + lane];
        for (int i = w.start[r]; i < w.start[r + 1]; ++i) sum += w.value[i * 4 + lane] * in[w.column[i] * in_stride + x];
        out[(r * 4 + lane) * out_stride + x] = ClampF(sum, w.lo, w.hi);
      }
    }
  }
}

void f32_dwconv_plane__scalar(const float* const* taps, int num_taps, const float* weights, float bias, float lo,
                              float hi, int width, float* out) {
  for (int x = 0; x < width; ++x) {
    float sum = bias;
    for (int t = 0; t < num_taps; ++t) sum += weights[t] * taps[t][x];
    out[x] = ClampF(sum, lo, hi);
  }
}

void f32_conv_plane__scalar(const float* const* taps, int num_taps, const float* weights, const float* bias,
                            int outputs, float lo, float hi, int width, float* out, size_t out_stride) {
  const int padded = (outputs + 7) / 8 * 8;
  for (int o = 0; o < outputs; ++o) {
    for (int x = 0; x < width; ++x) {
      float sum = bias[o];
      for (int t = 0; t < num_taps; ++t) sum += weights[t * padded + o] * taps[t][x];
      out[o * out_stride + x] = ClampF(sum, lo, hi);
    }
  }
}

void f32_dwconv3x3_plane__scalar(const float* in, size_t in_stride, int planes, const Dw3x3View& v,
                                 const float* weights, const float* bias, float lo, float hi, float* out,
                                 size_t out_stride) {
  for (int i = 0; i < planes; ++i, in += in_stride, weights += 9, out += out_stride) {
    for (int at = 0; at < v.out_height * v.out_width; ++at) {
      const int y = at / v.out_width, x = at % v.out_width;
      float sum = bias[i];
      for (int k = 0; k < 9; ++k) {
        const int iy = y * v.stride + k / 3 - v.pad_y, ix = x * v.stride + k % 3 - v.pad_x;
        if (iy >= 0 && iy < v.in_height && ix >= 0 && ix < v.in_width) sum += weights[k] * in[iy * v.in_width + ix];
      }
      out[at] = ClampF(sum, lo, hi);
    }
  }
}

void f32_dwconv3x3_row__scalar(const Dw3x3Row& v, int out_begin, int out_end, float* out) {
  for (int x = out_begin; x < out_end; ++x) {
    for (int c = 0; c < v.channels; ++c) {
      float sum = v.bias[c];
      for (int k = 0; k < 9; ++k) {
        const int ix = x * v.stride + k % 3 - v.pad;
        if (ix >= 0 && ix < v.width) sum += v.weights[k * v.channels + c] * v.rows[k / 3][ix * v.channels + c];
      }
      out[x * v.channels + c] = ClampF(sum, v.lo, v.hi);
    }
  }
}

void f32_add__scalar(const float* a, const float* b, int n, float lo, float hi, float* out) {
  for (int i = 0; i < n; ++i) out[i] = ClampF(a[i] + b[i], lo, hi);
}

void f32_split_channels__scalar(const float* in, int n, int channels, float* out, size_t out_stride) {
  for (int c = 0; c < channels; ++c) {
    for (int i = 0; i < n; ++i) out[c * out_stride + i] = in[i * channels + c];
  }
}

void f32_split_row__scalar(const float* row, int n, float* even, float* odd) {
  for (int i = 0; i < n; ++i) (i % 2 == 0 ? even : odd)[i / 2] = row[i];
}

KernelTable MakeTable() {
  KernelTable t;
  t.tier = "scalar";
  t.s16s8_gemm = {"s16s8_gemm_1x16__scalar", 1, 1, 2, 0, gemm_pack_pairs<int8_t>, gemm_1x16__scalar<int8_t>, nullptr};
  t.s16s16_gemm = {"s16s16_gemm_1x16__scalar", 1, 1, 2, 0, gemm_pack_pairs<int16_t>, gemm_1x16__scalar<int16_t>, nullptr};
  t.f32_spmm[0] = {"f32_spmm_1x8__scalar", 8, f32_spmm_1x8__scalar};
  t.f32_spmm_4x1[0] = {"f32_spmm_4x8__scalar", 8, f32_spmm_4x8__scalar};
  t.f32_spmm_tiling = t.f32_spmm_4x1_tiling = {SpmmTiling::kAllInputs, 0, 0, 8, 1};
  t.requant_s32_s16 = {"requant_s32_s16__scalar", requant_s32_s16__scalar};
  t.requant_s64_s16 = {"requant_s64_s16__scalar", requant_s64_s16__scalar};
  t.requant_double_s16 = {"requant_double_s16__scalar", requant_double_s16__scalar};
  t.s16s8_dwconv = {"s16s8_dwconv_1x1__scalar", s16s8_dwconv_1x1__scalar};
  t.s16_add_blocks = {"s16_add_blocks__scalar", s16_add_blocks__scalar};
  t.s16_add = {"s16_add__scalar", s16_add__scalar};
  t.s16_sub = {"s16_sub__scalar", s16_sub__scalar};
  t.s16_mul = {"s16_mul__scalar", s16_mul__scalar};
  t.s16_scale = {"s16_scale__scalar", s16_scale__scalar};
  t.f32_quantize_s16 = {"f32_quantize_s16__scalar", f32_quantize_s16__scalar};
  t.s16_dequantize_f32 = {"s16_dequantize_f32__scalar", s16_dequantize_f32__scalar};
  t.s32_finish_f32 = {"s32_finish_f32__scalar", s32_finish_f32__scalar};
  t.f32_max_abs = {"f32_max_abs__scalar", f32_max_abs__scalar};
  t.f32_round_s16 = {"f32_round_s16__scalar", f32_round_s16__scalar};
  t.f32_dwconv_plane = {"f32_dwconv_plane__scalar", f32_dwconv_plane__scalar};
  t.f32_dwconv3x3_row = {"f32_dwconv3x3_row__scalar", f32_dwconv3x3_row__scalar};
  t.f32_add = {"f32_add__scalar", f32_add__scalar};
  t.f32_split_row = {"f32_split_row__scalar", f32_split_row__scalar};
  t.f32_split_channels = {"f32_split_channels__scalar", f32_split_channels__scalar};
  t.f32_dwconv3x3_plane = {"f32_dwconv3x3_plane__scalar", f32_dwconv3x3_plane__scalar};
  t.f32_conv_plane = {"f32_conv_plane__scalar", f32_conv_plane__scalar};
  return t;
}

}  // namespace

const KernelTable& ScalarTable() {
  static const KernelTable table = MakeTable();
  return table;
}

}  // namespace litesmith
