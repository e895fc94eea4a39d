// SPDX-License-Identifier: Apache-2.0
// See graph.h.
#include "core/graph.h"

#include <algorithm>

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

DensifyMap FindDensified(TfLiteContext* context) {
  DensifyMap map;
  for (int index : ExecutionPlan(context)) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) continue;
    if (node->inputs->size != 1 || node->outputs->size != 1) continue;
    const int input = node->inputs->data[0], output = node->outputs->data[0];
    const TfLiteTensor& source = context->tensors[input];
    if (registration->builtin_code == kDensify && IsConstant(source) && source.sparsity != nullptr) map[output] = input;
    if (registration->builtin_code == kDequantize && source.type == kTfLiteFloat16 && map.count(input)) {
      map[output] = map[input];  // the plan is in order: the DENSIFY came first
    }
  }
  return map;
}

std::vector<int> UnreadDensify(TfLiteContext* context, const std::vector<int>& plan, const DensifyMap& densified,
                               const std::vector<int>& taken) {
  std::unordered_map<int, int> readers, readers_taken;
  for (int index : plan) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) continue;
    const bool is_taken = std::find(taken.begin(), taken.end(), index) != taken.end();
    for (int i = 0; i < node->inputs->size; ++i) {
      ++readers[node->inputs->data[i]];
      readers_taken[node->inputs->data[i]] += is_taken;
    }
  }
  std::vector<int> nodes;
  for (auto step = plan.rbegin(); step != plan.rend(); ++step) {  // a DEQUANTIZE before the DENSIFY that it reads
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, *step, &node, &registration) != kTfLiteOk) continue;
    const int tensor = node->outputs->size == 1 ? node->outputs->data[0] : kTfLiteOptionalTensor;
    if (!densified.count(tensor) || readers[tensor] == 0 || readers[tensor] != readers_taken[tensor]) continue;
    nodes.push_back(*step);
    ++readers_taken[node->inputs->data[0]];
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace litesmith
