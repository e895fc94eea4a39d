// SPDX-License-Identifier: Apache-2.0
// Compares every kernel of a table with the scalar reference on small random problems with odd shapes.
//
// Used at start-up for tiers that may meet hardware nobody tested, and by the unit tests for all of them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/registry.h"

namespace litesmith {
namespace {

class Verifier {
 public:
  Verifier(const KernelTable& table, unsigned seed) : t_(table), ref_(ScalarTable()), rng_(seed) {}

  std::string Run() {
    const std::pair<const char*, std::function<bool()>> checks[] = {
        {t_.s16s8_gemm.name, [&] { return Gemm(t_.s16s8_gemm, 32767, 127); }},
        {t_.s16s16_gemm.name, [&] { return Gemm(t_.s16s16_gemm, 4095, 1023); }},
        {t_.s32_finish_f32.name, [&] { return FloatFinish(); }},
        {t_.f32_round_s16.name, [&] { return RoundRows(); }},
        {t_.requant_s32_s16.name, [&] { return Requant(); }},
        {t_.requant_double_s16.name, [&] { return RequantDouble(); }},
        {t_.s16s8_dwconv.name, [&] { return DwConv(); }},
        {t_.s16_add.name, [&] { return Elementwise(); }},
        {t_.f32_quantize_s16.name, [&] { return Quantize(); }},
        {t_.f32_spmm[0].name, [&] { return Spmm(t_.f32_spmm, ref_.f32_spmm[0], 1); }},
        {t_.f32_spmm_4x1[0].name, [&] { return Spmm(t_.f32_spmm_4x1, ref_.f32_spmm_4x1[0], 4); }},
        {t_.f32_dwconv_plane.name, [&] { return DwPlane(); }},
        {t_.f32_dwconv3x3_plane.name, [&] { return Dw3x3Plane(); }},
        {t_.f32_conv_plane.name, [&] { return ConvPlane(); }},
        {t_.f32_split_row.name, [&] { return SplitRow(); }},
        {t_.f32_split_channels.name, [&] { return SplitChannels(); }},
        {t_.f32_dwconv3x3_row.name, [&] { return Dw3x3RowNhwc(); }},
        {t_.f32_add.name, [&] { return AddFloats(); }},
    };
    for (const auto& [name, check] : checks) {
      if (!check()) return std::string(name) + " differs from the scalar reference" + detail_;
    }
    return "";
  }

 private:
  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  float Float() { return std::uniform_real_distribution<float>(-2.0f, 2.0f)(rng_); }

  std::vector<int16_t> Activations(size_t n) {
    std::vector<int16_t> v(n);
    for (auto& x : v) x = static_cast<int16_t>(Int(0, 9) == 0 ? (Int(0, 1) ? 32767 : -32768) : Int(-32768, 32767));
    return v;
  }
  std::vector<float> Floats(size_t n) {
    std::vector<float> v(n);
    for (auto& x : v) x = Float();
    return v;
  }

  // What is not a number stays so.
  std::vector<float> FloatsAndNan(size_t n) {
    std::vector<float> v = Floats(n);
    v[Int(0, static_cast<int>(n) - 1)] = NAN;
    return v;
  }

  bool Same(const std::vector<int16_t>& a, const std::vector<int16_t>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) {
        detail_ = " at " + std::to_string(i) + ": " + std::to_string(a[i]) + " instead of " + std::to_string(b[i]);
        return false;
      }
    }
    return true;
  }
  bool Close(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      if (!(std::abs(a[i] - b[i]) <= 1e-4f * std::max(1.0f, std::abs(b[i])))) {
        detail_ = " at " + std::to_string(i) + ": " + std::to_string(a[i]) + " instead of " + std::to_string(b[i]);
        return false;
      }
    }
    return true;
  }

  // A tier may lay panels out as it likes; only sums are compared. 500 products of the largest values fit int32.
  template <class Weight>
  bool Gemm(const GemmKernel<Weight>& g, int most_activation, int most_weight) {
    for (int k : {1, 2, 3, 7, 8, 16, 27, 40, 129, 500}) {
      for (int panels = 1; panels <= g.max_panels; ++panels) {
        const int m = Int(1, g.mr), n = panels * kPanel - Int(0, kPanel - 1);
        const int padded = (k + g.k_multiple - 1) / g.k_multiple * g.k_multiple;
        const auto extreme = [&](int most) { return Int(0, 3) == 0 ? (Int(0, 1) ? most : -most) : Int(-most, most); };
        std::vector<Weight> weights(static_cast<size_t>(n) * k);
        for (auto& w : weights) w = static_cast<Weight>(extreme(most_weight));
        std::vector<int16_t> a(static_cast<size_t>(m) * padded, 0);
        std::vector<const int16_t*> rows(g.mr, nullptr);
        for (int i = 0; i < m; ++i) {
          rows[i] = a.data() + static_cast<size_t>(i) * padded;
          for (int j = 0; j < k; ++j) a[static_cast<size_t>(i) * padded + j] = static_cast<int16_t>(extreme(most_activation));
        }
        const size_t stride = static_cast<size_t>(padded) * kPanel + g.panel_header;
        std::vector<Weight> packed(stride * panels);
        for (int p = 0; p < panels; ++p) {
          g.pack(weights.data() + static_cast<size_t>(p) * kPanel * k, k, std::min(kPanel, n - p * kPanel), k,
                 packed.data() + p * stride);
        }
        std::vector<int32_t> acc(static_cast<size_t>(g.mr) * panels * kPanel);
        g.run(rows.data(), m, padded, packed.data(), stride, panels, acc.data());
        for (int i = 0; i < m; ++i) {
          for (int c = 0; c < n; ++c) {
            int32_t want = 0;
            for (int j = 0; j < k; ++j) want += rows[i][j] * weights[static_cast<size_t>(c) * k + j];
            if (acc[(static_cast<size_t>(i) * panels) * kPanel + c] != want) {
              detail_ = " for K = " + std::to_string(k) + ", row " + std::to_string(i) + ", channel " + std::to_string(c);
              return false;
            }
          }
        }
      }
    }
    return ToFloat(g);
  }

  // The product and its finish in one against one after the other.
  template <class Weight>
  bool ToFloat(const GemmKernel<Weight>& g) {
    if (g.to_float == nullptr) return true;
    for (int n : {8, 16, 24, 40}) {
      for (int m = 1; m <= g.mr; ++m) {
        const int k = 2 * Int(1, 20), panels = (n + kPanel - 1) / kPanel;
        std::vector<int16_t> a(static_cast<size_t>(m) * k);
        for (auto& x : a) x = static_cast<int16_t>(Int(-3000, 3000));
        std::vector<const int16_t*> rows;
        for (int i = 0; i < m; ++i) rows.push_back(a.data() + static_cast<size_t>(i) * k);
        const size_t stride = static_cast<size_t>(k) * kPanel + g.panel_header;
        std::vector<Weight> weights(static_cast<size_t>(n) * k), packed(stride * panels);
        for (auto& w : weights) w = static_cast<Weight>(Int(-100, 100));
        for (int p = 0; p < panels; ++p) {
          g.pack(weights.data() + static_cast<size_t>(p) * kPanel * k, k, std::min(kPanel, n - p * kPanel), k,
                 packed.data() + p * stride);
        }
        std::vector<float> scale = Floats(panels * kPanel), bias = Floats(panels * kPanel), steps = Floats(m);
        for (auto& x : scale) x *= 1e-6f;
        const FloatFinishView q{scale.data(), bias.data(), -1.0f, 1.5f};
        std::vector<float> got = Floats(static_cast<size_t>(m) * (n + 3)), want = got;
        // In one piece or in two, of one chunk or of two, together or with a gap between them.
        const int gap = Int(0, 1) * 6, half = k / 4 * 2;
        const KPiece pieces[] = {{half, Int(0, 1) == 1, 0}, {k, true, gap}};
        const int first = gap > 0 ? 0 : Int(0, 1);
        std::vector<int16_t> apart(static_cast<size_t>(m) * (k + gap), 77);
        std::vector<const int16_t*> apart_rows;
        for (int i = 0; i < m; ++i) {
          int16_t* to = apart.data() + static_cast<size_t>(i) * (k + gap);
          std::copy_n(rows[i], half, to);
          std::copy(rows[i] + half, rows[i] + k, to + half + gap);
          apart_rows.push_back(to);
        }
        g.to_float(apart_rows.data(), m, pieces + first, 2 - first, packed.data(), stride, steps.data(), q, n, got.data(),
                   n + 3);
        for (int i = 0; i < m; ++i) {
          for (int c = 0; c < n; ++c) {
            int32_t sum = 0;
            for (int j = 0; j < k; ++j) sum += rows[i][j] * weights[static_cast<size_t>(c) * k + j];
            ref_.s32_finish_f32.run(&sum, 1, 1, 1, &steps[i], {&scale[c], &bias[c], q.lo, q.hi}, &want[i * (n + 3) + c], 1);
          }
        }
        if (!Close(got, want)) return false;  // and nothing between the rows is written
      }
    }
    return true;
  }

  bool FloatFinish() {
    for (int n : {1, 7, 8, 13, 16}) {
      for (bool adds : {false, true}) {
        const int m = Int(1, 5);
        const std::vector<float> scale = Floats(kPanel), bias = Floats(kPanel), steps = Floats(m);
        std::vector<int32_t> acc(static_cast<size_t>(m) * kPanel);
        for (auto& x : acc) x = Int(-1000, 1000);
        const FloatFinishView q{scale.data(), adds ? nullptr : bias.data(), -500.0f, 700.0f};
        std::vector<float> got = Floats(static_cast<size_t>(m) * (n + 3)), want = got;
        t_.s32_finish_f32.run(acc.data(), kPanel, m, n, steps.data(), q, got.data(), n + 3);
        ref_.s32_finish_f32.run(acc.data(), kPanel, m, n, steps.data(), q, want.data(), n + 3);
        if (!Close(got, want)) return false;  // and nothing between the rows is written
      }
    }
    return true;
  }

  bool RoundRows() {
    for (int n : {1, 5, 8, 15, 16, 17, 40, 131}) {
      std::vector<float> in = Floats(n);
      const float most = ref_.f32_max_abs.run(in.data(), n);
      if (t_.f32_max_abs.run(in.data(), n) != most) return false;
      std::vector<int16_t> got(n), want(n);
      t_.f32_round_s16.run(in.data(), n, 32767.0f / most, got.data());
      ref_.f32_round_s16.run(in.data(), n, 32767.0f / most, want.data());
      if (!Same(got, want)) return false;
      in[Int(0, n - 1)] = std::nanf("");
      if (!std::isnan(t_.f32_max_abs.run(in.data(), n)) || !std::isnan(ref_.f32_max_abs.run(in.data(), n))) return false;
    }
    return true;
  }

  struct Channels {
    std::vector<int32_t> multiplier, center, bias, round, shift;
    std::vector<uint64_t> offset_even, offset_odd, shift_even, shift_odd;
    RequantView view{};
  };

  // Every second time such that 32 bits are enough for sums up to 2^30.
  Channels RandomChannels(int n) {
    const bool narrow = Int(0, 1) == 1;
    Channels q;
    q.bias.resize(n);
    q.round.resize(n);
    q.shift.resize(n);
    q.multiplier.resize(n);
    q.center.resize(n);
    q.offset_even.resize(n / 2);
    q.offset_odd.resize(n / 2);
    q.shift_even.resize(n / 2);
    q.shift_odd.resize(n / 2);
    for (int c = 0; c < n; ++c) {
      const uint64_t shift = Int(narrow ? 17 : 8, 46);
      q.multiplier[c] = Int(0, 20) == 0 ? 0 : Int(1 << 14, 32767);
      q.center[c] = static_cast<int32_t>(static_cast<uint32_t>((uint64_t{1} << 62) >> shift));
      const int64_t bias = static_cast<int64_t>(Int(-(1 << 30), (1 << 30) - 1)) * (narrow ? 1 : Int(1, 64));
      if (narrow) {
        q.bias[c] = static_cast<int32_t>(bias);
        q.round[c] = 1 << (shift - 17);
        q.shift[c] = static_cast<int32_t>(shift) - 16;
      }
      (c % 2 ? q.offset_odd : q.offset_even)[c / 2] = static_cast<uint64_t>(bias * q.multiplier[c]) +
                                                      (uint64_t{1} << (shift - 1)) + (uint64_t{1} << 62);
      (c % 2 ? q.shift_odd : q.shift_even)[c / 2] = shift;
    }
    const int lo = Int(-32768, 0);
    q.view = {q.multiplier.data(), q.center.data(), q.offset_even.data(), q.offset_odd.data(),
              q.shift_even.data(), q.shift_odd.data(), lo, Int(0, 32767), {}};
    if (narrow) q.view.narrow = {q.bias.data(), q.round.data(), q.shift.data()};
    return q;
  }

  bool Requant() {
    for (int n : {1, 5, 8, 16, 17, 31, 32, 50, 64, 3, 16, 32, 33, 80}) {
      const int padded = (n + kPanel - 1) / kPanel * kPanel, m = 3;
      const Channels q = RandomChannels(padded);
      std::vector<int32_t> acc(static_cast<size_t>(m) * padded);
      std::vector<int64_t> wide(acc.size());
      const int most = q.view.narrow.bias != nullptr ? 1 << 30 : 2147483647;
      for (auto& x : acc) x = Int(0, 8) == 0 ? Int(-most, most) : Int(-100000000, 100000000);
      for (auto& x : wide) x = static_cast<int64_t>(Int(-2147483647, 2147483647)) * Int(1, 100);
      std::vector<int16_t> got(static_cast<size_t>(m) * n), want(got.size());
      t_.requant_s32_s16.run(acc.data(), padded, m, n, q.view, got.data(), n);
      ref_.requant_s32_s16.run(acc.data(), padded, m, n, q.view, want.data(), n);
      if (!Same(got, want)) return false;
      t_.requant_s64_s16.run(wide.data(), padded, m, n, q.view, got.data(), n);
      ref_.requant_s64_s16.run(wide.data(), padded, m, n, q.view, want.data(), n);
      if (!Same(got, want)) return false;
    }
    return true;
  }

  bool RequantDouble() {
    for (int n : {1, 7, 16, 19}) {
      const int padded = (n + kPanel - 1) / kPanel * kPanel;
      std::vector<double> bias(padded), scale(padded);
      for (int c = 0; c < padded; ++c) {
        bias[c] = Int(-1000000, 1000000);
        scale[c] = Int(0, 3) == 0 ? 0.5 : std::abs(Float()) * 1e-4;  // 0.5 makes exact halves
      }
      std::vector<int32_t> acc(padded);
      for (auto& x : acc) x = Int(0, 1) ? Int(-30000, 30000) : Int(-2147483647, 2147483647);
      std::vector<int16_t> got(n), want(n);
      const DoubleRequantView q{bias.data(), scale.data(), -32768, 32767};
      t_.requant_double_s16.run(acc.data(), padded, 1, n, q, got.data(), n);
      ref_.requant_double_s16.run(acc.data(), padded, 1, n, q, want.data(), n);
      if (!Same(got, want)) return false;
    }
    return true;
  }

  bool DwConv() {
    for (int taps : {2, 4, 10, 26, 50}) {
      for (int n : {3, 8, 16, 17, 32, 41, 70}) {
        const int padded = (n + kPanel - 1) / kPanel * kPanel;
        const Channels q = RandomChannels(padded);
        const DwRun runs[] = {{1, 7}, {Int(1, 9), Int(1, 90)}, {2, 32}};
        const int pixels = runs[0].pixels + runs[1].pixels + runs[2].pixels;
        const std::vector<int16_t> image = Activations(4096);
        std::vector<int16_t> weights(static_cast<size_t>(taps) * padded);
        for (auto& w : weights) w = static_cast<int16_t>(Int(-128, 127));
        std::vector<const int16_t*> pointers(3 * static_cast<size_t>(taps));
        for (auto& p : pointers) p = image.data() + Int(0, 3000);
        std::vector<int16_t> got(static_cast<size_t>(pixels) * n), want(got.size());
        t_.s16s8_dwconv.run(pointers.data(), taps, runs, 3, 16, n, weights.data(), q.view, got.data(), n);
        ref_.s16s8_dwconv.run(pointers.data(), taps, runs, 3, 16, n, weights.data(), q.view, want.data(), n);
        if (!Same(got, want)) return false;
      }
    }
    return true;
  }

  bool Elementwise() {
    for (int n : {1, 7, 8, 33, 100}) {
      const std::vector<int16_t> a = Activations(n), b = Activations(n);
      std::vector<int16_t> got(n), want(n);
      const auto big = [&] { return Int(1 << 30, 2147483647); };
      const AddView add{big(), big(), big(), -Int(0, 20), -Int(0, 20), -Int(0, 16), -Int(0, 32768), Int(0, 32767)};
      const ScaleView scale{big(), Int(-31, 3), -Int(0, 32768), Int(0, 32767)};
      const auto binary = [&](const Kernel<AddS16Fn>& k, const Kernel<AddS16Fn>& r) {
        k.run(a.data(), b.data(), n, add, got.data());
        r.run(a.data(), b.data(), n, add, want.data());
        return Same(got, want);
      };
      if (!binary(t_.s16_add_blocks, ref_.s16_add_blocks) || !binary(t_.s16_add, ref_.s16_add) ||
          !binary(t_.s16_sub, ref_.s16_sub)) {
        return false;
      }
      t_.s16_mul.run(a.data(), b.data(), n, scale, got.data());
      ref_.s16_mul.run(a.data(), b.data(), n, scale, want.data());
      if (!Same(got, want)) return false;
      t_.s16_scale.run(a.data(), n, scale, got.data());
      ref_.s16_scale.run(a.data(), n, scale, want.data());
      if (!Same(got, want)) return false;
    }
    return true;
  }

  bool Quantize() {
    for (int n : {1, 8, 31}) {
      std::vector<float> in = Floats(n);
      in[0] = 1e20f;
      const std::vector<int16_t> q = Activations(n);
      std::vector<int16_t> got(n), want(n);
      std::vector<float> got_f(n), want_f(n);
      t_.f32_quantize_s16.run(in.data(), n, 3.1e-5f, got.data());
      ref_.f32_quantize_s16.run(in.data(), n, 3.1e-5f, want.data());
      t_.s16_dequantize_f32.run(q.data(), n, 0.013f, got_f.data());
      ref_.s16_dequantize_f32.run(q.data(), n, 0.013f, want_f.data());
      if (!Same(got, want) || got_f != want_f) return false;
    }
    return true;
  }

  bool Spmm(const SpmmKernel* kernels, const SpmmKernel& reference, int rows_per_entry) {
    for (int i = 0; i < kSpmmWidths && kernels[i].run != nullptr; ++i) {
      for (int width : {1, 5, 8, kernels[i].max_width}) {
        const int inputs = Int(1, 20), groups = Int(1, 7), stride = (kernels[i].max_width + 15) / 16 * 16 + 16;
        if (width > kernels[i].max_width) continue;
        std::vector<int32_t> start{0}, column;
        std::vector<float> value;
        for (int g = 0; g < groups; ++g) {
          for (int c = 0; c < inputs; ++c) {
            if (Int(0, 2) != 0) continue;
            column.push_back(c);
            for (int j = 0; j < rows_per_entry; ++j) value.push_back(Float());
          }
          start.push_back(static_cast<int32_t>(column.size()));
        }
        const std::vector<float> bias = Floats(groups * rows_per_entry), in = FloatsAndNan(inputs * stride);
        const bool goes_on = rows_per_entry == 1 && Int(0, 1) == 0;
        const SparseView w{start.data(), column.data(), value.data(), goes_on ? nullptr : bias.data(), groups, -1.5f, 1.5f};
        std::vector<float> got = Floats(groups * rows_per_entry * stride), want = got;
        kernels[i].run(in.data(), stride, width, w, 0, groups, got.data(), stride);
        reference.run(in.data(), stride, width, w, 0, groups, want.data(), stride);
        for (int r = 0; r < groups * rows_per_entry; ++r) {
          for (int x = width; x < stride; ++x) got[r * stride + x] = want[r * stride + x];
        }
        if (!Close(got, want)) return false;
      }
    }
    return true;
  }

  bool DwPlane() {
    for (int num_taps : {1, 4, 9, 25}) {
      for (int width : {1, 7, 8, 29, 75}) {
        const std::vector<float> in = FloatsAndNan(static_cast<size_t>(num_taps) * 128), w = Floats(num_taps);
        std::vector<const float*> taps(num_taps);
        for (int t = 0; t < num_taps; ++t) taps[t] = in.data() + t * 120 + t % 3;
        std::vector<float> got(128), want(128);
        t_.f32_dwconv_plane.run(taps.data(), num_taps, w.data(), 0.3f, 0.0f, 6.0f, width, got.data());
        ref_.f32_dwconv_plane.run(taps.data(), num_taps, w.data(), 0.3f, 0.0f, 6.0f, width, want.data());
        got.resize(width);
        want.resize(width);
        if (!Close(got, want)) return false;
      }
    }
    return true;
  }

  bool Dw3x3Plane() {
    for (int stride : {1, 2}) {
      for (int width : {1, 2, 7, 8, 9, 14, 15, 16, 17, 33, 48, 1025}) {
        for (int pad : {0, 1}) {
          const int most = stride == 1 ? width - 2 + 2 * pad : (width + pad) / 2;
          for (int out_width = std::max(1, most - 1); out_width <= most; ++out_width) {
            const int height = Int(1, 5), out_height = std::max(1, (height + pad) / stride), planes = Int(1, 3);
            const size_t in_stride = static_cast<size_t>(height) * width + Int(0, 16);
            const size_t out_plane = static_cast<size_t>(out_height) * out_width, out_stride = out_plane + Int(0, 16);
            const std::vector<float> in = FloatsAndNan(in_stride * planes + 32), w = Floats(9 * planes), bias = Floats(planes);
            const std::vector<float> zeros(width + 64, 0.0f);
            const Dw3x3View v{height, width, out_height, out_width, stride, pad, pad, zeros.data() + 16};
            std::vector<float> got(out_stride * planes + 16, 7.0f), want = got;
            t_.f32_dwconv3x3_plane.run(in.data() + 16, in_stride, planes, v, w.data(), bias.data(), -1.5f, 2.0f, got.data(),
                                       out_stride);
            ref_.f32_dwconv3x3_plane.run(in.data() + 16, in_stride, planes, v, w.data(), bias.data(), -1.5f, 2.0f,
                                         want.data(), out_stride);
            for (size_t i = 0; i < out_stride * planes; ++i) {
              if (i % out_stride >= out_plane) got[i] = want[i];  // the room behind a plane
            }
            if (!Close(got, want)) return false;  // and nothing behind the planes is written
          }
        }
      }
    }
    return true;
  }

  bool ConvPlane() {
    for (int num_taps : {9, 27}) {
      for (int outputs : {1, 4, 6, 13}) {
        const int width = Int(1, 60), padded = (outputs + 7) / 8 * 8;
        const std::vector<float> in = FloatsAndNan(static_cast<size_t>(num_taps) * 80);
        const std::vector<float> w = Floats(static_cast<size_t>(num_taps) * padded), bias = Floats(padded);
        std::vector<const float*> taps(num_taps);
        for (int t = 0; t < num_taps; ++t) taps[t] = in.data() + t * 80 + t % 3;
        std::vector<float> got(static_cast<size_t>(outputs) * 64, 0.0f), want = got;
        t_.f32_conv_plane.run(taps.data(), num_taps, w.data(), bias.data(), outputs, -3.0f, 3.0f, width, got.data(), 64);
        ref_.f32_conv_plane.run(taps.data(), num_taps, w.data(), bias.data(), outputs, -3.0f, 3.0f, width, want.data(),
                                64);
        for (int o = 0; o < outputs; ++o) {
          for (int x = width; x < 64; ++x) got[o * 64 + x] = want[o * 64 + x];
        }
        if (!Close(got, want)) return false;
      }
    }
    return true;
  }

  bool Dw3x3RowNhwc() {
    for (int stride : {1, 2}) {
      for (int width : {1, 2, 3, 4, 7, 20}) {
        for (int pad : {0, 1}) {
          for (int channels : {8, 24}) {
            const int out_width = stride == 1 ? width + 2 * pad - 2 : (width + 2 * pad - 3) / 2 + 1;
            if (width + 2 * pad < 3) continue;
            const std::vector<float> in = Floats(static_cast<size_t>(3) * width * channels);
            const std::vector<float> weights = Floats(static_cast<size_t>(9) * channels), bias = Floats(channels);
            const size_t row = static_cast<size_t>(width) * channels;
            const Dw3x3Row v{{in.data(), in.data() + row, in.data() + 2 * row}, width, channels, stride, pad, weights.data(),
                             bias.data(), -2.0f, 3.0f};
            std::vector<float> got(static_cast<size_t>(out_width) * channels, 9.0f), want = got;
            const int begin = Int(0, out_width / 2), end = Int(begin, out_width);
            t_.f32_dwconv3x3_row.run(v, begin, end, got.data());
            ref_.f32_dwconv3x3_row.run(v, begin, end, want.data());
            if (!Close(got, want)) return false;  // and nothing outside of [begin, end) is written
          }
        }
      }
    }
    return true;
  }

  bool AddFloats() {
    for (int n : {1, 8, 13, 40}) {
      const std::vector<float> a = Floats(n), b = Floats(n);
      std::vector<float> got(n), want(n);
      t_.f32_add.run(a.data(), b.data(), n, -1.0f, 2.5f, got.data());
      ref_.f32_add.run(a.data(), b.data(), n, -1.0f, 2.5f, want.data());
      if (!Close(got, want)) return false;
    }
    return true;
  }

  bool SplitChannels() {
    for (int channels : {1, 2, 3, 4}) {
      for (int n : {1, 15, 16, 17, 40}) {
        const std::vector<float> in = Floats(static_cast<size_t>(n) * channels);
        std::vector<float> got(static_cast<size_t>(channels) * n, 0.0f), want = got;
        t_.f32_split_channels.run(in.data(), n, channels, got.data(), n);
        ref_.f32_split_channels.run(in.data(), n, channels, want.data(), n);
        if (got != want) return false;
      }
    }
    return true;
  }

  bool SplitRow() {
    for (int n : {1, 2, 15, 16, 17, 40}) {
      const std::vector<float> in = Floats(64);
      std::vector<float> got(64, 0.0f), want = got;
      t_.f32_split_row.run(in.data(), n, got.data(), got.data() + 32);
      ref_.f32_split_row.run(in.data(), n, want.data(), want.data() + 32);
      for (int i = 0; i < 64; ++i) {
        if (i % 32 >= (i < 32 ? (n + 1) / 2 : n / 2)) got[i] = want[i];
      }
      if (!Close(got, want)) return false;
    }
    return true;
  }

  const KernelTable& t_;
  const KernelTable& ref_;
  std::mt19937 rng_;
  std::string detail_;
};

}  // namespace

std::string VerifyTable(const KernelTable& table, unsigned seed) { return Verifier(table, seed).Run(); }

}  // namespace litesmith
