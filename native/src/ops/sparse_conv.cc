// SPDX-License-Identifier: Apache-2.0
// CONV_2D 1x1 and FULLY_CONNECTED with pruned float weights.
//
// A tile of pixels is multiplied with all output rows before the next tile: the tile's input channels, copied together
// when there are many, stay in the first-level cache.
#include <algorithm>
#include <cstring>

#include "ops/makers.h"
#include "ops/planar_op.h"
#include "ops/sparse_weights.h"

namespace litesmith {

// In planar_conv.cc: a dense convolution of few input channels, the head of most nets.
std::unique_ptr<Op> MakePlanarFirstConv(const NodeView& node, const KernelTable& kernels, std::string* why);

namespace {

constexpr int kRowsPerTask = 64;

// Where the weights of an operator come from. They are only looked at until it is known that the operator is taken: of a
// dense network nothing is, and compressing all of it would take longer than everything else.
class SparseSource {
 public:
  bool Find(const NodeView& node, int rows, int columns, Activation activation, SparseRows* measured, std::string* why) {
    weights_ = &node.weights(1);
    std::vector<float> values;
    if (!ReadFloatConstant(*weights_, &values, why)) return false;
    if (!FloatActivation(activation, &lo_, &hi_)) {
      *why = "a fused activation that is not a clamp";
      return false;
    }
    bias_.assign(rows, 0.0f);
    if (node.has_input(2) && (!ReadFloatConstant(node.input(2), &bias_, why) || static_cast<int>(bias_.size()) != rows)) {
      return false;
    }
    measured->Measure(values, rows, columns);
    return true;
  }

  void Pack(int rows, int columns, int part, SparseRows* packed) const {
    std::vector<float> values;
    std::string why;  // Find has read them
    ReadFloatConstant(*weights_, &values, &why);
    packed->Compress(values, rows, columns, part, bias_, lo_, hi_);
  }

 private:
  const TfLiteTensor* weights_ = nullptr;
  std::vector<float> bias_;
  float lo_ = 0, hi_ = 0;
};

// Four chains of additions: one would wait for itself.
float SparseDot(const float* in, const int32_t* column, const float* value, int n, float start) {
  float a = start, b = 0.0f, c = 0.0f, d = 0.0f;
  int i = 0;
  for (; i + 3 < n; i += 4) {
    a += value[i] * in[column[i]];
    b += value[i + 1] * in[column[i + 1]];
    c += value[i + 2] * in[column[i + 2]];
    d += value[i + 3] * in[column[i + 3]];
  }
  for (; i < n; ++i) a += value[i] * in[column[i]];
  return (a + b) + (c + d);
}

// Four rows share each input, again in four chains.
using Four = float __attribute__((vector_size(16)));

Four Load4(const float* p) {
  Four v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

void SparseDot4(const float* in, const int32_t* column, const float* value, int n, const float* start, float* sums) {
  Four a = Load4(start), b = {}, c = {}, d = {};
  int i = 0;
  for (; i + 3 < n; i += 4, value += 16) {
    a += Load4(value) * in[column[i]];
    b += Load4(value + 4) * in[column[i + 1]];
    c += Load4(value + 8) * in[column[i + 2]];
    d += Load4(value + 12) * in[column[i + 3]];
  }
  for (; i < n; ++i, value += 4) a += Load4(value) * in[column[i]];
  a = (a + b) + (c + d);
  std::memcpy(sums, &a, sizeof(a));
}

// One vector: a dot product per row. The last block may have fewer than four.
void SparseVector(const float* in, const SparseView& w, bool blocks, int row_begin, int row_end, int outputs, float* out) {
  for (int r = row_begin; r < row_end; ++r) {
    const int first = w.start[r], n = w.start[r + 1] - first;
    if (!blocks) {
      const float start = w.bias != nullptr ? w.bias[r] : out[r];
      const float sum = SparseDot(in, w.column + first, w.value + first, n, start);
      out[r] = std::min(std::max(sum, w.lo), w.hi);
      continue;
    }
    float sums[4];
    SparseDot4(in, w.column + first, w.value + static_cast<size_t>(first) * 4, n, w.bias + r * 4, sums);
    for (int j = 0; j < std::min(4, outputs - r * 4); ++j) out[r * 4 + j] = std::min(std::max(sums[j], w.lo), w.hi);
  }
}

// One vector per batch entry; a few slices of rows per thread.
void SparseVectors(const float* in, int batch, int inputs, int outputs, const SparseRows& weights, ThreadPool* pool,
                   float* out) {
  const int rows = weights.View(0).rows;
  const int slices = pool->num_threads() > 1 ? std::clamp(rows / kRowsPerTask, 1, 4 * pool->num_threads()) : 1;
  pool->Run(batch * slices, [&](int task, int) {
    const int b = task / slices, slice = task % slices;
    for (int part = 0; part < weights.parts(); ++part) {
      SparseVector(in + static_cast<int64_t>(b) * inputs + weights.first_column(part), weights.View(part),
                   weights.blocks(), rows * slice / slices, rows * (slice + 1) / slices, outputs,
                   out + static_cast<int64_t>(b) * outputs);
    }
  });
}

class SparseConv : public PlanarOp {
 public:
  SparseConv(const KernelTable& kernels, int inputs, int outputs, int stride_y, int stride_x)
      : kernels_(kernels), inputs_(inputs), outputs_(outputs), stride_y_(stride_y), stride_x_(stride_x) {}

  bool Read(const NodeView& node, std::string* why) {
    if (!source_.Find(node, outputs_, inputs_, node.params<ConvParams>().activation, &weights_, why)) return false;
    const PlanarShape shape = Strided(PlanarOf(ShapeOf(node.input(0))));
    const double values = static_cast<double>(shape.batch) * shape.pixels();
    if (shape.pixels() == 1) {
      here_us_ = speed::SparseVectorsUs(values, weights_.stored(), weights_.blocks());
      stock_us_ = speed::DenseVectorsUs(values, static_cast<double>(inputs_) * outputs_);
      return true;
    }
    const double per_mac = weights_.blocks() ? speed::kBlockMac : speed::kSparseMac;
    here_us_ = values * weights_.stored() * per_mac * 1e-3;
    stock_us_ = values * inputs_ * outputs_ * speed::kDenseMac * 1e-3;
    return true;
  }

  void Pack() override {
    const SpmmTiling& tiling = kernels_.f32_spmm_tiling;
    source_.Pack(outputs_, inputs_, inputs_ > tiling.most_inputs ? tiling.inputs_per_part : inputs_, &weights_);
  }

  const char* kernel_name() const override { return Kernels()[0].name; }
  void Estimate(double* here_us, double* stock_us) const override {
    *here_us = here_us_;
    *stock_us = stock_us_;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (in[0].size() != 4 || in[0][3] != inputs_) return false;
    in_ = PlanarOf(in[0]);
    shape_ = Strided(in_);
    (*out)[0] = {shape_.batch, shape_.height, shape_.width, outputs_};
    ChooseTile();
    return true;
  }

  size_t ScratchBytes(int num_threads) const override { return num_threads * TileBytes() + PickedBytes(); }

  // Four rows share the inputs of their blocks; single rows would read them too often.
  FewChannels few_channels() const override {
    return strided() || !weights_.blocks() ? FewChannels::kNo : FewChannels::kFromAll;
  }
  void RunPixels(const float* in, int begin, int end, int64_t first, int64_t last, float* out,
                 int64_t out_plane) const override {
    const int first_group = begin / 4, last_group = end / 4;
    out -= begin * out_plane;
    if (shape_.pixels() == 1) {
      return SparseVector(in, weights_.View(0), /*blocks=*/true, first_group, last_group, outputs_, out);
    }
    const int width = Kernels()[first_kernel_].max_width;
    for (int64_t x = first; x < last; x += width) {
      Tile(in + x, static_cast<int>(std::min<int64_t>(width, last - x)), first_group, last_group, out + x - first,
           out_plane, nullptr);
    }
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const int rows = weights_.View(0).rows;
    if (strided()) {
      auto* picked = reinterpret_cast<float*>(args.scratch + args.pool->num_threads() * TileBytes());
      args.pool->Run(shape_.batch * inputs_, [&](int p, int) { Pick(in + p * in_.plane(), picked + p * shape_.plane()); });
      in = picked;
    }
    if (shape_.pixels() == 1) {
      SparseVectors(in, shape_.batch, inputs_, outputs_, weights_, args.pool, out);
      return;
    }
    const int width = Kernels()[first_kernel_].max_width;
    const int tiles = static_cast<int>((shape_.pixels() + width - 1) / width);
    const int threads = args.pool->num_threads();
    // Few tiles cannot feed all threads: cut the rows too, but not as finely where each task copies its tile.
    const int all = tiles * shape_.batch;
    const bool copies = CopiesTiles();
    const int per_thread = copies ? 3 : 8, least_rows = copies ? kRowsPerTask : kRowsPerTask / 4;
    const int slices = threads > 1 && all < per_thread * threads
                           ? std::clamp((per_thread * threads + all - 1) / all, 1, std::max(1, rows / least_rows))
                           : 1;
    args.pool->Run(shape_.batch * tiles * slices, [&](int index, int worker) {
      const int slice = index % slices, tile = index / slices % tiles, b = index / slices / tiles;
      const int64_t first = static_cast<int64_t>(tile) * width;
      Tile(in + b * inputs_ * shape_.plane() + first, static_cast<int>(std::min<int64_t>(width, shape_.pixels() - first)),
           rows * slice / slices, rows * (slice + 1) / slices,
           out + b * outputs_ * shape_.plane() + first, shape_.plane(),
           copies ? reinterpret_cast<float*>(args.scratch + worker * TileBytes()) : nullptr);
    });
  }

 private:
  const SpmmTiling& Tiling() const { return weights_.blocks() ? kernels_.f32_spmm_4x1_tiling : kernels_.f32_spmm_tiling; }
  const SpmmKernel* Kernels() const { return weights_.blocks() ? kernels_.f32_spmm_4x1 : kernels_.f32_spmm; }

  // The width that costs least over the whole image, its last and narrower tile included: a weight of one tile costs
  // about as much as one and a half vectors, besides its vectors, which are three at least: the sums of fewer wait for
  // each other.
  void ChooseTile() {
    const SpmmTiling& tiling = Tiling();
    const int vectors = static_cast<int>((shape_.pixels() + 7) / 8);
    double least = 0;
    for (int i = 0; i < kSpmmWidths && Kernels()[i].run != nullptr; ++i) {
      const int width = Kernels()[i].max_width;
      if (width > tiling.widest && PartInputs() * width * sizeof(float) > tiling.tile_bytes) continue;
      const int each = width / 8, rest = vectors % each;
      const double cost = vectors / each * (each + 1.5) + (rest > 0 ? std::max(rest, 3) + 1.5 : 0);
      if (least == 0 || cost < least) {
        least = cost;
        first_kernel_ = i;
      }
    }
  }
  int PartInputs() const { return std::min(inputs_, weights_.first_column(1)); }
  size_t TileBytes() const {
    return (static_cast<size_t>(PartInputs()) * Kernels()[first_kernel_].max_width * sizeof(float) + 127) / 64 * 64;
  }

  bool strided() const { return stride_y_ != 1 || stride_x_ != 1; }
  PlanarShape Strided(PlanarShape shape) const {
    shape.height = (shape.height + stride_y_ - 1) / stride_y_;
    shape.width = (shape.width + stride_x_ - 1) / stride_x_;
    return shape;
  }
  size_t PickedBytes() const {
    return strided() ? static_cast<size_t>(shape_.batch) * inputs_ * shape_.plane() * sizeof(float) : 0;
  }
  // The pixels that a stride leaves of one plane.
  void Pick(const float* plane, float* to) const {
    for (int y = 0; y < shape_.height; ++y) {
      const float* row = plane + static_cast<int64_t>(y) * stride_y_ * in_.width;
      for (int x = 0; x < shape_.width; ++x) *to++ = row[x * stride_x_];
    }
  }

  // The copy pays when each value is used often enough.
  bool CopiesTiles() const {
    return inputs_ >= 64 && weights_.stored() >= 8 * static_cast<int64_t>(inputs_) &&
           shape_.plane() * sizeof(float) % Tiling().fighting_bytes == 0;
  }

  // Kernels write whole vectors: never more than `width` rounded up to 8, which the plane has room for. Inputs are copied
  // together where there is room for it.
  void Tile(const float* in, int width, int row_begin, int row_end, float* out, int64_t out_plane, float* copy) const {
    const int whole = (width + 7) / 8 * 8;
    const bool copied = copy != nullptr;
    const size_t stride = copied ? Kernels()[first_kernel_].max_width : shape_.plane();
    for (int part = 0; part < weights_.parts(); ++part) {
      const SparseView w = weights_.View(part);
      const int begin = weights_.first_column(part), end = std::min(inputs_, weights_.first_column(part + 1));
      const float* from = in + begin * shape_.plane();
      if (copied) {
        for (int c = begin; c < end; ++c) {
          std::memcpy(copy + (c - begin) * stride, in + c * shape_.plane(), whole * sizeof(float));
        }
        from = copy;
      }
      for (int x = 0; x < width;) {
        int i = first_kernel_;
        while (Kernels()[i].max_width > whole - x) ++i;
        Kernels()[i].run(from + x, stride, std::min(Kernels()[i].max_width, width - x), w, row_begin, row_end, out + x,
                         out_plane);
        x += Kernels()[i].max_width;
      }
    }
  }

  const KernelTable& kernels_;
  const int inputs_, outputs_, stride_y_, stride_x_;
  SparseSource source_;
  SparseRows weights_;
  double here_us_ = 0, stock_us_ = 0;
  PlanarShape in_, shape_;  // shape_: after the stride
  int first_kernel_ = 0;
};

class SparseFullyConnected : public PlanarOp {
 public:
  SparseFullyConnected(int inputs, int outputs, bool keep_num_dims)
      : inputs_(inputs), outputs_(outputs), keep_num_dims_(keep_num_dims) {}

  bool Read(const NodeView& node, std::string* why) {
    if (!source_.Find(node, outputs_, inputs_, node.params<FullyConnectedParams>().activation, &weights_, why)) return false;
    const double rows = static_cast<double>(PlanarOf(ShapeOf(node.input(0))).batch);
    here_us_ = speed::SparseVectorsUs(rows, weights_.stored(), weights_.blocks());
    stock_us_ = speed::DenseVectorsUs(rows, static_cast<double>(inputs_) * outputs_);
    return true;
  }

  void Pack() override { source_.Pack(outputs_, inputs_, inputs_, &weights_); }

  const char* kernel_name() const override {
    return weights_.blocks() ? "f32_sparse_vector_4x1" : "f32_sparse_vector_1x1";
  }
  void Estimate(double* here_us, double* stock_us) const override {
    *here_us = here_us_;
    *stock_us = stock_us_;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    shape_ = PlanarOf(in[0]);
    if (shape_.pixels() != 1 || shape_.channels != inputs_) return false;
    (*out)[0] = {shape_.batch, outputs_};
    if (keep_num_dims_) {
      (*out)[0] = in[0];
      (*out)[0].back() = outputs_;
    }
    return true;
  }

  void Run(const RunArgs& args) override {
    SparseVectors(static_cast<const float*>(args.inputs[0]), shape_.batch, inputs_, outputs_, weights_, args.pool,
                  static_cast<float*>(args.outputs[0]));
  }

 private:
  const int inputs_, outputs_;
  const bool keep_num_dims_;
  SparseSource source_;
  SparseRows weights_{/*ragged=*/true};
  double here_us_ = 0, stock_us_ = 0;
  PlanarShape shape_;
};

}  // namespace

std::unique_ptr<Op> MakeSparseConv(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsFloat(node.input(0), why) || node.input(1).dims->size != 4 || node.input(0).dims->size != 4) return nullptr;
  const int* dims = node.weights(1).dims->data;  // [outputs][height][width][inputs]
  const ConvParams& params = node.params<ConvParams>();
  if (dims[1] != 1 || dims[2] != 1) return MakePlanarFirstConv(node, kernels, why);
  if (params.stride_height < 1 || params.stride_width < 1 || dims[3] != node.input(0).dims->data[3]) {
    *why = "a grouped 1x1 convolution";
    return nullptr;
  }
  auto op = std::make_unique<SparseConv>(kernels, dims[3], dims[0], params.stride_height, params.stride_width);
  return op->Read(node, why) ? std::move(op) : nullptr;
}

std::unique_ptr<Op> MakeSparseFullyConnected(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsFloat(node.input(0), why)) return nullptr;
  const TfLiteTensor& weights = node.weights(1);
  const PlanarShape in = PlanarOf(ShapeOf(node.input(0)));
  if (weights.dims->size != 2 || in.pixels() != 1 || in.channels != weights.dims->data[1]) {
    *why = "an input that is not a batch of vectors";
    return nullptr;
  }
  auto op = std::make_unique<SparseFullyConnected>(weights.dims->data[1], weights.dims->data[0],
                                                   node.params<FullyConnectedParams>().keep_num_dims);
  return op->Read(node, why) ? std::move(op) : nullptr;
}

}  // namespace litesmith
