// SPDX-License-Identifier: Apache-2.0
// Micro-benchmarks of every kernel in the registry, per tier: GMAC/s and the share of what the tier's multiply-adds reach
// in registers alone, or ns per value and the share of the speed of a copy. Best of several rounds of thread CPU time, so
// a busy machine disturbs little.
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/fixed_point.h"
#include "kernels/registry.h"
#include "ops/gemm.h"
#include "ops/hybrid_gemm.h"

namespace litesmith {
namespace {

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

double BestSeconds(const std::function<void()>& work) {
  // Reading the clock costs a system call: enough repetitions between two readings to make it vanish.
  int times = 1;
  for (double spent = 0; spent < 2e-3; times *= 2) {
    const double start = CpuSeconds();
    for (int i = 0; i < times; ++i) work();
    spent = CpuSeconds() - start;
  }
  double best = 1e9;
  for (int round = 0; round < 15; ++round) {
    const double start = CpuSeconds();
    for (int i = 0; i < times; ++i) work();
    best = std::min(best, (CpuSeconds() - start) / times);
  }
  return best;
}

// ------------------------------------------------------------------------------------------------ peaks
// What a tier's multiply-adds reach where nothing else happens: registers only, as many sums as hide their latency.
// `Keep` makes the compiler believe that a register was read and changed.

constexpr int kPeakRounds = 4096;
constexpr int kPeakSums = 10;
#define LITESMITH_TEN_SUMS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void IntegerAvx2() {
  __m256i x = _mm256_set1_epi16(3), w = _mm256_set1_epi16(5);
#define LITESMITH_SUM(i) __m256i s##i = _mm256_setzero_si256();
  LITESMITH_TEN_SUMS(LITESMITH_SUM)
  for (int r = 0; r < kPeakRounds; ++r) {
    __asm__ volatile("" : "+x"(x), "+x"(w));
#define LITESMITH_ADD(i)                                   \
  s##i = _mm256_add_epi32(s##i, _mm256_madd_epi16(x, w)); \
  __asm__ volatile("" : "+x"(s##i), "+x"(x));
    LITESMITH_TEN_SUMS(LITESMITH_ADD)
#undef LITESMITH_ADD
  }
#undef LITESMITH_SUM
}
__attribute__((target("avx2,fma"))) void FloatAvx2() {
  __m256 x = _mm256_set1_ps(0.3f), w = _mm256_set1_ps(0.5f);
#define LITESMITH_SUM(i) __m256 s##i = _mm256_setzero_ps();
  LITESMITH_TEN_SUMS(LITESMITH_SUM)
  for (int r = 0; r < kPeakRounds; ++r) {
#define LITESMITH_ADD(i)               \
  s##i = _mm256_fmadd_ps(x, w, s##i); \
  __asm__ volatile("" : "+x"(s##i));
    LITESMITH_TEN_SUMS(LITESMITH_ADD)
#undef LITESMITH_ADD
  }
#undef LITESMITH_SUM
}
__attribute__((target("avx2"))) void Copy(const char* from, char* to, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 128) {
    for (size_t j = i; j < i + 128; j += 32) {
      __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + j));
      __asm__ volatile("" : "+x"(v));  // a loop that copies would become a call
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + j), v);
    }
  }
}
#define LITESMITH_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
__attribute__((target(LITESMITH_AVX512))) void IntegerAvx512() {
  __m512i x = _mm512_set1_epi16(3), w = _mm512_set1_epi16(5);
#define LITESMITH_SUM(i) __m512i s##i = _mm512_setzero_si512();
  LITESMITH_TEN_SUMS(LITESMITH_SUM)
  for (int r = 0; r < kPeakRounds; ++r) {
#define LITESMITH_ADD(i)                      \
  s##i = _mm512_dpwssd_epi32(s##i, x, w);    \
  __asm__ volatile("" : "+v"(s##i));
    LITESMITH_TEN_SUMS(LITESMITH_ADD)
#undef LITESMITH_ADD
  }
#undef LITESMITH_SUM
}
__attribute__((target(LITESMITH_AVX512))) void FloatAvx512() {
  __m512 x = _mm512_set1_ps(0.3f), w = _mm512_set1_ps(0.5f);
#define LITESMITH_SUM(i) __m512 s##i = _mm512_setzero_ps();
  LITESMITH_TEN_SUMS(LITESMITH_SUM)
  for (int r = 0; r < kPeakRounds; ++r) {
#define LITESMITH_ADD(i)               \
  s##i = _mm512_fmadd_ps(x, w, s##i); \
  __asm__ volatile("" : "+v"(s##i));
    LITESMITH_TEN_SUMS(LITESMITH_ADD)
#undef LITESMITH_ADD
  }
#undef LITESMITH_SUM
}
#elif defined(__aarch64__)
// Two byte products make one of 16 bits: 16 byte products an instruction are 8.
__attribute__((target("+dotprod"))) void IntegerNeonDot() {
  int8x16_t x = vdupq_n_s8(3), w = vdupq_n_s8(5);
#define LITESMITH_SUM(i) int32x4_t s##i = vdupq_n_s32(0);
  LITESMITH_TEN_SUMS(LITESMITH_SUM)
  for (int r = 0; r < kPeakRounds; ++r) {
#define LITESMITH_ADD(i)           \
  s##i = vdotq_s32(s##i, x, w);   \
  __asm__ volatile("" : "+w"(s##i));
    LITESMITH_TEN_SUMS(LITESMITH_ADD)
#undef LITESMITH_ADD
  }
#undef LITESMITH_SUM
}
void Copy(const char* from, char* to, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 16) {
    uint8x16_t v = vld1q_u8(reinterpret_cast<const uint8_t*>(from + i));
    __asm__ volatile("" : "+w"(v));
    vst1q_u8(reinterpret_cast<uint8_t*>(to + i), v);
  }
}
void FloatNeon() {
  float32x4_t x = vdupq_n_f32(0.3f), w = vdupq_n_f32(0.5f);
#define LITESMITH_SUM(i) float32x4_t s##i = vdupq_n_f32(0);
  LITESMITH_TEN_SUMS(LITESMITH_SUM)
  for (int r = 0; r < kPeakRounds; ++r) {
#define LITESMITH_ADD(i)           \
  s##i = vfmaq_f32(s##i, x, w);   \
  __asm__ volatile("" : "+w"(s##i));
    LITESMITH_TEN_SUMS(LITESMITH_ADD)
#undef LITESMITH_ADD
  }
#undef LITESMITH_SUM
}
#endif

struct Peaks {
  double integer = 0, real = 0;  // GMAC/s
  double copy = 0;               // bytes read and written per nanosecond, in the first-level cache, by vectors of 32 bytes
};

Peaks Measured(const std::string& tier) {
  Peaks peaks;
  const auto gmacs = [](void (*loop)(), int lanes) {
    return static_cast<double>(kPeakRounds) * kPeakSums * lanes / BestSeconds(loop) * 1e-9;
  };
#if defined(__x86_64__)
  peaks.integer = tier == "avx2" ? gmacs(IntegerAvx2, 16) : gmacs(IntegerAvx512, 32);
  peaks.real = tier == "avx2" ? gmacs(FloatAvx2, 8) : gmacs(FloatAvx512, 16);
#elif defined(__aarch64__)
  peaks.integer = gmacs(IntegerNeonDot, 8);
  peaks.real = gmacs(FloatNeon, 4);
#endif
  alignas(64) static char from[8192], to[8192 + 2048];  // not a multiple of 4 kB apart, which would let loads wait
  const double seconds = BestSeconds([] { Copy(from, to + 2048, sizeof(from)); });
  peaks.copy = 2.0 * sizeof(from) / seconds * 1e-9;
  std::printf("registers only: %.1f GMAC/s int16, %.1f GMAC/s float; a copy moves %.0f bytes/ns\n", peaks.integer,
              peaks.real, peaks.copy);
  return peaks;
}

// ------------------------------------------------------------------------------------------------ every slot
// One function a slot of the table, by the slot's name: a new slot does not compile here until it has one.

struct Work {
  double values;           // that are made
  double macs;             // multiply-adds, or 0
  double bytes;            // read and written
  bool integer;
  std::function<void()> run;
};

class Slots {
 public:
  explicit Slots(const KernelTable& t) : t_(t) {
    narrow_.Build(Multipliers(), Bias(), std::vector<int64_t>(kChannels, 1 << 22), -32768, 32767);
    wide_.Build(Multipliers(), Bias(), std::vector<int64_t>(kChannels, int64_t{1} << 40), -32768, 32767);
    for (int i = 0; i < 10; ++i) taps16_[i] = a_.data() + i % 3 * 2 + i / 3 * 200;
    for (int i = 0; i < 9; ++i) taps32_[i] = f_.data() + i % 3 + i / 3 * 120;
  }

  Work requant_s32_s16() {
    return Values(4 + 2, [this] {
      t_.requant_s32_s16.run(acc_.data(), kChannels, kRows, kChannels, narrow_.View(0), out_.data(), kChannels);
    });
  }
  Work requant_s64_s16() {
    return Values(8 + 2, [this] {
      t_.requant_s64_s16.run(acc64_.data(), kChannels, kRows, kChannels, wide_.View(0), out_.data(), kChannels);
    });
  }
  Work requant_double_s16() {
    return Values(4 + 2, [this] {
      const DoubleRequantView q{doubles_.data(), doubles_.data(), -32768, 32767};
      t_.requant_double_s16.run(acc_.data(), kChannels, kRows, kChannels, q, out_.data(), kChannels);
    });
  }
  Work s16s8_dwconv() {
    const double values = kRun.pixels * static_cast<double>(kChannels);
    return {values, 9 * values, 4 * values, true, [this] {
              t_.s16s8_dwconv.run(taps16_, 10, &kRun, 1, 0, kChannels, weights16_.data(), narrow_.View(0), out_.data(),
                                  kChannels);
            }};
  }
  Work s16_add_blocks() {
    return Values(6, [this] { t_.s16_add_blocks.run(a_.data(), b_.data(), kCount, kAdd, out_.data()); });
  }
  Work s16_add() { return Values(6, [this] { t_.s16_add.run(a_.data(), b_.data(), kCount, kAdd, out_.data()); }); }
  Work s16_sub() { return Values(6, [this] { t_.s16_sub.run(a_.data(), b_.data(), kCount, kAdd, out_.data()); }); }
  Work s16_mul() { return Values(6, [this] { t_.s16_mul.run(a_.data(), b_.data(), kCount, kScale, out_.data()); }); }
  Work s16_scale() { return Values(4, [this] { t_.s16_scale.run(a_.data(), kCount, kScale, out_.data()); }); }
  Work f32_quantize_s16() { return Values(6, [this] { t_.f32_quantize_s16.run(f_.data(), kCount, 1e-4f, out_.data()); }); }
  Work s16_dequantize_f32() {
    return Values(6, [this] { t_.s16_dequantize_f32.run(a_.data(), kCount, 1e-4f, g_.data()); });
  }
  Work s32_finish_f32() {
    return Values(8, [this] {
      const FloatFinishView finish{ones_.data(), ones_.data(), 0.0f, 6.0f};
      t_.s32_finish_f32.run(acc_.data(), kPanel, kCount / kPanel, kPanel, ones_.data(), finish, g_.data(), kPanel);
    });
  }
  Work f32_max_abs() { return Values(4, [this] { out_[0] = t_.f32_max_abs.run(f_.data(), kCount) > 1.0f; }); }
  Work f32_round_s16() { return Values(6, [this] { t_.f32_round_s16.run(f_.data(), kCount, 100.0f, out_.data()); }); }
  Work f32_dwconv_plane() {
    return Macs(kWidth, 9.0 * kWidth, [this] {
      t_.f32_dwconv_plane.run(taps32_, 9, ones_.data(), 0.1f, 0.0f, 6.0f, kWidth, g_.data());
    });
  }
  Work f32_dwconv3x3_plane() {
    constexpr int kSide = 28, kPlane = 28 * 28 + 32;
    return Macs(4 * kSide * kSide, 9.0 * 4 * kSide * kSide, [this] {
      const Dw3x3View v{kSide, kSide, kSide, kSide, 1, 1, 1, zeros_.data() + 16};
      t_.f32_dwconv3x3_plane.run(f_.data() + 64, kPlane, 4, v, ones_.data(), ones_.data(), 0.0f, 6.0f, g_.data(), kPlane);
    });
  }
  Work f32_conv_plane() {
    return Macs(8 * kWidth, 8.0 * 9 * kWidth, [this] {
      t_.f32_conv_plane.run(taps32_, 9, ones_.data(), ones_.data(), 8, 0.0f, 6.0f, kWidth, g_.data(), kWidth);
    });
  }
  Work f32_split_row() {
    return Values(8, [this] { t_.f32_split_row.run(f_.data(), kCount, g_.data(), g_.data() + kCount / 2 + 64); });
  }
  Work f32_split_channels() {
    return Values(8, [this] { t_.f32_split_channels.run(f_.data(), kCount / 4, 4, g_.data(), kCount / 4); });
  }
  Work f32_dwconv3x3_row() {
    return Macs(28 * 64, 9.0 * 28 * 64, [this] {
      const Dw3x3Row v{{f_.data(), f_.data() + 1792, f_.data() + 3584}, 28, 64, 1, 1, ones_.data(), ones_.data(), 0.0f, 6.0f};
      t_.f32_dwconv3x3_row.run(v, 0, 28, g_.data());
    });
  }
  Work f32_add() {
    return Values(12, [this] { t_.f32_add.run(f_.data(), ones_.data(), kCount, 0.0f, 6.0f, g_.data()); });
  }

 private:
  static constexpr int kCount = 4096, kChannels = 64, kRows = kCount / kChannels, kWidth = 448;
  static constexpr DwRun kRun{kRows - 16, kChannels};
  static constexpr AddView kAdd{1 << 30, 1 << 30, 1 << 30, 0, -1, -14, -32768, 32767};
  static constexpr ScaleView kScale{1 << 30, -15, -32768, 32767};

  static std::vector<FixedMultiplier> Multipliers() { return std::vector<FixedMultiplier>(kChannels, QuantizeMultiplier(1e-3)); }
  static std::vector<int64_t> Bias() { return std::vector<int64_t>(kChannels, 1); }
  static Work Values(double bytes, std::function<void()> run) {
    return {static_cast<double>(kCount), 0, bytes * kCount, true, std::move(run)};
  }
  static Work Macs(double values, double macs, std::function<void()> run) {
    return {values, macs, 8 * values, false, std::move(run)};
  }

  const KernelTable& t_;
  Requant narrow_, wide_;
  std::vector<int16_t> a_ = std::vector<int16_t>(kCount, 1234), b_ = std::vector<int16_t>(kCount, -77);
  std::vector<int16_t> out_ = std::vector<int16_t>(2 * kCount), weights16_ = std::vector<int16_t>(10 * kChannels, 3);
  std::vector<float> f_ = std::vector<float>(2 * kCount, 0.37f), g_ = std::vector<float>(2 * kCount);
  std::vector<float> ones_ = std::vector<float>(kCount, 1.0f), zeros_ = std::vector<float>(256, 0.0f);
  std::vector<double> doubles_ = std::vector<double>(kCount, 0.01);
  std::vector<int32_t> acc_ = std::vector<int32_t>(kCount, 1 << 20);
  std::vector<int64_t> acc64_ = std::vector<int64_t>(kCount, 1 << 20);
  const int16_t* taps16_[10];
  const float* taps32_[9];
};

void EverySlot(const KernelTable& t, const Peaks& peaks) {
  Slots slots(t);
  const auto report = [&](const char* name, const Work& work) {
    const double ns = BestSeconds(work.run) * 1e9;
    if (work.macs > 0) {
      const double gmacs = work.macs / ns, peak = work.integer ? peaks.integer : peaks.real;
      std::printf("%-32s %6.1f GMAC/s  %3.0f %% of the registers' peak\n", name, gmacs, 100 * gmacs / peak);
    } else {
      std::printf("%-32s %.3f ns/value  %3.0f %% of a copy's speed\n", name, ns / work.values,
                  100 * work.bytes / ns / peaks.copy);
    }
  };
#define LITESMITH_REPORT(slot, Fn) report(t.slot.name, slots.slot());
  LITESMITH_KERNEL_SLOTS(LITESMITH_REPORT)
#undef LITESMITH_REPORT
}

// ------------------------------------------------------------------------------------------------ products

// A GEMM tile on data that stays in the first-level cache.
template <class Weight>
void GemmTile(const GemmKernel<Weight>& g, const Peaks& peaks) {
  const int k = 256;
  std::vector<int16_t> a(static_cast<size_t>(g.mr) * k, 3);
  std::vector<const int16_t*> rows;
  for (int i = 0; i < g.mr; ++i) rows.push_back(a.data() + static_cast<size_t>(i) * k);
  const int panels = g.max_panels;
  const size_t stride = static_cast<size_t>(k) * kPanel + g.panel_header;
  std::vector<Weight> packed(stride * panels, 1);
  std::vector<int32_t> acc(static_cast<size_t>(g.mr) * panels * kPanel);
  const double seconds = BestSeconds([&] { g.run(rows.data(), g.mr, k, packed.data(), stride, panels, acc.data()); });
  const double gmacs = static_cast<double>(g.mr) * k * panels * kPanel / seconds * 1e-9;
  std::printf("%-32s %6.1f GMAC/s  %3.0f %% of the registers' peak, in the first-level cache\n", g.name, gmacs,
              100 * gmacs / peaks.integer);
}

void GemmLayers(const KernelTable& t, const Peaks& peaks) {
  GemmTile(t.s16s8_gemm, peaks);
  GemmTile(t.s16s16_gemm, peaks);
  struct Layer {
    int m, k, n;
  };
  for (const Layer l : {Layer{12544, 16, 96}, {12544, 32, 64}, {3136, 128, 128}, {784, 256, 256}, {196, 512, 512},
                        {49, 1024, 1024}, {196, 4608, 64}, {1, 1024, 1000}}) {
    PackedGemm gemm;
    std::vector<int8_t> weights(static_cast<size_t>(l.n) * l.k);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 7 % 61) - 30;
    gemm.Pack(t, weights.data(), l.k, l.n, l.k);
    gemm.SetRequant(std::vector<FixedMultiplier>(l.n, QuantizeMultiplier(1e-4)), std::vector<int64_t>(l.n, 5), -32768,
                    32767);
    std::vector<int16_t> a(static_cast<size_t>(l.m) * l.k, 77), out(static_cast<size_t>(l.m) * l.n);
    std::vector<const int16_t*> rows(l.m);
    for (int i = 0; i < l.m; ++i) rows[i] = a.data() + static_cast<size_t>(i) * l.k;
    const double seconds = BestSeconds([&] {
      for (int i = 0; i < l.m; i += 48) {
        gemm.Run(rows.data() + i, std::min(48, l.m - i), 0, gemm.num_panels(), out.data() + static_cast<size_t>(i) * l.n,
                 l.n);
      }
    });
    const double gmacs = static_cast<double>(l.m) * l.k * l.n / seconds * 1e-9;
    std::printf("%-32s %5d x %4d -> %4d  %6.1f GMAC/s  %3.0f %% of the peak  %.2f ns/output\n", t.s16s8_gemm.name, l.m,
                l.k, l.n, gmacs, 100 * gmacs / peaks.integer, seconds / l.m / l.n * 1e9);
  }
}

// Float rows with int8 and with 16-bit float weights: rounding, product and scaling of blocks of pixels, as 1x1
// convolutions do them.
void HybridLayers(const KernelTable& t, const Peaks& peaks) {
  struct Layer {
    int m, k, n;
  };
  for (const Layer l : {Layer{12544, 16, 96}, {3136, 24, 144}, {3136, 144, 24}, {784, 32, 192}, {196, 384, 64},
                        {196, 96, 576}, {49, 960, 160}, {1, 1024, 1000}}) {
    std::vector<float> a(static_cast<size_t>(l.m) * l.k, 0.3f), out(static_cast<size_t>(l.m) * l.n), bias(l.n, 0.1f);
    for (bool narrow : {true, false}) {
      HybridGemm gemm;
      const size_t size = static_cast<size_t>(l.n) * l.k;
      if (narrow) {
        gemm.Pack(t, std::vector<int8_t>(size, 3).data(), bias.data(), l.n, l.k);
      } else {
        gemm.PackRounded(t, std::vector<float>(size, 0.2f).data(), l.n, l.k);
      }
      gemm.SetFinish(bias.data(), 0.0f, 6.0f);
      std::vector<int16_t> rounded(60 * gemm.k_padded());
      const double seconds = BestSeconds([&] {
        for (int first = 0; first < l.m; first += 60) {
          const int m = std::min(60, l.m - first);
          const int16_t* rows[60];
          float steps[60];
          std::fill_n(steps, m, gemm.Round(a.data() + static_cast<size_t>(first) * l.k, m * l.k, m * l.k, rounded.data()));
          for (int i = 0; i < m; ++i) rows[i] = rounded.data() + i * l.k;
          gemm.Run(rows, steps, m, 0, gemm.num_panels(), out.data() + static_cast<size_t>(first) * l.n, l.n);
        }
      });
      const double gmacs = static_cast<double>(l.m) * l.k * l.n / seconds * 1e-9;
      std::printf("%-32s %5d x %4d -> %4d  %6.1f GMAC/s  %3.0f %% of the peak, from and to float\n", gemm.kernel_name(),
                  l.m, l.k, l.n, gmacs, 100 * gmacs / peaks.integer);
    }
  }
}

void Depthwise(const KernelTable& t, const Peaks& peaks) {
  struct Image {
    int side, channels, stride;
  };
  for (const Image i : {Image{112, 32, 1}, {112, 96, 2}, {56, 144, 1}, {28, 192, 1}, {14, 576, 1}, {7, 960, 1}}) {
    const size_t row = static_cast<size_t>(i.side) * i.channels;
    const std::vector<float> in(row * (i.side + 2), 0.3f), weights(9 * i.channels, 0.1f);
    const int side = i.side / i.stride;
    std::vector<float> out(static_cast<size_t>(side) * side * i.channels);
    const double seconds = BestSeconds([&] {
      for (int y = 0; y < side; ++y) {
        const float* first = in.data() + y * i.stride * row;
        const Dw3x3Row v{{first, first + row, first + 2 * row}, i.side, i.channels, i.stride, 1, weights.data(),
                         weights.data(), 0.0f, 6.0f};
        t.f32_dwconv3x3_row.run(v, 0, side, out.data() + static_cast<size_t>(y) * side * i.channels);
      }
    });
    const double gmacs = 9.0 * out.size() / seconds * 1e-9;
    std::printf("%-32s %3d x %3d x %3d, stride %d  %.1f GMAC/s  %3.0f %% of the peak\n", t.f32_dwconv3x3_row.name, i.side,
                i.side, i.channels, i.stride, gmacs, 100 * gmacs / peaks.real);
  }
}

void Sparse(const KernelTable& t, const Peaks& peaks) {
  constexpr int kStride = 128;  // at least the widest tile
  const int inputs = 48, rows = 32, per_row = 12;
  std::vector<int32_t> start{0}, column;
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < per_row; ++i) column.push_back((i * 4 + r) % inputs);
    start.push_back(static_cast<int32_t>(column.size()));
  }
  std::vector<float> value(column.size() * 4, 0.5f), bias(rows * 4, 0.1f);
  std::vector<float, LineAllocator<float>> in(inputs * kStride, 0.3f), out(rows * 4 * kStride);  // as the arena has them
  for (int blocks = 0; blocks < 2; ++blocks) {
    const SpmmKernel* kernels = blocks ? t.f32_spmm_4x1 : t.f32_spmm;
    const SparseView view{start.data(), column.data(), value.data(), bias.data(), rows, -1e9f, 1e9f};
    for (int i = 0; i < kSpmmWidths && kernels[i].run != nullptr; ++i) {
      const int width = kernels[i].max_width;
      const double seconds =
          BestSeconds([&] { kernels[i].run(in.data(), kStride, width, view, 0, rows, out.data(), kStride); });
      const double gmacs = static_cast<double>(column.size()) * (blocks ? 4 : 1) * width / seconds * 1e-9;
      std::printf("%-32s %6.1f GMAC/s  %3.0f %% of the registers' peak, of stored weights\n", kernels[i].name, gmacs,
                  100 * gmacs / peaks.real);
    }
  }
}

int Main() {
  for (const Tier& tier : Tiers()) {
    if (tier.table == nullptr || std::string(tier.name) == "scalar") continue;
    std::printf("tier %s\n", tier.name);
    const Peaks peaks = Measured(tier.name);
    EverySlot(*tier.table, peaks);
    GemmLayers(*tier.table, peaks);
    HybridLayers(*tier.table, peaks);
    Depthwise(*tier.table, peaks);
    Sparse(*tier.table, peaks);
  }
  return 0;
}

}  // namespace
}  // namespace litesmith

int main() { return litesmith::Main(); }
