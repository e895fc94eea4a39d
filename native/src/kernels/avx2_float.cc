// SPDX-License-Identifier: Apache-2.0
// Float kernels of sparse chains for AVX2 with FMA; lanes are pixels of a plane.
#include <immintrin.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

constexpr int kLanes = 8;

inline __m256 Clamp(__m256 x, __m256 lo, __m256 hi) { return _mm256_min_ps(hi, _mm256_max_ps(lo, x)); }  // NaN stays NaN

// Kernels below keep their sums in named variables: as arrays, gcc 12 leaves them in memory.

#define LITESMITH_EACH_1(X) X(0)
#define LITESMITH_EACH_2(X) LITESMITH_EACH_1(X) X(1)
#define LITESMITH_EACH_3(X) LITESMITH_EACH_2(X) X(2)
#define LITESMITH_EACH_4(X) LITESMITH_EACH_3(X) X(3)
#define LITESMITH_EACH_5(X) LITESMITH_EACH_4(X) X(4)
#define LITESMITH_EACH_6(X) LITESMITH_EACH_5(X) X(5)
#define LITESMITH_EACH_7(X) LITESMITH_EACH_6(X) X(6)
#define LITESMITH_EACH_8(X) LITESMITH_EACH_7(X) X(7)

// One output row at a time: broadcast the weight, multiply-add with several loads of the input channel.
#define LITESMITH_SUM(v) __m256 sum##v;
#define LITESMITH_BIAS(v) sum##v = bias;
#define LITESMITH_GO_ON(v) sum##v = _mm256_loadu_ps(to + v * kLanes);
#define LITESMITH_START_ROW(EACH)                               \
  float* const to = out + r * out_stride;                       \
  EACH(LITESMITH_SUM)                                           \
  if (w.bias != nullptr) {                                      \
    const __m256 bias = _mm256_broadcast_ss(w.bias + r);        \
    EACH(LITESMITH_BIAS)                                        \
  } else {                                                      \
    EACH(LITESMITH_GO_ON)                                       \
  }
#define LITESMITH_STEP(v) sum##v = _mm256_fmadd_ps(weight, _mm256_loadu_ps(from + v * kLanes), sum##v);
#define LITESMITH_WRITE(v) _mm256_storeu_ps(to + v * kLanes, Clamp(sum##v, lo, hi));
#define LITESMITH_SPMM_ROWS(name, EACH)                                                                             \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int row_begin, int row_end, float* out,    \
            size_t out_stride) {                                                                                    \
    const __m256 lo = _mm256_set1_ps(w.lo), hi = _mm256_set1_ps(w.hi);                                              \
    for (int r = row_begin; r < row_end; ++r) {                                                                     \
      LITESMITH_START_ROW(EACH)                                                                                     \
      for (int i = w.start[r], end = w.start[r + 1]; i < end; ++i) {                                                \
        const __m256 weight = _mm256_broadcast_ss(w.value + i);                                                     \
        const float* from = in + w.column[i] * in_stride;                                                           \
        EACH(LITESMITH_STEP)                                                                                        \
      }                                                                                                             \
      EACH(LITESMITH_WRITE)                                                                                         \
    }                                                                                                               \
  }
// Narrow tiles have too few sums to hide the latency of an addition: two weights at a time, each with sums of its own.
#define LITESMITH_START2(v) __m256 more##v = _mm256_setzero_ps();
#define LITESMITH_STEP2(v) more##v = _mm256_fmadd_ps(weight2, _mm256_loadu_ps(from2 + v * kLanes), more##v);
#define LITESMITH_JOIN(v) sum##v = _mm256_add_ps(sum##v, more##v);
#define LITESMITH_SPMM_ROWS_TWICE(name, EACH)                                                                       \
  void name(const float* in, size_t in_stride, int, const SparseView& w, int row_begin, int row_end, float* out,    \
            size_t out_stride) {                                                                                    \
    const __m256 lo = _mm256_set1_ps(w.lo), hi = _mm256_set1_ps(w.hi);                                              \
    for (int r = row_begin; r < row_end; ++r) {                                                                     \
      LITESMITH_START_ROW(EACH)                                                                                     \
      EACH(LITESMITH_START2)                                                                                        \
      int i = w.start[r];                                                                                           \
      const int end = w.start[r + 1];                                                                               \
      for (; i + 1 < end; i += 2) {                                                                                 \
        const __m256 weight = _mm256_broadcast_ss(w.value + i), weight2 = _mm256_broadcast_ss(w.value + i + 1);     \
        const float *from = in + w.column[i] * in_stride, *from2 = in + w.column[i + 1] * in_stride;                \
        EACH(LITESMITH_STEP)                                                                                        \
        EACH(LITESMITH_STEP2)                                                                                       \
      }                                                                                                             \
      if (i < end) {                                                                                                \
        const __m256 weight = _mm256_broadcast_ss(w.value + i);                                                     \
        const float* from = in + w.column[i] * in_stride;                                                           \
        EACH(LITESMITH_STEP)                                                                                        \
      }                                                                                                             \
      EACH(LITESMITH_JOIN)                                                                                          \
      EACH(LITESMITH_WRITE)                                                                                         \
    }                                                                                                               \
  }
LITESMITH_SPMM_ROWS(f32_spmm_1x64__avx2, LITESMITH_EACH_8)
LITESMITH_SPMM_ROWS(f32_spmm_1x56__avx2, LITESMITH_EACH_7)
LITESMITH_SPMM_ROWS(f32_spmm_1x48__avx2, LITESMITH_EACH_6)
LITESMITH_SPMM_ROWS_TWICE(f32_spmm_1x40__avx2, LITESMITH_EACH_5)
LITESMITH_SPMM_ROWS_TWICE(f32_spmm_1x32__avx2, LITESMITH_EACH_4)
LITESMITH_SPMM_ROWS_TWICE(f32_spmm_1x24__avx2, LITESMITH_EACH_3)
LITESMITH_SPMM_ROWS_TWICE(f32_spmm_1x16__avx2, LITESMITH_EACH_2)
LITESMITH_SPMM_ROWS_TWICE(f32_spmm_1x8__avx2, LITESMITH_EACH_1)
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
      for (int i = w.start[g], end = w.start[g + 1]; i < end; ++i) {                                                \
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

#define LITESMITH_START(v) __m256 sum##v = start;
#define LITESMITH_STEP(v) sum##v = _mm256_fmadd_ps(weight, _mm256_loadu_ps(from + v * kLanes), sum##v);
#define LITESMITH_WRITE(v) _mm256_storeu_ps(out + x + v * kLanes, Clamp(sum##v, low, high));
#define LITESMITH_TAPS(EACH)                                    \
  {                                                             \
    EACH(LITESMITH_START)                                       \
    for (int t = 0; t < num_taps; ++t) {                        \
      const __m256 weight = _mm256_broadcast_ss(weights + t);   \
      const float* from = taps[t] + x;                          \
      EACH(LITESMITH_STEP)                                      \
    }                                                           \
    EACH(LITESMITH_WRITE)                                       \
  }

// 3x3 with the nine weights in registers and three chains of additions.
inline void Dw9(const float* const* taps, const float* w, __m256 start, __m256 low, __m256 high, int width, float* out) {
  const __m256 w0 = _mm256_set1_ps(w[0]), w1 = _mm256_set1_ps(w[1]), w2 = _mm256_set1_ps(w[2]);
  const __m256 w3 = _mm256_set1_ps(w[3]), w4 = _mm256_set1_ps(w[4]), w5 = _mm256_set1_ps(w[5]);
  const __m256 w6 = _mm256_set1_ps(w[6]), w7 = _mm256_set1_ps(w[7]), w8 = _mm256_set1_ps(w[8]);
  const float *t0 = taps[0], *t1 = taps[1], *t2 = taps[2], *t3 = taps[3], *t4 = taps[4], *t5 = taps[5], *t6 = taps[6],
              *t7 = taps[7], *t8 = taps[8];
  for (int x = 0; x < width; x += kLanes) {
    __m256 a = _mm256_fmadd_ps(w0, _mm256_loadu_ps(t0 + x), start);
    __m256 b = _mm256_mul_ps(w3, _mm256_loadu_ps(t3 + x));
    __m256 c = _mm256_mul_ps(w6, _mm256_loadu_ps(t6 + x));
    a = _mm256_fmadd_ps(w1, _mm256_loadu_ps(t1 + x), a);
    b = _mm256_fmadd_ps(w4, _mm256_loadu_ps(t4 + x), b);
    c = _mm256_fmadd_ps(w7, _mm256_loadu_ps(t7 + x), c);
    a = _mm256_fmadd_ps(w2, _mm256_loadu_ps(t2 + x), a);
    b = _mm256_fmadd_ps(w5, _mm256_loadu_ps(t5 + x), b);
    c = _mm256_fmadd_ps(w8, _mm256_loadu_ps(t8 + x), c);
    _mm256_storeu_ps(out + x, Clamp(_mm256_add_ps(_mm256_add_ps(a, b), c), low, high));
  }
}

void f32_dwconv_plane__avx2(const float* const* taps, int num_taps, const float* weights, float bias, float lo,
                            float hi, int width, float* out) {
  const __m256 start = _mm256_set1_ps(bias), low = _mm256_set1_ps(lo), high = _mm256_set1_ps(hi);
  if (num_taps == 9) return Dw9(taps, weights, start, low, high, width, out);
  int x = 0;
  for (; x + 4 * kLanes <= width; x += 4 * kLanes) LITESMITH_TAPS(LITESMITH_EACH_4)
  for (; x < width; x += kLanes) LITESMITH_TAPS(LITESMITH_EACH_1)
}
#undef LITESMITH_START
#undef LITESMITH_STEP
#undef LITESMITH_WRITE
#undef LITESMITH_TAPS

// Four output channels share every load of the input; two or three vectors of them share every weight.
#define LITESMITH_START(v)                                                                        \
  __m256 a##v = _mm256_broadcast_ss(bias + o), b##v = _mm256_broadcast_ss(bias + o + 1),          \
         c##v = _mm256_broadcast_ss(bias + o + 2), d##v = _mm256_broadcast_ss(bias + o + 3);
#define LITESMITH_WRITE(v)                                                                        \
  _mm256_storeu_ps(to + v * kLanes, Clamp(a##v, low, high));                                      \
  if (o + 1 < outputs) _mm256_storeu_ps(to + out_stride + v * kLanes, Clamp(b##v, low, high));    \
  if (o + 2 < outputs) _mm256_storeu_ps(to + 2 * out_stride + v * kLanes, Clamp(c##v, low, high)); \
  if (o + 3 < outputs) _mm256_storeu_ps(to + 3 * out_stride + v * kLanes, Clamp(d##v, low, high));
#define LITESMITH_TAPS(EACH)                                  \
  for (int o = 0; o < outputs; o += 4) {                      \
    EACH(LITESMITH_START)                                     \
    const float* w = weights + o;                             \
    for (int t = 0; t < num_taps; ++t, w += padded) {         \
      const float* from = taps[t] + x;                        \
      EACH(LITESMITH_INPUT)                                   \
      __m256 weight = _mm256_broadcast_ss(w);                 \
      EACH(LITESMITH_ROW_A)                                   \
      weight = _mm256_broadcast_ss(w + 1);                    \
      EACH(LITESMITH_ROW_B)                                   \
      weight = _mm256_broadcast_ss(w + 2);                    \
      EACH(LITESMITH_ROW_C)                                   \
      weight = _mm256_broadcast_ss(w + 3);                    \
      EACH(LITESMITH_ROW_D)                                   \
    }                                                         \
    float* to = out + o * out_stride + x;                     \
    EACH(LITESMITH_WRITE)                                     \
  }

// `bias` is padded like the weights.
void f32_conv_plane__avx2(const float* const* taps, int num_taps, const float* weights, const float* bias, int outputs,
                          float lo, float hi, int width, float* out, size_t out_stride) {
  const int padded = (outputs + 7) / 8 * 8;
  const __m256 low = _mm256_set1_ps(lo), high = _mm256_set1_ps(hi);
  int x = 0;
  for (; x + 2 * kLanes < width; x += 3 * kLanes) LITESMITH_TAPS(LITESMITH_EACH_3)
  for (; x + kLanes < width; x += 2 * kLanes) LITESMITH_TAPS(LITESMITH_EACH_2)
  for (; x < width; x += kLanes) LITESMITH_TAPS(LITESMITH_EACH_1)
}
#undef LITESMITH_START
#undef LITESMITH_WRITE
#undef LITESMITH_TAPS

// 3x3 kernels walk down the plane, eight columns of outputs at a time: the windows of an input row are loaded once for all
// the output rows they belong to. At the sides of the image, masks put zeros where there is no column: on the left under
// the first tap, on the right under the third.
inline __m256 ColumnMask(int column, int width) {
  const __m256i at = _mm256_add_epi32(_mm256_set1_epi32(column), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_setzero_si256(), at),
                                             _mm256_cmpgt_epi32(_mm256_set1_epi32(width), at));
  return _mm256_castsi256_ps(inside);
}

template <bool kMasked>
inline __m256 Window(const float* p, const __m256& mask) {
  const __m256 values = _mm256_loadu_ps(p);
  return kMasked ? _mm256_and_ps(values, mask) : values;
}

constexpr size_t kStripBytes = 16 * 1024;

// What the planes of one operator share.
struct Dw3x3Plan {
  Dw3x3Plan(const Dw3x3View& view, float lo, float hi, size_t out_stride)
      : v(view), low(_mm256_set1_ps(lo)), high(_mm256_set1_ps(hi)), last((view.out_width - 1) / kLanes * kLanes) {
    left = ColumnMask(-v.pad_x, v.in_width);
    for (int i = 0; i < 2; ++i) right[i] = ColumnMask(last * v.stride + i * kLanes + 2 - v.pad_x, v.in_width);
    // Vectors that run over the end of a row are overwritten by the next one; those of the last rows need room.
    const int64_t room = static_cast<int64_t>(out_stride) - last - kLanes;
    whole_rows = room < 0 ? 0 : room / v.out_width + 1 < v.out_height ? static_cast<int>(room / v.out_width) + 1 : v.out_height;
  }

  // Rows whose vector at column x may be stored whole.
  int WholeRows(int x) const { return x < last ? v.out_height : whole_rows; }

  const Dw3x3View& v;
  __m256 low, high, left, right[2];
  const int last;  // first column of the last vector of a row
  int whole_rows;  // rows whose last vector may be stored whole
};

// Stores the first n of eight values.
inline void StoreSome(__m256 value, int n, float* to) {
  float values[kLanes];
  _mm256_storeu_ps(values, value);
  for (int i = 0; i < n; ++i) to[i] = values[i];
}

// What lies under the three taps of a row. With stride 2: even columns, odd columns, and even columns from the next on, in
// the order that shuffles deliver.
struct Dw3x3Row {
  __m256 first, second, third;
};

template <int kStride, bool kLeft, bool kRight>
inline Dw3x3Row LoadRow(const float* p, const __m256& left, const __m256* right) {
  if (kStride == 1) return {Window<kLeft>(p, left), _mm256_loadu_ps(p + 1), Window<kRight>(p + 2, right[0])};
  const __m256 a = Window<kLeft>(p, left), b = _mm256_loadu_ps(p + 8);
  const __m256 c = Window<kRight>(p + 2, right[0]), d = Window<kRight>(p + 10, right[1]);
  return {_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)), _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)),
          _mm256_shuffle_ps(c, d, _MM_SHUFFLE(2, 0, 2, 0))};
}

inline __m256 AddRow(__m256 w0, __m256 w1, __m256 w2, const Dw3x3Row& row, __m256 sum) {
  return _mm256_fmadd_ps(w2, row.third, _mm256_fmadd_ps(w1, row.second, _mm256_fmadd_ps(w0, row.first, sum)));
}

// Out of the order of the shuffles.
template <int kStride>
inline __m256 InOrder(__m256 sum) {
  if (kStride == 1) return sum;
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), _MM_SHUFFLE(3, 1, 2, 0)));
}

// In the loops below everything is a local: the compiler takes any vector store for one that might change the view.
#define LITESMITH_DW_LOCALS                                                                                          \
  const __m256 w0 = _mm256_set1_ps(w[0]), w1 = _mm256_set1_ps(w[1]), w2 = _mm256_set1_ps(w[2]);                      \
  const __m256 w3 = _mm256_set1_ps(w[3]), w4 = _mm256_set1_ps(w[4]), w5 = _mm256_set1_ps(w[5]);                      \
  const __m256 w6 = _mm256_set1_ps(w[6]), w7 = _mm256_set1_ps(w[7]), w8 = _mm256_set1_ps(w[8]);                      \
  const __m256 start = _mm256_set1_ps(bias), low = plan.low, high = plan.high, left = plan.left;                     \
  const __m256 right[2] = {plan.right[0], plan.right[1]};                                                            \
  const int in_height = plan.v.in_height, pad_x = plan.v.pad_x, pad_y = plan.v.pad_y, last = plan.last;              \
  const int out_height = plan.v.out_height;                                                                          \
  const ptrdiff_t in_width = plan.v.in_width, out_width = plan.v.out_width;                                          \
  const int tail = static_cast<int>(out_width) - last;

template <bool kLeft, bool kRight>
__attribute__((noinline)) void Dw3x3Strip1(const float* in, const Dw3x3Plan& plan, const float* w, float bias, int x,
                                           float* out) {
  LITESMITH_DW_LOCALS
  const float* p = in + x - pad_x;
  const float* const end = p + in_height * in_width;
  const int whole = plan.WholeRows(x);
  float* to = out + x;
  int y = 0;
  const auto put = [&](__m256 sum) __attribute__((always_inline)) {
    sum = Clamp(sum, low, high);
    if (y < whole) {
      _mm256_storeu_ps(to, sum);
    } else if (y < out_height) {
      StoreSome(sum, tail, to);
    }
    ++y;
    to += out_width;
  };
  __m256 third = start, second = start;  // outputs whose third and second row comes next
  if (pad_y == 0) {
    second = AddRow(w0, w1, w2, LoadRow<1, kLeft, kRight>(p, left, right), start);
    p += in_width;
  }
  if (p < end) {
    const Dw3x3Row row = LoadRow<1, kLeft, kRight>(p, left, right);
    third = AddRow(w3, w4, w5, row, second);
    second = AddRow(w0, w1, w2, row, start);
    p += in_width;
  } else {
    third = second;
    second = start;
  }
  const int inside = in_height + pad_y - 2;  // outputs all of whose rows are in the image
  for (const int stop = inside < whole ? inside : whole; y < stop; ++y, p += in_width, to += out_width) {
    const Dw3x3Row row = LoadRow<1, kLeft, kRight>(p, left, right);
    const __m256 done = AddRow(w6, w7, w8, row, third);
    third = AddRow(w3, w4, w5, row, second);
    second = AddRow(w0, w1, w2, row, start);
    _mm256_storeu_ps(to, Clamp(done, low, high));
  }
  while (p < end) {
    const Dw3x3Row row = LoadRow<1, kLeft, kRight>(p, left, right);
    put(AddRow(w6, w7, w8, row, third));
    third = AddRow(w3, w4, w5, row, second);
    second = AddRow(w0, w1, w2, row, start);
    p += in_width;
  }
  put(third);
  put(second);
}

template <bool kLeft, bool kRight>
__attribute__((noinline)) void Dw3x3Strip2(const float* in, const Dw3x3Plan& plan, const float* w, float bias, int x,
                                           float* out) {
  LITESMITH_DW_LOCALS
  const int first = 2 * x - pad_x, whole = plan.WholeRows(x);
  const float* const zeros = plan.v.zeros;
  const auto row = [&](int iy) __attribute__((always_inline)) {
    const bool outside = iy < 0 || iy >= in_height;
    return LoadRow<2, kLeft, kRight>((outside ? zeros : in + iy * in_width) + first, left, right);
  };
  float* to = out + x;
  Dw3x3Row top = row(-pad_y);
  for (int y = 0; y < out_height; ++y, to += out_width) {
    const __m256 middle = AddRow(w3, w4, w5, row(2 * y + 1 - pad_y), start);
    __m256 sum = AddRow(w0, w1, w2, top, _mm256_setzero_ps());
    top = row(2 * y + 2 - pad_y);
    sum = InOrder<2>(_mm256_add_ps(AddRow(w6, w7, w8, top, sum), middle));
    sum = Clamp(sum, low, high);
    if (__builtin_expect(y < whole, 1)) {
      _mm256_storeu_ps(to, sum);
    } else {
      StoreSome(sum, tail, to);
    }
  }
}

// Row by row, for planes too large for the first-level cache: strips would lose more to its misses than they save.
template <int kStride>
__attribute__((noinline)) void Dw3x3Rows(const float* in, const Dw3x3Plan& plan, const float* w, float bias, float* out) {
  LITESMITH_DW_LOCALS
  const float* const zeros = plan.v.zeros;
  const int whole = plan.whole_rows;
  for (int y = 0; y < out_height; ++y, out += out_width) {
    const auto under = [&](int k) __attribute__((always_inline)) {
      const int iy = y * kStride + k - pad_y;
      return (iy < 0 || iy >= in_height ? zeros : in + iy * in_width) - pad_x;
    };
    const float *r0 = under(0), *r1 = under(1), *r2 = under(2);
#define LITESMITH_POINT(kLeft, kRight, x)                                                                              \
  const __m256 a = AddRow(w0, w1, w2, LoadRow<kStride, kLeft, kRight>(r0 + (x) * kStride, left, right), start);      \
  const __m256 b = AddRow(w3, w4, w5, LoadRow<kStride, kLeft, kRight>(r1 + (x) * kStride, left, right),              \
                          _mm256_setzero_ps());                                                                      \
  const __m256 c = AddRow(w6, w7, w8, LoadRow<kStride, kLeft, kRight>(r2 + (x) * kStride, left, right),              \
                          _mm256_setzero_ps());                                                                      \
  const __m256 sum =                                                                                                 \
      Clamp(InOrder<kStride>(_mm256_add_ps(_mm256_add_ps(a, b), c)), low, high);
    {
      LITESMITH_POINT(true, false, 0)
      _mm256_storeu_ps(out, sum);
    }
    for (int x = kLanes; x < last; x += kLanes) {
      LITESMITH_POINT(false, false, x)
      _mm256_storeu_ps(out + x, sum);
    }
    LITESMITH_POINT(false, true, last)
    if (__builtin_expect(y < whole, 1)) {
      _mm256_storeu_ps(out + last, sum);
    } else {
      StoreSome(sum, tail, out + last);
    }
#undef LITESMITH_POINT
  }
}

void f32_dwconv3x3_plane__avx2(const float* in, size_t in_stride, int planes, const Dw3x3View& v, const float* weights,
                               const float* bias, float lo, float hi, float* out, size_t out_stride) {
  const Dw3x3Plan plan(v, lo, hi, out_stride);
  const bool rows = plan.last > 0 && static_cast<size_t>(v.in_height) * v.in_width * sizeof(float) > kStripBytes;
#define LITESMITH_STRIP(kLeft, kRight, x)                                              \
  v.stride == 1 ? Dw3x3Strip1<kLeft, kRight>(in, plan, weights, *bias, x, out)         \
                : Dw3x3Strip2<kLeft, kRight>(in, plan, weights, *bias, x, out)
  for (int i = 0; i < planes; ++i, in += in_stride, weights += 9, ++bias, out += out_stride) {
    if (rows) {
      v.stride == 1 ? Dw3x3Rows<1>(in, plan, weights, *bias, out) : Dw3x3Rows<2>(in, plan, weights, *bias, out);
    } else if (plan.last == 0) {
      LITESMITH_STRIP(true, true, 0);
    } else {
      LITESMITH_STRIP(false, true, plan.last);  // before those that lie where its vectors run over
      LITESMITH_STRIP(true, false, 0);
      for (int x = kLanes; x < plan.last; x += kLanes) LITESMITH_STRIP(false, false, x);
    }
  }
#undef LITESMITH_STRIP
}

void f32_split_row__avx2(const float* row, int n, float* even, float* odd) {
  for (int i = 0; i < n; i += 2 * kLanes) {
    const __m256 a = _mm256_loadu_ps(row + i), b = _mm256_loadu_ps(row + i + kLanes);
    const __m256d e = _mm256_castps_pd(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
    const __m256d o = _mm256_castps_pd(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
    _mm256_storeu_ps(even + i / 2, _mm256_castpd_ps(_mm256_permute4x64_pd(e, _MM_SHUFFLE(3, 1, 2, 0))));
    _mm256_storeu_ps(odd + i / 2, _mm256_castpd_ps(_mm256_permute4x64_pd(o, _MM_SHUFFLE(3, 1, 2, 0))));
  }
}

// Three channels, the usual ones, in a loop whose stride the compiler knows.
void f32_split_channels__avx2(const float* in, int n, int channels, float* out, size_t out_stride) {
  if (channels != 3) {
    for (int c = 0; c < channels; ++c) {
      for (int i = 0; i < n; ++i) out[c * out_stride + i] = in[i * channels + c];
    }
    return;
  }
  float *__restrict red = out, *__restrict green = out + out_stride, *__restrict blue = out + 2 * out_stride;
  for (int i = 0; i < n; ++i) {
    red[i] = in[i * 3];
    green[i] = in[i * 3 + 1];
    blue[i] = in[i * 3 + 2];
  }
}

}  // namespace

void FillAvx2Float(KernelTable* t) {
  t->f32_spmm[0] = {"f32_spmm_1x64__avx2", 64, f32_spmm_1x64__avx2};
  t->f32_spmm[1] = {"f32_spmm_1x56__avx2", 56, f32_spmm_1x56__avx2};
  t->f32_spmm[2] = {"f32_spmm_1x48__avx2", 48, f32_spmm_1x48__avx2};
  t->f32_spmm[3] = {"f32_spmm_1x40__avx2", 40, f32_spmm_1x40__avx2};
  t->f32_spmm[4] = {"f32_spmm_1x32__avx2", 32, f32_spmm_1x32__avx2};
  t->f32_spmm[5] = {"f32_spmm_1x24__avx2", 24, f32_spmm_1x24__avx2};
  t->f32_spmm[6] = {"f32_spmm_1x16__avx2", 16, f32_spmm_1x16__avx2};
  t->f32_spmm[7] = {"f32_spmm_1x8__avx2", 8, f32_spmm_1x8__avx2};
  t->f32_spmm_4x1[0] = {"f32_spmm_4x24__avx2", 24, f32_spmm_4x24__avx2};
  t->f32_spmm_4x1[1] = {"f32_spmm_4x16__avx2", 16, f32_spmm_4x16__avx2};
  t->f32_spmm_4x1[2] = {"f32_spmm_4x8__avx2", 8, f32_spmm_4x8__avx2};
  // Wider tiles than these pay only in the first-level cache: each walks over the weights again, but from the second level
  // a load takes twice as long. Each part more costs reading and writing the outputs once.
  t->f32_spmm_tiling = {255, 128, 32 * 1024, 48, 1};
  t->f32_spmm_4x1_tiling = {SpmmTiling::kAllInputs, 0, 24 * 1024, 16, 1};
  t->f32_dwconv_plane = {"f32_dwconv_plane__avx2", f32_dwconv_plane__avx2};
  t->f32_split_row = {"f32_split_row__avx2", f32_split_row__avx2};
  t->f32_split_channels = {"f32_split_channels__avx2", f32_split_channels__avx2};
  t->f32_dwconv3x3_plane = {"f32_dwconv3x3_plane__avx2", f32_dwconv3x3_plane__avx2};
  t->f32_conv_plane = {"f32_conv_plane__avx2", f32_conv_plane__avx2};
}

}  // namespace litesmith
