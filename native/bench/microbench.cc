// SPDX-License-Identifier: Apache-2.0
// Micro-benchmarks of every kernel in the registry, per tier: GMAC/s against the measured peak of the tier's own
// multiply-add loop, or ns per value. Best of several rounds of thread CPU time, so a busy machine disturbs little.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
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

// The int16 peak of a tier is its own GEMM tile on data that stays in the first-level cache.
double PeakGmacs(const KernelTable& t) {
  const int k = 256;
  std::vector<int16_t> a(static_cast<size_t>(t.s16s8_gemm.mr) * k, 3);
  std::vector<const int16_t*> rows;
  for (int i = 0; i < t.s16s8_gemm.mr; ++i) rows.push_back(a.data() + static_cast<size_t>(i) * k);
  const int panels = t.s16s8_gemm.max_panels;
  const size_t stride = static_cast<size_t>(k) * kPanel + t.s16s8_gemm.panel_header;
  std::vector<int8_t> packed(stride * panels, 1);
  std::vector<int32_t> acc(static_cast<size_t>(t.s16s8_gemm.mr) * panels * kPanel);
  const double seconds =
      BestSeconds([&] { t.s16s8_gemm.run(rows.data(), t.s16s8_gemm.mr, k, packed.data(), stride, panels, acc.data()); });
  return static_cast<double>(t.s16s8_gemm.mr) * k * panels * kPanel / seconds * 1e-9;
}

void GemmLayers(const KernelTable& t) {
  const double peak = PeakGmacs(t);
  std::printf("%-28s tile in L1 %.1f GMAC/s\n", t.s16s8_gemm.name, peak);
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
    std::printf("%-28s %5d x %4d -> %4d  %6.1f GMAC/s  %3.0f %% of the tile  %.2f ns/output\n", t.s16s8_gemm.name, l.m,
                l.k, l.n, gmacs, 100 * gmacs / peak, seconds / l.m / l.n * 1e9);
  }
}

// Float rows with int8 and with 16-bit float weights: rounding, product and scaling of blocks of pixels, as 1x1
// convolutions do them.
void HybridLayers(const KernelTable& t) {
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
      std::printf("%-28s %5d x %4d -> %4d  %6.1f GMAC/s  from and to float\n", gemm.kernel_name(), l.m, l.k, l.n,
                  static_cast<double>(l.m) * l.k * l.n / seconds * 1e-9);
    }
  }
}

void Values(const KernelTable& t) {
  const int n = 4096;
  std::vector<int16_t> a(n, 1234), b(n, -77), out(n);
  std::vector<float> f(n, 0.37f), g(n);
  std::vector<int32_t> acc(n, 1 << 20);
  Requant requant;
  const int channels = 64;
  requant.Build(std::vector<FixedMultiplier>(channels, QuantizeMultiplier(1e-3)), std::vector<int64_t>(channels, 1),
                std::vector<int64_t>(channels, 1 << 22), -32768, 32767);
  const AddView add{1 << 30, 1 << 30, 1 << 30, 0, -1, -14, -32768, 32767};
  const ScaleView scale{1 << 30, -15, -32768, 32767};
  const auto report = [&](const char* name, int values, const std::function<void()>& work) {
    std::printf("%-28s %.3f ns/value\n", name, BestSeconds(work) / values * 1e9);
  };
  report(t.requant_s32_s16.name, n, [&] {
    t.requant_s32_s16.run(acc.data(), channels, n / channels, channels, requant.View(0), out.data(), channels);
  });
  report(t.s16_add_blocks.name, n, [&] { t.s16_add_blocks.run(a.data(), b.data(), n, add, out.data()); });
  report(t.s16_add.name, n, [&] { t.s16_add.run(a.data(), b.data(), n, add, out.data()); });
  report(t.s16_sub.name, n, [&] { t.s16_sub.run(a.data(), b.data(), n, add, out.data()); });
  report(t.s16_mul.name, n, [&] { t.s16_mul.run(a.data(), b.data(), n, scale, out.data()); });
  report(t.s16_scale.name, n, [&] { t.s16_scale.run(a.data(), n, scale, out.data()); });
  report(t.f32_quantize_s16.name, n, [&] { t.f32_quantize_s16.run(f.data(), n, 1e-4f, out.data()); });
  report(t.s16_dequantize_f32.name, n, [&] { t.s16_dequantize_f32.run(a.data(), n, 1e-4f, g.data()); });
  const std::vector<float> ones(n, 1.0f);
  const FloatFinishView finish{ones.data(), ones.data(), 0.0f, 6.0f};
  report(t.s32_finish_f32.name, n, [&] { t.s32_finish_f32.run(acc.data(), 16, n / 16, 16, ones.data(), finish, g.data(), 16); });
  report(t.f32_max_abs.name, n, [&] { out[0] = t.f32_max_abs.run(f.data(), n) > 1.0f; });
  report(t.f32_round_s16.name, n, [&] { t.f32_round_s16.run(f.data(), n, 100.0f, out.data()); });
  const int16_t* taps[10];
  for (int i = 0; i < 10; ++i) taps[i] = a.data() + i % 3 * 2 + i / 3 * 200;
  const DwRun pixels{n / channels - 16, channels};
  std::vector<int16_t> weights(10 * channels, 3);
  report(t.s16s8_dwconv.name, pixels.pixels * channels, [&] {
    t.s16s8_dwconv.run(taps, 10, &pixels, 1, 0, channels, weights.data(), requant.View(0), out.data(), channels);
  });
}

void Depthwise(const KernelTable& t) {
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
    std::printf("%-28s %3d x %3d x %3d, stride %d  %.1f GMAC/s\n", t.f32_dwconv3x3_row.name, i.side, i.side, i.channels,
                i.stride, 9.0 * out.size() / seconds * 1e-9);
  }
}

void Sparse(const KernelTable& t) {
  constexpr int kStride = 128;  // at least the widest tile
  const int inputs = 48, rows = 32, per_row = 12;
  std::vector<int32_t> start{0}, column;
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < per_row; ++i) column.push_back((i * 4 + r) % inputs);
    start.push_back(static_cast<int32_t>(column.size()));
  }
  std::vector<float> value(column.size() * 4, 0.5f), bias(rows * 4, 0.1f), in(inputs * kStride, 0.3f), out(rows * 4 * kStride);
  for (int blocks = 0; blocks < 2; ++blocks) {
    const SpmmKernel* kernels = blocks ? t.f32_spmm_4x1 : t.f32_spmm;
    const SparseView view{start.data(), column.data(), value.data(), bias.data(), rows, -1e9f, 1e9f};
    for (int i = 0; i < kSpmmWidths && kernels[i].run != nullptr; ++i) {
      const int width = kernels[i].max_width;
      const double seconds =
          BestSeconds([&] { kernels[i].run(in.data(), kStride, width, view, 0, rows, out.data(), kStride); });
      std::printf("%-28s %6.1f GMAC/s of stored weights\n", kernels[i].name,
                  static_cast<double>(column.size()) * (blocks ? 4 : 1) * width / seconds * 1e-9);
    }
  }
}

int Main() {
  for (const Tier& tier : Tiers()) {
    if (tier.table == nullptr || std::string(tier.name) == "scalar") continue;
    std::printf("tier %s\n", tier.name);
    GemmLayers(*tier.table);
    HybridLayers(*tier.table);
    Depthwise(*tier.table);
    Values(*tier.table);
    Sparse(*tier.table);
  }
  return 0;
}

}  // namespace
}  // namespace litesmith

int main() { return litesmith::Main(); }
