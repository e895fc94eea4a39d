// SPDX-License-Identifier: Apache-2.0
// A graph of one CONCATENATION of two int16 images, in the structures that the runtime hands to a delegate. Tests break
// it in one place and look whether anything is claimed.
#ifndef LITESMITH_TESTS_FAKE_GRAPH_H_
#define LITESMITH_TESTS_FAKE_GRAPH_H_

#include <cstring>
#include <vector>

#include "abi/builtin_params.h"
#include "abi/tflite_abi.h"

namespace litesmith {

class FakeGraph {
 public:
  FakeGraph() {
    std::memset(&context, 0, sizeof(context));
    std::memset(&node, 0, sizeof(node));
    std::memset(&registration, 0, sizeof(registration));
    std::memset(tensors, 0, sizeof(tensors));
    quantization_ = {&scale_, Array(zero_), 0};
    for (TfLiteTensor& tensor : tensors) {
      tensor.type = kTfLiteInt16;
      tensor.dims = Array(&tensor == &tensors[2] ? whole_ : part_);
      tensor.params = {scale_.data[0], 0};
      tensor.allocation_type = kTfLiteArenaRw;
      tensor.quantization = {kTfLiteAffineQuantizationType, &quantization_};
    }
    node.inputs = Array(inputs);
    node.outputs = Array(outputs_);
    node.builtin_data = &params_;
    registration.builtin_code = kConcatenation;
    context.tensors_size = 3;
    context.tensors = tensors;
    context.impl_ = this;
    context.recommended_num_threads = 1;
    context.GetExecutionPlan = [](TfLiteContext* c, TfLiteIntArray** plan) {
      *plan = Array(Of(c)->plan_);
      return kTfLiteOk;
    };
    context.GetNodeAndRegistration = [](TfLiteContext* c, int, TfLiteNode** n, TfLiteRegistration** r) {
      *n = &Of(c)->node;
      *r = &Of(c)->registration;
      return kTfLiteOk;
    };
    context.ResizeTensor = [](TfLiteContext*, TfLiteTensor*, TfLiteIntArray*) { return kTfLiteOk; };
    context.ReplaceNodeSubsetsWithDelegateKernels = [](TfLiteContext* c, TfLiteRegistration, const TfLiteIntArray* nodes,
                                                       TfLiteDelegate*) {
      Of(c)->claimed += nodes->size;
      return kTfLiteOk;
    };
  }
  FakeGraph(const FakeGraph&) = delete;

  TfLiteContext context;
  TfLiteTensor tensors[3];
  TfLiteNode node;
  TfLiteRegistration registration;
  int inputs[3] = {2, 0, 1};  // the first of each array is how many follow
  int claimed = 0;

 private:
  static FakeGraph* Of(TfLiteContext* c) { return static_cast<FakeGraph*>(c->impl_); }
  static TfLiteIntArray* Array(int* values) { return reinterpret_cast<TfLiteIntArray*>(values); }

  int outputs_[2] = {1, 2}, plan_[2] = {1, 0}, zero_[2] = {1, 0};
  int part_[5] = {4, 1, 2, 2, 4}, whole_[5] = {4, 1, 2, 2, 8};
  TfLiteFloatArray scale_ = {1, {0.001f}};
  TfLiteAffineQuantization quantization_;
  ConcatenationParams params_ = {3, Activation::kNone};
};

}  // namespace litesmith

#endif  // LITESMITH_TESTS_FAKE_GRAPH_H_
