// SPDX-License-Identifier: Apache-2.0
// Kernels of hybrid operators and their companions for AVX2 with FMA; lanes are channels.
#include <immintrin.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

// Called functions that take vectors leave the upper halves of registers in use, and whatever follows pays for that.
#define LITESMITH_INLINE __attribute__((always_inline)) inline

constexpr int kLanes = 8;
constexpr int kFloatsInCache = 6 * 1024;  // of the three rows that a 3x3 kernel moves over

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void Store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

// In this order of operands a value that is not a number stays one.
inline __m256 ClampEight(__m256 value, __m256 lo, __m256 hi) { return _mm256_min_ps(hi, _mm256_max_ps(lo, value)); }

// Lanes below n.
inline __m256i MaskOf(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

template <bool kAdds, bool kWhole>
LITESMITH_INLINE void FinishEight(const int32_t* acc, int acc_stride, int m, int n,
                                                        const float* steps, const FloatFinishView& q, int c, float* out,
                                                        size_t out_stride) {
  const __m256 lo = _mm256_set1_ps(q.lo), hi = _mm256_set1_ps(q.hi);
  const __m256 scale = _mm256_loadu_ps(q.scale + c);
  const __m256 bias = kAdds ? _mm256_setzero_ps() : _mm256_loadu_ps(q.bias + c);
  const __m256i mask = MaskOf(n);
  for (int i = 0; i < m; ++i, acc += acc_stride, out += out_stride) {
    __m256 base = bias;
    if constexpr (kAdds) base = kWhole ? _mm256_loadu_ps(out) : _mm256_maskload_ps(out, mask);
    const __m256 factor = _mm256_mul_ps(scale, _mm256_broadcast_ss(steps + i));
    const __m256 value = ClampEight(_mm256_fmadd_ps(_mm256_cvtepi32_ps(Load(acc)), factor, base), lo, hi);
    if constexpr (kWhole) {
      _mm256_storeu_ps(out, value);
    } else {
      _mm256_maskstore_ps(out, mask, value);
    }
  }
}

template <bool kAdds>
void Finish(const int32_t* acc, int acc_stride, int m, int n, const float* steps, const FloatFinishView& q, float* out,
            size_t out_stride) {
  int c = 0;
  for (; c + 8 <= n; c += 8) FinishEight<kAdds, true>(acc + c, acc_stride, m, 8, steps, q, c, out + c, out_stride);
  if (c < n) FinishEight<kAdds, false>(acc + c, acc_stride, m, n - c, steps, q, c, out + c, out_stride);
}

void s32_finish_f32__avx2(const int32_t* acc, int acc_stride, int m, int n, const float* steps,
                          const FloatFinishView& q, float* out, size_t out_stride) {
  if (q.bias == nullptr) {
    Finish<true>(acc, acc_stride, m, n, steps, q, out, out_stride);
  } else {
    Finish<false>(acc, acc_stride, m, n, steps, q, out, out_stride);
  }
}

// Compared as integers, which order magnitudes as floats do and put what is not a number on top.
float f32_max_abs__avx2(const float* in, int n) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most0 = _mm256_setzero_si256(), most1 = most0;
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    most0 = _mm256_max_epi32(most0, _mm256_and_si256(Load(in + i), magnitude));
    most1 = _mm256_max_epi32(most1, _mm256_and_si256(Load(in + i + 8), magnitude));
  }
  for (; i < n; i += 8) {
    const __m256 part = _mm256_maskload_ps(in + i, MaskOf(n - i));
    most0 = _mm256_max_epi32(most0, _mm256_and_si256(_mm256_castps_si256(part), magnitude));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_max_epi32(most0, most1));
  int32_t most = 0;
  for (int32_t lane : lanes) most = most > lane ? most : lane;
  float value;
  __builtin_memcpy(&value, &most, sizeof(value));
  return value;
}

void f32_round_s16__avx2(const float* in, int n, float factor, int16_t* out) {
  const __m256 factors = _mm256_set1_ps(factor);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(in + i), factors));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(in + i + 8), factors));
    Store(out + i, _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8));
  }
  for (; i < n; ++i) out[i] = static_cast<int16_t>(_mm_cvtss_si32(_mm_set_ss(in[i] * factor)));
}

// One vector of channels of the three rows under a kernel.
struct Columns {
  const float* row0;
  const float* row1;
  const float* row2;
  int stride;  // floats from column to column

  // The products of a column with column `k` of the kernel.
  LITESMITH_INLINE __m256 Product(const __m256* w, int column, int k) const {
    const int64_t at = static_cast<int64_t>(column) * stride;
    __m256 sum = _mm256_mul_ps(w[k], _mm256_loadu_ps(row0 + at));
    sum = _mm256_fmadd_ps(w[3 + k], _mm256_loadu_ps(row1 + at), sum);
    return _mm256_fmadd_ps(w[6 + k], _mm256_loadu_ps(row2 + at), sum);
  }
};

// Outputs [begin, end) of one vector of channels, whose columns may lie outside the image.
LITESMITH_INLINE void Dw3x3Careful(const Dw3x3Row& v, const Columns& from, const __m256* w, __m256 bias, int begin, int end,
                         float* out) {
  for (int x = begin; x < end; ++x) {
    __m256 sum = bias;
    for (int k = 0; k < 3; ++k) {
      const int column = x * v.stride + k - v.pad;
      if (column >= 0 && column < v.width) sum = _mm256_add_ps(sum, from.Product(w, column, k));
    }
    _mm256_storeu_ps(out + static_cast<int64_t>(x) * v.channels,
                     ClampEight(sum, _mm256_set1_ps(v.lo), _mm256_set1_ps(v.hi)));
  }
}

// With stride 1 a column is loaded once and used for three outputs, two of which wait for their next column.
LITESMITH_INLINE void Dw3x3Sliding(const Dw3x3Row& v, const Columns& from, const __m256* w, __m256 bias, int begin, int end,
                         float* out) {
  const __m256 lo = _mm256_set1_ps(v.lo), hi = _mm256_set1_ps(v.hi);
  int column = begin - v.pad;
  __m256 second = _mm256_add_ps(bias, from.Product(w, column, 0));
  ++column;
  second = _mm256_add_ps(second, from.Product(w, column, 1));
  __m256 first = _mm256_add_ps(bias, from.Product(w, column, 0));
  ++column;
  const int64_t stride = v.channels;
  const float* in0 = from.row0 + column * stride;
  const float* in1 = from.row1 + column * stride;
  const float* in2 = from.row2 + column * stride;
  float* to = out + begin * stride;
  for (int x = begin; x < end; ++x, in0 += stride, in1 += stride, in2 += stride, to += stride) {
    const __m256 a = _mm256_loadu_ps(in0), b = _mm256_loadu_ps(in1), c = _mm256_loadu_ps(in2);
    const __m256 last = _mm256_fmadd_ps(w[8], c, _mm256_fmadd_ps(w[5], b, _mm256_fmadd_ps(w[2], a, second)));
    const __m256 middle = _mm256_fmadd_ps(w[7], c, _mm256_fmadd_ps(w[4], b, _mm256_mul_ps(w[1], a)));
    const __m256 start = _mm256_fmadd_ps(w[6], c, _mm256_fmadd_ps(w[3], b, _mm256_fmadd_ps(w[0], a, bias)));
    _mm256_storeu_ps(to, ClampEight(last, lo, hi));
    second = _mm256_add_ps(first, middle);
    first = start;
  }
}

LITESMITH_INLINE void Dw3x3Apart(const Dw3x3Row& v, const Columns& from, const __m256* w, __m256 bias, int begin, int end,
                       float* out) {
  const __m256 lo = _mm256_set1_ps(v.lo), hi = _mm256_set1_ps(v.hi);
  for (int x = begin; x < end; ++x) {
    const int column = x * v.stride - v.pad;
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(bias, from.Product(w, column, 0)),
                                     _mm256_add_ps(from.Product(w, column + 1, 1), from.Product(w, column + 2, 2)));
    _mm256_storeu_ps(out + static_cast<int64_t>(x) * v.channels, ClampEight(sum, lo, hi));
  }
}

inline int Least(int a, int b) { return a < b ? a : b; }
inline int Most(int a, int b) { return a > b ? a : b; }

// A block of columns at a time, all channels of it, so that the other half of a cache line is still there.
void f32_dwconv3x3_row__avx2(const Dw3x3Row& v, int out_begin, int out_end, float* out) {
  const int block = Most(8, kFloatsInCache / (3 * v.channels * v.stride));
  const int inner_begin = (v.pad + v.stride - 1) / v.stride;                    // the first output with all its columns
  const int inner_end = v.width + v.pad < 3 ? 0 : (v.width + v.pad - 3) / v.stride + 1;  // behind the last of them
  for (int first = out_begin; first < out_end; first += block) {
    const int last = Least(first + block, out_end);
    const int begin = Least(Most(first, inner_begin), last), end = Most(begin, Least(last, inner_end));
    for (int c = 0; c < v.channels; c += kLanes) {
      __m256 w[9];
      for (int k = 0; k < 9; ++k) w[k] = _mm256_loadu_ps(v.weights + static_cast<int64_t>(k) * v.channels + c);
      const __m256 bias = _mm256_loadu_ps(v.bias + c);
      const Columns from{v.rows[0] + c, v.rows[1] + c, v.rows[2] + c, v.channels};
      Dw3x3Careful(v, from, w, bias, first, begin, out + c);
      if (begin < end && v.stride == 1) Dw3x3Sliding(v, from, w, bias, begin, end, out + c);
      if (begin < end && v.stride != 1) Dw3x3Apart(v, from, w, bias, begin, end, out + c);
      Dw3x3Careful(v, from, w, bias, end, last, out + c);
    }
  }
}

void f32_add__avx2(const float* a, const float* b, int n, float lo, float hi, float* out) {
  const __m256 low = _mm256_set1_ps(lo), high = _mm256_set1_ps(hi);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_ps(out + i, ClampEight(_mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)), low, high));
  }
  if (i < n) {
    const __m256i mask = MaskOf(n - i);
    const __m256 sum = _mm256_add_ps(_mm256_maskload_ps(a + i, mask), _mm256_maskload_ps(b + i, mask));
    _mm256_maskstore_ps(out + i, mask, ClampEight(sum, low, high));
  }
}

}  // namespace

void FillAvx2Hybrid(KernelTable* t) {
  t->s32_finish_f32 = {"s32_finish_f32__avx2", s32_finish_f32__avx2};
  t->f32_max_abs = {"f32_max_abs__avx2", f32_max_abs__avx2};
  t->f32_round_s16 = {"f32_round_s16__avx2", f32_round_s16__avx2};
  t->f32_dwconv3x3_row = {"f32_dwconv3x3_row__avx2", f32_dwconv3x3_row__avx2};
  t->f32_add = {"f32_add__avx2", f32_add__avx2};
}

}  // namespace litesmith
