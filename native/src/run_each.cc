// SPDX-License-Identifier: Apache-2.0
// Many runs of a compiled model in one call: copies, runs and checks without an interpreter's work in between.
#include <cstdint>
#include <cstring>

namespace {

// LiteRT's LiteRtRunCompiledModel and LiteRtGetCompiledModelOutputTensorLayouts.
using RunFn = int(void* compiled, size_t signature, size_t num_inputs, void* const* inputs, size_t num_outputs,
                  void* const* outputs);
using LayoutsFn = int(void* compiled, size_t signature, size_t num_layouts, void* layouts, bool update_allocation);

// An array of the model and the same of all samples, one behind the other.
struct Stack {
  uint8_t* of_model;
  uint8_t* of_samples;
  size_t bytes;  // of one sample
};

struct Runs {
  RunFn* run;
  LayoutsFn* read_layouts;
  void* compiled;
  size_t signature, num_inputs, num_outputs;
  void* const* inputs;
  void* const* outputs;
  void* layouts;
  const void* expected_layouts;
  size_t layout_bytes;
  size_t num_fed, num_kept;
  const Stack* fed;
  const Stack* kept;
};

}  // namespace

// Runs samples [begin, end). Returns the first that failed, with LiteRT's status; `end` if all went well. With the status
// 0 a sample failed because its outputs have another shape than those before.
extern "C" __attribute__((visibility("default"))) size_t litesmith_run_each(const Runs* runs, size_t begin, size_t end,
                                                                            int* status) {
  for (size_t sample = begin; sample < end; ++sample) {
    for (size_t i = 0; i < runs->num_fed; ++i) {
      const Stack& stack = runs->fed[i];
      std::memcpy(stack.of_model, stack.of_samples + sample * stack.bytes, stack.bytes);
    }
    *status = runs->run(runs->compiled, runs->signature, runs->num_inputs, runs->inputs, runs->num_outputs, runs->outputs);
    if (*status != 0) return sample;
    runs->read_layouts(runs->compiled, runs->signature, runs->num_outputs, runs->layouts, false);
    if (std::memcmp(runs->layouts, runs->expected_layouts, runs->layout_bytes) != 0) return sample;
    for (size_t i = 0; i < runs->num_kept; ++i) {
      const Stack& stack = runs->kept[i];
      std::memcpy(stack.of_samples + sample * stack.bytes, stack.of_model, stack.bytes);
    }
  }
  return end;
}
