// SPDX-License-Identifier: Apache-2.0
// The options a user passes to load_delegate.
#ifndef LITESMITH_CORE_OPTIONS_H_
#define LITESMITH_CORE_OPTIONS_H_

#include <cstddef>
#include <string>

namespace litesmith {

struct Options {
  int num_threads = 0;       // 0: the interpreter's own number
  std::string isa = "auto";  // or the name of a tier
  bool int16 = true;         // take int16x8 operators
  bool sparse = true;        // take pruned float operators
  enum class Choice { kOff, kAuto, kOn };
  Choice hybrid = Choice::kAuto;   // multiply the floats of an operator in integers; auto: where it pays
  Choice relaxed = Choice::kAuto;  // also by float weights; auto: where the model's metadata allow less precision
  bool verbose = false;      // say on stderr what is taken and why the rest is not
  int only_node = -1;        // take this node alone; for tests
};

// Returns an empty string, or what is wrong with which option.
std::string ParseOptions(const char* const* keys, const char* const* values, size_t count, Options* options);

}  // namespace litesmith

#endif  // LITESMITH_CORE_OPTIONS_H_
