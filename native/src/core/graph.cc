// SPDX-License-Identifier: Apache-2.0
// See graph.h.
#include "core/graph.h"

#include <algorithm>
#include <iterator>

namespace litesmith {
namespace {

constexpr size_t kMostTensors = 1 << 22;
constexpr int kHighestRank = 32;

std::string CheckTensor(const TfLiteTensor& tensor, size_t id) {
  const std::string where = "tensor " + std::to_string(id);
  if (tensor.type < 0 || tensor.type > kTfLiteLargestKnownType) return where + " has an impossible type";
  if (tensor.allocation_type < 0 || tensor.allocation_type > 16) return where + " has an impossible allocation type";
  if (tensor.dims == nullptr) return "";
  if (tensor.dims->size < 0 || tensor.dims->size > kHighestRank) return where + " has an impossible rank";
  for (int i = 0; i < tensor.dims->size; ++i) {
    if (tensor.dims->data[i] < -1) return where + " has an impossible dimension";
  }
  const size_t element = TypeBytes(tensor.type);
  if (IsConstant(tensor) && element != 0 && tensor.sparsity == nullptr) {
    const int64_t want = NumElements(ShapeOf(tensor)) * static_cast<int64_t>(element);
    if (want != static_cast<int64_t>(tensor.bytes)) return where + " holds another number of bytes than its shape says";
  }
  return "";
}

bool IndicesFit(const TfLiteIntArray* ids, size_t tensors) {
  if (ids == nullptr || ids->size < 0 || static_cast<size_t>(ids->size) > kMostTensors) return false;
  for (int i = 0; i < ids->size; ++i) {
    if (ids->data[i] < kTfLiteOptionalTensor || ids->data[i] >= static_cast<int>(tensors)) return false;
  }
  return true;
}

}  // namespace

std::string CheckAbi(TfLiteContext* context) {
  if (context == nullptr || context->tensors == nullptr) return "the context has no tensors";
  if (context->tensors_size == 0 || context->tensors_size > kMostTensors) return "the number of tensors is impossible";
  if (context->GetExecutionPlan == nullptr || context->GetNodeAndRegistration == nullptr ||
      context->ResizeTensor == nullptr || context->ReplaceNodeSubsetsWithDelegateKernels == nullptr) {
    return "a function of the context is missing";
  }
  if (context->recommended_num_threads < -1 || context->recommended_num_threads > 4096) {
    return "the recommended number of threads is impossible";
  }
  for (size_t i = 0; i < context->tensors_size; ++i) {
    const std::string problem = CheckTensor(context->tensors[i], i);
    if (!problem.empty()) return problem;
  }
  TfLiteIntArray* plan = nullptr;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk || plan == nullptr || plan->size < 0) {
    return "the execution plan cannot be read";
  }
  for (int i = 0; i < plan->size; ++i) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, plan->data[i], &node, &registration) != kTfLiteOk || !node ||
        !registration) {
      return "node " + std::to_string(plan->data[i]) + " cannot be read";
    }
    if (registration->builtin_code < 0 || registration->builtin_code > kLargestKnownCode) {
      return "node " + std::to_string(plan->data[i]) + " has an impossible operator code";
    }
    if (!IndicesFit(node->inputs, context->tensors_size) || !IndicesFit(node->outputs, context->tensors_size)) {
      return "node " + std::to_string(plan->data[i]) + " names tensors that do not exist";
    }
  }
  return "";
}

std::vector<int> ExecutionPlan(TfLiteContext* context) {
  TfLiteIntArray* plan = nullptr;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk) return {};
  return std::vector<int>(plan->data, plan->data + plan->size);
}

// LiteRT's converter writes this entry on demand, for instance "fp16accfp32"; XNNPACK reads it too.
bool AllowsLessPrecision(const TfLiteContext* context) {
  const char* text = nullptr;
  size_t bytes = 0;
  return context->GetModelMetadata != nullptr &&
         context->GetModelMetadata(context, "reduced_precision_support", &text, &bytes) == kTfLiteOk &&
         text != nullptr && std::string(text, bytes).rfind("fp16", 0) == 0;
}

namespace {

// A PAD with zeros, of height and width alone.
bool ReadPad(const TfLiteContext* context, const TfLiteNode& node, ZeroPad* pad) {
  if (node.inputs->data[0] == kTfLiteOptionalTensor || node.inputs->data[1] == kTfLiteOptionalTensor) return false;
  const TfLiteTensor& in = context->tensors[node.inputs->data[0]];
  const TfLiteTensor& sizes = context->tensors[node.inputs->data[1]];
  if (in.type != kTfLiteFloat32 || in.dims == nullptr || in.dims->size != 4 || sizes.type != kTfLiteInt32 ||
      !IsConstant(sizes) || sizes.bytes != 8 * sizeof(int32_t)) {
    return false;
  }
  const auto* n = static_cast<const int32_t*>(sizes.data);
  if (n[0] || n[1] || n[6] || n[7] || *std::min_element(n, n + 8) < 0 || *std::max_element(n, n + 8) > 16) return false;
  *pad = {node.inputs->data[0], n[2], n[3], n[4], n[5]};
  return true;
}

}  // namespace

Origins FindOrigins(TfLiteContext* context) {
  Origins found;
  for (int index : ExecutionPlan(context)) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) continue;
    for (int i = 0; i < node->inputs->size; ++i) ++found.readers[node->inputs->data[i]];
    if (node->outputs->size != 1) continue;
    const int output = node->outputs->data[0], code = registration->builtin_code;
    ZeroPad pad;
    if (code == kPad && node->inputs->size == 2 && ReadPad(context, *node, &pad)) found.padded[output] = pad;
    if (node->inputs->size != 1 || node->inputs->data[0] == kTfLiteOptionalTensor) continue;
    const int input = node->inputs->data[0];
    const TfLiteTensor& source = context->tensors[input];
    const bool is_sparse = source.sparsity != nullptr, is_half = source.type == kTfLiteFloat16;
    if (ShapeOf(context->tensors[output]) != ShapeOf(source)) continue;  // what no converter writes
    if (code == kDensify && IsConstant(source) && is_sparse) found.densified[output] = input;
    if (code != kDequantize) continue;
    if (is_half && found.densified.count(input)) {
      found.densified[output] = found.densified[input];  // the plan is in order: the DENSIFY came first
    } else if (IsConstant(source) && !is_sparse && (is_half || source.type == kTfLiteInt8) &&
               context->tensors[output].type == kTfLiteFloat32) {
      found.widened[output] = input;
    }
  }
  for (auto pad = found.padded.begin(); pad != found.padded.end();) {
    pad = found.readers[pad->first] == 1 ? std::next(pad) : found.padded.erase(pad);
  }
  return found;
}

std::vector<int> UnreadNodes(const std::vector<NodeView>& nodes, const std::set<int>& tensors,
                             const std::vector<int>& readers) {
  std::unordered_map<int, int> all_readers, these_readers;
  for (const NodeView& node : nodes) {
    const bool is_one = std::find(readers.begin(), readers.end(), node.index()) != readers.end();
    for (int i = 0; i < node.num_inputs(); ++i) {
      ++all_readers[node.input_id(i)];
      these_readers[node.input_id(i)] += is_one;
    }
  }
  std::vector<int> unread;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {  // a DEQUANTIZE before the DENSIFY that it reads
    const int tensor = node->num_outputs() == 1 ? node->output_id(0) : kTfLiteOptionalTensor;
    if (!tensors.count(tensor) || all_readers[tensor] == 0 || all_readers[tensor] != these_readers[tensor]) continue;
    unread.push_back(node->index());
    ++these_readers[node->input_id(0)];
  }
  return unread;
}

}  // namespace litesmith
