// SPDX-License-Identifier: Apache-2.0
// A node of the graph as the operators see it: typed access, and the questions every operator asks.
#ifndef LITESMITH_CORE_NODE_VIEW_H_
#define LITESMITH_CORE_NODE_VIEW_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/builtin_params.h"
#include "abi/tflite_abi.h"

namespace litesmith {

using Shape = std::vector<int>;

inline int64_t NumElements(const Shape& shape) {
  int64_t count = 1;
  for (int d : shape) count *= d;
  return count;
}

// Bytes per element of the types handled here; 0 for any other.
inline size_t TypeBytes(TfLiteType type) {
  switch (type) {
    case kTfLiteFloat32:
    case kTfLiteInt32: return 4;
    case kTfLiteInt64: return 8;
    case kTfLiteInt16: return 2;
    case kTfLiteInt8:
    case kTfLiteUInt8: return 1;
    default: return 0;
  }
}

inline Shape ShapeOf(const TfLiteTensor& tensor) {
  return Shape(tensor.dims->data, tensor.dims->data + tensor.dims->size);
}

inline bool IsConstant(const TfLiteTensor& tensor) {
  return tensor.allocation_type == kTfLiteMmapRo && tensor.data != nullptr;
}

// Tensors that a DENSIFY node unpacks from a sparse constant, also through a DEQUANTIZE of its 16-bit floats:
// output tensor id -> constant tensor id.
using DensifyMap = std::unordered_map<int, int>;

class NodeView {
 public:
  NodeView(const TfLiteContext* context, int index, const TfLiteNode* node, const TfLiteRegistration* registration,
           const DensifyMap* densified)
      : context_(context), index_(index), node_(node), code_(registration->builtin_code), densified_(densified) {}

  int index() const { return index_; }
  int code() const { return code_; }
  int num_inputs() const { return node_->inputs->size; }
  int num_outputs() const { return node_->outputs->size; }
  int input_id(int i) const { return node_->inputs->data[i]; }
  int output_id(int i) const { return node_->outputs->data[i]; }
  bool has_input(int i) const { return i < num_inputs() && input_id(i) != kTfLiteOptionalTensor; }
  const TfLiteTensor& input(int i) const { return context_->tensors[input_id(i)]; }
  const TfLiteTensor& output(int i) const { return context_->tensors[output_id(i)]; }
  // The constant behind input i, through a DENSIFY node if there is one.
  const TfLiteTensor& weights(int i) const {
    const auto found = densified_->find(input_id(i));
    return found == densified_->end() ? input(i) : context_->tensors[found->second];
  }

  template <class Params>
  const Params& params() const {
    return *static_cast<const Params*>(node_->builtin_data);
  }
  bool has_params() const { return node_->builtin_data != nullptr; }

 private:
  const TfLiteContext* context_;
  int index_;
  const TfLiteNode* node_;
  int32_t code_;
  const DensifyMap* densified_;
};

}  // namespace litesmith

#endif  // LITESMITH_CORE_NODE_VIEW_H_
