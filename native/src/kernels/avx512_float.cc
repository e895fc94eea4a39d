// SPDX-License-Identifier: Apache-2.0
// Float kernels of sparse chains for AVX-512: products with sparse rows, where one load per multiply-add is the bound, and
// the convolutions around them. What the tier has no kernel of its own for, it takes from AVX2.
#include <immintrin.h>

#include <cmath>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

constexpr int kLanes = 16;

inline __m512 Clamp(__m512 x, __m512 lo, __m512 hi) { return _mm512_min_ps(hi, _mm512_max_ps(lo, x)); }  // NaN stays NaN

inline __mmask16 FirstOf(int n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : n <= 0 ? 0 : (1u << n) - 1); }

template <bool kMasked>
inline __m512 LoadSome(__mmask16 mask, const float* p) {
  return kMasked ? _mm512_maskz_loadu_ps(mask, p) : _mm512_loadu_ps(p);
}

// Sums in named variables: as arrays, gcc 12 leaves them in memory. The last vector may be one of eight: 7x7 and 14x14
// images end in half a vector.
#define LITESMITH_EACH_1(X, Y) X(0)
#define LITESMITH_EACH_2(X, Y) LITESMITH_EACH_1(X, Y) X(1)
#define LITESMITH_EACH_3(X, Y) LITESMITH_EACH_2(X, Y) X(2)
#define LITESMITH_EACH_4(X, Y) LITESMITH_EACH_3(X, Y) X(3)
#define LITESMITH_EACH_5(X, Y) LITESMITH_EACH_4(X, Y) X(4)
#define LITESMITH_EACH_6(X, Y) LITESMITH_EACH_5(X, Y) X(5)
#define LITESMITH_EACH_7(X, Y) LITESMITH_EACH_6(X, Y) X(6)
#define LITESMITH_EACH_1_AND_HALF(X, Y) LITESMITH_EACH_1(X, Y) Y(1)
#define LITESMITH_EACH_3_AND_HALF(X, Y) LITESMITH_EACH_3(X, Y) Y(3)
#define LITESMITH_EACH_5_AND_HALF(X, Y) LITESMITH_EACH_5(X, Y) Y(5)
#define LITESMITH_EACH_6_AND_HALF(X, Y) LITESMITH_EACH_6(X, Y) Y(6)

inline __m256 Half(__m512 v) { return _mm512_castps512_ps256(v); }
inline __m256 Clamp(__m256 x, __m512 lo, __m512 hi) { return _mm256_min_ps(Half(hi), _mm256_max_ps(Half(lo), x)); }

// What a row begins with and what becomes of its sums. The sums of a part of the inputs are written as they are: those of the
// last part alone are limited.
#define LITESMITH_BIAS(v) sum##v = _mm512_set1_ps(w.bias[r]);
#define LITESMITH_HALF_BIAS(v) sum##v = _mm256_set1_ps(w.bias[r]);
#define LITESMITH_GO_ON(v) sum##v = _mm512_loadu_ps(to + v * kLanes);
#define LITESMITH_HALF_GO_ON(v) sum##v = _mm256_loadu_ps(to + v * kLanes);
#define LITESMITH_STEP(v) sum##v = _mm512_fmadd_ps(weight, _mm512_loadu_ps(from + v * kLanes), sum##v);
#define LITESMITH_HALF_STEP(v) sum##v = _mm256_fmadd_ps(Half(weight), _mm256_loadu_ps(from + v * kLanes), sum##v);
#define LITESMITH_LIMIT(v) sum##v = Clamp(sum##v, lo, hi);
#define LITESMITH_WRITE(v) _mm512_storeu_ps(to + v * kLanes, sum##v);
#define LITESMITH_HALF_WRITE(v) _mm256_storeu_ps(to + v * kLanes, sum##v);
#define LITESMITH_SPMM_ROWS(name, EACH, SUM, HALF_SUM, PRODUCTS)                                                   \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int row_begin, int row_end, float* out,   \
            size_t out_stride) {                                                                                   \
    const __m512 lo = _mm512_set1_ps(w.lo), hi = _mm512_set1_ps(w.hi);                                             \
    const bool limited = w.lo > -INFINITY || w.hi < INFINITY;                                                      \
    for (int r = row_begin; r < row_end; ++r) {                                                                    \
      float* const to = out + r * out_stride;                                                                      \
      EACH(SUM, HALF_SUM)                                                                                          \
      if (w.bias != nullptr) {                                                                                     \
        EACH(LITESMITH_BIAS, LITESMITH_HALF_BIAS)                                                                  \
      } else {                                                                                                     \
        EACH(LITESMITH_GO_ON, LITESMITH_HALF_GO_ON)                                                                \
      }                                                                                                            \
      PRODUCTS(EACH)                                                                                               \
      if (limited) {                                                                                               \
        EACH(LITESMITH_LIMIT, LITESMITH_LIMIT)                                                                     \
      }                                                                                                            \
      EACH(LITESMITH_WRITE, LITESMITH_HALF_WRITE)                                                                  \
    }                                                                                                              \
  }

// Wide tiles have sums enough to hide the latency of an addition.
#define LITESMITH_SUM(v) __m512 sum##v;
#define LITESMITH_HALF_SUM(v) __m256 sum##v;
#define LITESMITH_ONE_BY_ONE(EACH)                                   \
  for (int i = w.start[r], end = w.start[r + 1]; i < end; ++i) {     \
    const __m512 weight = _mm512_set1_ps(w.value[i]);                \
    const float* from = in + w.column[i] * in_stride;                \
    EACH(LITESMITH_STEP, LITESMITH_HALF_STEP)                        \
  }
#define LITESMITH_SPMM_WIDE(name, EACH) \
  LITESMITH_SPMM_ROWS(name, EACH, LITESMITH_SUM, LITESMITH_HALF_SUM, LITESMITH_ONE_BY_ONE)
LITESMITH_SPMM_WIDE(f32_spmm_1x112__avx512, LITESMITH_EACH_7)
LITESMITH_SPMM_WIDE(f32_spmm_1x104__avx512, LITESMITH_EACH_6_AND_HALF)
LITESMITH_SPMM_WIDE(f32_spmm_1x96__avx512, LITESMITH_EACH_6)
LITESMITH_SPMM_WIDE(f32_spmm_1x88__avx512, LITESMITH_EACH_5_AND_HALF)
LITESMITH_SPMM_WIDE(f32_spmm_1x64__avx512, LITESMITH_EACH_4)
#undef LITESMITH_SUM
#undef LITESMITH_HALF_SUM

// Narrow ones take two weights at a time, each with sums of its own.
#define LITESMITH_SUM(v) __m512 sum##v, more##v = _mm512_setzero_ps();
#define LITESMITH_HALF_SUM(v) __m256 sum##v, more##v = _mm256_setzero_ps();
#define LITESMITH_STEP2(v) more##v = _mm512_fmadd_ps(weight2, _mm512_loadu_ps(from2 + v * kLanes), more##v);
#define LITESMITH_HALF_STEP2(v) \
  more##v = _mm256_fmadd_ps(Half(weight2), _mm256_loadu_ps(from2 + v * kLanes), more##v);
#define LITESMITH_JOIN(v) sum##v = _mm512_add_ps(sum##v, more##v);
#define LITESMITH_HALF_JOIN(v) sum##v = _mm256_add_ps(sum##v, more##v);
#define LITESMITH_TWO_BY_TWO(EACH)                                                                  \
  int i = w.start[r];                                                                               \
  const int end = w.start[r + 1];                                                                   \
  for (; i + 1 < end; i += 2) {                                                                     \
    const __m512 weight = _mm512_set1_ps(w.value[i]), weight2 = _mm512_set1_ps(w.value[i + 1]);     \
    const float *from = in + w.column[i] * in_stride, *from2 = in + w.column[i + 1] * in_stride;    \
    EACH(LITESMITH_STEP, LITESMITH_HALF_STEP)                                                       \
    EACH(LITESMITH_STEP2, LITESMITH_HALF_STEP2)                                                     \
  }                                                                                                 \
  if (i < end) {                                                                                    \
    const __m512 weight = _mm512_set1_ps(w.value[i]);                                               \
    const float* from = in + w.column[i] * in_stride;                                               \
    EACH(LITESMITH_STEP, LITESMITH_HALF_STEP)                                                       \
  }                                                                                                 \
  EACH(LITESMITH_JOIN, LITESMITH_HALF_JOIN)
#define LITESMITH_SPMM_NARROW(name, EACH) \
  LITESMITH_SPMM_ROWS(name, EACH, LITESMITH_SUM, LITESMITH_HALF_SUM, LITESMITH_TWO_BY_TWO)
LITESMITH_SPMM_NARROW(f32_spmm_1x56__avx512, LITESMITH_EACH_3_AND_HALF)
LITESMITH_SPMM_NARROW(f32_spmm_1x48__avx512, LITESMITH_EACH_3)
LITESMITH_SPMM_NARROW(f32_spmm_1x32__avx512, LITESMITH_EACH_2)
LITESMITH_SPMM_NARROW(f32_spmm_1x24__avx512, LITESMITH_EACH_1_AND_HALF)
LITESMITH_SPMM_NARROW(f32_spmm_1x16__avx512, LITESMITH_EACH_1)
#undef LITESMITH_STEP
#undef LITESMITH_HALF_STEP
#undef LITESMITH_WRITE
#undef LITESMITH_HALF_WRITE

// Four output rows share each input load.
#define LITESMITH_START(v)                                                                          \
  __m512 a##v = _mm512_set1_ps(w.bias[g * 4]), b##v = _mm512_set1_ps(w.bias[g * 4 + 1]),            \
         c##v = _mm512_set1_ps(w.bias[g * 4 + 2]), d##v = _mm512_set1_ps(w.bias[g * 4 + 3]);
#define LITESMITH_HALF_START(v)                                                                     \
  __m256 a##v = _mm256_set1_ps(w.bias[g * 4]), b##v = _mm256_set1_ps(w.bias[g * 4 + 1]),            \
         c##v = _mm256_set1_ps(w.bias[g * 4 + 2]), d##v = _mm256_set1_ps(w.bias[g * 4 + 3]);
#define LITESMITH_STEP(v)                                          \
  {                                                                \
    const __m512 x = _mm512_loadu_ps(from + v * kLanes);           \
    a##v = _mm512_fmadd_ps(w0, x, a##v);                           \
    b##v = _mm512_fmadd_ps(w1, x, b##v);                           \
    c##v = _mm512_fmadd_ps(w2, x, c##v);                           \
    d##v = _mm512_fmadd_ps(w3, x, d##v);                           \
  }
#define LITESMITH_HALF_STEP(v)                                           \
  {                                                                      \
    const __m256 x = _mm256_loadu_ps(from + v * kLanes);                 \
    a##v = _mm256_fmadd_ps(Half(w0), x, a##v);         \
    b##v = _mm256_fmadd_ps(Half(w1), x, b##v);         \
    c##v = _mm256_fmadd_ps(Half(w2), x, c##v);         \
    d##v = _mm256_fmadd_ps(Half(w3), x, d##v);         \
  }
#define LITESMITH_WRITE(v)                                                  \
  _mm512_storeu_ps(to + v * kLanes, Clamp(a##v, lo, hi));                   \
  _mm512_storeu_ps(to + out_stride + v * kLanes, Clamp(b##v, lo, hi));      \
  _mm512_storeu_ps(to + 2 * out_stride + v * kLanes, Clamp(c##v, lo, hi));  \
  _mm512_storeu_ps(to + 3 * out_stride + v * kLanes, Clamp(d##v, lo, hi));
#define LITESMITH_HALF_WRITE(v)                                             \
  _mm256_storeu_ps(to + v * kLanes, Clamp(a##v, lo, hi));                   \
  _mm256_storeu_ps(to + out_stride + v * kLanes, Clamp(b##v, lo, hi));      \
  _mm256_storeu_ps(to + 2 * out_stride + v * kLanes, Clamp(c##v, lo, hi));  \
  _mm256_storeu_ps(to + 3 * out_stride + v * kLanes, Clamp(d##v, lo, hi));
#define LITESMITH_SPMM_BLOCKS(name, EACH)                                                                            \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int group_begin, int group_end, float* out, \
            size_t out_stride) {                                                                                     \
    const __m512 lo = _mm512_set1_ps(w.lo), hi = _mm512_set1_ps(w.hi);                                               \
    for (int g = group_begin; g < group_end; ++g) {                                                                  \
      EACH(LITESMITH_START, LITESMITH_HALF_START)                                                                    \
      for (int i = w.start[g], end = w.start[g + 1]; i < end; ++i) {                                                 \
        const float* from = in + w.column[i] * in_stride;                                                            \
        const __m512 w0 = _mm512_set1_ps(w.value[i * 4]), w1 = _mm512_set1_ps(w.value[i * 4 + 1]);                   \
        const __m512 w2 = _mm512_set1_ps(w.value[i * 4 + 2]), w3 = _mm512_set1_ps(w.value[i * 4 + 3]);               \
        EACH(LITESMITH_STEP, LITESMITH_HALF_STEP)                                                                    \
      }                                                                                                              \
      float* to = out + g * 4 * out_stride;                                                                          \
      EACH(LITESMITH_WRITE, LITESMITH_HALF_WRITE)                                                                    \
    }                                                                                                                \
  }
LITESMITH_SPMM_BLOCKS(f32_spmm_4x64__avx512, LITESMITH_EACH_4)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x56__avx512, LITESMITH_EACH_3_AND_HALF)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x48__avx512, LITESMITH_EACH_3)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x32__avx512, LITESMITH_EACH_2)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x24__avx512, LITESMITH_EACH_1_AND_HALF)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x16__avx512, LITESMITH_EACH_1)

// In front of the narrowest kernel that is there already: images end in less than a vector of 16.
template <int kCount>
void PutInFront(const SpmmKernel (&wide)[kCount], SpmmKernel* kernels) {
  static_assert(kCount < kSpmmWidths);
  int last = 0;
  while (last + 1 < kSpmmWidths && kernels[last + 1].run != nullptr) ++last;
  const SpmmKernel narrowest = kernels[last];
  for (int i = 0; i < kSpmmWidths; ++i) kernels[i] = i < kCount ? wide[i] : i == kCount ? narrowest : SpmmKernel{};
}

// Eight output channels, which share each load of an input; `bias` is padded like the weights.
#define LITESMITH_CONV_START(v)                                                                                   \
  __m512 a##v = _mm512_set1_ps(bias[o]), b##v = _mm512_set1_ps(bias[o + 1]), c##v = _mm512_set1_ps(bias[o + 2]), \
         d##v = _mm512_set1_ps(bias[o + 3]), e##v = _mm512_set1_ps(bias[o + 4]), f##v = _mm512_set1_ps(bias[o + 5]), \
         g##v = _mm512_set1_ps(bias[o + 6]), h##v = _mm512_set1_ps(bias[o + 7]);
#define LITESMITH_CONV_INPUT(v) const __m512 x##v = LoadSome<(v) == kLast>(m_last, from + (v) * kLanes);
#define LITESMITH_CONV_A(v) a##v = _mm512_fmadd_ps(weight, x##v, a##v);
#define LITESMITH_CONV_B(v) b##v = _mm512_fmadd_ps(weight, x##v, b##v);
#define LITESMITH_CONV_C(v) c##v = _mm512_fmadd_ps(weight, x##v, c##v);
#define LITESMITH_CONV_D(v) d##v = _mm512_fmadd_ps(weight, x##v, d##v);
#define LITESMITH_CONV_E(v) e##v = _mm512_fmadd_ps(weight, x##v, e##v);
#define LITESMITH_CONV_F(v) f##v = _mm512_fmadd_ps(weight, x##v, f##v);
#define LITESMITH_CONV_G(v) g##v = _mm512_fmadd_ps(weight, x##v, g##v);
#define LITESMITH_CONV_H(v) h##v = _mm512_fmadd_ps(weight, x##v, h##v);
#define LITESMITH_CONV_PUT(v, channel, sum)                                                                        \
  if (o + (channel) < outputs) {                                                                                   \
    _mm512_mask_storeu_ps(to + (channel) * out_stride + (v) * kLanes, (v) == kLast ? m_last : 0xFFFF,              \
                          Clamp(sum, low, high));                                                                  \
  }
#define LITESMITH_CONV_WRITE(v)                                                              \
  LITESMITH_CONV_PUT(v, 0, a##v) LITESMITH_CONV_PUT(v, 1, b##v)                              \
  LITESMITH_CONV_PUT(v, 2, c##v) LITESMITH_CONV_PUT(v, 3, d##v)                              \
  LITESMITH_CONV_PUT(v, 4, e##v) LITESMITH_CONV_PUT(v, 5, f##v)                              \
  LITESMITH_CONV_PUT(v, 6, g##v) LITESMITH_CONV_PUT(v, 7, h##v)
#define LITESMITH_CONV_CHANNEL(i, EACH, STEP)       \
  {                                                 \
    const __m512 weight = _mm512_set1_ps(w[i]);     \
    EACH(STEP, )                                    \
  }
#define LITESMITH_CONV_COLUMNS(name, vectors, EACH)                                                                \
  __attribute__((noinline)) void name(const float* const* taps, int num_taps, const float* weights,                \
                                      const float* bias, int outputs, float lo, float hi, int x, int width,        \
                                      float* out, size_t out_stride) {                                             \
    constexpr int kLast = vectors - 1;                                                                             \
    const int padded = (outputs + 7) / 8 * 8;                                                                      \
    const __m512 low = _mm512_set1_ps(lo), high = _mm512_set1_ps(hi);                                              \
    const __mmask16 m_last = FirstOf(width - x - kLast * kLanes);                                                  \
    for (int o = 0; o < outputs; o += 8) {                                                                         \
      EACH(LITESMITH_CONV_START, )                                                                                 \
      const float* w = weights + o;                                                                                \
      for (int t = 0; t < num_taps; ++t, w += padded) {                                                            \
        const float* from = taps[t] + x;                                                                           \
        EACH(LITESMITH_CONV_INPUT, )                                                                               \
        LITESMITH_CONV_CHANNEL(0, EACH, LITESMITH_CONV_A)                                                          \
        LITESMITH_CONV_CHANNEL(1, EACH, LITESMITH_CONV_B)                                                          \
        LITESMITH_CONV_CHANNEL(2, EACH, LITESMITH_CONV_C)                                                          \
        LITESMITH_CONV_CHANNEL(3, EACH, LITESMITH_CONV_D)                                                          \
        LITESMITH_CONV_CHANNEL(4, EACH, LITESMITH_CONV_E)                                                          \
        LITESMITH_CONV_CHANNEL(5, EACH, LITESMITH_CONV_F)                                                          \
        LITESMITH_CONV_CHANNEL(6, EACH, LITESMITH_CONV_G)                                                          \
        LITESMITH_CONV_CHANNEL(7, EACH, LITESMITH_CONV_H)                                                          \
      }                                                                                                            \
      float* to = out + o * out_stride + x;                                                                        \
      EACH(LITESMITH_CONV_WRITE, )                                                                                 \
    }                                                                                                              \
  }
LITESMITH_CONV_COLUMNS(ConvColumns3, 3, LITESMITH_EACH_3)
LITESMITH_CONV_COLUMNS(ConvColumns2, 2, LITESMITH_EACH_2)
LITESMITH_CONV_COLUMNS(ConvColumns1, 1, LITESMITH_EACH_1)

void f32_conv_plane_8x48__avx512(const float* const* taps, int num_taps, const float* weights, const float* bias,
                                 int outputs, float lo, float hi, int width, float* out, size_t out_stride) {
  for (int x = 0; x < width;) {
    const int left = (width - x + kLanes - 1) / kLanes, vectors = left == 4 ? 2 : left < 3 ? left : 3;
    (vectors == 3 ? ConvColumns3 : vectors == 2 ? ConvColumns2 : ConvColumns1)(taps, num_taps, weights, bias, outputs, lo,
                                                                               hi, x, width, out, out_stride);
    x += vectors * kLanes;
  }
}

// The pixels of three channels, 16 at a time: channel c of pixel i is value 3 * i + c of three vectors.
void f32_split_channels__avx512(const float* in, int n, int channels, float* out, size_t out_stride) {
  int i = 0;
  for (; channels == 3 && i + kLanes <= n; i += kLanes) {
    const float* p = in + i * 3;
    const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + kLanes), c = _mm512_loadu_ps(p + 2 * kLanes);
    for (int channel = 0; channel < 3; ++channel) {
      // 32 values come from the first two vectors; the rest of the places is taken from the third.
      const __m512i at = _mm512_add_epi32(_mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45),
                                          _mm512_set1_epi32(channel));
      const __mmask16 third = channel == 2 ? 0xFC00 : 0xF800;
      const __m512 two = _mm512_permutex2var_ps(a, at, b);
      _mm512_storeu_ps(out + channel * out_stride + i, _mm512_mask_permutexvar_ps(two, third, at, c));
    }
  }
  for (; i < n; ++i) {
    for (int c = 0; c < channels; ++c) out[c * out_stride + i] = in[i * channels + c];
  }
}

// 3x3 depthwise kernels walk down a plane, up to seven vectors of columns at a time: each row is read once for the three
// rows of outputs it belongs to, whose sums stay in registers. Masks leave out what is beside the image.
struct Dw3x3Strip {
  Dw3x3Strip(const Dw3x3View& v, int x, int vectors) {
    const int last = x + (vectors - 1) * kLanes, column = last - v.pad_x;
    first_tap = x == 0 && v.pad_x > 0 ? 0xFFFE : 0xFFFF;
    for (int tap = 0; tap < 3; ++tap) end_tap[tap] = FirstOf(v.in_width - column - tap);
    out = FirstOf(v.out_width - last);
  }
  __mmask16 first_tap;   // of the first vector
  __mmask16 end_tap[3];  // of the last vector, under each tap
  __mmask16 out;         // of the last vector
};

#define LITESMITH_DW_WEIGHTS                                                                           \
  const __m512 w0 = _mm512_set1_ps(w[0]), w1 = _mm512_set1_ps(w[1]), w2 = _mm512_set1_ps(w[2]);        \
  const __m512 w3 = _mm512_set1_ps(w[3]), w4 = _mm512_set1_ps(w[4]), w5 = _mm512_set1_ps(w[5]);        \
  const __m512 w6 = _mm512_set1_ps(w[6]), w7 = _mm512_set1_ps(w[7]), w8 = _mm512_set1_ps(w[8]);        \
  const __m512 start = _mm512_set1_ps(bias), low = _mm512_set1_ps(lo), high = _mm512_set1_ps(hi);

#define LITESMITH_DW_SUMS(v) __m512 third##v = start, second##v = start;  // whose third and second row comes next
#define LITESMITH_DW_LOAD(v)                                                                                         \
  const __m512 a = LoadSome<(v) == 0 || (v) == kLast>(((v) == 0 ? m_first : 0xFFFF) & ((v) == kLast ? m_a : 0xFFFF), \
                                                      p + (v) * kLanes);                                             \
  const __m512 b = LoadSome<(v) == kLast>(m_b, p + (v) * kLanes + 1);                                                \
  const __m512 c = LoadSome<(v) == kLast>(m_c, p + (v) * kLanes + 2);
#define LITESMITH_DW_ADD(wa, wb, wc, sum) \
  _mm512_fmadd_ps(wc, c, _mm512_fmadd_ps(wb, b, _mm512_fmadd_ps(wa, a, sum)))
#define LITESMITH_DW_FIRST_ROW(v)                       \
  {                                                     \
    LITESMITH_DW_LOAD(v)                                \
    second##v = LITESMITH_DW_ADD(w0, w1, w2, start);    \
  }
#define LITESMITH_DW_SECOND_ROW(v)                      \
  {                                                     \
    LITESMITH_DW_LOAD(v)                                \
    third##v = LITESMITH_DW_ADD(w3, w4, w5, second##v); \
    second##v = LITESMITH_DW_ADD(w0, w1, w2, start);    \
  }
#define LITESMITH_DW_PUT(v, sum)                                                            \
  {                                                                                         \
    const __m512 value = Clamp(sum, low, high);                                             \
    if ((v) == kLast) {                                                                     \
      _mm512_mask_storeu_ps(out + (v) * kLanes, m_out, value);                              \
    } else {                                                                                \
      _mm512_storeu_ps(out + (v) * kLanes, value);                                          \
    }                                                                                       \
  }
#define LITESMITH_DW_ROW(v)                                  \
  {                                                          \
    LITESMITH_DW_LOAD(v)                                     \
    const __m512 sum = LITESMITH_DW_ADD(w6, w7, w8, third##v); \
    third##v = LITESMITH_DW_ADD(w3, w4, w5, second##v);      \
    second##v = LITESMITH_DW_ADD(w0, w1, w2, start);         \
    LITESMITH_DW_PUT(v, sum)                                 \
  }
#define LITESMITH_DW_PASS(v)       \
  third##v = second##v;            \
  second##v = start;
#define LITESMITH_DW_ROW_OUTSIDE(v)  \
  {                                  \
    LITESMITH_DW_PUT(v, third##v)    \
    LITESMITH_DW_PASS(v)             \
  }
#define LITESMITH_DW_STRIP(name, vectors, EACH)                                                                       \
  __attribute__((noinline)) void name(const float* in, const Dw3x3View& view, const float* w, float bias, float lo,   \
                                      float hi, int x, float* out) {                                                  \
    constexpr int kLast = vectors - 1;                                                                                \
    LITESMITH_DW_WEIGHTS                                                                                              \
    const Dw3x3Strip strip(view, x, vectors);                                                                         \
    const __mmask16 m_first = strip.first_tap, m_out = strip.out;                                                     \
    const __mmask16 m_a = strip.end_tap[0], m_b = strip.end_tap[1], m_c = strip.end_tap[2];                           \
    const ptrdiff_t in_width = view.in_width, out_width = view.out_width;                                             \
    const float* p = in + x - view.pad_x;                                                                             \
    const float* const end = p + view.in_height * in_width;                                                           \
    EACH(LITESMITH_DW_SUMS, )                                                                                         \
    if (view.pad_y == 0) {                                                                                            \
      EACH(LITESMITH_DW_FIRST_ROW, )                                                                                  \
      p += in_width;                                                                                                  \
    }                                                                                                                 \
    if (p < end) {                                                                                                    \
      EACH(LITESMITH_DW_SECOND_ROW, )                                                                                 \
      p += in_width;                                                                                                  \
    } else {                                                                                                          \
      EACH(LITESMITH_DW_PASS, )                                                                                       \
    }                                                                                                                 \
    out += x;                                                                                                         \
    int left = view.out_height;                                                                                       \
    for (; left > 0 && p < end; --left, p += in_width, out += out_width) {                                            \
      EACH(LITESMITH_DW_ROW, )                                                                                        \
    }                                                                                                                 \
    for (; left > 0; --left, out += out_width) {                                                                      \
      EACH(LITESMITH_DW_ROW_OUTSIDE, )                                                                                \
    }                                                                                                                 \
  }
LITESMITH_DW_STRIP(Dw3x3Strip7, 7, LITESMITH_EACH_7)
LITESMITH_DW_STRIP(Dw3x3Strip4, 4, LITESMITH_EACH_4)
LITESMITH_DW_STRIP(Dw3x3Strip3, 3, LITESMITH_EACH_3)
LITESMITH_DW_STRIP(Dw3x3Strip2, 2, LITESMITH_EACH_2)
LITESMITH_DW_STRIP(Dw3x3Strip1, 1, LITESMITH_EACH_1)

// One vector of columns with stride 2. Even columns are under the first tap, odd ones under the second, and the even ones
// from the next on under the third.
struct StridedRow {
  __m512 first, second, third;
};
inline StridedRow LoadStrided(const float* p, __mmask16 m_a, __mmask16 m_b, bool has_next) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  const __m512 a = _mm512_maskz_loadu_ps(m_a, p), b = _mm512_maskz_loadu_ps(m_b, p + kLanes);
  const __m512 first = _mm512_permutex2var_ps(a, even, b);
  const __m512i next = _mm512_castps_si512(_mm512_set1_ps(has_next ? p[2 * kLanes] : 0.0f));
  return {first, _mm512_permutex2var_ps(a, odd, b),
          _mm512_castsi512_ps(_mm512_alignr_epi32(next, _mm512_castps_si512(first), 1))};
}

void Dw3x3StridedStrip(const float* in, const Dw3x3View& view, const float* w, float bias, float lo, float hi, int x,
                       float* out) {
  LITESMITH_DW_WEIGHTS
  const int column = 2 * x - view.pad_x, columns = view.in_width - column;
  const __mmask16 before = column < 0 ? 0xFFFE : 0xFFFF, m_a = before & FirstOf(columns);
  const __mmask16 m_b = FirstOf(columns - kLanes), m_out = FirstOf(view.out_width - x);
  const bool has_next = columns > 2 * kLanes;
  const int in_height = view.in_height, pad_y = view.pad_y;
  const ptrdiff_t in_width = view.in_width;
  const float* const zeros = view.zeros;
  const auto row = [&](int iy) __attribute__((always_inline)) {
    const bool outside = iy < 0 || iy >= in_height;
    return LoadStrided((outside ? zeros : in + iy * in_width) + column, m_a, m_b, has_next);
  };
  const auto sum = [](__m512 wa, __m512 wb, __m512 wc, const StridedRow& r, __m512 s) __attribute__((always_inline)) {
    return _mm512_fmadd_ps(wc, r.third, _mm512_fmadd_ps(wb, r.second, _mm512_fmadd_ps(wa, r.first, s)));
  };
  out += x;
  StridedRow top = row(-pad_y);
  for (int y = 0, out_height = view.out_height; y < out_height; ++y, out += view.out_width) {
    const __m512 middle = sum(w3, w4, w5, row(2 * y + 1 - pad_y), start);
    const __m512 upper = sum(w0, w1, w2, top, _mm512_setzero_ps());
    top = row(2 * y + 2 - pad_y);
    _mm512_mask_storeu_ps(out, m_out, Clamp(_mm512_add_ps(sum(w6, w7, w8, top, upper), middle), low, high));
  }
}

// Of the tier below: half a vector is enough for planes of eight columns.
Dw3x3PlaneFn* dwconv3x3_of_narrow_planes = nullptr;

void f32_dwconv3x3_plane__avx512(const float* in, size_t in_stride, int planes, const Dw3x3View& v, const float* weights,
                                 const float* bias, float lo, float hi, float* out, size_t out_stride) {
  if (v.out_width <= kLanes / 2) {
    return dwconv3x3_of_narrow_planes(in, in_stride, planes, v, weights, bias, lo, hi, out, out_stride);
  }
  for (int i = 0; i < planes; ++i, in += in_stride, weights += 9, ++bias, out += out_stride) {
    for (int x = 0; x < v.out_width;) {
      const int vectors = (v.out_width - x + kLanes - 1) / kLanes;
      if (v.stride == 2) {
        Dw3x3StridedStrip(in, v, weights, *bias, lo, hi, x, out);
        x += kLanes;
      } else if (vectors >= 7) {
        Dw3x3Strip7(in, v, weights, *bias, lo, hi, x, out);
        x += 7 * kLanes;
      } else if (vectors >= 4) {
        Dw3x3Strip4(in, v, weights, *bias, lo, hi, x, out);
        x += 4 * kLanes;
      } else {
        (vectors == 3 ? Dw3x3Strip3 : vectors == 2 ? Dw3x3Strip2 : Dw3x3Strip1)(in, v, weights, *bias, lo, hi, x, out);
        break;
      }
    }
  }
}

}  // namespace

#define LITESMITH_WIDTH(rows, width) {"f32_spmm_" #rows "x" #width "__avx512", width, f32_spmm_##rows##x##width##__avx512}

void FillAvx512Float(KernelTable* t) {
  PutInFront({LITESMITH_WIDTH(1, 112), LITESMITH_WIDTH(1, 104), LITESMITH_WIDTH(1, 96), LITESMITH_WIDTH(1, 88),
              LITESMITH_WIDTH(1, 64), LITESMITH_WIDTH(1, 56), LITESMITH_WIDTH(1, 48), LITESMITH_WIDTH(1, 32),
              LITESMITH_WIDTH(1, 24), LITESMITH_WIDTH(1, 16)},
             t->f32_spmm);
  PutInFront({LITESMITH_WIDTH(4, 64), LITESMITH_WIDTH(4, 56), LITESMITH_WIDTH(4, 48),
              LITESMITH_WIDTH(4, 32), LITESMITH_WIDTH(4, 24), LITESMITH_WIDTH(4, 16)},
             t->f32_spmm_4x1);
  t->f32_spmm_tiling = {160, 128, 0, 112, 1024};
  t->f32_spmm_4x1_tiling = {SpmmTiling::kAllInputs, 0, 0, 64, 1};
  dwconv3x3_of_narrow_planes = t->f32_dwconv3x3_plane.run;
  t->f32_dwconv3x3_plane = {"f32_dwconv3x3_plane__avx512", f32_dwconv3x3_plane__avx512};
  t->f32_split_channels = {"f32_split_channels__avx512", f32_split_channels__avx512};
  t->f32_conv_plane = {"f32_conv_plane_8x48__avx512", f32_conv_plane_8x48__avx512};
}

}  // namespace litesmith
