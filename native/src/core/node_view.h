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

// What tensors come from, through nodes that need not run because their consumers can do their work: by the id of the
// tensor that such a node writes.
struct ZeroPad {
  int source;  // the tensor that is padded
  int top, bottom, left, right;
};
struct Origins {
  std::unordered_map<int, int> densified;   // by DENSIFY from a sparse constant, also through a DEQUANTIZE of its halves
  std::unordered_map<int, int> widened;     // by DEQUANTIZE from a plain constant of 16-bit floats or int8
  std::unordered_map<int, ZeroPad> padded;  // by PAD of height and width of a float image, read by one node alone
  std::unordered_map<int, int> readers;     // of any tensor: how many nodes
};

class NodeView {
 public:
  NodeView(const TfLiteContext* context, int index, const TfLiteNode* node, const TfLiteRegistration* registration,
           const Origins* origins)
      : context_(context), index_(index), node_(node), code_(registration->builtin_code), origins_(origins) {}

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
    const auto found = origins_->densified.find(input_id(i));
    return found == origins_->densified.end() ? input(i) : context_->tensors[found->second];
  }
  // The constant that input i is widened from by a DEQUANTIZE node, or the input itself.
  const TfLiteTensor& narrow(int i) const {
    const auto found = origins_->widened.find(input_id(i));
    return found == origins_->widened.end() ? input(i) : context_->tensors[found->second];
  }
  // The padding that makes input 0, or null.
  const ZeroPad* pad() const {
    const auto found = origins_->padded.find(input_id(0));
    return found == origins_->padded.end() ? nullptr : &found->second;
  }
  const TfLiteTensor& tensor(int id) const { return context_->tensors[id]; }

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
  const Origins* origins_;
};

}  // namespace litesmith

#endif  // LITESMITH_CORE_NODE_VIEW_H_
