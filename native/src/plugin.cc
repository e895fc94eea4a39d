// SPDX-License-Identifier: Apache-2.0
// The exported C functions: LiteRT's external-delegate interface, and Litesmith's own questions to a delegate.
#include <cstring>
#include <string>

#include "core/delegate.h"
#include "core/options.h"
#include "kernels/registry.h"

#define LITESMITH_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// snprintf's contract: returns the length of `text`, writes at most size - 1 characters and a terminator.
size_t CopyOut(const std::string& text, char* buffer, size_t size) {
  if (buffer != nullptr && size > 0) {
    const size_t n = text.size() < size - 1 ? text.size() : size - 1;
    std::memcpy(buffer, text.data(), n);
    buffer[n] = '\0';
  }
  return text.size();
}

litesmith::Delegate* Of(TfLiteDelegate* delegate) { return static_cast<litesmith::Delegate*>(delegate->data_); }

}  // namespace

LITESMITH_EXPORT TfLiteDelegate* tflite_plugin_create_delegate(const char* const* options_keys,
                                                               const char* const* options_values, size_t num_options,
                                                               void (*report_error)(const char*)) {
  litesmith::Options options;
  std::string error = litesmith::ParseOptions(options_keys, options_values, num_options, &options);
  std::string why;
  const litesmith::KernelTable* kernels = nullptr;
  if (error.empty()) {
    kernels = litesmith::ChooseTier(options.isa, &why);
    // A tier asked for by name that cannot run is the caller's mistake; "auto" without a tier just claims nothing.
    if (kernels == nullptr && options.isa != "auto") error = "litesmith delegate: " + why;
  }
  if (!error.empty()) {
    if (report_error != nullptr) report_error(error.c_str());
    return nullptr;
  }
  return (new litesmith::Delegate(options, kernels, why))->abi();
}

LITESMITH_EXPORT void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) {
  if (delegate != nullptr) delete Of(delegate);
}

// Turns the per-operator clock on (and forgets earlier times) or off.
LITESMITH_EXPORT void litesmith_delegate_set_profiling(TfLiteDelegate* delegate, int on) {
  Of(delegate)->SetProfiling(on != 0);
}

// JSON list of {node, op, kernel, calls, total_ns}; node -1 is a layout conversion.
LITESMITH_EXPORT size_t litesmith_delegate_profile(TfLiteDelegate* delegate, char* buffer, size_t size) {
  return CopyOut(Of(delegate)->ProfileJson(), buffer, size);
}

// Copies the oldest recorded runs of operators to `events` and forgets them; returns how many. With null: how many there
// are. An event is {int64 start_ns, int64 duration_ns, char* op, char* kernel, int64 node} on CLOCK_MONOTONIC.
LITESMITH_EXPORT size_t litesmith_delegate_events(TfLiteDelegate* delegate, void* events, size_t capacity) {
  return Of(delegate)->TakeEvents(static_cast<litesmith::OpEvent*>(events), capacity);
}

// JSON list of {graph, node, op, taken, note} for the graphs offered so far, in their order.
LITESMITH_EXPORT size_t litesmith_delegate_decisions(TfLiteDelegate* delegate, char* buffer, size_t size) {
  return CopyOut(Of(delegate)->DecisionsJson(), buffer, size);
}

// The tier chosen for this delegate, or "none".
LITESMITH_EXPORT const char* litesmith_delegate_isa(TfLiteDelegate* delegate) {
  return Of(delegate)->has_kernels() ? Of(delegate)->kernels().tier : "none";
}
