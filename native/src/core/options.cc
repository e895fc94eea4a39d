// SPDX-License-Identifier: Apache-2.0
// See options.h.
#include "core/options.h"

#include <cstdlib>

#include "kernels/registry.h"

namespace litesmith {
namespace {

std::string Bad(const std::string& key, const std::string& value, const std::string& wanted) {
  return "litesmith delegate: option '" + key + "' has value '" + value + "'; it takes " + wanted;
}

bool ParseInt(const std::string& text, int low, int high, int* out) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < low || value > high) return false;
  *out = static_cast<int>(value);
  return true;
}

bool ParseBool(const std::string& text, bool* out) {
  if (text == "1" || text == "true" || text == "True" || text == "on") {
    *out = true;
  } else if (text == "0" || text == "false" || text == "False" || text == "off") {
    *out = false;
  } else {
    return false;
  }
  return true;
}

bool ParseChoice(const std::string& text, Options::Choice* out) {
  bool on = true;
  if (text != "auto" && !ParseBool(text, &on)) return false;
  *out = text == "auto" ? Options::Choice::kAuto : on ? Options::Choice::kOn : Options::Choice::kOff;
  return true;
}

}  // namespace

std::string ParseOptions(const char* const* keys, const char* const* values, size_t count, Options* options) {
  const std::string on_off = "1/0, true/false or on/off";
  for (size_t i = 0; i < count; ++i) {
    const std::string key = keys[i];
    const std::string value = values[i];
    if (key == "num_threads") {
      if (!ParseInt(value, 0, 256, &options->num_threads)) return Bad(key, value, "0 (the interpreter's) to 256");
    } else if (key == "isa") {
      if (value != "auto" && FindTier(value) == nullptr) return Bad(key, value, "auto or one of: " + TierNames());
      options->isa = value;
    } else if (key == "int16") {
      if (!ParseBool(value, &options->int16)) return Bad(key, value, on_off);
    } else if (key == "sparse") {
      if (!ParseBool(value, &options->sparse)) return Bad(key, value, on_off);
    } else if (key == "hybrid" || key == "relaxed") {
      if (!ParseChoice(value, key == "hybrid" ? &options->hybrid : &options->relaxed)) return Bad(key, value, "auto, " + on_off);
    } else if (key == "verbose") {
      if (!ParseBool(value, &options->verbose)) return Bad(key, value, on_off);
    } else if (key == "only_node") {
      if (!ParseInt(value, -1, 1 << 30, &options->only_node)) return Bad(key, value, "a node index, or -1 for all");
    } else {
      return "litesmith delegate: unknown option '" + key + "'; known: num_threads, isa, int16, sparse, hybrid, relaxed, verbose, only_node";
    }
  }
  return "";
}

}  // namespace litesmith
