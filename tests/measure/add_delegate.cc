// SPDX-License-Identifier: Apache-2.0
// An external delegate for tests: takes float ADD of two tensors of the same shape without activation, one partition each.
// Options: offset=NUMBER is added to each result; crash=yes aborts in the first run,
// illegal=yes executes what no processor has; refuse=yes will not start;
// once=yes aborts when it is made again after a run.
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi/tflite_abi.h"

namespace {

constexpr int32_t kAdd = 0;
bool has_run = false;

struct State {
  TfLiteDelegate delegate{};
  float offset = 0;
  bool crash = false;
  bool illegal = false;
};

struct Kernel {
  State* state;
};

void* Init(TfLiteContext*, const char* buffer, size_t) {
  const auto* params = reinterpret_cast<const TfLiteDelegateParams*>(buffer);
  return new Kernel{static_cast<State*>(params->delegate->data_)};
}

void Free(TfLiteContext*, void* buffer) { delete static_cast<Kernel*>(buffer); }

TfLiteStatus PrepareNode(TfLiteContext*, TfLiteNode*) { return kTfLiteOk; }

TfLiteStatus Invoke(TfLiteContext* context, TfLiteNode* node) {
  const State* state = static_cast<Kernel*>(node->user_data)->state;
  if (state->crash) std::abort();
  if (state->illegal) __builtin_trap();
  has_run = true;
  const TfLiteTensor& a = context->tensors[node->inputs->data[0]];
  const TfLiteTensor& b = context->tensors[node->inputs->data[node->inputs->size - 1]];
  TfLiteTensor& out = context->tensors[node->outputs->data[0]];
  const auto* x = static_cast<const float*>(a.data);
  const auto* y = static_cast<const float*>(b.data);
  auto* z = static_cast<float*>(out.data);
  for (size_t i = 0; i < out.bytes / sizeof(float); ++i) z[i] = x[i] + y[i] + state->offset;
  return kTfLiteOk;
}

bool Takes(const TfLiteContext* context, const TfLiteNode* node, const TfLiteRegistration* registration) {
  if (registration->builtin_code != kAdd || node->inputs->size != 2) return false;
  if (*static_cast<const int*>(node->builtin_data) != 0) return false;  // the fused activation
  const TfLiteTensor& a = context->tensors[node->inputs->data[0]];
  const TfLiteTensor& b = context->tensors[node->inputs->data[1]];
  return a.type == kTfLiteFloat32 && b.type == kTfLiteFloat32 && a.bytes == b.bytes;
}

TfLiteStatus Prepare(TfLiteContext* context, TfLiteDelegate* delegate) {
  TfLiteIntArray* plan = nullptr;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk) return kTfLiteError;
  const int count = plan->size;
  auto* nodes = static_cast<int*>(std::malloc(sizeof(int) * (count + 1)));  // the plan changes with each replacement
  std::memcpy(nodes, plan->data, sizeof(int) * count);
  TfLiteRegistration kernel{};
  kernel.init = Init;
  kernel.free = Free;
  kernel.prepare = PrepareNode;
  kernel.invoke = Invoke;
  kernel.builtin_code = kTfLiteBuiltinDelegate;
  kernel.custom_name = "AddDelegate";
  kernel.version = 1;
  TfLiteStatus status = kTfLiteOk;
  for (int i = 0; i < count && status == kTfLiteOk; ++i) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    status = context->GetNodeAndRegistration(context, nodes[i], &node, &registration);
    if (status == kTfLiteOk && Takes(context, node, registration)) {
      TfLiteIntArray one{1, {nodes[i]}};
      status = context->ReplaceNodeSubsetsWithDelegateKernels(context, kernel, &one, delegate);
    }
  }
  std::free(nodes);
  return status;
}

}  // namespace

extern "C" TfLiteDelegate* tflite_plugin_create_delegate(const char* const* keys, const char* const* values, size_t count,
                                                         void (*report_error)(const char*)) {
  auto* state = new State;
  for (size_t i = 0; i < count; ++i) {
    if (std::string(keys[i]) == "offset") state->offset = std::strtof(values[i], nullptr);
    if (std::string(keys[i]) == "crash") state->crash = true;
    if (std::string(keys[i]) == "illegal") state->illegal = true;
    if (std::string(keys[i]) == "once" && has_run) std::abort();
    if (std::string(keys[i]) == "refuse") {
      if (report_error != nullptr) report_error("it was asked to refuse");
      delete state;
      return nullptr;
    }
  }
  state->delegate.data_ = state;
  state->delegate.Prepare = Prepare;
  return &state->delegate;
}

extern "C" void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) {
  delete static_cast<State*>(delegate->data_);
}
