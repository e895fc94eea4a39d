// SPDX-License-Identifier: Apache-2.0
// Sparse float products for AVX-512: the AVX2 kernels with twice the lanes. One load per multiply-add is what bounds the
// unstructured kernel, so wider loads are what it needs. Every other float kernel of the tier is the AVX2 one.
#include <immintrin.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

constexpr int kLanes = 16;

inline __m512 Clamp(__m512 x, __m512 lo, __m512 hi) { return _mm512_min_ps(_mm512_max_ps(x, lo), hi); }

// Sums in named variables: as arrays, gcc 12 leaves them in memory.
#define LITESMITH_EACH_1(X) X(0)
#define LITESMITH_EACH_2(X) LITESMITH_EACH_1(X) X(1)
#define LITESMITH_EACH_3(X) LITESMITH_EACH_2(X) X(2)
#define LITESMITH_EACH_4(X) LITESMITH_EACH_3(X) X(3)
#define LITESMITH_EACH_6(X) LITESMITH_EACH_4(X) X(4) X(5)
#define LITESMITH_EACH_8(X) LITESMITH_EACH_6(X) X(6) X(7)

// Two weights at a time, each with sums of its own: enough of them to hide the latency of an addition.
#define LITESMITH_SUM(v) __m512 sum##v, more##v = _mm512_setzero_ps();
#define LITESMITH_BIAS(v) sum##v = _mm512_set1_ps(w.bias[r]);
#define LITESMITH_GO_ON(v) sum##v = _mm512_loadu_ps(to + v * kLanes);
#define LITESMITH_STEP(v) sum##v = _mm512_fmadd_ps(weight, _mm512_loadu_ps(from + v * kLanes), sum##v);
#define LITESMITH_STEP2(v) more##v = _mm512_fmadd_ps(weight2, _mm512_loadu_ps(from2 + v * kLanes), more##v);
#define LITESMITH_WRITE(v) _mm512_storeu_ps(to + v * kLanes, Clamp(_mm512_add_ps(sum##v, more##v), lo, hi));
#define LITESMITH_SPMM_ROWS(name, EACH)                                                                             \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int row_begin, int row_end, float* out,    \
            size_t out_stride) {                                                                                    \
    const __m512 lo = _mm512_set1_ps(w.lo), hi = _mm512_set1_ps(w.hi);                                              \
    for (int r = row_begin; r < row_end; ++r) {                                                                     \
      float* const to = out + r * out_stride;                                                                       \
      EACH(LITESMITH_SUM)                                                                                           \
      if (w.bias != nullptr) {                                                                                      \
        EACH(LITESMITH_BIAS)                                                                                        \
      } else {                                                                                                      \
        EACH(LITESMITH_GO_ON)                                                                                       \
      }                                                                                                             \
      int i = w.start[r];                                                                                           \
      const int end = w.start[r + 1];                                                                               \
      for (; i + 1 < end; i += 2) {                                                                                 \
        const __m512 weight = _mm512_set1_ps(w.value[i]), weight2 = _mm512_set1_ps(w.value[i + 1]);                 \
        const float *from = in + w.column[i] * in_stride, *from2 = in + w.column[i + 1] * in_stride;                \
        EACH(LITESMITH_STEP)                                                                                        \
        EACH(LITESMITH_STEP2)                                                                                       \
      }                                                                                                             \
      if (i < end) {                                                                                                \
        const __m512 weight = _mm512_set1_ps(w.value[i]);                                                           \
        const float* from = in + w.column[i] * in_stride;                                                           \
        EACH(LITESMITH_STEP)                                                                                        \
      }                                                                                                             \
      EACH(LITESMITH_WRITE)                                                                                         \
    }                                                                                                               \
  }
LITESMITH_SPMM_ROWS(f32_spmm_1x128__avx512, LITESMITH_EACH_8)
LITESMITH_SPMM_ROWS(f32_spmm_1x96__avx512, LITESMITH_EACH_6)
LITESMITH_SPMM_ROWS(f32_spmm_1x64__avx512, LITESMITH_EACH_4)
LITESMITH_SPMM_ROWS(f32_spmm_1x48__avx512, LITESMITH_EACH_3)
LITESMITH_SPMM_ROWS(f32_spmm_1x32__avx512, LITESMITH_EACH_2)
LITESMITH_SPMM_ROWS(f32_spmm_1x16__avx512, LITESMITH_EACH_1)
#undef LITESMITH_STEP
#undef LITESMITH_STEP2
#undef LITESMITH_WRITE

// Four output rows share each input load.
#define LITESMITH_START(v)                                                                          \
  __m512 a##v = _mm512_set1_ps(w.bias[g * 4]), b##v = _mm512_set1_ps(w.bias[g * 4 + 1]),            \
         c##v = _mm512_set1_ps(w.bias[g * 4 + 2]), d##v = _mm512_set1_ps(w.bias[g * 4 + 3]);
#define LITESMITH_STEP(v)                                          \
  {                                                                \
    const __m512 x = _mm512_loadu_ps(from + v * kLanes);           \
    a##v = _mm512_fmadd_ps(w0, x, a##v);                           \
    b##v = _mm512_fmadd_ps(w1, x, b##v);                           \
    c##v = _mm512_fmadd_ps(w2, x, c##v);                           \
    d##v = _mm512_fmadd_ps(w3, x, d##v);                           \
  }
#define LITESMITH_WRITE(v)                                                  \
  _mm512_storeu_ps(to + v * kLanes, Clamp(a##v, lo, hi));                   \
  _mm512_storeu_ps(to + out_stride + v * kLanes, Clamp(b##v, lo, hi));      \
  _mm512_storeu_ps(to + 2 * out_stride + v * kLanes, Clamp(c##v, lo, hi));  \
  _mm512_storeu_ps(to + 3 * out_stride + v * kLanes, Clamp(d##v, lo, hi));
#define LITESMITH_SPMM_BLOCKS(name, EACH)                                                                            \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int group_begin, int group_end, float* out, \
            size_t out_stride) {                                                                                     \
    const __m512 lo = _mm512_set1_ps(w.lo), hi = _mm512_set1_ps(w.hi);                                               \
    for (int g = group_begin; g < group_end; ++g) {                                                                  \
      EACH(LITESMITH_START)                                                                                          \
      for (int i = w.start[g], end = w.start[g + 1]; i < end; ++i) {                                                 \
        const float* from = in + w.column[i] * in_stride;                                                            \
        const __m512 w0 = _mm512_set1_ps(w.value[i * 4]), w1 = _mm512_set1_ps(w.value[i * 4 + 1]);                   \
        const __m512 w2 = _mm512_set1_ps(w.value[i * 4 + 2]), w3 = _mm512_set1_ps(w.value[i * 4 + 3]);               \
        EACH(LITESMITH_STEP)                                                                                         \
      }                                                                                                              \
      float* to = out + g * 4 * out_stride;                                                                          \
      EACH(LITESMITH_WRITE)                                                                                          \
    }                                                                                                                \
  }
LITESMITH_SPMM_BLOCKS(f32_spmm_4x64__avx512, LITESMITH_EACH_4)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x48__avx512, LITESMITH_EACH_3)
LITESMITH_SPMM_BLOCKS(f32_spmm_4x32__avx512, LITESMITH_EACH_2)
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

}  // namespace

void FillAvx512Float(KernelTable* t) {
  PutInFront({{"f32_spmm_1x128__avx512", 128, f32_spmm_1x128__avx512},
              {"f32_spmm_1x96__avx512", 96, f32_spmm_1x96__avx512},
              {"f32_spmm_1x64__avx512", 64, f32_spmm_1x64__avx512},
              {"f32_spmm_1x48__avx512", 48, f32_spmm_1x48__avx512},
              {"f32_spmm_1x32__avx512", 32, f32_spmm_1x32__avx512},
              {"f32_spmm_1x16__avx512", 16, f32_spmm_1x16__avx512}},
             t->f32_spmm);
  PutInFront({{"f32_spmm_4x64__avx512", 64, f32_spmm_4x64__avx512},
              {"f32_spmm_4x48__avx512", 48, f32_spmm_4x48__avx512},
              {"f32_spmm_4x32__avx512", 32, f32_spmm_4x32__avx512},
              {"f32_spmm_4x16__avx512", 16, f32_spmm_4x16__avx512}},
             t->f32_spmm_4x1);
}

}  // namespace litesmith
