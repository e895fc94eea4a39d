// SPDX-License-Identifier: Apache-2.0
// Questions about the whole graph: may its structures be trusted, and what do DENSIFY nodes unpack.
#ifndef LITESMITH_CORE_GRAPH_H_
#define LITESMITH_CORE_GRAPH_H_

#include <string>

#include "core/node_view.h"

namespace litesmith {

// Reads the graph through the structures of abi/tflite_abi.h and checks that everything found makes sense: tensor
// types, ranks, sizes that agree with shapes, operator codes, indices. Empty, or what looked wrong; then the runtime
// has another layout than this library was built for and nothing may be claimed.
std::string CheckAbi(TfLiteContext* context);

// A copy: the runtime frees the array it hands out at the next question.
std::vector<int> ExecutionPlan(TfLiteContext* context);

DensifyMap FindDensified(TfLiteContext* context);

// The DENSIFY nodes, and DEQUANTIZE nodes behind them, of which all consumers are taken: unpacked, their values would only
// take memory.
std::vector<int> UnreadDensify(TfLiteContext* context, const std::vector<int>& plan, const DensifyMap& densified,
                               const std::vector<int>& taken);

}  // namespace litesmith

#endif  // LITESMITH_CORE_GRAPH_H_
