// SPDX-License-Identifier: Apache-2.0
// See sparse_weights.h.
#include "ops/sparse_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace litesmith {
namespace {

constexpr double kBlockFill = 0.9;  // share of non-zeros in the touched 4x1 blocks from which blocks pay

// Walks the levels of a sparse tensor in traversal order. Level l enumerates dimension order[l]; dimensions from
// `rank` on are the insides of blocks of dimension block_map[order[l] - rank].
template <class T>
class SparseDecoder {
 public:
  SparseDecoder(const TfLiteTensor& tensor, const std::vector<T>& stored, std::vector<T>* out)
      : sparsity_(*tensor.sparsity), shape_(ShapeOf(tensor)), stored_(stored), out_(out) {}

  bool Decode() {
    const int rank = static_cast<int>(shape_.size());
    const int blocked = sparsity_.block_map == nullptr ? 0 : sparsity_.block_map->size;
    levels_ = sparsity_.dim_metadata_size;
    if (sparsity_.traversal_order == nullptr || sparsity_.traversal_order->size != levels_ || levels_ != rank + blocked) {
      return false;
    }
    block_.assign(rank, 1);
    for (int l = 0; l < levels_; ++l) {
      const int dim = sparsity_.traversal_order->data[l];
      if (dim < 0 || dim >= levels_) return false;
      const TfLiteDimensionMetadata& meta = sparsity_.dim_metadata[l];
      if (meta.format == kTfLiteDimSparseCSR && (meta.array_segments == nullptr || meta.array_indices == nullptr)) {
        return false;
      }
      if (dim >= rank) {
        const int target = sparsity_.block_map->data[dim - rank];
        if (target < 0 || target >= rank || meta.format != kTfLiteDimDense) return false;
        block_[target] = meta.dense_size;
      }
    }
    out_->assign(NumElements(shape_), T{0});
    at_.assign(levels_, 0);
    return Level(0, 0);
  }

 private:
  bool Level(int level, int64_t position) {
    if (level == levels_) return Put(position);
    const TfLiteDimensionMetadata& meta = sparsity_.dim_metadata[level];
    int& coordinate = at_[sparsity_.traversal_order->data[level]];
    if (meta.format == kTfLiteDimDense) {
      for (int i = 0; i < meta.dense_size; ++i) {
        coordinate = i;
        if (!Level(level + 1, position * meta.dense_size + i)) return false;
      }
      return true;
    }
    if (position + 1 >= meta.array_segments->size) return false;
    for (int i = meta.array_segments->data[position]; i < meta.array_segments->data[position + 1]; ++i) {
      if (i < 0 || i >= meta.array_indices->size) return false;
      coordinate = meta.array_indices->data[i];
      if (!Level(level + 1, i)) return false;
    }
    return true;
  }

  bool Put(int64_t position) {
    const int rank = static_cast<int>(shape_.size());
    int64_t index = 0;
    for (int d = 0; d < rank; ++d) {
      int coordinate = at_[d] * block_[d];
      for (int b = rank; b < levels_; ++b) {
        if (sparsity_.block_map->data[b - rank] == d) coordinate += at_[b];
      }
      if (coordinate < 0 || coordinate >= shape_[d]) return false;
      index = index * shape_[d] + coordinate;
    }
    if (position >= static_cast<int64_t>(stored_.size())) return false;
    (*out_)[index] = stored_[position];
    return true;
  }

  const TfLiteSparsity& sparsity_;
  const Shape shape_;
  const std::vector<T>& stored_;
  std::vector<T>* out_;
  int levels_ = 0;
  std::vector<int> block_, at_;
};

// The value of a 16-bit float: its exponent is 15 off, ours 127, and its fraction has 10 bits, ours 23.
float FromHalf(uint16_t half) {
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  if (exponent == 31) {
    return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  }
  return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(static_cast<float>(fraction), -24));
}

// The values of a constant, be they all stored or zeros left out.
template <class T>
bool Read(const TfLiteTensor& tensor, std::vector<T>* values, std::string* why) {
  std::vector<T> stored(tensor.bytes / sizeof(T));
  std::memcpy(stored.data(), tensor.data, stored.size() * sizeof(T));
  if (tensor.sparsity == nullptr) {
    values->swap(stored);
    if (static_cast<int64_t>(values->size()) == NumElements(ShapeOf(tensor))) return true;
    *why = "weights of another size than their shape";
    return false;
  }
  if (SparseDecoder<T>(tensor, stored, values).Decode()) return true;
  *why = "a sparse encoding that cannot be read";
  return false;
}

}  // namespace

bool ReadHalfConstant(const TfLiteTensor& tensor, std::vector<uint16_t>* values, std::string* why) {
  if (IsConstant(tensor) && tensor.type == kTfLiteFloat16) return Read(tensor, values, why);
  *why = "weights that are not constant 16-bit floats";
  return false;
}

bool ReadFloatConstant(const TfLiteTensor& tensor, std::vector<float>* values, std::string* why) {
  if (tensor.type == kTfLiteFloat16) {
    std::vector<uint16_t> halves;
    if (!ReadHalfConstant(tensor, &halves, why)) return false;
    values->resize(halves.size());
    std::transform(halves.begin(), halves.end(), values->begin(), FromHalf);
    return true;
  }
  if (IsConstant(tensor) && tensor.type == kTfLiteFloat32) return Read(tensor, values, why);
  *why = "weights that are not constant floats";
  return false;
}

void SparseRows::Measure(const std::vector<float>& values, int rows, int columns) {
  const auto at = [&](int r, int c) { return values[static_cast<size_t>(r) * columns + c]; };
  nonzeros_ = 0;
  int64_t touched = 0;
  for (int r = 0; r < rows; r += 4) {
    for (int c = 0; c < columns; ++c) {
      int here = 0;
      for (int j = r; j < r + 4 && j < rows; ++j) here += at(j, c) != 0.0f;
      nonzeros_ += here;
      touched += here != 0;
    }
  }
  const bool divides = ragged_ || rows % 4 == 0;
  blocks_ = divides && touched > 0 && static_cast<double>(nonzeros_) >= kBlockFill * 4.0 * touched;
  stored_ = blocks_ ? 4 * touched : nonzeros_;
}

void SparseRows::Compress(const std::vector<float>& values, int rows, int columns, int part,
                          const std::vector<float>& bias, float lo, float hi) {
  Measure(values, rows, columns);
  bias_ = bias;
  lo_ = lo;
  hi_ = hi;
  const auto at = [&](int r, int c) { return r < rows ? values[static_cast<size_t>(r) * columns + c] : 0.0f; };
  const int step = blocks_ ? 4 : 1;
  rows_ = (rows + step - 1) / step;
  bias_.resize(static_cast<size_t>(rows_) * step, 0.0f);
  parts_ = blocks_ ? 1 : (columns + part - 1) / part;
  part_columns_ = (columns + parts_ - 1) / parts_;
  start_.clear();
  column_.clear();
  value_.clear();
  for (int p = 0; p < parts_; ++p) {
    start_.push_back(static_cast<int32_t>(column_.size()));
    for (int r = 0; r < rows; r += step) {
      for (int c = first_column(p); c < std::min(columns, first_column(p + 1)); ++c) {
        bool any = false;
        for (int j = 0; j < step; ++j) any = any || at(r + j, c) != 0.0f;
        if (!any) continue;
        column_.push_back(c - first_column(p));
        for (int j = 0; j < step; ++j) value_.push_back(at(r + j, c));
      }
      start_.push_back(static_cast<int32_t>(column_.size()));
    }
  }
}

SparseView SparseRows::View(int part) const {
  const float endless = std::numeric_limits<float>::infinity();
  const bool last = part + 1 == parts_;
  return {start_.data() + static_cast<size_t>(part) * (rows_ + 1), column_.data(), value_.data(),
          part == 0 ? bias_.data() : nullptr, rows_, last ? lo_ : -endless, last ? hi_ : endless};
}

bool FloatActivation(Activation activation, float* lo, float* hi) {
  *lo = -std::numeric_limits<float>::infinity();
  *hi = std::numeric_limits<float>::infinity();
  switch (activation) {
    case Activation::kNone: return true;
    case Activation::kRelu: *lo = 0.0f; return true;
    case Activation::kRelu6: *lo = 0.0f; *hi = 6.0f; return true;
    case Activation::kReluN1To1: *lo = -1.0f; *hi = 1.0f; return true;
    default: return false;
  }
}

}  // namespace litesmith
