// SPDX-License-Identifier: Apache-2.0
// The weights of a matrix product, packed for a tier's kernel and cut along K so that no partial sum leaves int32.
//
// int32 accumulators are safe while the largest activation times sum|w| stays below 2^31 in every channel. The sum is
// taken over the real weights, and K is cut greedily into the fewest chunks that keep it: usually one.
#ifndef LITESMITH_OPS_PACKED_WEIGHTS_H_
#define LITESMITH_OPS_PACKED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "kernels/kernels.h"

namespace litesmith {

constexpr int kMostRows = 60;   // rows multiplied together; a multiple of every tier's tile height
constexpr int kMostPanels = 4;  // of any tier

// Whether a kernel makes floats of n channels itself, and then, too, of rows that come in segments.
template <class Weight>
bool MakesFloats(const GemmKernel<Weight>& kernel, int n) {
  return kernel.to_float != nullptr && n % 8 == 0;
}

// Vectors of weights begin at cache lines: loads across two lines take twice as long.
template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};

template <class Weight>
class PackedWeights {
 public:
  // weights[n][k], row-major with `row_stride`; `most_sum` is the largest safe sum of |weight| in one channel.
  void Pack(const GemmKernel<Weight>& kernel, const Weight* weights, size_t row_stride, int n, int k, int most_sum) {
    kernel_ = &kernel;
    n_ = n;
    k_ = k;
    Cut(weights, row_stride, most_sum);
    panel_stride_ = 0;
    for (Chunk& chunk : chunks_) {
      chunk.k_padded = Padded(chunk.k);
      chunk.offset = panel_stride_;
      panel_stride_ += static_cast<size_t>(chunk.k_padded) * kPanel + kernel.panel_header;
    }
    SetRows(k_padded(), 0);
    packed_.assign(panel_stride_ * num_panels(), 0);
    for (int p = 0; p < num_panels(); ++p) {
      for (const Chunk& chunk : chunks_) {
        kernel.pack(weights + p * kPanel * row_stride + chunk.begin, row_stride, std::min(kPanel, n - p * kPanel),
                    chunk.k, packed_.data() + p * panel_stride_ + chunk.offset);
      }
    }
  }

  // Says that rows come in segments of so many values, a multiple of the kernel's, with gaps between them; for kernels
  // that make floats.
  void SetRows(int segment, ptrdiff_t gap) {
    pieces_.clear();
    int at = 0;
    for (const Chunk& chunk : chunks_) {
      for (const int end = chunk.begin + chunk.k_padded; at < end;) {
        const int segments_before = at / segment;
        at = std::min(end, (segments_before + 1) * segment);
        pieces_.push_back({at, at == end, segments_before * gap});
      }
    }
  }

  int n() const { return n_; }
  int k() const { return k_; }
  int k_padded() const { return Padded(k_); }  // elements a row must hold (zeros behind k)
  int num_panels() const { return (n_ + kPanel - 1) / kPanel; }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  const GemmKernel<Weight>& kernel() const { return *kernel_; }

  // acc[i * panels * kPanel + c] for i < m <= kMostRows and the channels of `panels` panels, over one chunk of K.
  void Multiply(int chunk_index, const int16_t* const* rows, int m, int panel, int panels, int32_t* acc) const {
    const Chunk& chunk = chunks_[chunk_index];
    const int16_t* shifted[kMostRows];
    if (chunk.begin > 0) {
      for (int i = 0; i < m; ++i) shifted[i] = rows[i] + chunk.begin;
      rows = shifted;
    }
    const Weight* weights = packed_.data() + panel * panel_stride_ + chunk.offset;
    for (int i = 0; i < m; i += kernel_->mr) {
      kernel_->run(rows + i, std::min(kernel_->mr, m - i), chunk.k_padded, weights, panel_stride_, panels,
                   acc + i * panels * kPanel);
    }
  }

  // All chunks and their finish, for `channels` from the first of a panel on.
  bool has_to_float() const { return MakesFloats(*kernel_, n_); }
  void MultiplyToFloat(const int16_t* const* rows, int m, int panel, int channels, const float* steps,
                       const FloatFinishView& q, float* out, size_t out_stride) const {
    for (int i = 0; i < m; i += kernel_->mr) {
      kernel_->to_float(rows + i, std::min(kernel_->mr, m - i), pieces_.data(), static_cast<int>(pieces_.size()),
                        packed_.data() + panel * panel_stride_, panel_stride_, steps + i, q, channels,
                        out + i * out_stride, out_stride);
    }
  }

 private:
  struct Chunk {
    int begin, k, k_padded = 0;
    size_t offset = 0;  // in weights, from the beginning of a panel
  };

  int Padded(int k) const { return (k + kernel_->k_multiple - 1) / kernel_->k_multiple * kernel_->k_multiple; }

  // Columns are taken a block at a time, turned over: reading them one by one would miss the cache at every value.
  void Cut(const Weight* weights, size_t row_stride, int most_sum) {
    constexpr int kBlock = 32;  // a multiple of every kernel's k_multiple
    const int step = kernel_->k_multiple;
    std::vector<int32_t> block(static_cast<size_t>(kBlock) * n_);
    std::vector<int64_t> sums(n_, 0);
    const auto add = [&](int begin, int end) {
      for (int j = begin; j < end; ++j) {
        const int32_t* column = block.data() + static_cast<size_t>(j) * n_;
        for (int c = 0; c < n_; ++c) sums[c] += column[c];
      }
    };
    chunks_.clear();
    int begin = 0;
    for (int first = 0; first < k_; first += kBlock) {
      const int count = std::min(kBlock, k_ - first);
      for (int c = 0; c < n_; ++c) {
        const Weight* row = weights + c * row_stride + first;
        for (int j = 0; j < count; ++j) block[static_cast<size_t>(j) * n_ + c] = std::abs(static_cast<int>(row[j]));
      }
      for (int j = 0; j < count; j += step) {
        const int end = std::min(j + step, count);
        add(j, end);
        if (*std::max_element(sums.begin(), sums.end()) <= most_sum) continue;
        chunks_.push_back({begin, first + j - begin});
        begin = first + j;
        std::fill(sums.begin(), sums.end(), 0);
        add(j, end);
      }
    }
    chunks_.push_back({begin, k_ - begin});
  }

  const GemmKernel<Weight>* kernel_ = nullptr;
  int n_ = 0, k_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<KPiece> pieces_;
  size_t panel_stride_ = 0;  // in weights
  std::vector<Weight, LineAllocator<Weight>> packed_;
};

}  // namespace litesmith

#endif  // LITESMITH_OPS_PACKED_WEIGHTS_H_
