// SPDX-License-Identifier: Apache-2.0
// Operators that only move values: RESHAPE family, PAD, CONCATENATION, TRANSPOSE, slices and SPLIT of int16 ones, and as
// companions of hybrid operators PAD and STRIDED_SLICE of floats.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/makers.h"
#include "ops/quant.h"

namespace litesmith {
namespace {

// Moves are exact only where input and output mean the same: the stock kernels copy raw values too.
bool IsInt16Move(const NodeView& node, std::string* why) {
  return IsInt16Activation(node.input(0), why) && IsInt16Activation(node.output(0), why);
}

bool IsFloatMove(const NodeView& node, std::string* why) {
  *why = "not a move of floats";
  return node.input(0).type == kTfLiteFloat32 && node.output(0).type == kTfLiteFloat32;
}

bool ReadInts(const TfLiteTensor& tensor, std::vector<int>* out) {
  if (!IsConstant(tensor) || tensor.sparsity != nullptr || (tensor.type != kTfLiteInt32 && tensor.type != kTfLiteInt64)) return false;
  const int64_t n = NumElements(ShapeOf(tensor));
  out->resize(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = tensor.type == kTfLiteInt32 ? static_cast<const int32_t*>(tensor.data)[i]
                                                      : static_cast<const int64_t*>(tensor.data)[i];
    (*out)[i] = static_cast<int>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
  }
  return true;
}

std::vector<int64_t> Strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// The same values under another shape. `wanted` may hold one -1; for SQUEEZE and EXPAND_DIMS it depends on the input.
class Reshape16 : public Op {
 public:
  Reshape16(int code, std::vector<int> wanted) : code_(code), wanted_(std::move(wanted)) {}
  const char* kernel_name() const override { return "s16_copy"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    values_ = NumElements(in[0]);
    const int rank = static_cast<int>(in[0].size());
    Shape shape;
    if (code_ == kSqueeze) {
      std::vector<bool> drop(rank, false);
      for (int axis : wanted_) {
        if (axis < -rank || axis >= rank || in[0][(axis + rank) % rank] != 1) return false;
        drop[(axis + rank) % rank] = true;
      }
      for (int i = 0; i < rank; ++i) {
        if (wanted_.empty() ? in[0][i] != 1 : !drop[i]) shape.push_back(in[0][i]);
      }
    } else if (code_ == kExpandDims) {
      const int axis = wanted_[0] < 0 ? wanted_[0] + rank + 1 : wanted_[0];
      if (axis < 0 || axis > rank) return false;
      shape = in[0];
      shape.insert(shape.begin() + axis, 1);
    } else {
      shape = wanted_;
      const auto open = std::find(shape.begin(), shape.end(), -1);
      if (open != shape.end()) {
        *open = 1;
        const int64_t known = NumElements(shape);
        if (known == 0 || values_ % known != 0) return false;
        *open = static_cast<int>(values_ / known);
      }
    }
    (*out)[0] = shape;
    return NumElements(shape) == values_;
  }

  void Run(const RunArgs& args) override { std::memcpy(args.outputs[0], args.inputs[0], values_ * 2); }

 private:
  const int code_;
  const std::vector<int> wanted_;
  int64_t values_ = 0;
};

// Copies a box of the input, element steps given per dimension, to a box of the output. All moves reduce to this.
template <class T>
void CopyStrided(const T* in, const std::vector<int64_t>& in_step, T* out, const std::vector<int64_t>& out_step,
                 const Shape& size, size_t dim = 0) {
  if (dim == size.size()) {
    *out = *in;
    return;
  }
  if (dim + 1 == size.size()) {
    const int64_t n = size[dim], si = in_step[dim], so = out_step[dim];
    if (si == 1 && so == 1) {
      std::memcpy(out, in, n * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < n; ++i) out[i * so] = in[i * si];
    return;
  }
  for (int i = 0; i < size[dim]; ++i) {
    CopyStrided(in + i * in_step[dim], in_step, out + i * out_step[dim], out_step, size, dim + 1);
  }
}

template <class T>
class Pad : public Op {
 public:
  Pad(std::vector<int> pads, T value) : pads_(std::move(pads)), value_(value) {}
  const char* kernel_name() const override { return std::is_same_v<T, float> ? "f32_pad" : "s16_pad"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (pads_.size() != 2 * in[0].size()) return false;
    (*out)[0] = in[0];
    for (size_t i = 0; i < in[0].size(); ++i) {
      const int64_t padded = int64_t{in[0][i]} + pads_[2 * i] + pads_[2 * i + 1];
      if (padded > INT32_MAX) return false;
      (*out)[0][i] = static_cast<int>(padded);
    }
    return true;
  }

  void Run(const RunArgs& args) override {
    Copy(static_cast<const T*>(args.inputs[0]), Strides(*args.input_shapes[0]),
         static_cast<T*>(args.outputs[0]), Strides(*args.output_shapes[0]), *args.input_shapes[0], 0);
  }

 private:
  // Writes each output value once: the border before, the inside, the border after, dimension by dimension.
  void Copy(const T* in, const std::vector<int64_t>& in_step, T* out, const std::vector<int64_t>& out_step,
            const Shape& size, size_t dim) const {
    // Inner dimensions without padding are one run.
    bool plain = true;
    for (size_t d = dim + 1; d < size.size(); ++d) plain = plain && pads_[2 * d] == 0 && pads_[2 * d + 1] == 0;
    std::fill_n(out, pads_[2 * dim] * out_step[dim], value_);
    out += pads_[2 * dim] * out_step[dim];
    if (plain) {
      std::memcpy(out, in, size[dim] * in_step[dim] * sizeof(T));
    } else {
      for (int i = 0; i < size[dim]; ++i) {
        Copy(in + i * in_step[dim], in_step, out + i * out_step[dim], out_step, size, dim + 1);
      }
    }
    std::fill_n(out + size[dim] * out_step[dim], pads_[2 * dim + 1] * out_step[dim], value_);
  }

  const std::vector<int> pads_;
  const T value_;
};

class Concatenation16 : public Op {
 public:
  Concatenation16(int axis, int inputs) : axis_(axis), inputs_(inputs) {}
  const char* kernel_name() const override { return "s16_concatenation"; }
  std::vector<int> RuntimeInputs() const override {
    std::vector<int> all(inputs_);
    for (int i = 0; i < inputs_; ++i) all[i] = i;
    return all;
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    Shape shape = in[0];
    const int rank = static_cast<int>(shape.size());
    if (axis_ < -rank || axis_ >= rank) return false;
    dim_ = axis_ < 0 ? axis_ + rank : axis_;
    for (int i = 1; i < inputs_; ++i) {
      Shape other = in[i];
      if (static_cast<int>(other.size()) != rank) return false;
      shape[dim_] += other[dim_];
      other[dim_] = in[0][dim_];
      if (other != in[0]) return false;
    }
    (*out)[0] = shape;
    return true;
  }

  void Run(const RunArgs& args) override {
    const Shape& shape = *args.output_shapes[0];
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < dim_; ++i) outer *= shape[i];
    for (size_t i = dim_ + 1; i < shape.size(); ++i) inner *= shape[i];
    auto* out = static_cast<int16_t*>(args.outputs[0]);
    for (int64_t o = 0; o < outer; ++o) {
      for (int i = 0; i < inputs_; ++i) {
        const int64_t run = (*args.input_shapes[i])[dim_] * inner;
        std::memcpy(out, static_cast<const int16_t*>(args.inputs[i]) + o * run, run * sizeof(int16_t));
        out += run;
      }
    }
  }

 private:
  const int axis_, inputs_;
  int dim_ = 0;
};

class Transpose16 : public Op {
 public:
  explicit Transpose16(std::vector<int> perm) : perm_(std::move(perm)) {}
  const char* kernel_name() const override { return "s16_transpose"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    const int rank = static_cast<int>(in[0].size());
    if (static_cast<int>(perm_.size()) != rank) return false;
    (*out)[0].clear();
    std::vector<bool> seen(rank, false);
    for (int p : perm_) {
      if (p < -rank || p >= rank || seen[p < 0 ? p + rank : p]) return false;
      seen[p < 0 ? p + rank : p] = true;
      (*out)[0].push_back(in[0][p < 0 ? p + rank : p]);
    }
    return true;
  }

  void Run(const RunArgs& args) override {
    const std::vector<int64_t> in_strides = Strides(*args.input_shapes[0]);
    const int rank = static_cast<int>(in_strides.size());
    std::vector<int64_t> steps;
    for (int p : perm_) steps.push_back(in_strides[p < 0 ? p + rank : p]);
    CopyStrided(static_cast<const int16_t*>(args.inputs[0]), steps, static_cast<int16_t*>(args.outputs[0]),
                Strides(*args.output_shapes[0]), *args.output_shapes[0]);
  }

 private:
  const std::vector<int> perm_;
};

// STRIDED_SLICE without ellipsis and new axes, and SLICE.
struct SliceSpec {
  std::vector<int> begin, end, stride;
  int begin_mask = 0, end_mask = 0, shrink_mask = 0;
  bool end_is_size = false;  // SLICE
};

template <class T>
class Slice : public Op {
 public:
  explicit Slice(SliceSpec spec) : spec_(std::move(spec)) {}
  const char* kernel_name() const override { return std::is_same_v<T, float> ? "f32_slice" : "s16_slice"; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    const int rank = static_cast<int>(in[0].size());
    if (static_cast<int>(spec_.begin.size()) > rank) return false;
    start_.assign(rank, 0);
    step_.assign(rank, 1);
    size_ = in[0];
    Shape shape;
    for (int d = 0; d < rank; ++d) {
      if (d < static_cast<int>(spec_.begin.size()) && !Dimension(d, in[0][d])) return false;
      const bool shrunk = d < static_cast<int>(spec_.begin.size()) && ((spec_.shrink_mask >> d) & 1);
      if (!shrunk) shape.push_back(size_[d]);
    }
    (*out)[0] = shape;
    return true;
  }

  void Run(const RunArgs& args) override {
    const std::vector<int64_t> strides = Strides(*args.input_shapes[0]);
    const auto* in = static_cast<const T*>(args.inputs[0]);
    std::vector<int64_t> steps(strides.size());
    for (size_t d = 0; d < strides.size(); ++d) {
      in += start_[d] * strides[d];
      steps[d] = step_[d] * strides[d];
    }
    CopyStrided(in, steps, static_cast<T*>(args.outputs[0]), Strides(size_), size_);
  }

 private:
  bool Dimension(int d, int length) {
    if (spec_.end_is_size) {
      const int size = spec_.end[d] < 0 ? length - spec_.begin[d] : spec_.end[d];
      start_[d] = spec_.begin[d];
      size_[d] = size;
      return spec_.begin[d] >= 0 && spec_.begin[d] <= length && size >= 0 && size <= length - spec_.begin[d];
    }
    const int stride = spec_.stride[d];
    const int low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
    const auto clamp = [&](int x) { return std::clamp(x < 0 ? x + length : x, low, high); };
    int begin = clamp(spec_.begin[d]);
    if ((spec_.begin_mask >> d) & 1) begin = stride > 0 ? 0 : length - 1;
    int end = clamp(spec_.end[d]);
    if ((spec_.end_mask >> d) & 1) end = stride > 0 ? length : -1;
    if ((spec_.shrink_mask >> d) & 1) {
      if (begin < 0 || begin >= length) return false;
      end = begin + 1;
    }
    start_[d] = begin;
    step_[d] = stride;
    const int64_t span = stride > 0 ? end - begin : begin - end, magnitude = std::abs(int64_t{stride});
    size_[d] = span <= 0 ? 0 : static_cast<int>((span + magnitude - 1) / magnitude);
    return true;
  }

  const SliceSpec spec_;
  std::vector<int64_t> start_, step_;
  Shape size_;
};

// SPLIT: input 0 is the axis, input 1 the value.
class Split16 : public Op {
 public:
  Split16(int axis, int parts) : axis_(axis), parts_(parts) {}
  const char* kernel_name() const override { return "s16_split"; }
  std::vector<int> RuntimeInputs() const override { return {1}; }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    const int rank = static_cast<int>(in[1].size());
    if (axis_ < -rank || axis_ >= rank) return false;
    dim_ = axis_ < 0 ? axis_ + rank : axis_;
    if (in[1][dim_] % parts_ != 0) return false;
    Shape part = in[1];
    part[dim_] /= parts_;
    for (Shape& shape : *out) shape = part;
    return true;
  }

  void Run(const RunArgs& args) override {
    const Shape& part = *args.output_shapes[0];
    int64_t outer = 1, run = 1;
    for (int i = 0; i < dim_; ++i) outer *= part[i];
    for (size_t i = dim_; i < part.size(); ++i) run *= part[i];
    const auto* in = static_cast<const int16_t*>(args.inputs[1]);
    for (int64_t o = 0; o < outer; ++o) {
      for (int p = 0; p < parts_; ++p, in += run) {
        std::memcpy(static_cast<int16_t*>(args.outputs[p]) + o * run, in, run * sizeof(int16_t));
      }
    }
  }

 private:
  const int axis_, parts_;
  int dim_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeReshape16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Move(node, why)) return nullptr;
  std::vector<int> wanted;
  if (node.code() == kSqueeze) {
    const SqueezeParams& params = node.params<SqueezeParams>();
    wanted.assign(params.squeeze_dims, params.squeeze_dims + params.num_squeeze_dims);
  } else if (node.has_input(1)) {
    if (!ReadInts(node.input(1), &wanted)) {
      *why = "a shape that is not constant";
      return nullptr;
    }
  } else {
    *why = "no shape";
    if (!node.has_params()) return nullptr;
    const ReshapeParams& params = node.params<ReshapeParams>();
    wanted.assign(params.shape, params.shape + params.num_dimensions);
  }
  if (node.code() == kExpandDims && wanted.size() != 1) {
    *why = "an axis that is not one number";
    return nullptr;
  }
  return std::make_unique<Reshape16>(node.code(), wanted);
}

// Of the dimensions of input 0.
bool ReadPads(const NodeView& node, std::vector<int>* pads, std::string* why) {
  const int rank = node.input(0).dims->size;  // the stock kernel for more than 4 is another one
  bool ok = ReadInts(node.input(1), pads) && rank > 0 && rank <= 4 && pads->size() == 2 * static_cast<size_t>(rank);
  for (int p : *pads) ok = ok && p >= 0;
  if (!ok) *why = "paddings that are not constant and non-negative, or a rank above 4";
  return ok;
}

std::unique_ptr<Op> MakePad16(const NodeView& node, const KernelTable&, std::string* why) {
  std::vector<int> pads;
  if (!IsInt16Move(node, why) || !ReadPads(node, &pads, why)) return nullptr;
  int16_t value = 0;
  if (node.has_input(2)) {
    const TfLiteTensor& fill = node.input(2);
    *why = "a filling that is not one constant";
    if (fill.type != kTfLiteInt16 || !IsConstant(fill) || NumElements(ShapeOf(fill)) != 1) return nullptr;
    value = *static_cast<const int16_t*>(fill.data);
  }
  return std::make_unique<Pad<int16_t>>(pads, value);
}

std::unique_ptr<Op> MakePadFloat(const NodeView& node, const KernelTable&, std::string* why) {
  std::vector<int> pads;
  if (!IsFloatMove(node, why) || !ReadPads(node, &pads, why)) return nullptr;
  return std::make_unique<Pad<float>>(pads, 0.0f);
}

std::unique_ptr<Op> MakeConcatenation16(const NodeView& node, const KernelTable&, std::string* why) {
  bool all_constant = true;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!node.has_input(i) || node.input(i).dims == nullptr) {
      *why = "an input that is absent or without a shape";
      return nullptr;
    }
    if (!IsInt16Activation(node.input(i), why)) return nullptr;
    all_constant = all_constant && IsConstant(node.input(i));
  }
  const ConcatenationParams& params = node.params<ConcatenationParams>();
  if (!IsInt16Activation(node.output(0), why)) return nullptr;
  if (params.activation != Activation::kNone || all_constant || node.input(0).dims->size == 0) {
    *why = "constants only, scalars, or a fused activation";
    return nullptr;
  }
  return std::make_unique<Concatenation16>(params.axis, node.num_inputs());
}

std::unique_ptr<Op> MakeTranspose16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Move(node, why)) return nullptr;
  std::vector<int> perm;
  if (!ReadInts(node.input(1), &perm)) {
    *why = "a permutation that is not constant";
    return nullptr;
  }
  return std::make_unique<Transpose16>(perm);
}

bool ReadStridedSlice(const NodeView& node, SliceSpec* spec, std::string* why) {
  const StridedSliceParams& params = node.params<StridedSliceParams>();
  *why = "bounds that are not constant, or an ellipsis, new axis or offset";
  for (int i : {1, 2, 3}) {
    if (!node.has_input(i)) return false;
  }
  if (!ReadInts(node.input(1), &spec->begin) || !ReadInts(node.input(2), &spec->end) ||
      !ReadInts(node.input(3), &spec->stride) || spec->begin.size() != spec->end.size() ||
      spec->begin.size() != spec->stride.size() || params.ellipsis_mask != 0 || params.new_axis_mask != 0 ||
      params.offset || std::count(spec->stride.begin(), spec->stride.end(), 0) != 0) {
    return false;
  }
  spec->begin_mask = params.begin_mask;
  spec->end_mask = params.end_mask;
  spec->shrink_mask = params.shrink_axis_mask;
  *why = "an axis that is dropped by an index outside of it, or by a stride";
  const TfLiteIntArray& dims = *node.input(0).dims;
  for (int d = 0; d < static_cast<int>(spec->begin.size()); ++d) {
    if (!((spec->shrink_mask >> d) & 1)) continue;
    const int at = spec->begin[d];
    if (d >= dims.size || spec->stride[d] != 1 || at < -dims.data[d] || at >= dims.data[d]) return false;
  }
  return true;
}

std::unique_ptr<Op> MakeStridedSlice16(const NodeView& node, const KernelTable&, std::string* why) {
  SliceSpec spec;
  if (!IsInt16Move(node, why) || !ReadStridedSlice(node, &spec, why)) return nullptr;
  return std::make_unique<Slice<int16_t>>(spec);
}

std::unique_ptr<Op> MakeStridedSliceFloat(const NodeView& node, const KernelTable&, std::string* why) {
  SliceSpec spec;
  if (!IsFloatMove(node, why) || !ReadStridedSlice(node, &spec, why)) return nullptr;
  return std::make_unique<Slice<float>>(spec);
}

std::unique_ptr<Op> MakeSlice16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Move(node, why)) return nullptr;
  SliceSpec spec;
  spec.end_is_size = true;
  if (!ReadInts(node.input(1), &spec.begin) || !ReadInts(node.input(2), &spec.end) ||
      spec.begin.size() != spec.end.size()) {
    *why = "bounds that are not constant";
    return nullptr;
  }
  return std::make_unique<Slice<int16_t>>(spec);
}

std::unique_ptr<Op> MakeSplit16(const NodeView& node, const KernelTable&, std::string* why) {
  if (!IsInt16Activation(node.input(1), why)) return nullptr;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (!IsInt16Activation(node.output(i), why)) return nullptr;
  }
  std::vector<int> axis;
  if (!ReadInts(node.input(0), &axis) || axis.size() != 1 || node.num_outputs() < 1) {
    *why = "an axis that is not constant";
    return nullptr;
  }
  return std::make_unique<Split16>(axis[0], node.num_outputs());
}

}  // namespace litesmith
