// SPDX-License-Identifier: Apache-2.0
// Float kernels of sparse chains for AVX2 with FMA; lanes are pixels of a plane.
#include <immintrin.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

constexpr int kLanes = 8;

inline __m256 Clamp(__m256 x, __m256 lo, __m256 hi) { return _mm256_min_ps(_mm256_max_ps(x, lo), hi); }

// Kernels below keep their sums in named variables: as arrays, gcc 12 leaves them in memory.

#define LITESMITH_EACH_1(X) X(0)
#define LITESMITH_EACH_2(X) LITESMITH_EACH_1(X) X(1)
#define LITESMITH_EACH_3(X) LITESMITH_EACH_2(X) X(2)
#define LITESMITH_EACH_4(X) LITESMITH_EACH_3(X) X(3)
#define LITESMITH_EACH_8(X) LITESMITH_EACH_4(X) X(4) X(5) X(6) X(7)

// One output row at a time: broadcast the weight, multiply-add with several loads of the input channel.
#define LITESMITH_START(v) __m256 sum##v = bias;
#define LITESMITH_STEP(v) sum##v = _mm256_fmadd_ps(weight, _mm256_loadu_ps(from + v * kLanes), sum##v);
#define LITESMITH_WRITE(v) _mm256_storeu_ps(to + v * kLanes, Clamp(sum##v, lo, hi));
#define LITESMITH_SPMM_ROWS(name, EACH)                                                                             \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int row_begin, int row_end, float* out,    \
            size_t out_stride) {                                                                                    \
    const __m256 lo = _mm256_set1_ps(w.lo), hi = _mm256_set1_ps(w.hi);                                              \
    for (int r = row_begin; r < row_end; ++r) {                                                                     \
      const __m256 bias = _mm256_broadcast_ss(w.bias + r);                                                          \
      EACH(LITESMITH_START)                                                                                         \
      for (int i = w.start[r]; i < w.start[r + 1]; ++i) {                                                           \
        const __m256 weight = _mm256_broadcast_ss(w.value + i);                                                     \
        const float* from = in + w.column[i] * in_stride;                                                           \
        EACH(LITESMITH_STEP)                                                                                        \
      }                                                                                                             \
      float* to = out + r * out_stride;                                                                             \
      EACH(LITESMITH_WRITE)                                                                                         \
    }                                                                                                               \
  }
LITESMITH_SPMM_ROWS(f32_spmm_1x64__avx2, LITESMITH_EACH_8)
LITESMITH_SPMM_ROWS(f32_spmm_1x32__avx2, LITESMITH_EACH_4)
LITESMITH_SPMM_ROWS(f32_spmm_1x16__avx2, LITESMITH_EACH_2)
LITESMITH_SPMM_ROWS(f32_spmm_1x8__avx2, LITESMITH_EACH_1)
#undef LITESMITH_START
#undef LITESMITH_STEP
#undef LITESMITH_WRITE

// Four output rows share each input load.
#define LITESMITH_START(v)                                                                                  \
  __m256 a##v = _mm256_broadcast_ss(w.bias + g * 4), b##v = _mm256_broadcast_ss(w.bias + g * 4 + 1),        \
         c##v = _mm256_broadcast_ss(w.bias + g * 4 + 2), d##v = _mm256_broadcast_ss(w.bias + g * 4 + 3);
#define LITESMITH_INPUT(v) const __m256 x##v = _mm256_loadu_ps(from + v * kLanes);
#define LITESMITH_ROW_A(v) a##v = _mm256_fmadd_ps(weight, x##v, a##v);
#define LITESMITH_ROW_B(v) b##v = _mm256_fmadd_ps(weight, x##v, b##v);
#define LITESMITH_ROW_C(v) c##v = _mm256_fmadd_ps(weight, x##v, c##v);
#define LITESMITH_ROW_D(v) d##v = _mm256_fmadd_ps(weight, x##v, d##v);
#define LITESMITH_WRITE(v)                                                  \
  _mm256_storeu_ps(to + v * kLanes, Clamp(a##v, lo, hi));                   \
  _mm256_storeu_ps(to + out_stride + v * kLanes, Clamp(b##v, lo, hi));      \
  _mm256_storeu_ps(to + 2 * out_stride + v * kLanes, Clamp(c##v, lo, hi));  \
  _mm256_storeu_ps(to + 3 * out_stride + v * kLanes, Clamp(d##v, lo, hi));
#define LITESMITH_SPMM_BLOCKS(name, EACH)                                                                           \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int group_begin, int group_end, float* out, \
            size_t out_stride) {                                                                                    \
    const __m256 lo = _mm256_set1_ps(w.lo), hi = _mm256_set1_ps(w.hi);                                              \
    for (int g = group_begin; g < group_end; ++g) {                                                                 \
      EACH(LITESMITH_START)                                                                                         \
      for (int i = w.start[g]; i < w.start[g + 1]; ++i) {                                                           \
        const float* from = in + w.column[i] * in_stride;                                                           \
        EACH(LITESMITH_INPUT)                                                                                       \
        __m256 weight = _mm256_broadcast_ss(w.value + i * 4);                                                       \
        EACH(LITESMITH_ROW_A)                                                                                       \
        weight = _mm256_broadcast_ss(w.value + i * 4 + 1);                                                          \
        EACH(LITESMITH_ROW_B)                                                                                       \
        weight = _mm256_broadcast_ss(w.value + i * 4 + 2);                                                          \
        EACH(LITESMITH_ROW_C)                                                                                       \
        weight = _mm256_broadcast_ss(w.value + i * 4 + 3);                                                          \
        EACH(LITESMITH_ROW_D)                                                                                       \
      }                                                                                                             \
      float* to = out + g * 4 * out_stride;                                                                         \
      EACH(LITESMITH_WRITE)                                                                                         \
    }                                                                                                               \
  }
LITESMITH_SPMM_BLOCKS(f32_spmm_4x24__avx2, LITESMITH_EACH_3)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x16__avx2, LITESMITH_EACH_2)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x8__avx2, LITESMITH_EACH_1)
#undef LITESMITH_START
#undef LITESMITH_WRITE

// Eight values at even positions from p: p[0], p[2], ... p[14].
inline __m256 LoadEven(const float* p) {
  const __m256 picked = _mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _MM_SHUFFLE(2, 0, 2, 0));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(picked), _MM_SHUFFLE(3, 1, 2, 0)));
}

template <int kStride>
inline __m256 LoadTap(const float* p) {
  return kStride == 1 ? _mm256_loadu_ps(p) : LoadEven(p);
}

// 3x3 with the nine weights in registers and three chains of additions.
template <int kStride>
inline void DwRow3(const float* const* rows, const float* w, float bias, float lo, float hi, int width, float* out) {
  const __m256 w0 = _mm256_set1_ps(w[0]), w1 = _mm256_set1_ps(w[1]), w2 = _mm256_set1_ps(w[2]);
  const __m256 w3 = _mm256_set1_ps(w[3]), w4 = _mm256_set1_ps(w[4]), w5 = _mm256_set1_ps(w[5]);
  const __m256 w6 = _mm256_set1_ps(w[6]), w7 = _mm256_set1_ps(w[7]), w8 = _mm256_set1_ps(w[8]);
  const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2];
  for (int x = 0; x < width; x += kLanes) {
    const int at = x * kStride;
    __m256 a = _mm256_fmadd_ps(w0, LoadTap<kStride>(r0 + at), _mm256_set1_ps(bias));
    __m256 b = _mm256_mul_ps(w3, LoadTap<kStride>(r1 + at));
    __m256 c = _mm256_mul_ps(w6, LoadTap<kStride>(r2 + at));
    a = _mm256_fmadd_ps(w1, LoadTap<kStride>(r0 + at + 1), a);
    b = _mm256_fmadd_ps(w4, LoadTap<kStride>(r1 + at + 1), b);
    c = _mm256_fmadd_ps(w7, LoadTap<kStride>(r2 + at + 1), c);
    a = _mm256_fmadd_ps(w2, LoadTap<kStride>(r0 + at + 2), a);
    b = _mm256_fmadd_ps(w5, LoadTap<kStride>(r1 + at + 2), b);
    c = _mm256_fmadd_ps(w8, LoadTap<kStride>(r2 + at + 2), c);
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(a, b), c);
    _mm256_storeu_ps(out + x, Clamp(sum, _mm256_set1_ps(lo), _mm256_set1_ps(hi)));
  }
}

template <int kStride>
inline void DwRow(const float* const* rows, int kernel_h, int kernel_w, const float* weights, float bias, float lo,
                  float hi, int width, float* out) {
  if (kernel_h == 3 && kernel_w == 3) return DwRow3<kStride>(rows, weights, bias, lo, hi, width, out);
  for (int x = 0; x < width; x += kLanes) {
    __m256 sum = _mm256_set1_ps(bias);
    for (int ky = 0; ky < kernel_h; ++ky) {
      const float* from = rows[ky] + x * kStride;
      for (int kx = 0; kx < kernel_w; ++kx) {
        sum = _mm256_fmadd_ps(_mm256_broadcast_ss(weights + ky * kernel_w + kx), LoadTap<kStride>(from + kx), sum);
      }
    }
    _mm256_storeu_ps(out + x, Clamp(sum, _mm256_set1_ps(lo), _mm256_set1_ps(hi)));
  }
}

void f32_dwconv_row__avx2(const float* const* rows, int kernel_h, int kernel_w, int stride, const float* weights,
                          float bias, float lo, float hi, int width, float* out) {
  if (stride == 1) {
    DwRow<1>(rows, kernel_h, kernel_w, weights, bias, lo, hi, width, out);
  } else {
    DwRow<2>(rows, kernel_h, kernel_w, weights, bias, lo, hi, width, out);
  }
}

// Eight output channels at a time share every load of the input.
#define LITESMITH_START(v) __m256 sum##v = _mm256_set1_ps(o + v < outputs ? bias[o + v] : 0.0f);
#define LITESMITH_STEP(v) sum##v = _mm256_fmadd_ps(_mm256_broadcast_ss(w + v), tap, sum##v);
#define LITESMITH_WRITE(v) \
  if (o + v < outputs) _mm256_storeu_ps(out + (o + v) * out_stride + x, Clamp(sum##v, low, high));
template <int kStride>
inline void ConvRow(const float* const* rows, int inputs, int kernel_h, int kernel_w, const float* weights,
                    const float* bias, int outputs, float lo, float hi, int width, float* out, size_t out_stride) {
  const int padded = (outputs + 7) / 8 * 8;
  const __m256 low = _mm256_set1_ps(lo), high = _mm256_set1_ps(hi);
  for (int x = 0; x < width; x += kLanes) {
    for (int o = 0; o < outputs; o += 8) {
      LITESMITH_EACH_8(LITESMITH_START)
      const float* w = weights + o;
      for (int row = 0; row < inputs * kernel_h; ++row) {
        const float* from = rows[row] + x * kStride;
        for (int kx = 0; kx < kernel_w; ++kx, w += padded) {
          const __m256 tap = LoadTap<kStride>(from + kx);
          LITESMITH_EACH_8(LITESMITH_STEP)
        }
      }
      LITESMITH_EACH_8(LITESMITH_WRITE)
    }
  }
}
#undef LITESMITH_START
#undef LITESMITH_STEP
#undef LITESMITH_WRITE

void f32_conv_row__avx2(const float* const* rows, int inputs, int kernel_h, int kernel_w, int stride,
                        const float* weights, const float* bias, int outputs, float lo, float hi, int width, float* out,
                        size_t out_stride) {
  if (stride == 1) {
    ConvRow<1>(rows, inputs, kernel_h, kernel_w, weights, bias, outputs, lo, hi, width, out, out_stride);
  } else {
    ConvRow<2>(rows, inputs, kernel_h, kernel_w, weights, bias, outputs, lo, hi, width, out, out_stride);
  }
}

}  // namespace

void FillAvx2Float(KernelTable* t) {
  t->f32_spmm[0] = {"f32_spmm_1x64__avx2", 64, f32_spmm_1x64__avx2};
  t->f32_spmm[1] = {"f32_spmm_1x32__avx2", 32, f32_spmm_1x32__avx2};
  t->f32_spmm[2] = {"f32_spmm_1x16__avx2", 16, f32_spmm_1x16__avx2};
  t->f32_spmm[3] = {"f32_spmm_1x8__avx2", 8, f32_spmm_1x8__avx2};
  t->f32_spmm_4x1[0] = {"f32_spmm_4x24__avx2", 24, f32_spmm_4x24__avx2};
  t->f32_spmm_4x1[1] = {"f32_spmm_4x16__avx2", 16, f32_spmm_4x16__avx2};
  t->f32_spmm_4x1[2] = {"f32_spmm_4x8__avx2", 8, f32_spmm_4x8__avx2};
  t->f32_dwconv_row = {"f32_dwconv_row__avx2", f32_dwconv_row__avx2};
  t->f32_conv_row = {"f32_conv_row__avx2", f32_conv_row__avx2};
}

}  // namespace litesmith
